//! Weights of -1, 0 and 1 under one scale for 256.

use super::f16_at;

/// 52 bytes of base-three digits, then the scale f16. A byte is a fraction of 256 whose digits are weights
///: 32 bytes of five runs of 32, 16 bytes of five runs of 16, 4 bytes of four runs of 4.
pub(super) fn tq1_0(block: &[u8], y: &mut [f32]) {
    let d = f16_at(block, 52);
    let (first, rest) = y.split_at_mut(160);
    let (second, third) = rest.split_at_mut(80);
    for (bytes, weights) in [(&block[..32], first), (&block[32..48], second), (&block[48..52], third)] {
        for (digit, run) in weights.chunks_exact_mut(bytes.len()).enumerate() {
            for (weight, byte) in run.iter_mut().zip(bytes) {
                let fraction = byte.wrapping_mul(3u8.pow(digit as u32));
                *weight = d * (f32::from(((u16::from(fraction) * 3) >> 8) as u8) - 1.0);
            }
        }
    }
}

/// 64 bytes of bit pairs, then the scale f16. Each half of 128 weights is four runs of 32: run r lies at bit
/// 2r of its 32 bytes.
pub(super) fn tq2_0(block: &[u8], y: &mut [f32]) {
    let d = f16_at(block, 64);
    for (i, weight) in y.iter_mut().enumerate() {
        let (half, run, lane) = (i / 128, i % 128 / 32, i % 32);
        let q = (block[half * 32 + lane] >> (2 * run)) & 3;
        *weight = d * (f32::from(q) - 1.0);
    }
}
