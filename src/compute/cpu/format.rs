//! Weights as the kernels read them.
//!
//! A matrix is cut into tiles of 16 rows. Inside a tile the rows are interleaved by four weights: 64
//! bytes hold weights `4j .. 4j + 4` of row 0, then of row 1, ... so that one load feeds 16 rows and
//! no sum across lanes stands in the inner loop. Along a row, a tile is a chain of blocks of 32 or
//! 256 weights with the scales of its 16 rows side by side. It takes the file's bytes, or a little more where
//! small scales are widened to bytes: up to 3 % with six bits, 19 % in Q2_K.
//!
//! ```text
//! 32 weights x 16 rows, nibbles:   [j=0: r0 r1 .. r15][j=1][j=2][j=3]   low nibble 4j.., high nibble 16 + 4j..
//! fifth bit:                       byte (r, i), bit j -> weight 4j + i of row r
//! sixth and fifth bit (Q6_K):      two planes; byte (r, i), bits 2f.. -> weight 16h + 4f + i of row r
//! ```

use super::float8;
use super::levels::{Iq4Nl, Iq4Xs, Mxfp4};
use super::pairs::{Q2K, Q3K};
use super::simd::Simd;
use crate::compute::not_taken;
use crate::weights::BlockFormat;

/// Formats that have a tile layout here.
pub const FORMATS: [BlockFormat; 17] = [
    BlockFormat::F32,
    BlockFormat::F16,
    BlockFormat::BF16,
    BlockFormat::Q4_0,
    BlockFormat::Q4_1,
    BlockFormat::Q5_0,
    BlockFormat::Q5_1,
    BlockFormat::Q8_0,
    BlockFormat::Q2_K,
    BlockFormat::Q3_K,
    BlockFormat::Q4_K,
    BlockFormat::Q5_K,
    BlockFormat::Q6_K,
    BlockFormat::IQ4_NL,
    BlockFormat::IQ4_XS,
    BlockFormat::MXFP4,
    BlockFormat::F8,
];

/// Rows of a tile.
pub(super) const TILE: usize = 16;

/// One block format in its tile layout. Weights come in groups of 32 ("subs").
///
/// # Safety
/// Functions read inside the sub's block: `block` points to a whole one, `sub < SUBS`.
pub(super) trait Layout {
    /// Weights of a row in one block.
    const BLOCK: usize;
    /// Bytes of one block of 16 rows.
    const BYTES: usize;
    const SUBS: usize = Self::BLOCK / 32;
    /// Scales of a row in one sub: 1, or 2 for 16 weights each.
    const SCALES: usize = 1;
    /// Stored weights are unsigned; this is subtracted.
    const OFFSET: i32 = 0;
    /// Weights are bytes with a sign.
    const SIGNED: bool = false;
    /// A minimum is added for each scale.
    const HAS_MIN: bool = false;
    /// Vectors whose products fit 16 bits (see `Simd::dot`): 8 for 4 bits, 4 for 5, 2 for 6; 0 for whole
    /// bytes.
    const DOTS: usize;

    /// Weights `4j .. 4j + 4` of 16 rows; `J` below 8.
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, sub: usize) -> S::B;
    unsafe fn scale<S: Simd>(block: *const u8, sub: usize, which: usize) -> S::F;
    unsafe fn minimum<S: Simd>(_block: *const u8, _sub: usize, _which: usize) -> S::F {
        // SAFETY: no memory is touched; the instruction set is the caller's.
        unsafe { S::splat(0.0) }
    }

    /// Writes row `r`'s block (the file's bytes) into the tile's block.
    fn pack(source: &[u8], r: usize, block: &mut [u8]);
}

/// The formats with one scale for 32 weights: four or five bits, around zero or above a minimum.
pub(super) struct Block32<const FIFTH: bool, const MIN: bool>;
pub(super) type Q4_0 = Block32<false, false>;
pub(super) type Q4_1 = Block32<false, true>;
pub(super) type Q5_0 = Block32<true, false>;
pub(super) type Q5_1 = Block32<true, true>;
pub(super) struct Q8_0;
/// The formats with 6-bit scales and minima for 32 weights under two scales for 256.
pub(super) struct Block256<const FIFTH: bool>;
pub(super) type Q4K = Block256<false>;
pub(super) type Q5K = Block256<true>;
pub(super) struct Q6K;

/// Nibble vector `J` at `p`.
#[inline(always)]
pub(super) unsafe fn nibbles<S: Simd, const J: usize>(p: *const u8) -> S::B {
    // SAFETY: 256 bytes of nibbles lie at `p`, the layout's contract.
    unsafe {
        let both = S::load_bytes(p.add(64 * (J % 4)));
        if J < 4 { S::and(both, 15) } else { S::and(S::shift_right::<4>(both), 15) }
    }
}

/// Bit `J` of every byte of the plane at `p`, moved to bit 4.
#[inline(always)]
unsafe fn fifth_bit<S: Simd, const J: usize>(p: *const u8) -> S::B {
    // SAFETY: 64 bytes lie at `p`. Bits that cross bytes never reach bit 4.
    unsafe {
        let plane = S::load_bytes(p);
        let moved = match J {
            0 => S::shift_left::<4>(plane),
            1 => S::shift_left::<3>(plane),
            2 => S::shift_left::<2>(plane),
            3 => S::shift_left::<1>(plane),
            4 => plane,
            5 => S::shift_right::<1>(plane),
            6 => S::shift_right::<2>(plane),
            _ => S::shift_right::<3>(plane),
        };
        S::and(moved, 0x10)
    }
}

/// Nibble vector `J`, with the fifth bits behind the nibbles where there are some.
#[inline(always)]
unsafe fn nibbles_and_fifth<S: Simd, const J: usize, const FIFTH: bool>(p: *const u8) -> S::B {
    // SAFETY: the caller's block.
    unsafe {
        let low = nibbles::<S, J>(p);
        if FIFTH { S::or(low, fifth_bit::<S, J>(p.add(256))) } else { low }
    }
}

/// Bytes `8i .. 8i + 8`: packing works on eight weights at a time.
fn word(bytes: &[u8], i: usize) -> u64 {
    u64::from_le_bytes(bytes[8 * i..][..8].try_into().expect("eight bytes"))
}

/// Writes row `r`'s four bytes of vector `j`.
fn put(word: u32, j: usize, r: usize, out: &mut [u8]) {
    out[64 * j + 4 * r..][..4].copy_from_slice(&word.to_le_bytes());
}

/// Writes row `r`'s parts of vectors `j` and `j + 1`.
pub(super) fn put_two(word: u64, j: usize, r: usize, out: &mut [u8]) {
    put(word as u32, j, r, out);
    put((word >> 32) as u32, j + 1, r, out);
}

/// Copies 16 bytes of nibbles, low half first (ggml's order), to row `r`.
pub(super) fn pack_nibbles(source: &[u8], r: usize, out: &mut [u8]) {
    (0..2).for_each(|i| put_two(word(source, i), 2 * i, r, out));
}

/// The same for two subs that share 32 bytes, one as low nibbles and one as high ones; `at` says where
/// in `out` theirs go.
fn pack_shared_nibbles(source: &[u8], r: usize, out: &mut [u8], at: [usize; 2]) {
    const LOW: u64 = 0x0F0F_0F0F_0F0F_0F0F;
    for i in 0..2 {
        let (first, second) = (word(source, i), word(source, 2 + i));
        put_two(first & LOW | (second & LOW) << 4, 2 * i, r, &mut out[at[0]..]);
        put_two(first >> 4 & LOW | second & !LOW, 2 * i, r, &mut out[at[1]..]);
    }
}

/// By a byte of Q5_0's bits, eight weights: bit `4f + i` moved to bit `f` of byte `i`.
static FIFTH_BITS: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 8 * 256 {
        let (byte, bit) = (at / 8, at % 8);
        table[byte] |= (byte as u32 >> bit & 1) << (8 * (bit % 4) + bit / 4);
        at += 1;
    }
    table
};

/// Bit `k` of the four bytes is weight `k`'s fifth bit.
fn pack_fifth_bits(bits: &[u8], r: usize, out: &mut [u8]) {
    let fifth = |f: usize| FIFTH_BITS[bits[f] as usize] << (2 * f);
    put(fifth(0) | fifth(1) | fifth(2) | fifth(3), 0, r, out);
}

/// Bit `sub` of byte `k` is weight `k`'s fifth bit.
pub(super) fn pack_split_fifth_bits(source: &[u8], sub: usize, r: usize, out: &mut [u8]) {
    // Of vectors 2i and 2i + 1.
    let fifth = |i| (word(source, i) >> sub & 0x0101_0101_0101_0101) << (2 * i);
    let all = (0..4).fold(0, |all, i| all | fifth(i));
    put(all as u32 | ((all >> 32) as u32) << 1, 0, r, out);
}

/// Turns the 4 x 4 pairs of bits of every byte: pair `q` of word `f` becomes pair `f` of word `q`.
fn transpose_pairs([a, b, c, d]: [u64; 4]) -> [u64; 4] {
    fn swap<const SHIFT: u32>(a: u64, b: u64, mask: u64) -> (u64, u64) {
        let different = (a >> SHIFT ^ b) & mask;
        (a ^ different << SHIFT, b ^ different)
    }
    const FIRST: u64 = 0x0F0F_0F0F_0F0F_0F0F;
    const EVEN: u64 = 0x3333_3333_3333_3333;
    let ((a, c), (b, d)) = (swap::<4>(a, c, FIRST), swap::<4>(b, d, FIRST));
    let ((a, b), (c, d)) = (swap::<2>(a, b, EVEN), swap::<2>(c, d, EVEN));
    [a, b, c, d]
}

/// From 32 bytes, in which run `q` of 32 weights has its bit pairs at bits `2q` ..: of each run the two planes.
pub(super) fn pair_planes(source: &[u8]) -> [u64; 4] {
    // Weights 4f .. and, above them, 16 + 4f ..
    let low = |x: u64| x & 0xFFFF_FFFF;
    let [a, b, c, d] = std::array::from_fn(|i| word(source, i));
    transpose_pairs([
        low(a) | c << 32,
        a >> 32 | c & !0xFFFF_FFFF,
        low(b) | d << 32,
        b >> 32 | d & !0xFFFF_FFFF,
    ])
}

pub(super) fn pack_half(source: &[u8], r: usize, out: &mut [u8]) {
    out[2 * r..][..2].copy_from_slice(&source[..2]);
}

/// `[nibbles 256][fifth bits 64, if any][scales 32][minima 32, if any]`
impl<const FIFTH: bool, const MIN: bool> Block32<FIFTH, MIN> {
    const SCALE: usize = if FIFTH { 256 + 64 } else { 256 };
}

impl<const FIFTH: bool, const MIN: bool> Layout for Block32<FIFTH, MIN> {
    const BLOCK: usize = 32;
    const BYTES: usize = Self::SCALE + if MIN { 64 } else { 32 };
    const OFFSET: i32 = if MIN { 0 } else { 1 << (3 + FIFTH as i32) };
    const HAS_MIN: bool = MIN;
    const DOTS: usize = if FIFTH { 4 } else { 8 };
    #[inline(always)]
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, _: usize) -> S::B {
        // SAFETY: the caller's block.
        unsafe { nibbles_and_fifth::<S, J, FIFTH>(block) }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(block: *const u8, _: usize, _: usize) -> S::F {
        // SAFETY: the caller's block.
        unsafe { S::load_f16(block.add(Self::SCALE).cast()) }
    }
    #[inline(always)]
    unsafe fn minimum<S: Simd>(block: *const u8, _: usize, _: usize) -> S::F {
        // SAFETY: the caller's block, which has minima where they are asked for.
        unsafe { if MIN { S::load_f16(block.add(Self::SCALE + 32).cast()) } else { S::splat(0.0) } }
    }
    /// The file has the scale, the minimum, the fifth bits, the nibbles.
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        let (scales, rest) = source.split_at(if MIN { 4 } else { 2 });
        pack_half(scales, r, &mut block[Self::SCALE..]);
        if MIN {
            pack_half(&scales[2..], r, &mut block[Self::SCALE + 32..]);
        }
        let (fifth, nibbles) = rest.split_at(if FIFTH { 4 } else { 0 });
        pack_nibbles(nibbles, r, block);
        if FIFTH {
            pack_fifth_bits(fifth, r, &mut block[256..]);
        }
    }
}

impl Layout for Q8_0 {
    const BLOCK: usize = 32;
    const BYTES: usize = 512 + 32;
    const SIGNED: bool = true;
    const DOTS: usize = 0;
    #[inline(always)]
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, _: usize) -> S::B {
        // SAFETY: the caller's block.
        unsafe { S::load_bytes(block.add(64 * J)) }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(block: *const u8, _: usize, _: usize) -> S::F {
        // SAFETY: the caller's block.
        unsafe { S::load_f16(block.add(512).cast()) }
    }
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        (0..4).for_each(|i| put_two(word(&source[2..], i), 2 * i, r, block));
        pack_half(source, r, &mut block[512..]);
    }
}

/// `[d 32][dmin 32]`, then for each sub `[nibbles 256][fifth bits 64, if any][scales u8][minima u8]`.
/// dmin is stored negated, so that the minimum is added.
impl<const FIFTH: bool> Block256<FIFTH> {
    const HEAD: usize = 64;
    const SCALE: usize = if FIFTH { 256 + 64 } else { 256 };
    const SUB: usize = Self::SCALE + 32;
}

impl<const FIFTH: bool> Layout for Block256<FIFTH> {
    const BLOCK: usize = 256;
    const BYTES: usize = Self::HEAD + 8 * Self::SUB;
    const HAS_MIN: bool = true;
    const DOTS: usize = if FIFTH { 4 } else { 8 };
    #[inline(always)]
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, sub: usize) -> S::B {
        // SAFETY: the caller's block.
        unsafe { nibbles_and_fifth::<S, J, FIFTH>(block.add(Self::HEAD + sub * Self::SUB)) }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(block: *const u8, sub: usize, _: usize) -> S::F {
        // SAFETY: the caller's block.
        unsafe {
            let scales = block.add(Self::HEAD + sub * Self::SUB + Self::SCALE);
            S::mul(S::load_f16(block.cast()), S::load_u8(scales))
        }
    }
    #[inline(always)]
    unsafe fn minimum<S: Simd>(block: *const u8, sub: usize, _: usize) -> S::F {
        // SAFETY: the caller's block.
        unsafe {
            let minima = block.add(Self::HEAD + sub * Self::SUB + Self::SCALE + 16);
            S::mul(S::load_f16(block.add(32).cast()), S::load_u8(minima))
        }
    }
    /// The file has d, dmin, 12 bytes of scales and minima, the fifth bits, the nibbles.
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        pack_half(source, r, block);
        pack_half(&[source[2], source[3] ^ 0x80], r, &mut block[32..]);
        let (fifth, nibbles) = source[16..].split_at(if FIFTH { 32 } else { 0 });
        let at = |sub: usize| Self::HEAD + sub * Self::SUB;
        for sub in (0..8).step_by(2) {
            pack_shared_nibbles(&nibbles[16 * sub..][..32], r, block, [at(sub), at(sub + 1)]);
        }
        for sub in 0..8 {
            let out = &mut block[at(sub)..][..Self::SUB];
            if FIFTH {
                pack_split_fifth_bits(fifth, sub, r, &mut out[256..]);
            }
            (out[Self::SCALE + r], out[Self::SCALE + 16 + r]) = k_scale_min(&source[4..], sub);
        }
    }
}

impl Layout for Q6K {
    const BLOCK: usize = 256;
    const BYTES: usize = 32 + 8 * (256 + 128 + 32);
    const SCALES: usize = 2;
    const OFFSET: i32 = 32;
    const DOTS: usize = 2;
    #[inline(always)]
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, sub: usize) -> S::B {
        // SAFETY: the caller's block. Bits that cross bytes never reach bits 4 and 5.
        unsafe {
            let p = block.add(32 + sub * 416);
            let plane = S::load_bytes(p.add(256 + 64 * (J / 4)));
            let moved = match J % 4 {
                0 => S::shift_left::<4>(plane),
                1 => S::shift_left::<2>(plane),
                2 => plane,
                _ => S::shift_right::<2>(plane),
            };
            S::or(nibbles::<S, J>(p), S::and(moved, 0x30))
        }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(block: *const u8, sub: usize, which: usize) -> S::F {
        // SAFETY: the caller's block.
        unsafe {
            let scales = block.add(32 + sub * 416 + 384 + 16 * which);
            S::mul(S::load_f16(block.cast()), S::load_i8(scales.cast()))
        }
    }
    /// The file has 128 bytes of nibbles, 64 of the two high bits, 16 of scales, d. Each half of the
    /// block, 128 weights, has half of them: its subs 0 and 2, and 1 and 3, share bytes as low and high
    /// nibbles; all four share bytes as pairs of high bits.
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        let (nibbles, rest) = source.split_at(128);
        let (high, rest) = rest.split_at(64);
        for half in 0..2 {
            let at = |quarter: usize| 32 + (4 * half + quarter) * 416;
            for quarter in 0..2 {
                let nibbles = &nibbles[64 * half + 32 * quarter..][..32];
                pack_shared_nibbles(nibbles, r, block, [at(quarter), at(quarter + 2)]);
            }
            for (quarter, planes) in pair_planes(&high[32 * half..]).into_iter().enumerate() {
                put_two(planes, 4, r, &mut block[at(quarter)..]);
                let scales = &rest[2 * (4 * half + quarter)..];
                block[at(quarter) + 384 + r] = scales[0];
                block[at(quarter) + 400 + r] = scales[1];
            }
        }
        pack_half(&rest[16..], r, block);
    }
}

/// Six-bit scale and minimum of sub `sub` from the 12 bytes they share.
fn k_scale_min(packed: &[u8], sub: usize) -> (u8, u8) {
    if sub < 4 {
        (packed[sub] & 63, packed[sub + 4] & 63)
    } else {
        let low = packed[sub + 4];
        ((low & 15) | (packed[sub - 4] >> 6) << 4, (low >> 4) | (packed[sub] >> 6) << 4)
    }
}

/// Whether it is multiplied with the activations' bytes, not with the activations as they are.
pub(super) fn takes_bytes(format: BlockFormat) -> bool {
    format.block_len() > 1 && format != BlockFormat::F8
}

/// Bytes a tile of 16 rows of `cols` weights takes; `cols` is a multiple of the block.
pub(super) fn tile_bytes(format: BlockFormat, cols: usize) -> usize {
    macro_rules! of {
        ($layout:ty) => {
            cols / <$layout>::BLOCK * <$layout>::BYTES
        };
    }
    match format {
        BlockFormat::F32 => 64 * cols,
        BlockFormat::F16 | BlockFormat::BF16 => 32 * cols,
        BlockFormat::Q4_0 => of!(Q4_0),
        BlockFormat::Q4_1 => of!(Q4_1),
        BlockFormat::Q5_0 => of!(Q5_0),
        BlockFormat::Q5_1 => of!(Q5_1),
        BlockFormat::Q8_0 => of!(Q8_0),
        BlockFormat::Q4_K => of!(Q4K),
        BlockFormat::Q5_K => of!(Q5K),
        BlockFormat::Q6_K => of!(Q6K),
        BlockFormat::Q2_K => of!(Q2K),
        BlockFormat::Q3_K => of!(Q3K),
        BlockFormat::IQ4_NL => of!(Iq4Nl),
        BlockFormat::IQ4_XS => of!(Iq4Xs),
        BlockFormat::MXFP4 => of!(Mxfp4),
        BlockFormat::F8 => cols / 32 * float8::BYTES,
        other => not_taken(other),
    }
}

/// Packs up to 16 rows (`rows` holds their bytes one after the other) into one zeroed tile.
pub(super) fn pack_tile(format: BlockFormat, rows: &[u8], cols: usize, tile: &mut [u8]) {
    macro_rules! blocks {
        ($layout:ty, $format:ident) => {
            pack_rows::<$layout, { BlockFormat::$format.block_bytes() }>(rows, cols, tile)
        };
    }
    match format {
        BlockFormat::F32 => pack_floats::<4>(rows, cols, tile),
        BlockFormat::F16 | BlockFormat::BF16 => pack_floats::<2>(rows, cols, tile),
        BlockFormat::Q4_0 => blocks!(Q4_0, Q4_0),
        BlockFormat::Q4_1 => blocks!(Q4_1, Q4_1),
        BlockFormat::Q5_0 => blocks!(Q5_0, Q5_0),
        BlockFormat::Q5_1 => blocks!(Q5_1, Q5_1),
        BlockFormat::Q8_0 => blocks!(Q8_0, Q8_0),
        BlockFormat::Q4_K => blocks!(Q4K, Q4_K),
        BlockFormat::Q5_K => blocks!(Q5K, Q5_K),
        BlockFormat::Q6_K => blocks!(Q6K, Q6_K),
        BlockFormat::Q2_K => blocks!(Q2K, Q2_K),
        BlockFormat::Q3_K => blocks!(Q3K, Q3_K),
        BlockFormat::IQ4_NL => blocks!(Iq4Nl, IQ4_NL),
        BlockFormat::IQ4_XS => blocks!(Iq4Xs, IQ4_XS),
        BlockFormat::MXFP4 => blocks!(Mxfp4, MXFP4),
        BlockFormat::F8 => float8::pack(rows, cols, tile),
        other => not_taken(other),
    }
}

/// `BYTES` are those of a block in the file. Block after block of the tile, so that it is in the
/// nearest cache while its 16 rows are written.
fn pack_rows<L: Layout, const BYTES: usize>(rows: &[u8], cols: usize, tile: &mut [u8]) {
    let blocks = cols / L::BLOCK;
    for (b, block) in tile.chunks_exact_mut(L::BYTES).enumerate() {
        for (r, row) in rows.chunks_exact(blocks * BYTES).enumerate().take(TILE) {
            L::pack(&row[b * BYTES..][..BYTES], r, block);
        }
    }
}

/// Column after column, 16 numbers each.
fn pack_floats<const SIZE: usize>(rows: &[u8], cols: usize, tile: &mut [u8]) {
    for (r, row) in rows.chunks_exact(SIZE * cols).enumerate() {
        for (source, column) in row.chunks_exact(SIZE).zip(tile.chunks_exact_mut(SIZE * TILE)) {
            column[SIZE * r..][..SIZE].copy_from_slice(source);
        }
    }
}
