//! Formats of four bits that are codes of levels, not numbers; each becomes a signed byte by a look-up in a
//! register.

use super::format::{Layout, nibbles, pack_half, pack_nibbles};
use super::simd::Simd;

/// IQ4_NL's and IQ4_XS's.
const UNEVEN: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the numbers of e2m1 (OCP Microscaling Formats 1.0, section 5.3.3).
const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// `[nibbles 256][scales f16 32]`
pub(super) struct Iq4Nl;

impl Layout for Iq4Nl {
    const BLOCK: usize = 32;
    const BYTES: usize = 256 + 32;
    const SIGNED: bool = true;
    const DOTS: usize = 0;
    #[inline(always)]
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, _: usize) -> S::B {
        // SAFETY: the caller's block.
        unsafe { S::lookup(nibbles::<S, J>(block), &UNEVEN) }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(block: *const u8, _: usize, _: usize) -> S::F {
        // SAFETY: the caller's block.
        unsafe { S::load_f16(block.add(256).cast()) }
    }
    /// The file has the scale and the nibbles.
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        pack_half(source, r, &mut block[256..]);
        pack_nibbles(&source[2..], r, block);
    }
}

/// `[nibbles 256][scales e8m0 16]`
pub(super) struct Mxfp4;

impl Layout for Mxfp4 {
    const BLOCK: usize = 32;
    const BYTES: usize = 256 + 16;
    const SIGNED: bool = true;
    const DOTS: usize = 0;
    #[inline(always)]
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, _: usize) -> S::B {
        // SAFETY: the caller's block.
        unsafe { S::lookup(nibbles::<S, J>(block), &E2M1) }
    }
    /// Half of 2^(code - 127), as the levels are doubled. The outermost codes, 0 and 255, mean their
    /// neighbours.
    #[inline(always)]
    unsafe fn scale<S: Simd>(block: *const u8, _: usize, _: usize) -> S::F {
        // SAFETY: the caller's block.
        unsafe {
            let power = S::sub(S::load_u8(block.add(256)), S::splat(127.0));
            let power = S::min(S::max(power, S::splat(-126.0)), S::splat(127.0));
            S::scale_by_power(S::splat(0.5), power)
        }
    }
    /// The file has the scale and the nibbles.
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        block[256 + r] = source[0];
        pack_nibbles(&source[1..], r, block);
    }
}

/// `[d f16 32]`, then for each sub `[nibbles 256][scales i8 16]`.
pub(super) struct Iq4Xs;

impl Iq4Xs {
    const HEAD: usize = 32;
    const SUB: usize = 256 + 16;
}

impl Layout for Iq4Xs {
    const BLOCK: usize = 256;
    const BYTES: usize = Self::HEAD + 8 * Self::SUB;
    const SIGNED: bool = true;
    const DOTS: usize = 0;
    #[inline(always)]
    unsafe fn vector<S: Simd, const J: usize>(block: *const u8, sub: usize) -> S::B {
        // SAFETY: the caller's block.
        unsafe { S::lookup(nibbles::<S, J>(block.add(Self::HEAD + sub * Self::SUB)), &UNEVEN) }
    }
    #[inline(always)]
    unsafe fn scale<S: Simd>(block: *const u8, sub: usize, _: usize) -> S::F {
        // SAFETY: the caller's block.
        unsafe {
            let scales = block.add(Self::HEAD + sub * Self::SUB + 256);
            S::mul(S::load_f16(block.cast()), S::load_i8(scales.cast()))
        }
    }
    /// The file has d, two high bits of each scale, four low ones, the nibbles.
    fn pack(source: &[u8], r: usize, block: &mut [u8]) {
        pack_half(source, r, block);
        let high = u16::from_le_bytes([source[2], source[3]]);
        for (sub, out) in block[Self::HEAD..].chunks_exact_mut(Self::SUB).enumerate() {
            let low = source[4 + sub / 2] >> (4 * (sub % 2)) & 15;
            let scale = low | ((high >> (2 * sub) & 3) as u8) << 4;
            out[256 + r] = scale.wrapping_sub(32);
            pack_nibbles(&source[8 + 16 * sub..][..16], r, out);
        }
    }
}
