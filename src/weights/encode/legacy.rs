//! Blocks of 32 weights with one scale.

use super::fit::{each_code, extreme, nearest_level, scale, scale_and_min, scale_for_levels};
use super::{half_scale, inverse, put_half};
use crate::weights::decode::IQ4_LEVELS;

pub(super) fn q4_0(x: &[f32], block: &mut [u8]) {
    let d = put_half(block, 0, half_scale(scale(x, -8.0, 7.0)));
    let codes = codes(x, d, [-8.0, 7.0], 8);
    put_nibbles(&codes, &mut block[2..]);
}

pub(super) fn q4_1(x: &[f32], block: &mut [u8]) {
    let codes = above_min(x, 15.0, block);
    put_nibbles(&codes, &mut block[4..]);
}

pub(super) fn q5_0(x: &[f32], block: &mut [u8]) {
    let d = put_half(block, 0, half_scale(scale(x, -16.0, 15.0)));
    let codes = codes(x, d, [-16.0, 15.0], 16);
    put_fifth_bits(&codes, &mut block[2..6]);
    put_nibbles(&codes, &mut block[6..]);
}

pub(super) fn q5_1(x: &[f32], block: &mut [u8]) {
    let codes = above_min(x, 31.0, block);
    put_fifth_bits(&codes, &mut block[4..8]);
    put_nibbles(&codes, &mut block[8..]);
}

/// Eight bits lose so little that the extreme weight alone decides.
pub(super) fn q8_0(x: &[f32], block: &mut [u8]) {
    let d = put_half(block, 0, half_scale(extreme(x).abs() / 127.0));
    each_code(x, d, [-127.0, 127.0], |i, code| block[2 + i] = code as i8 as u8);
}

pub(super) fn iq4_nl(x: &[f32], block: &mut [u8]) {
    let d = put_half(block, 0, half_scale(scale_for_levels(x, &IQ4_LEVELS, [-127.0, 113.0], 7)));
    let inverse = inverse(d);
    let codes = std::array::from_fn(|i| nearest_level(x[i] * inverse, &IQ4_LEVELS) as u8);
    put_nibbles(&codes, &mut block[2..]);
}

fn codes(x: &[f32], scale: f32, range: [f32; 2], offset: i32) -> [u8; 32] {
    let mut codes = [0; 32];
    each_code(x, scale, range, |i, code| codes[i] = (code + offset) as u8);
    codes
}

/// Puts scale and minimum, and gives the codes.
fn above_min(x: &[f32], high: f32, block: &mut [u8]) -> [u8; 32] {
    let (scale, min) = scale_and_min(x, high, false);
    let d = put_half(block, 0, half_scale(scale));
    let m = put_half(block, 2, super::to_f16(min));
    let above: [f32; 32] = std::array::from_fn(|i| x[i] - m);
    codes(&above, d, [0.0, high], 0)
}

/// Byte j has weight j low and weight j + 16 high.
fn put_nibbles(codes: &[u8; 32], out: &mut [u8]) {
    for (j, byte) in out.iter_mut().enumerate() {
        *byte = (codes[j] & 0xF) | (codes[j + 16] << 4);
    }
}

fn put_fifth_bits(codes: &[u8; 32], out: &mut [u8]) {
    let bits = codes.iter().enumerate().fold(0u32, |bits, (i, code)| bits | u32::from(code >> 4) << i);
    out.copy_from_slice(&bits.to_le_bytes());
}
