//! Reference decoding of every [`BlockFormat`]: plain, in the order of the weights, bit for bit what
//! ggml's own decoders give. Kernels in `compute` are tested against it.
//!
//! Products and sums are written apart (no fused multiply-add), because that is what the
//! reference rounds.

use super::BlockFormat;
use half::{bf16, f16};

/// Decodes whole blocks: `blocks` holds `n * block_bytes`, `out` takes `n * block_len` weights.
///
/// # Panics
/// When the two lengths do not describe the same number of whole blocks.
pub fn decode(format: BlockFormat, blocks: &[u8], out: &mut [f32]) {
    let (len, bytes) = (format.block_len(), format.block_bytes());
    assert_eq!(blocks.len() % bytes, 0, "{}: {} bytes are not whole blocks", format.name(), blocks.len());
    assert_eq!(blocks.len() / bytes * len, out.len(), "{}: room for all weights and no more", format.name());
    let decode_block: fn(&[u8], &mut [f32]) = match format {
        BlockFormat::F32 => |b, y| y[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        BlockFormat::F16 => |b, y| y[0] = f16_at(b, 0),
        BlockFormat::BF16 => |b, y| y[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32(),
        BlockFormat::Q4_0 => q4_0,
        BlockFormat::Q4_1 => q4_1,
        BlockFormat::Q5_0 => q5_0,
        BlockFormat::Q5_1 => q5_1,
        BlockFormat::Q8_0 => q8_0,
        BlockFormat::Q4_K => q4_k,
        BlockFormat::Q5_K => q5_k,
        BlockFormat::Q6_K => q6_k,
        other => todo!("{}", other.name()),
    };
    for (block, weights) in blocks.chunks_exact(bytes).zip(out.chunks_exact_mut(len)) {
        decode_block(block, weights);
    }
}

fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// 32 weights: scale f16, 16 bytes of nibbles. Byte j holds weight j low and weight j + 16 high.
fn q4_0(block: &[u8], y: &mut [f32]) {
    let d = f16_at(block, 0);
    for (j, q) in block[2..].iter().enumerate() {
        y[j] = (i32::from(q & 0xF) - 8) as f32 * d;
        y[j + 16] = (i32::from(q >> 4) - 8) as f32 * d;
    }
}

/// 32 weights: scale f16, minimum f16, nibbles as in Q4_0.
fn q4_1(block: &[u8], y: &mut [f32]) {
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
fn q5_0(block: &[u8], y: &mut [f32]) {
    let d = f16_at(block, 0);
    let high = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
    for (j, q) in block[6..].iter().enumerate() {
        let (first, second) = five_bits(*q, high, j);
        y[j] = (first - 16) as f32 * d;
        y[j + 16] = (second - 16) as f32 * d;
    }
}

/// 32 weights: scale f16, minimum f16, 32 high bits, nibbles.
fn q5_1(block: &[u8], y: &mut [f32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    let high = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
    for (j, q) in block[8..].iter().enumerate() {
        let (first, second) = five_bits(*q, high, j);
        y[j] = first as f32 * d + m;
        y[j + 16] = second as f32 * d + m;
    }
}

/// 32 weights: scale f16, 32 signed bytes.
fn q8_0(block: &[u8], y: &mut [f32]) {
    let d = f16_at(block, 0);
    for (weight, q) in y.iter_mut().zip(&block[2..]) {
        *weight = f32::from(*q as i8) * d;
    }
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
fn q4_k(block: &[u8], y: &mut [f32]) {
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
fn q5_k(block: &[u8], y: &mut [f32]) {
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
fn q6_k(block: &[u8], y: &mut [f32]) {
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
