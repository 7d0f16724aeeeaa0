//! Reference decoding of every [`BlockFormat`]: plain, in the order of the weights, bit for bit what
//! ggml's own decoders give. Kernels in `compute` are tested against it.
//!
//! Products and sums are written apart (no fused multiply-add), because that is what the
//! reference rounds. Every bit pattern decodes to something: what a format has no number for is NaN, or
//! what the reference makes of it.

mod fp;
mod grids;
mod iq;
mod k;
mod legacy;
mod ternary;

pub(super) use fp::{E2M1_DOUBLED, e4m3, e8m0_half};
pub(super) use iq::IQ4_LEVELS;

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
        BlockFormat::F32 => |b, y| y[0] = f32_at(b, 0),
        BlockFormat::F16 => |b, y| y[0] = f16_at(b, 0),
        BlockFormat::BF16 => |b, y| y[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32(),
        BlockFormat::Q4_0 => legacy::q4_0,
        BlockFormat::Q4_1 => legacy::q4_1,
        BlockFormat::Q5_0 => legacy::q5_0,
        BlockFormat::Q5_1 => legacy::q5_1,
        BlockFormat::Q8_0 => legacy::q8_0,
        BlockFormat::Q2_K => k::q2_k,
        BlockFormat::Q3_K => k::q3_k,
        BlockFormat::Q4_K => k::q4_k,
        BlockFormat::Q5_K => k::q5_k,
        BlockFormat::Q6_K => k::q6_k,
        BlockFormat::Q8_K => k::q8_k,
        BlockFormat::IQ1_S => iq::iq1_s,
        BlockFormat::IQ1_M => iq::iq1_m,
        BlockFormat::IQ2_XXS => iq::iq2_xxs,
        BlockFormat::IQ2_XS => iq::iq2_xs,
        BlockFormat::IQ2_S => iq::iq2_s,
        BlockFormat::IQ3_XXS => iq::iq3_xxs,
        BlockFormat::IQ3_S => iq::iq3_s,
        BlockFormat::IQ4_NL => iq::iq4_nl,
        BlockFormat::IQ4_XS => iq::iq4_xs,
        BlockFormat::MXFP4 => fp::mxfp4,
        BlockFormat::NVFP4 => fp::nvfp4,
        BlockFormat::TQ1_0 => ternary::tq1_0,
        BlockFormat::TQ2_0 => ternary::tq2_0,
        BlockFormat::F8 => fp::f8,
    };
    for (block, weights) in blocks.chunks_exact(bytes).zip(out.chunks_exact_mut(len)) {
        decode_block(block, weights);
    }
}

fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

fn f32_at(block: &[u8], at: usize) -> f32 {
    f32::from_bits(u32_at(block, at))
}
