//! Formats of two bits and three, with a scale for 16 weights.

use super::format::{Layout, pack_half, pack_split_fifth_bits, pair_planes, put_two};
use super::simd::Simd;

/// Bit pairs of 32 weights of 16 rows.
const PLANES: usize = 128;

/// Bit pair vector `J`: two planes; byte (r, i), bits 2f.. -> weight 16h + 4f + i of row r.
#[inline(always)]
unsafe fn pairs<S: Simd, const J: usize>(p: *const u8) -> S::B {
    // SAFETY: two planes lie at `p`. Bits that cross bytes never reach bits 0 and 1.
    unsafe {
        let plane = S::load_bytes(p.add(64 * (J / 4)));
        let moved = match J % 4 {
            0 => plane,
            1 => S::shift_right::<2>(plane),
            2 => S::shift_right::<4>(plane),
            _ => S::shift_right::<6>(plane),
        };
        S::and(moved, 3)
    }
}

/// `[d 32][dmin 32]`, then for each sub `[pairs 128][scales u8 2 x 16][minima u8 2 x 16]`. dmin is stored
/// negated, so that the minimum is added.
pub(super) struct Q2K;

impl Q2K {
    const HEAD: usize = 64;
    const SUB: usize = PLANES + 64;
}

impl Layout for Q2K {
    const BLOCK: usize = 256;
    const BYTES: usize = Self::HEAD + 8 * Self::SUB;
    const SCALES: usize = 2;
    const HAS_MIN: bool = true;
    const DOTS: usize = 8;
    #[inline(always)]
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, sub: usize) -> S::B {
        // SAFETY: the caller's block.
        unsafe { pairs::<S, J>(block.add(Self::HEAD + sub * Self::SUB)) }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(block: *const u8, sub: usize, which: usize) -> S::F {
        // SAFETY: the caller's block.
        unsafe {
            let scales = block.add(Self::HEAD + sub * Self::SUB + PLANES + 16 * which);
            S::mul(S::load_f16(block.cast()), S::load_u8(scales))
        }
    }
    #[inline(always)]
    unsafe fn minimum<S: Simd>(block: *const u8, sub: usize, which: usize) -> S::F {
        // SAFETY: the caller's block.
        unsafe {
            let minima = block.add(Self::HEAD + sub * Self::SUB + PLANES + 32 + 16 * which);
            S::mul(S::load_f16(block.add(32).cast()), S::load_u8(minima))
        }
    }
    /// The file has 16 bytes of scales and minima, 64 of bit pairs, d, dmin.
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        pack_half(&source[80..], r, block);
        pack_half(&[source[82], source[83] ^ 0x80], r, &mut block[32..]);
        for half in 0..2 {
            for (quarter, planes) in pair_planes(&source[16 + 32 * half..]).into_iter().enumerate() {
                let sub = 4 * half + quarter;
                let out = &mut block[Self::HEAD + sub * Self::SUB..];
                put_two(planes, 0, r, out);
                for (which, packed) in source[2 * sub..][..2].iter().enumerate() {
                    out[PLANES + 16 * which + r] = packed & 15;
                    out[PLANES + 32 + 16 * which + r] = packed >> 4;
                }
            }
        }
    }
}

/// `[d 32]`, then for each sub `[pairs 128][third bits 64][scales i8 2 x 16]`.
pub(super) struct Q3K;

impl Q3K {
    const HEAD: usize = 32;
    const SCALE: usize = PLANES + 64;
    const SUB: usize = Self::SCALE + 32;
}

/// Bit `J` of every byte of the plane at `p`, moved to bit 2.
#[inline(always)]
unsafe fn third_bit<S: Simd, const J: usize>(p: *const u8) -> S::B {
    // SAFETY: 64 bytes lie at `p`. Bits that cross bytes never reach bit 2.
    unsafe {
        let plane = S::load_bytes(p);
        let moved = match J {
            0 => S::shift_left::<2>(plane),
            1 => S::shift_left::<1>(plane),
            2 => plane,
            3 => S::shift_right::<1>(plane),
            4 => S::shift_right::<2>(plane),
            5 => S::shift_right::<3>(plane),
            6 => S::shift_right::<4>(plane),
            _ => S::shift_right::<5>(plane),
        };
        S::and(moved, 4)
    }
}

impl Layout for Q3K {
    const BLOCK: usize = 256;
    const BYTES: usize = Self::HEAD + 8 * Self::SUB;
    const SCALES: usize = 2;
    const OFFSET: i32 = 4;
    const DOTS: usize = 8;
    #[inline(always)]
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, sub: usize) -> S::B {
        // SAFETY: the caller's block.
        unsafe {
            let p = block.add(Self::HEAD + sub * Self::SUB);
            S::or(pairs::<S, J>(p), third_bit::<S, J>(p.add(PLANES)))
        }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(block: *const u8, sub: usize, which: usize) -> S::F {
        // SAFETY: the caller's block.
        unsafe {
            let scales = block.add(Self::HEAD + sub * Self::SUB + Self::SCALE + 16 * which);
            S::mul(S::load_f16(block.cast()), S::load_i8(scales.cast()))
        }
    }
    /// The file has 32 bytes of third bits, 64 of bit pairs, 12 of six-bit scales, d.
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        pack_half(&source[108..], r, block);
        for half in 0..2 {
            for (quarter, planes) in pair_planes(&source[32 + 32 * half..]).into_iter().enumerate() {
                let sub = 4 * half + quarter;
                let out = &mut block[Self::HEAD + sub * Self::SUB..][..Self::SUB];
                put_two(planes, 0, r, out);
                pack_split_fifth_bits(&source[..32], sub, r, &mut out[PLANES..]);
                for which in 0..2 {
                    out[Self::SCALE + 16 * which + r] = q3_scale(&source[96..108], 2 * sub + which);
                }
            }
        }
    }
}

/// Signed scale `j` (of 16): four low bits in eight bytes, two high ones in four; less 32.
fn q3_scale(packed: &[u8], j: usize) -> u8 {
    let low = packed[j % 8] >> (4 * (j / 8)) & 15;
    let high = packed[8 + j % 4] >> (2 * (j / 4)) & 3;
    (low | high << 4).wrapping_sub(32)
}
