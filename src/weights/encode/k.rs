//! The K formats: 256 weights, whose sub-blocks have small integer scales under one scale of 16 bits.

use super::fit::{code, each_code, error, scale, scale_and_min};
use super::{half_scale, inverse, put_half};

pub(super) fn q4_k(x: &[f32], block: &mut [u8]) {
    let codes = scaled_above_min(x, 15.0, block);
    put_nibbles(&codes, &mut block[16..]);
}

pub(super) fn q5_k(x: &[f32], block: &mut [u8]) {
    let codes = scaled_above_min(x, 31.0, block);
    let (high, nibbles) = block[16..].split_at_mut(32);
    high.fill(0);
    codes.iter().enumerate().for_each(|(i, code)| high[i % 32] |= (code >> 4) << (i / 32));
    put_nibbles(&codes, nibbles);
}

/// Runs of 64 weights share 32 bytes: the first half as low nibbles, the second as high ones.
fn put_nibbles(codes: &[u8; 256], out: &mut [u8]) {
    for (i, byte) in out.iter_mut().enumerate() {
        let low = i / 32 * 64 + i % 32;
        *byte = (codes[low] & 0xF) | (codes[low + 32] << 4);
    }
}

/// Puts the scales and minima of 8 sub-blocks of 32 (16 bytes), and gives the codes from 0 to `high`.
fn scaled_above_min(x: &[f32], high: f32, block: &mut [u8]) -> [u8; 256] {
    let mut fits = [(0.0, 0.0); 8];
    for (fit, x) in fits.iter_mut().zip(x.chunks_exact(32)) {
        let (scale, min) = scale_and_min(x, high, true);
        *fit = (scale.max(0.0), -min);
    }
    let most = fits.iter().fold((0f32, 0f32), |most, fit| (most.0.max(fit.0), most.1.max(fit.1)));
    let d = put_half(block, 0, half_scale(most.0 / 63.0));
    let dmin = put_half(block, 2, half_scale(most.1 / 63.0));
    let mut codes = [0; 256];
    let mut pairs = [(0, 0); 8];
    for (j, x) in x.chunks_exact(32).enumerate() {
        pairs[j] = six_bits(x, fits[j], [d, dmin], high);
        let (scale, min) = (d * f32::from(pairs[j].0), dmin * f32::from(pairs[j].1));
        let inverse = inverse(scale);
        for (to, x) in codes[32 * j..].iter_mut().zip(x) {
            *to = code(x + min, inverse, 0.0, high) as u8;
        }
    }
    put_six_bits(&pairs, &mut block[4..16]);
    codes
}

/// Scale and minimum of a sub-block in units of `d` and `dmin`: of the pairs around the one that was asked for, the
/// best, because an error of one can make up for that of the other.
fn six_bits(x: &[f32], (scale, min): (f32, f32), [d, dmin]: [f32; 2], high: f32) -> (u8, u8) {
    let near = |size: f32, of: f32| {
        let middle = code(size, inverse(of), 0.0, 63.0) as u8;
        middle.saturating_sub(1)..=(middle + 1).min(63)
    };
    let mut best = (f32::INFINITY, (0, 0));
    for pair in near(scale, d).flat_map(|scale| near(min, dmin).map(move |min| (scale, min))) {
        let (scale, min) = (d * f32::from(pair.0), -dmin * f32::from(pair.1));
        let lost = error(x, (scale, min), min, inverse(scale), high);
        if lost < best.0 {
            best = (lost, pair);
        }
    }
    best.1
}

/// Four low scales, four low minima, then four bytes with the low nibbles of the rest, whose top two bits sit
/// above the first eight.
fn put_six_bits(pairs: &[(u8, u8); 8], out: &mut [u8]) {
    for j in 0..4 {
        let ((scale, min), (late_scale, late_min)) = (pairs[j], pairs[j + 4]);
        out[j] = scale | (late_scale >> 4) << 6;
        out[j + 4] = min | (late_min >> 4) << 6;
        out[j + 8] = (late_scale & 0xF) | (late_min << 4);
    }
}

/// 16 sub-blocks of 16, codes from -32 to 31, signed scales of a byte.
pub(super) fn q6_k(x: &[f32], block: &mut [u8]) {
    let mut scales = [0.0; 16];
    scales.iter_mut().zip(x.chunks_exact(16)).for_each(|(to, x)| *to = scale(x, -32.0, 31.0));
    block.fill(0);
    let d = put_half(block, 208, half_scale(super::fit::extreme(&scales) / -128.0));
    for (j, scale) in scales.into_iter().enumerate() {
        let scale = code(scale, inverse(d), -128.0, 127.0) as i8;
        block[192 + j] = scale as u8;
        each_code(&x[16 * j..][..16], d * f32::from(scale), [-32.0, 31.0], |lane, code| {
            put_six(block, 16 * j + lane, (code + 32) as u8);
        });
    }
}

/// Each half of 128 weights is four runs of 32: runs 0 and 1 are the low nibbles of its 64 bytes, runs 2 and 3 the
/// high ones; run r has its high bits at bit 2r of 32 bytes.
fn put_six(block: &mut [u8], i: usize, code: u8) {
    let (half, run, lane) = (i / 128, i % 128 / 32, i % 32);
    block[half * 64 + run % 2 * 32 + lane] |= (code & 0xF) << (run / 2 * 4);
    block[128 + half * 32 + lane] |= (code >> 4) << (2 * run);
}
