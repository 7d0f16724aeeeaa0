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
    /// Vectors whose products fit 16 bits (see `Simd::dot`): 8 for 4 bits, 4 for 5, 2 for 6; 0 for whole
    /// bytes.
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

/// Nibble vector `J`, with the fifth bits behind the nibbles where there are some.
#[inline(always)]
unsafe fn nibbles_and_fifth<S: Simd, const J: usize, const FIFTH: bool>(p: *const u8) -> S::B {
    // SAFETY: the caller's block.
    unsafe {
        let low = nibbles::<S, J>(p);
        if FIFTH { S::or(low, fifth_bit::<S, J>(p.add(256))) } else { low }
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
    unsafe fn minimum<S: Simd>(block: *const u8, _: usize) -> S::F {
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
        if let [a, b, c, d] = *fifth {
            pack_fifth_bits(u32::from_le_bytes([a, b, c, d]), r, &mut block[256..]);
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
        for j in 0..8 {
            for i in 0..4 {
                block[64 * j + 4 * r + i] = source[2 + 4 * j + i];
            }
        }
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
    unsafe fn minimum<S: Simd>(block: *const u8, sub: usize) -> S::F {
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
        for sub in 0..8 {
            let out = &mut block[Self::HEAD + sub * Self::SUB..][..Self::SUB];
            pack_low_nibbles(&k_nibbles(nibbles, sub), r, out);
            if FIFTH {
                let bits = (0..32).fold(0, |bits, k| bits | u32::from(fifth[k] >> sub & 1) << k);
                pack_fifth_bits(bits, r, &mut out[256..]);
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
