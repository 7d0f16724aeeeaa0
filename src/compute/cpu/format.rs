//! Weights as the kernels read them.
//!
//! A matrix is cut into tiles of 16 rows. Inside a tile the rows are interleaved by four weights: 64
//! bytes hold weights `4j .. 4j + 4` of row 0, then of row 1, ... so that one load feeds 16 rows and
//! no sum across lanes stands in the inner loop. Along a row, a tile is a chain of blocks of 32 or
//! 256 weights with the scales of its 16 rows side by side. It takes the file's bytes, or up to 3 %
//! more where 6-bit scales are widened to bytes.
//!
//! ```text
//! 32 weights x 16 rows, nibbles:   [j=0: r0 r1 .. r15][j=1][j=2][j=3]   low nibble 4j.., high nibble 16 + 4j..
//! fifth bit:                       byte (r, i), bit j -> weight 4j + i of row r
//! sixth and fifth bit (Q6_K):      two planes; byte (r, i), bits 2f.. -> weight 16h + 4f + i of row r
//! ```

use super::simd::Simd;
use crate::weights::BlockFormat;

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
    /// Dot products that fit 16 bits (see `Simd::dot`), at most the 4 of one scale of activations.
    const DOTS: usize;

    /// Weights `4j .. 4j + 4` of 16 rows; `J` below 8.
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, sub: usize) -> S::B;
    unsafe fn scale<S: Simd>(block: *const u8, sub: usize, which: usize) -> S::F;
    unsafe fn minimum<S: Simd>(_block: *const u8, _sub: usize) -> S::F {
        // SAFETY: no memory is touched; the instruction set is the caller's.
        unsafe { S::splat(0.0) }
    }

    /// Writes row `r`'s block (the file's bytes) into the tile's block.
    fn pack(source: &[u8], r: usize, block: &mut [u8]);
}

pub(super) struct Q4_0;
pub(super) struct Q4_1;
pub(super) struct Q5_0;
pub(super) struct Q5_1;
pub(super) struct Q8_0;
pub(super) struct Q4K;
pub(super) struct Q5K;
pub(super) struct Q6K;

/// Nibble vector `J` at `p`.
#[inline(always)]
unsafe fn nibbles<S: Simd, const J: usize>(p: *const u8) -> S::B {
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

/// Copies 16 bytes of nibbles, low half first (ggml's order), to row `r`.
fn pack_nibbles(source: &[u8], r: usize, out: &mut [u8]) {
    for j in 0..4 {
        out[64 * j + 4 * r..][..4].copy_from_slice(&source[4 * j..][..4]);
    }
}

/// The same from 32 unpacked weights.
fn pack_low_nibbles(weights: &[u8], r: usize, out: &mut [u8]) {
    for j in 0..4 {
        for i in 0..4 {
            out[64 * j + 4 * r + i] = (weights[4 * j + i] & 15) | (weights[16 + 4 * j + i] & 15) << 4;
        }
    }
}

/// Bit `k` of `bits` is weight `k`'s fifth bit.
fn pack_fifth_bits(bits: u32, r: usize, out: &mut [u8]) {
    for i in 0..4 {
        out[4 * r + i] = (0..8).fold(0, |byte, j| byte | ((bits >> (4 * j + i) & 1) as u8) << j);
    }
}

fn pack_half(source: &[u8], r: usize, out: &mut [u8]) {
    out[2 * r..][..2].copy_from_slice(&source[..2]);
}

macro_rules! f16_at {
    ($block:ident, $offset:expr) => {
        // SAFETY: 16 halves lie at this offset of the block.
        unsafe { S::load_f16($block.add($offset).cast()) }
    };
}

impl Layout for Q4_0 {
    const BLOCK: usize = 32;
    const BYTES: usize = 256 + 32;
    const OFFSET: i32 = 8;
    const DOTS: usize = 4;
    #[inline(always)]
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, _: usize) -> S::B {
        // SAFETY: the caller's block.
        unsafe { nibbles::<S, J>(block) }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(block: *const u8, _: usize, _: usize) -> S::F {
        f16_at!(block, 256)
    }
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        pack_nibbles(&source[2..], r, block);
        pack_half(source, r, &mut block[256..]);
    }
}

impl Layout for Q4_1 {
    const BLOCK: usize = 32;
    const BYTES: usize = 256 + 64;
    const HAS_MIN: bool = true;
    const DOTS: usize = 4;
    #[inline(always)]
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, _: usize) -> S::B {
        // SAFETY: the caller's block.
        unsafe { nibbles::<S, J>(block) }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(block: *const u8, _: usize, _: usize) -> S::F {
        f16_at!(block, 256)
    }
    #[inline(always)]
    unsafe fn minimum<S: Simd>(block: *const u8, _: usize) -> S::F {
        f16_at!(block, 288)
    }
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        pack_nibbles(&source[4..], r, block);
        pack_half(source, r, &mut block[256..]);
        pack_half(&source[2..], r, &mut block[288..]);
    }
}

impl Layout for Q5_0 {
    const BLOCK: usize = 32;
    const BYTES: usize = 256 + 64 + 32;
    const OFFSET: i32 = 16;
    const DOTS: usize = 4;
    #[inline(always)]
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, _: usize) -> S::B {
        // SAFETY: the caller's block.
        unsafe { S::or(nibbles::<S, J>(block), fifth_bit::<S, J>(block.add(256))) }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(block: *const u8, _: usize, _: usize) -> S::F {
        f16_at!(block, 320)
    }
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        pack_nibbles(&source[6..], r, block);
        pack_fifth_bits(le_u32(&source[2..]), r, &mut block[256..]);
        pack_half(source, r, &mut block[320..]);
    }
}

impl Layout for Q5_1 {
    const BLOCK: usize = 32;
    const BYTES: usize = 256 + 64 + 64;
    const HAS_MIN: bool = true;
    const DOTS: usize = 4;
    #[inline(always)]
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, _: usize) -> S::B {
        // SAFETY: the caller's block.
        unsafe { S::or(nibbles::<S, J>(block), fifth_bit::<S, J>(block.add(256))) }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(block: *const u8, _: usize, _: usize) -> S::F {
        f16_at!(block, 320)
    }
    #[inline(always)]
    unsafe fn minimum<S: Simd>(block: *const u8, _: usize) -> S::F {
        f16_at!(block, 352)
    }
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        pack_nibbles(&source[8..], r, block);
        pack_fifth_bits(le_u32(&source[4..]), r, &mut block[256..]);
        pack_half(source, r, &mut block[320..]);
        pack_half(&source[2..], r, &mut block[352..]);
    }
}

impl Layout for Q8_0 {
    const BLOCK: usize = 32;
    const BYTES: usize = 512 + 32;
    const SIGNED: bool = true;
    const DOTS: usize = 4;
    #[inline(always)]
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, _: usize) -> S::B {
        // SAFETY: the caller's block.
        unsafe { S::load_bytes(block.add(64 * J)) }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(block: *const u8, _: usize, _: usize) -> S::F {
        f16_at!(block, 512)
    }
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        for j in 0..8 {
            for i in 0..4 {
                block[64 * j + 4 * r + i] = source[2 + 4 * j + i];
            }
        }
        pack_half(source, r, &mut block[512..]);
    }
}

/// Block of the K formats with minima: [d][dmin] then for each sub [nibbles .. ][scale u8][min u8].
const K_HEAD: usize = 64;

impl Layout for Q4K {
    const BLOCK: usize = 256;
    const BYTES: usize = K_HEAD + 8 * (256 + 32);
    const HAS_MIN: bool = true;
    const DOTS: usize = 4;
    #[inline(always)]
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, sub: usize) -> S::B {
        // SAFETY: the caller's block.
        unsafe { nibbles::<S, J>(block.add(K_HEAD + sub * 288)) }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(block: *const u8, sub: usize, _: usize) -> S::F {
        // SAFETY: the caller's block.
        unsafe { S::mul(S::load_f16(block.cast()), S::load_u8(block.add(K_HEAD + sub * 288 + 256))) }
    }
    #[inline(always)]
    unsafe fn minimum<S: Simd>(block: *const u8, sub: usize) -> S::F {
        // SAFETY: the caller's block. dmin is stored negated.
        unsafe { S::mul(S::load_f16(block.add(32).cast()), S::load_u8(block.add(K_HEAD + sub * 288 + 272))) }
    }
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        pack_k_head(source, r, block);
        for sub in 0..8 {
            let out = &mut block[K_HEAD + sub * 288..][..288];
            pack_low_nibbles(&k_nibbles(&source[16..], sub), r, out);
            (out[256 + r], out[272 + r]) = k_scale_min(&source[4..], sub);
        }
    }
}

impl Layout for Q5K {
    const BLOCK: usize = 256;
    const BYTES: usize = K_HEAD + 8 * (256 + 64 + 32);
    const HAS_MIN: bool = true;
    const DOTS: usize = 4;
    #[inline(always)]
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, sub: usize) -> S::B {
        // SAFETY: the caller's block.
        unsafe {
            let p = block.add(K_HEAD + sub * 352);
            S::or(nibbles::<S, J>(p), fifth_bit::<S, J>(p.add(256)))
        }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(block: *const u8, sub: usize, _: usize) -> S::F {
        // SAFETY: the caller's block.
        unsafe { S::mul(S::load_f16(block.cast()), S::load_u8(block.add(K_HEAD + sub * 352 + 320))) }
    }
    #[inline(always)]
    unsafe fn minimum<S: Simd>(block: *const u8, sub: usize) -> S::F {
        // SAFETY: the caller's block. dmin is stored negated.
        unsafe { S::mul(S::load_f16(block.add(32).cast()), S::load_u8(block.add(K_HEAD + sub * 352 + 336))) }
    }
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        pack_k_head(source, r, block);
        for sub in 0..8 {
            let out = &mut block[K_HEAD + sub * 352..][..352];
            pack_low_nibbles(&k_nibbles(&source[48..], sub), r, out);
            let bits = (0..32).fold(0, |bits, k| bits | u32::from(source[16 + k] >> sub & 1) << k);
            pack_fifth_bits(bits, r, &mut out[256..]);
            (out[320 + r], out[336 + r]) = k_scale_min(&source[4..], sub);
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
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        let weights = q6k_weights(source);
        for sub in 0..8 {
            let weights = &weights[32 * sub..][..32];
            let out = &mut block[32 + sub * 416..][..416];
            pack_low_nibbles(weights, r, out);
            for half in 0..2 {
                for i in 0..4 {
                    out[256 + 64 * half + 4 * r + i] =
                        (0..4).fold(0, |byte, f| byte | (weights[16 * half + 4 * f + i] >> 4) << (2 * f));
                }
                out[384 + 16 * half + r] = source[192 + 2 * sub + half];
            }
        }
        pack_half(&source[208..], r, block);
    }
}

fn le_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn pack_k_head(source: &[u8], r: usize, block: &mut [u8]) {
    pack_half(source, r, block);
    let negated = [source[2], source[3] ^ 0x80];
    pack_half(&negated, r, &mut block[32..]);
}

/// Weights of sub `sub` from the K formats' nibbles: 64 weights share 32 bytes, low nibbles first.
fn k_nibbles(nibbles: &[u8], sub: usize) -> [u8; 32] {
    std::array::from_fn(|i| nibbles[32 * (sub / 2) + i] >> (4 * (sub % 2)) & 15)
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

/// The 256 unsigned six-bit weights of a Q6_K block, in row order.
fn q6k_weights(source: &[u8]) -> [u8; 256] {
    let (low, high) = source[..192].split_at(128);
    std::array::from_fn(|k| {
        let (half, quarter, i) = (k / 128, k / 32 % 4, k % 32);
        let nibble = low[64 * half + 32 * (quarter % 2) + i] >> (4 * (quarter / 2)) & 15;
        nibble | (high[32 * half + i] >> (2 * quarter) & 3) << 4
    })
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
    }
}

/// Packs up to 16 rows (`rows` holds their bytes one after the other) into one zeroed tile.
pub(super) fn pack_tile(format: BlockFormat, rows: &[u8], cols: usize, tile: &mut [u8]) {
    let row_bytes = cols / format.block_len() * format.block_bytes();
    for (r, row) in rows.chunks_exact(row_bytes).enumerate() {
        match format {
            BlockFormat::F32 => pack_floats::<4>(row, r, tile),
            BlockFormat::F16 | BlockFormat::BF16 => pack_floats::<2>(row, r, tile),
            BlockFormat::Q4_0 => pack_row::<Q4_0>(format, row, r, tile),
            BlockFormat::Q4_1 => pack_row::<Q4_1>(format, row, r, tile),
            BlockFormat::Q5_0 => pack_row::<Q5_0>(format, row, r, tile),
            BlockFormat::Q5_1 => pack_row::<Q5_1>(format, row, r, tile),
            BlockFormat::Q8_0 => pack_row::<Q8_0>(format, row, r, tile),
            BlockFormat::Q4_K => pack_row::<Q4K>(format, row, r, tile),
            BlockFormat::Q5_K => pack_row::<Q5K>(format, row, r, tile),
            BlockFormat::Q6_K => pack_row::<Q6K>(format, row, r, tile),
        }
    }
}

fn pack_row<L: Layout>(format: BlockFormat, row: &[u8], r: usize, tile: &mut [u8]) {
    for (source, block) in row.chunks_exact(format.block_bytes()).zip(tile.chunks_exact_mut(L::BYTES)) {
        L::pack(source, r, block);
    }
}

/// Column after column, 16 numbers each.
fn pack_floats<const SIZE: usize>(row: &[u8], r: usize, tile: &mut [u8]) {
    for (source, column) in row.chunks_exact(SIZE).zip(tile.chunks_exact_mut(SIZE * TILE)) {
        column[SIZE * r..][..SIZE].copy_from_slice(source);
    }
}
