//! Blocks of 32 weights with one scale.

use super::f16_at;

/// 32 weights: scale f16, 16 bytes of nibbles. Byte j holds weight j low and weight j + 16 high.
pub(super) fn q4_0(block: &[u8], y: &mut [f32]) {
    let d = f16_at(block, 0);
    for (j, q) in block[2..].iter().enumerate() {
        y[j] = (i32::from(q & 0xF) - 8) as f32 * d;
        y[j + 16] = (i32::from(q >> 4) - 8) as f32 * d;
    }
}

/// 32 weights: scale f16, minimum f16, nibbles as in Q4_0.
pub(super) fn q4_1(block: &[u8], y: &mut [f32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    for (j, q) in block[4..].iter().enumerate() {
        y[j] = f32::from(q & 0xF) * d + m;
        y[j + 16] = f32::from(q >> 4) * d + m;
    }
}

/// The five bits of weights j and j + 16: low nibbles as in Q4_0, bit j and bit j + 16 of `high` on top.
fn five_bits(q: u8, high: u32, j: usize) -> (i32, i32) {
    let top = |bit: usize| ((high >> bit) & 1) as i32 * 16;
    (i32::from(q & 0xF) + top(j), i32::from(q >> 4) + top(j + 16))
}

/// 32 weights: scale f16, 32 high bits, nibbles.
pub(super) fn q5_0(block: &[u8], y: &mut [f32]) {
    let d = f16_at(block, 0);
    let high = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
    for (j, q) in block[6..].iter().enumerate() {
        let (first, second) = five_bits(*q, high, j);
        y[j] = (first - 16) as f32 * d;
        y[j + 16] = (second - 16) as f32 * d;
    }
}

/// 32 weights: scale f16, minimum f16, 32 high bits, nibbles.
pub(super) fn q5_1(block: &[u8], y: &mut [f32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    let high = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
    for (j, q) in block[8..].iter().enumerate() {
        let (first, second) = five_bits(*q, high, j);
        y[j] = first as f32 * d + m;
        y[j + 16] = second as f32 * d + m;
    }
}

/// 32 weights: scale f16, 32 signed bytes.
pub(super) fn q8_0(block: &[u8], y: &mut [f32]) {
    let d = f16_at(block, 0);
    for (weight, q) in y.iter_mut().zip(&block[2..]) {
        *weight = f32::from(*q as i8) * d;
    }
}
