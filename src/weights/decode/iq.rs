//! The IQ formats: codes into grids of weights that training really has, with signs beside them (IQ2, IQ3),
//! a shift (IQ1), or one weight a code on uneven levels (IQ4).

use super::grids::{IQ1_GRID, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID};
use super::{f16_at, u16_at, u32_at};

/// By code of four bits.
pub(in crate::weights) const IQ4_LEVELS: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// By code of two bits in a grid; no grid has the last.
const IQ2_LEVELS: [f32; 4] = [8.0, 25.0, 43.0, 0.0];
const IQ3_XXS_LEVELS: [f32; 8] = [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0];
const IQ3_S_LEVELS: [f32; 8] = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0];
/// What IQ1 adds to, or takes from, the weights of a group.
const IQ1_SHIFT: f32 = 0.125;

/// Eight weights of a grid of bit pairs; bit k of `signs` negates weight k.
fn put_eight(y: &mut [f32], scale: f32, grid: u16, signs: u8) {
    for (k, weight) in y.iter_mut().enumerate() {
        *weight = signed(scale * IQ2_LEVELS[usize::from(grid >> (2 * k) & 3)], signs, k);
    }
}

/// Eight weights of two entries of a grid of three bits.
fn put_two_fours(y: &mut [f32], scale: f32, levels: &[f32; 8], grid: [u16; 2], signs: u8) {
    for (k, weight) in y.iter_mut().enumerate() {
        let code = grid[k / 4] >> (3 * (k % 4)) & 7;
        *weight = signed(scale * levels[usize::from(code)], signs, k);
    }
}

fn signed(size: f32, signs: u8, k: usize) -> f32 {
    if signs >> k & 1 == 0 { size } else { -size }
}

/// Eight signs from seven bits: an even number of them is negative.
fn even_signs(code: u32) -> u8 {
    let code = (code & 0x7F) as u8;
    code | ((code.count_ones() as u8 & 1) << 7)
}

/// Nibble `j` of some bytes, low ones first.
fn nibble(bytes: &[u8], j: usize) -> u8 {
    bytes[j / 2] >> (4 * (j % 2)) & 0xF
}

/// The scale that a code of four bits means for IQ2.
fn iq2_scale(d: f32, code: u32) -> f32 {
    d * (0.5 + code as f32) * 0.25
}

/// Scale f16, then for each 32 weights four codes of a byte, and 32 bits: four times seven of signs, four of scale.
pub(super) fn iq2_xxs(block: &[u8], y: &mut [f32]) {
    let d = f16_at(block, 0);
    for (j, weights) in y.chunks_exact_mut(32).enumerate() {
        let codes = &block[2 + 8 * j..][..4];
        let packed = u32_at(block, 6 + 8 * j);
        let scale = iq2_scale(d, packed >> 28);
        for (l, eight) in weights.chunks_exact_mut(8).enumerate() {
            let grid = IQ2_XXS_GRID[usize::from(codes[l])];
            put_eight(eight, scale, grid, even_signs(packed >> (7 * l)));
        }
    }
}

/// Scale f16, 32 words (nine bits of code, seven of signs), 8 bytes of scales, a nibble for 16 weights.
pub(super) fn iq2_xs(block: &[u8], y: &mut [f32]) {
    let d = f16_at(block, 0);
    for (l, eight) in y.chunks_exact_mut(8).enumerate() {
        let word = u16_at(block, 2 + 2 * l);
        let scale = iq2_scale(d, nibble(&block[66..74], l / 2).into());
        put_eight(eight, scale, IQ2_XS_GRID[usize::from(word & 511)], even_signs(u32::from(word >> 9)));
    }
}

/// Scale f16, 32 bytes of codes, 32 of signs, 8 with two more bits of each code, 8 of scales.
pub(super) fn iq2_s(block: &[u8], y: &mut [f32]) {
    let d = f16_at(block, 0);
    let (codes, signs, high, scales) = (&block[2..34], &block[34..66], &block[66..74], &block[74..82]);
    for (l, eight) in y.chunks_exact_mut(8).enumerate() {
        let top = usize::from(high[l / 4] >> (2 * (l % 4)) & 3);
        let grid = IQ2_S_GRID[usize::from(codes[l]) | top << 8];
        put_eight(eight, iq2_scale(d, nibble(scales, l / 2).into()), grid, signs[l]);
    }
}

/// Scale f16, 64 bytes of codes for four weights each, then for each 32 weights 32 bits as in IQ2_XXS.
pub(super) fn iq3_xxs(block: &[u8], y: &mut [f32]) {
    let d = f16_at(block, 0);
    for (l, eight) in y.chunks_exact_mut(8).enumerate() {
        let packed = u32_at(block, 66 + 4 * (l / 4));
        let scale = d * (0.5 + (packed >> 28) as f32) * 0.5;
        let grid = [0, 1].map(|half| IQ3_XXS_GRID[usize::from(block[2 + 2 * l + half])]);
        put_two_fours(eight, scale, &IQ3_XXS_LEVELS, grid, even_signs(packed >> (7 * (l % 4))));
    }
}

/// Scale f16, 64 bytes of codes, 8 with one more bit of each, 32 of signs, 4 of scales, a nibble for 32 weights.
pub(super) fn iq3_s(block: &[u8], y: &mut [f32]) {
    let d = f16_at(block, 0);
    let (codes, high, signs, scales) = (&block[2..66], &block[66..74], &block[74..106], &block[106..110]);
    for (l, eight) in y.chunks_exact_mut(8).enumerate() {
        let scale = d * f32::from(1 + 2 * nibble(scales, l / 4));
        let grid = [2 * l, 2 * l + 1].map(|at| {
            let top = usize::from(high[at / 8] >> (at % 8) & 1);
            IQ3_S_GRID[usize::from(codes[at]) | top << 8]
        });
        put_two_fours(eight, scale, &IQ3_S_LEVELS, grid, signs[l]);
    }
}

/// Eight weights of -1, 0 or 1, all shifted the same way.
fn put_shifted(y: &mut [f32], scale: f32, grid: u16, down: bool) {
    let shift = if down { -IQ1_SHIFT } else { IQ1_SHIFT };
    for (k, weight) in y.iter_mut().enumerate() {
        *weight = scale * (f32::from(grid >> (2 * k) & 3) - 1.0 + shift);
    }
}

/// Scale f16, 32 bytes of codes, then for each 32 weights a word: four times three more bits of code, three of
/// scale, one of shift.
pub(super) fn iq1_s(block: &[u8], y: &mut [f32]) {
    let d = f16_at(block, 0);
    for (l, eight) in y.chunks_exact_mut(8).enumerate() {
        let high = u16_at(block, 34 + 2 * (l / 4));
        let scale = d * f32::from(2 * (high >> 12 & 7) + 1);
        let top = usize::from(high >> (3 * (l % 4)) & 7);
        put_shifted(eight, scale, IQ1_GRID[usize::from(block[2 + l]) | top << 8], high & 0x8000 != 0);
    }
}

/// 32 bytes of codes, 16 bytes of nibbles (three more bits of code, one of shift), four words: four times three
/// bits of scale for 16 weights, and in their top nibbles the scale f16, lowest first.
pub(super) fn iq1_m(block: &[u8], y: &mut [f32]) {
    let word = |at: usize| u16_at(block, 48 + 2 * at);
    let d = half::f16::from_bits((0..4).fold(0, |bits, at| bits | word(at) >> 12 << (4 * at))).to_f32();
    for (l, eight) in y.chunks_exact_mut(8).enumerate() {
        let high = nibble(&block[32..48], l);
        let scale = d * f32::from(2 * (word(l / 8) >> (3 * (l / 2 % 4)) & 7) + 1);
        let code = usize::from(block[l]) | usize::from(high & 7) << 8;
        put_shifted(eight, scale, IQ1_GRID[code], high & 8 != 0);
    }
}

/// 32 weights: scale f16, 16 bytes of nibbles. Byte j holds weight j low and weight j + 16 high.
pub(super) fn iq4_nl(block: &[u8], y: &mut [f32]) {
    put_levels(y, f16_at(block, 0), &block[2..18]);
}

/// 256 weights in 8 sub-blocks of 32: scale f16, a word of high bit pairs of scales, 4 bytes of their low
/// nibbles, then nibbles as in IQ4_NL.
pub(super) fn iq4_xs(block: &[u8], y: &mut [f32]) {
    let (d, high) = (f16_at(block, 0), u16_at(block, 2));
    for (j, weights) in y.chunks_exact_mut(32).enumerate() {
        let code = i32::from(nibble(&block[4..8], j)) | i32::from(high >> (2 * j) & 3) << 4;
        put_levels(weights, d * (code - 32) as f32, &block[8 + 16 * j..][..16]);
    }
}

fn put_levels(y: &mut [f32], scale: f32, nibbles: &[u8]) {
    for (j, q) in nibbles.iter().enumerate() {
        y[j] = scale * f32::from(IQ4_LEVELS[usize::from(q & 0xF)]);
        y[j + 16] = scale * f32::from(IQ4_LEVELS[usize::from(q >> 4)]);
    }
}
