//! Small floats under a scale of their block: MXFP4 and NVFP4 (four bits), and our F8.

/// Twice the numbers of e2m1, by code (OCP Microscaling Formats 1.0, section 5.3.3); doubled, they are whole.
pub(in crate::weights) const E2M1_DOUBLED: [i8; 16] =
    [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// 32 weights: scale e8m0, 16 bytes of nibbles. Byte j holds weight j low and weight j + 16 high.
pub(super) fn mxfp4(block: &[u8], y: &mut [f32]) {
    four_bits(&block[1..], e8m0_half(block[0]), y);
}

/// 64 weights in four sub-blocks of 16: four scales, then 8 bytes of nibbles for each.
pub(super) fn nvfp4(block: &[u8], y: &mut [f32]) {
    for (j, weights) in y.chunks_exact_mut(16).enumerate() {
        four_bits(&block[4 + 8 * j..][..8], ue4m3_half(block[j]), weights);
    }
}

/// Low nibbles are the first half of the weights, high ones the second.
fn four_bits(nibbles: &[u8], scale: f32, y: &mut [f32]) {
    let (first, second) = y.split_at_mut(nibbles.len());
    for ((q, first), second) in nibbles.iter().zip(first).zip(second) {
        *first = scale * f32::from(E2M1_DOUBLED[usize::from(q & 0xF)]);
        *second = scale * f32::from(E2M1_DOUBLED[usize::from(q >> 4)]);
    }
}

/// Half of 2^(code - 127). Code 255, which the standard calls NaN, is 2^127 as in the reference.
pub(in crate::weights) fn e8m0_half(code: u8) -> f32 {
    match code {
        0 | 1 => f32::from_bits(0x0020_0000 << code), // subnormal
        _ => f32::from_bits((u32::from(code) - 1) << 23),
    }
}

/// Half of an e4m3 without its sign. What would be NaN is 0, as in the reference.
fn ue4m3_half(code: u8) -> f32 {
    match code {
        0x7F => 0.0,
        _ => e4m3(code & 0x7F) * 0.5,
    }
}

/// 32 weights: 32 bytes of e4m3, scale f32.
pub(super) fn f8(block: &[u8], y: &mut [f32]) {
    let scale = super::f32_at(block, 32);
    for (weight, code) in y.iter_mut().zip(block) {
        *weight = e4m3(*code) * scale;
    }
}

/// Sign, four bits of exponent (bias 7), three of fraction; no infinities, and NaN where all seven are set
/// (Micikevicius et al. 2022, section 3).
pub(in crate::weights) fn e4m3(code: u8) -> f32 {
    let (exponent, fraction) = (u32::from(code >> 3 & 0xF), u32::from(code & 7));
    let size = match (exponent, fraction) {
        (15, 7) => f32::NAN,
        (0, _) => fraction as f32 / 512.0, // subnormal: 2^-6 / 8
        _ => f32::from_bits((exponent + 120) << 23 | fraction << 20),
    };
    if code & 0x80 == 0 { size } else { -size }
}
