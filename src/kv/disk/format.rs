use super::CacheKey;

/// Bytes before the payload.
///
/// ```text
/// offset  bytes  what
///      0      8  "glasskv\0"
///      8      4  version
///     12     36  key
///     48     32  identity: SHA-256 of what the payload depends on
///     80      8  length of the payload
///     88      8  checksum of all before, and of the payload
/// ```
/// Numbers are little-endian.
pub const HEADER_BYTES: usize = 96;

pub const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"glasskv\0";

/// The one header that a file with this key and payload may have: to check a file is to compare.
///
/// The checksum is XXH64, because a block must not cost more to check than to read (SHA-256 does,
/// where the processor has no instructions for it). Each of its steps is a bijection of the state for
/// a given word, and of the word for a given state, so damage within one aligned word of 8 bytes is
/// always seen; of other damage, one in 2^64 passes. It guards against accidents only: who may write
/// to the folder could forge any checksum that needs no secret.
pub fn header(key: &CacheKey, identity: &[u8; 32], payload: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..48].copy_from_slice(key.as_bytes());
    header[48..80].copy_from_slice(identity);
    header[80..88].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    let sum = xxh64(payload, xxh64(&header[..88], 0));
    header[88..].copy_from_slice(&sum.to_le_bytes());
    header
}

const PRIMES: [u64; 5] =
    [0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5];

/// Source: the xxHash specification, "XXH64 algorithm description".
fn xxh64(bytes: &[u8], seed: u64) -> u64 {
    let [p1, p2, p3, p4, p5] = PRIMES;
    let (stripes, rest) = bytes.as_chunks::<32>();
    let mut hash = if stripes.is_empty() {
        seed.wrapping_add(p5)
    } else {
        let mut lanes =
            [seed.wrapping_add(p1).wrapping_add(p2), seed.wrapping_add(p2), seed, seed.wrapping_sub(p1)];
        for stripe in stripes {
            for (lane, word) in lanes.iter_mut().zip(stripe.as_chunks::<8>().0) {
                *lane = round(*lane, u64::from_le_bytes(*word));
            }
        }
        let [a, b, c, d] = lanes;
        let turned = [a.rotate_left(1), b.rotate_left(7), c.rotate_left(12), d.rotate_left(18)];
        let sum = turned.into_iter().fold(0, u64::wrapping_add);
        lanes.into_iter().fold(sum, |sum, lane| (sum ^ round(0, lane)).wrapping_mul(p1).wrapping_add(p4))
    };
    hash = hash.wrapping_add(bytes.len() as u64);
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        hash ^= round(0, u64::from_le_bytes(*word));
        hash = hash.rotate_left(27).wrapping_mul(p1).wrapping_add(p4);
    }
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        hash ^= u64::from(u32::from_le_bytes(*half)).wrapping_mul(p1);
        hash = hash.rotate_left(23).wrapping_mul(p2).wrapping_add(p3);
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte).wrapping_mul(p5)).rotate_left(11).wrapping_mul(p1);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(p2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(p3);
    hash ^ (hash >> 32)
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(PRIMES[1])).rotate_left(31).wrapping_mul(PRIMES[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_published_one() {
        for (text, sum) in [
            ("", 0xEF46DB3751D8E999),
            ("a", 0xD24EC4F1A98C6E5B),
            ("abc", 0x44BC2CF5AD770999),
            ("Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
        ] {
            assert_eq!(xxh64(text.as_bytes(), 0), sum, "{text:?}");
        }
    }

    #[test]
    fn every_bit_of_key_identity_and_payload_changes_the_header() {
        let (key, identity, payload) = (CacheKey::from_bytes([1; 36]), [2; 32], [3; 77]);
        let whole = header(&key, &identity, &payload);
        let sum = |header: [u8; HEADER_BYTES]| header[88..].to_vec();
        for bit in 0..8 * payload.len() {
            let mut other = payload;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(sum(header(&key, &identity, &other)), sum(whole), "bit {bit}");
        }
        let mut other = *key.as_bytes();
        other[35] ^= 1;
        assert_ne!(sum(header(&CacheKey::from_bytes(other), &identity, &payload)), sum(whole));
        let mut other = identity;
        other[0] ^= 0x80;
        assert_ne!(sum(header(&key, &other, &payload)), sum(whole));
        assert_ne!(sum(header(&key, &identity, &payload[..76])), sum(whole));
    }
}
