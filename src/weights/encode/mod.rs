//! The other direction of [`decode`](super::decode): floats into blocks, with the scales that lose least.
//!
//! A block's scale (and minimum) is searched for: some candidates round the weights to codes, least squares
//! says the best scale for those codes, and the candidate that leaves the smallest squared error wins.
//! The codes are then made anew with the scale as the block will hold it.
//!
//! Blocks hold finite numbers only. What is larger than a format has becomes the largest it has, and NaN becomes
//! 0; who reads weights from a file refuses infinities and NaN before (see [`Source`](super::checkpoint)).

mod fit;
mod fp;
mod k;
mod legacy;

pub(super) use fp::e4m3;

use super::BlockFormat;
use half::{bf16, f16};

type EncodeBlock = fn(&[f32], &mut [u8]);

/// `None` for formats that we only read.
const fn encoder(format: BlockFormat) -> Option<EncodeBlock> {
    Some(match format {
        BlockFormat::F32 => |x, b| b.copy_from_slice(&x[0].to_le_bytes()),
        BlockFormat::F16 => |x, b| b.copy_from_slice(&to_f16(x[0]).to_le_bytes()),
        BlockFormat::BF16 => |x, b| b.copy_from_slice(&to_bf16(x[0]).to_le_bytes()),
        BlockFormat::Q4_0 => legacy::q4_0,
        BlockFormat::Q4_1 => legacy::q4_1,
        BlockFormat::Q5_0 => legacy::q5_0,
        BlockFormat::Q5_1 => legacy::q5_1,
        BlockFormat::Q8_0 => legacy::q8_0,
        BlockFormat::Q4_K => k::q4_k,
        BlockFormat::Q5_K => k::q5_k,
        BlockFormat::Q6_K => k::q6_k,
        BlockFormat::IQ4_NL => legacy::iq4_nl,
        BlockFormat::MXFP4 => fp::mxfp4,
        BlockFormat::F8 => fp::f8,
        _ => return None,
    })
}

impl BlockFormat {
    /// Whether [`encode`] takes it.
    pub const fn can_encode(self) -> bool {
        encoder(self).is_some()
    }

    /// Whether it holds infinities and NaN as they are.
    pub(super) const fn holds_any_float(self) -> bool {
        matches!(self, BlockFormat::F32 | BlockFormat::F16 | BlockFormat::BF16)
    }
}

/// Encodes whole blocks: the other direction of [`decode`](super::decode).
///
/// # Panics
/// When the weights are no whole blocks, or the format is none that [`BlockFormat::can_encode`].
pub fn encode(format: BlockFormat, weights: &[f32]) -> Vec<u8> {
    let mut blocks = vec![0; weights.len() / format.block_len() * format.block_bytes()];
    encode_into(format, weights, &mut blocks);
    blocks
}

/// The same, to where there is room for it. Every byte of `blocks` is written.
pub(super) fn encode_into(format: BlockFormat, weights: &[f32], blocks: &mut [u8]) {
    let (len, bytes) = (format.block_len(), format.block_bytes());
    assert_eq!(weights.len() % len, 0, "{}: {} weights are not whole blocks", format.name(), weights.len());
    assert_eq!(
        weights.len() / len * bytes,
        blocks.len(),
        "{}: room for all blocks and no more",
        format.name()
    );
    let encode_block = encoder(format).unwrap_or_else(|| panic!("{} is only read", format.name()));
    if format.holds_any_float() {
        return (weights.chunks_exact(len).zip(blocks.chunks_exact_mut(bytes)))
            .for_each(|(weights, block)| encode_block(weights, block));
    }
    let mut held = [0.0; 256];
    for (weights, block) in weights.chunks_exact(len).zip(blocks.chunks_exact_mut(bytes)) {
        let held = &mut held[..len];
        held.iter_mut().zip(weights).for_each(|(held, weight)| *held = finite(*weight));
        encode_block(held, block);
    }
}

/// More than a block's largest code times its largest scale (65504 * 128 * 32), and squares of it can be summed.
const LARGEST: f32 = 1e9;

fn finite(weight: f32) -> f32 {
    if weight.is_nan() { 0.0 } else { weight.clamp(-LARGEST, LARGEST) }
}

/// Finite stays finite.
fn to_f16(weight: f32) -> f16 {
    let most = f16::MAX.to_f32();
    f16::from_f32(if weight.is_finite() { weight.clamp(-most, most) } else { weight })
}

fn to_bf16(weight: f32) -> bf16 {
    let most = bf16::MAX.to_f32();
    bf16::from_f32(if weight.is_finite() { weight.clamp(-most, most) } else { weight })
}

/// A scale as a block holds it. Among the smallest numbers it is rounded away from zero: rounded down, it would
/// cut off the largest weights by up to half.
fn half_scale(scale: f32) -> f16 {
    let near = to_f16(scale);
    let small = near.to_f32().abs() < scale.abs() && !near.is_normal();
    if small { f16::from_bits(near.to_bits() + 1) } else { near }
}

fn put_half(block: &mut [u8], at: usize, scale: f16) -> f32 {
    block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
    scale.to_f32()
}

/// What weights are multiplied by to become codes; nothing is left of them where there is no scale.
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}
