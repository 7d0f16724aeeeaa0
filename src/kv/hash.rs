use crate::protocol::KvHash;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Names the content of a full block: its tokens, every token before them, and what else makes
/// the keys and values differ. SHA-256, so that equal names may be trusted to mean equal content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash([u8; 32]);

/// The past of a first block. Fixed, so that the same prompt has the same name in every run.
const NO_PARENT: [u8; 32] = *b"glassbox: nothing comes before  ";

impl BlockHash {
    /// The token count is hashed before the tokens, so that no token can pass for a part of `extra`.
    fn of(parent: Option<&BlockHash>, tokens: &[u32], extra: &[u8]) -> Self {
        let mut sha = Sha256::new();
        sha.update(parent.map_or(NO_PARENT, |hash| hash.0));
        sha.update((tokens.len() as u64).to_le_bytes());
        for token in tokens {
            sha.update(token.to_le_bytes());
        }
        sha.update(extra);
        BlockHash(sha.finalize().into())
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The low 64 bits, the hash read as one big-endian number.
    pub fn short(&self) -> KvHash {
        let [.., a, b, c, d, e, f, g, h] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// What a block is found by: its hash, then the cache group it belongs to as a big-endian number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheKey([u8; 36]);

impl CacheKey {
    pub fn new(hash: &BlockHash, group: usize) -> Self {
        let mut bytes = [0; 36];
        bytes[..32].copy_from_slice(&hash.0);
        bytes[32..].copy_from_slice(&(group as u32).to_be_bytes());
        CacheKey(bytes)
    }

    pub fn from_bytes(bytes: [u8; 36]) -> Self {
        CacheKey(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 36] {
        &self.0
    }

    pub fn hash(&self) -> BlockHash {
        let mut hash = [0; 32];
        hash.copy_from_slice(&self.0[..32]);
        BlockHash(hash)
    }

    pub fn group(&self) -> usize {
        let [.., a, b, c, d] = self.0;
        u32::from_be_bytes([a, b, c, d]) as usize
    }
}

impl std::fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}/{}", self.hash().short(), self.group())
    }
}

/// What makes keys and values differ where the tokens are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExtraKeys {
    /// Name and path of an adapter: two files may go by one name.
    pub lora: Option<(String, String)>,
    /// Keeps the prompts of one tenant apart from those of another.
    pub cache_salt: Option<String>,
    /// Tells apart how keys are turned, where that depends on the sequence; 0 is the usual way.
    pub rope: u64,
}

impl ExtraKeys {
    /// Each part has a tag and each text its length, so that no adapter can be named like a salt.
    /// Salt and rope stand in the first block only: all others descend from it.
    fn encode(&self, first: bool) -> Box<[u8]> {
        let mut bytes = Vec::new();
        let mut text = |tag: u8, text: &str| {
            bytes.push(tag);
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text.as_bytes());
        };
        if let Some((name, path)) = &self.lora {
            text(1, name);
            text(2, path);
        }
        if let Some(salt) = self.cache_salt.as_ref().filter(|_| first) {
            text(3, salt);
        }
        if self.rope != 0 && first {
            bytes.push(4);
            bytes.extend(self.rope.to_le_bytes());
        }
        bytes.into()
    }
}

/// The hashes of a sequence's full blocks, extended as its tokens grow.
#[derive(Clone, Debug)]
pub struct HashChain {
    block_size: usize,
    extra: Arc<Encoded>,
    hashes: Vec<BlockHash>,
}

#[derive(Debug)]
struct Encoded {
    keys: ExtraKeys,
    first: Box<[u8]>,
    later: Box<[u8]>,
    namespace: u64,
}

impl HashChain {
    pub fn new(block_size: usize, keys: ExtraKeys) -> Self {
        let (first, later) = (keys.encode(true), keys.encode(false));
        let namespace = if first.is_empty() { 0 } else { BlockHash::of(None, &[], &first).short() };
        Self { block_size, extra: Arc::new(Encoded { keys, first, later, namespace }), hashes: Vec::new() }
    }

    /// Hashes the blocks of `tokens` that became full. `tokens` is the whole sequence, and only
    /// ever grows.
    pub fn extend(&mut self, tokens: &[u32]) {
        let done = self.hashes.len() * self.block_size;
        for block in tokens.get(done..).unwrap_or_default().chunks_exact(self.block_size) {
            let parent = self.hashes.last();
            let extra = if parent.is_none() { &self.extra.first } else { &self.extra.later };
            self.hashes.push(BlockHash::of(parent, block, extra));
        }
    }

    /// The same tokens with keys that are turned in another way.
    pub fn turn(&mut self, rope: u64, tokens: &[u32]) {
        if self.extra.keys.rope != rope {
            *self = Self::new(self.block_size, ExtraKeys { rope, ..self.extra.keys.clone() });
            self.extend(tokens);
        }
    }

    /// Back to the blocks that the first `tokens` tokens fill: what follows will be other tokens.
    pub fn truncate(&mut self, tokens: usize) {
        self.hashes.truncate(tokens / self.block_size);
    }

    /// Of full blocks, first block first.
    pub fn hashes(&self) -> &[BlockHash] {
        &self.hashes
    }

    /// Equal for sequences whose equal tokens mean equal content; 0 without adapter and salt.
    pub fn namespace(&self) -> u64 {
        self.extra.namespace
    }

    pub fn lora_name(&self) -> Option<&str> {
        self.extra.keys.lora.as_ref().map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn salted(salt: &str) -> ExtraKeys {
        ExtraKeys { cache_salt: Some(salt.into()), ..ExtraKeys::default() }
    }

    fn adapter(name: &str, path: &str) -> ExtraKeys {
        ExtraKeys { lora: Some((name.into(), path.into())), ..ExtraKeys::default() }
    }

    fn chain(tokens: &[u32], keys: ExtraKeys) -> HashChain {
        let mut chain = HashChain::new(2, keys);
        chain.extend(tokens);
        chain
    }

    #[test]
    fn only_full_blocks_have_a_hash_and_growing_in_steps_changes_nothing() {
        let tokens: Vec<u32> = (0..11).collect();
        let mut whole = HashChain::new(4, ExtraKeys::default());
        whole.extend(&tokens);
        assert_eq!(whole.hashes().len(), 2);
        let mut stepwise = HashChain::new(4, ExtraKeys::default());
        (0..=tokens.len()).for_each(|len| stepwise.extend(&tokens[..len]));
        assert_eq!(whole.hashes(), stepwise.hashes());
        stepwise.truncate(7);
        stepwise.extend(&[0, 1, 2, 3, 9, 9, 9, 9]);
        assert_eq!(stepwise.hashes()[0], whole.hashes()[0]);
        assert_ne!(stepwise.hashes()[1], whole.hashes()[1]);
    }

    #[test]
    fn the_same_tokens_after_another_past_are_another_block() {
        let last = |tokens: &[u32]| *chain(tokens, ExtraKeys::default()).hashes().last().expect("full");
        assert_eq!(last(&[1, 2, 3, 4]), last(&[1, 2, 3, 4]));
        assert_ne!(last(&[1, 2, 3, 4]), last(&[9, 2, 3, 4]));
        assert_ne!(last(&[1, 2, 3, 4]), last(&[3, 4]));
        assert_ne!(BlockHash::of(None, &[1], &2u32.to_le_bytes()), BlockHash::of(None, &[1, 2], b""));
    }

    /// The seed of the chain and the encoding are stored on disk by name: they must never change.
    #[test]
    fn names_are_the_same_in_every_run() {
        let plain = chain(&[1, 2, 3, 4], ExtraKeys::default());
        let again = chain(&[1, 2, 3, 4], ExtraKeys::default());
        assert_eq!((plain.hashes(), plain.namespace()), (again.hashes(), 0));
        let by_hand = {
            let mut sha = Sha256::new();
            sha.update(b"glassbox: nothing comes before  ");
            sha.update(2u64.to_le_bytes());
            sha.update([1, 0, 0, 0, 2, 0, 0, 0]);
            sha.finalize()
        };
        assert_eq!(plain.hashes()[0].as_bytes()[..], by_hand[..]);
    }

    /// K05, and a salt of one tenant: every block of the prompt gets another name.
    #[test]
    fn k05_adapters_and_salts_share_no_block_with_each_other_or_with_none() {
        let prompt = [1, 2, 3, 4];
        let kinds = [
            ExtraKeys::default(),
            adapter("a", "/x"),
            adapter("b", "/x"),
            adapter("a", "/y"),
            salted("a"),
            ExtraKeys { cache_salt: Some("a".into()), ..adapter("a", "/x") },
        ];
        let chains: Vec<_> = kinds.iter().map(|keys| chain(&prompt, keys.clone())).collect();
        for (i, a) in chains.iter().enumerate() {
            for b in &chains[..i] {
                assert!(a.hashes().iter().zip(b.hashes()).all(|(a, b)| a != b));
                assert_ne!(a.namespace(), b.namespace());
            }
        }
    }

    /// BUGLOG A04: keys that are turned otherwise are never found, and those turned alike are again.
    #[test]
    fn keys_that_are_turned_otherwise_have_other_names() {
        let tokens: Vec<u32> = (0..12).collect();
        let mut chain = HashChain::new(4, salted("a"));
        chain.extend(&tokens);
        let short = chain.hashes().to_vec();
        chain.turn(1, &tokens);
        assert!(chain.hashes().len() == 3 && chain.hashes().iter().all(|hash| !short.contains(hash)));
        assert_ne!(chain.namespace(), HashChain::new(4, salted("a")).namespace());
        chain.turn(0, &tokens);
        assert_eq!(chain.hashes(), short);
    }

    #[test]
    fn an_adapter_named_like_a_salt_does_not_collide_with_it() {
        // The same letters, split otherwise between name and path, or between adapter and salt.
        let all = [adapter("ab", "c"), adapter("a", "bc"), salted("abc"), adapter("abc", "")];
        let names: std::collections::HashSet<_> =
            all.into_iter().map(|keys| chain(&[1, 2], keys).hashes()[0]).collect();
        assert_eq!(names.len(), 4);
    }

    #[test]
    fn a_key_is_the_hash_and_the_group() {
        let hash = chain(&[1, 2], ExtraKeys::default()).hashes()[0];
        let key = CacheKey::new(&hash, 258);
        assert_eq!((key.hash(), key.group(), &key.as_bytes()[32..]), (hash, 258, &[0, 0, 1, 2][..]));
        assert_eq!(CacheKey::from_bytes(*key.as_bytes()), key);
        assert_ne!(key, CacheKey::new(&hash, 0));
        assert_eq!(hash.short().to_be_bytes(), hash.as_bytes()[24..]);
    }
}
