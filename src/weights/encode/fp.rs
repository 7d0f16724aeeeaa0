//! Small floats under a scale of their block: MXFP4, and our F8.

use super::fit::extreme;
use crate::weights::decode::{E2M1_DOUBLED, e8m0_half};

/// The scale is a power of two: of those around the one that the extreme weight asks for, the best.
pub(super) fn mxfp4(x: &[f32], block: &mut [u8]) {
    let most = extreme(x).abs();
    let fits = (most.to_bits() >> 23).saturating_sub(2) as u8; // its exponent, less that of 4
    let tried = (fits.saturating_sub(1)..=fits.saturating_add(1)).map(|scale| (scale, lost(x, scale)));
    let best = tried.min_by(|(_, one), (_, other)| one.total_cmp(other)).expect("at least one scale");
    block[0] = if most == 0.0 { 0 } else { best.0 };
    let codes = x.iter().map(|x| e2m1(*x, e8m0_half(block[0]))).collect::<Vec<_>>();
    for (j, byte) in block[1..].iter_mut().enumerate() {
        *byte = codes[j] | codes[j + 16] << 4;
    }
}

/// Sum of squared errors.
fn lost(x: &[f32], scale: u8) -> f64 {
    let scale = e8m0_half(scale);
    let of = |x: f32| f64::from(scale) * f64::from(E2M1_DOUBLED[usize::from(e2m1(x, scale))]) - f64::from(x);
    x.iter().map(|x| of(*x).powi(2)).sum()
}

/// The code of what is nearest to `x` among the doubled numbers of e2m1 times `scale`.
fn e2m1(x: f32, scale: f32) -> u8 {
    let size = x.abs() / scale;
    let middles = E2M1_DOUBLED[..8].windows(2).map(|pair| f32::from(pair[0] + pair[1]) / 2.0);
    let code = middles.filter(|middle| size > *middle).count() as u8;
    if x < 0.0 { code | 8 } else { code }
}

/// The extreme weight becomes the largest number, 448.
pub(super) fn f8(x: &[f32], block: &mut [u8]) {
    let scale = extreme(x).abs() / 448.0;
    for (code, x) in block[..32].iter_mut().zip(x) {
        *code = if scale == 0.0 { 0 } else { e4m3(x / scale) };
    }
    block[32..].copy_from_slice(&scale.to_le_bytes());
}

/// The nearest e4m3, ties to even; what is larger becomes the largest.
pub(in crate::weights) fn e4m3(x: f32) -> u8 {
    const LARGEST: u8 = 0x7E;
    let bits = x.abs().to_bits();
    let code = if x.abs() < 1.0 / 64.0 {
        (x.abs() * 512.0).round_ties_even() as u32 // subnormal, or the first that is not
    } else {
        // Three bits of fraction stay of 23, and a bias of 7 instead of 127.
        ((bits + 0x7_FFFF + (bits >> 20 & 1)) >> 20) - (120 << 3)
    };
    (code.min(u32::from(LARGEST)) as u8) | if x.is_sign_negative() { 0x80 } else { 0 }
}
