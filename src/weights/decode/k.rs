//! The K formats: super-blocks of 256 weights, whose sub-blocks of 16 or 32 have small integer scales under
//! one scale of 16 bits.

use super::{f16_at, f32_at};

/// 256 weights in 16 sub-blocks of 16: 16 bytes (scale low, minimum high nibble), 64 bytes of bit pairs,
/// scale f16, scale of minima f16.
pub(super) fn q2_k(block: &[u8], y: &mut [f32]) {
    let (packed, quants) = (&block[..16], &block[16..80]);
    let (d, dmin) = (f16_at(block, 80), f16_at(block, 82));
    for (j, weights) in y.chunks_exact_mut(16).enumerate() {
        let (scale, min) = (d * f32::from(packed[j] & 0xF), dmin * f32::from(packed[j] >> 4));
        for (lane, weight) in weights.iter_mut().enumerate() {
            *weight = scale * f32::from(bit_pair(quants, 16 * j + lane)) - min;
        }
    }
}

/// Two bits of weight `i`. Each half of 128 weights is four runs of 32: run r lies at bit 2r of its 32 bytes.
fn bit_pair(quants: &[u8], i: usize) -> u8 {
    let (half, run, lane) = (i / 128, i % 128 / 32, i % 32);
    (quants[half * 32 + lane] >> (2 * run)) & 3
}

/// 256 weights in 16 sub-blocks of 16: 32 bytes of high bits (bit j of byte i belongs to weight i of run j
/// of 32), 64 bytes of bit pairs as in Q2_K, 12 bytes of six-bit scales, scale f16. A high bit that is not set
/// takes four away.
pub(super) fn q3_k(block: &[u8], y: &mut [f32]) {
    let (high, quants, packed) = (&block[..32], &block[32..96], &block[96..108]);
    let d = f16_at(block, 108);
    for (j, weights) in y.chunks_exact_mut(16).enumerate() {
        let scale = d * q3_scale(packed, j);
        for (lane, weight) in weights.iter_mut().enumerate() {
            let i = 16 * j + lane;
            let missing = 1 - ((high[i % 32] >> (i / 32)) & 1);
            *weight = scale * (i32::from(bit_pair(quants, i)) - 4 * i32::from(missing)) as f32;
        }
    }
}

/// Scale of sub-block `j` (of 16): four low bits in eight bytes of nibbles, two high ones in four bytes; less 32.
fn q3_scale(packed: &[u8], j: usize) -> f32 {
    let nibbles = packed[j % 8];
    let low = if j < 8 { nibbles & 0xF } else { nibbles >> 4 };
    let top = (packed[8 + j % 4] >> (2 * (j / 4))) & 3;
    (i32::from(low | (top << 4)) - 32) as f32
}

/// Scale and minimum, six bits each, of sub-block `j` (of 8) from the 12 packed bytes of Q4_K and Q5_K:
/// four low scales, four low minima, then four bytes with the low nibbles of the rest, whose top two
/// bits sit above the first eight.
fn scale_and_min(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, min) = match j {
        0..4 => (packed[j] & 63, packed[j + 4] & 63),
        _ => (
            (packed[j + 4] & 0xF) | ((packed[j - 4] >> 6) << 4),
            (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4),
        ),
    };
    (f32::from(scale), f32::from(min))
}

/// 256 weights in 8 sub-blocks of 32: scale f16, scale of minima f16, 12 bytes of six-bit pairs, then
/// 4 x 32 bytes: low nibbles are one sub-block, high nibbles the next.
pub(super) fn q4_k(block: &[u8], y: &mut [f32]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (packed, quants) = (&block[4..16], &block[16..]);
    for (j, weights) in y.chunks_exact_mut(32).enumerate() {
        let (scale, min) = scale_and_min(packed, j);
        let (scale, min) = (d * scale, dmin * min);
        for (weight, q) in weights.iter_mut().zip(&quants[j / 2 * 32..]) {
            let nibble = if j % 2 == 0 { q & 0xF } else { q >> 4 };
            *weight = scale * f32::from(nibble) - min;
        }
    }
}

/// As Q4_K, with 32 bytes of high bits before the nibbles: bit j of byte i belongs to weight i of
/// sub-block j.
pub(super) fn q5_k(block: &[u8], y: &mut [f32]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (packed, high, quants) = (&block[4..16], &block[16..48], &block[48..]);
    for (j, weights) in y.chunks_exact_mut(32).enumerate() {
        let (scale, min) = scale_and_min(packed, j);
        let (scale, min) = (d * scale, dmin * min);
        for ((weight, q), high) in weights.iter_mut().zip(&quants[j / 2 * 32..]).zip(high) {
            let nibble = if j % 2 == 0 { q & 0xF } else { q >> 4 };
            *weight = scale * f32::from(nibble + ((high >> j) & 1) * 16) - min;
        }
    }
}

/// 256 weights in 16 sub-blocks of 16: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed
/// scales, scale f16. Each half of 128 weights is four runs of 32: runs 0 and 1 are the low nibbles of
/// its 64 bytes, runs 2 and 3 the high ones; run r has its high bits at bit 2r.
pub(super) fn q6_k(block: &[u8], y: &mut [f32]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = f16_at(block, 208);
    for (i, weight) in y.iter_mut().enumerate() {
        let (half, run, lane) = (i / 128, i % 128 / 32, i % 32);
        let nibbles = low[half * 64 + run % 2 * 32 + lane];
        let nibble = if run < 2 { nibbles & 0xF } else { nibbles >> 4 };
        let top = (high[half * 32 + lane] >> (2 * run)) & 3;
        let q = i32::from(nibble | (top << 4)) - 32;
        *weight = d * f32::from(scales[i / 16] as i8) * q as f32;
    }
}

/// 256 weights: scale f32, 256 signed bytes, then sums of 16 that only products need.
pub(super) fn q8_k(block: &[u8], y: &mut [f32]) {
    let d = f32_at(block, 0);
    for (weight, q) in y.iter_mut().zip(&block[4..260]) {
        *weight = d * f32::from(*q as i8);
    }
}
