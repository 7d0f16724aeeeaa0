//! Attention of single new tokens over their paged past: `kernels/decode.cu`.

use super::gpu::{Arg, Gpu, Shape};
use super::kv::{Cache, Place};
use super::memory::Memory;
use crate::compute::{CacheDtype, Result};

const MODULE: &str = "decode";
const THREADS: usize = 128;
/// Positions that are attended to at once.
const SPLIT: usize = 128;
/// Results that a row's splits are reduced to.
const MOST_SLOTS: usize = 64;

/// How a layer attends.
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    pub heads: usize,
    /// Multiplies scores.
    pub scale: f32,
    /// Each token sees the last `window` tokens, itself included.
    pub window: Option<usize>,
    /// `cap * tanh(score / cap)` (Gemma 2).
    pub cap: Option<f32>,
    /// `f32 [heads]`: scores that take part in the softmax and have no value (gpt-oss).
    pub sinks: Option<&'a Memory>,
}

/// Bytes that [`attend`] works in.
pub fn workspace_bytes(spans: usize, heads: usize, head_dim: usize) -> usize {
    found_bytes(spans, heads) * (2 + head_dim) / 2
}

/// f32x2 [spans, heads, slots] of (maximum, sum); the values [spans, heads, slots, head_dim] follow.
fn found_bytes(spans: usize, heads: usize) -> usize {
    spans * heads * MOST_SLOTS * 8
}

/// Attends with the spans of one row; other spans' rows of `out` are left alone.
/// out f32 [rows, heads * head_dim]; qkv f32 [rows, (heads + 2 kv_heads) * head_dim], queries made ready.
pub fn attend(
    gpu: &Gpu,
    out: &Memory,
    qkv: &Memory,
    cache: &Cache,
    place: Place,
    attention: &Attention,
    workspace: &Memory,
) -> Result<()> {
    let (shape, heads, spans) = (cache.shape(), attention.heads, place.spans);
    let dim = shape.head_dim;
    assert!(workspace.bytes() >= workspace_bytes(spans, heads, dim), "the workspace is the caller's");
    let found = Arg::Ptr(workspace.at(0));
    let values = Arg::Ptr(workspace.at(found_bytes(spans, heads)));
    let window = attention.window.unwrap_or(0);
    let row_bytes = dim * shape.dtype.bytes();
    let plan = Plan::new(heads / shape.kv_heads, dim, row_bytes);
    let across = shape.kv_heads * plan.chunks;
    let slots = (BLOCKS * gpu.facts.multiprocessors as usize / (across * spans)).clamp(1, MOST_SLOTS);
    let args = [
        found,
        values,
        qkv.into(),
        Arg::Ptr(cache.memory.at(0)),
        place.step.into(),
        place.group.into(),
        heads.into(),
        shape.kv_heads.into(),
        dim.into(),
        shape.block_size.into(),
        cache.stride().into(),
        plan.tile.into(),
        window.into(),
        attention.scale.into(),
        attention.cap.unwrap_or(0.0).into(),
    ];
    let launch = Shape::new([across, slots, spans], THREADS).shared(plan.shared);
    gpu.launch(MODULE, kernel(shape.dtype, plan.heads), launch, &args)?;
    let args = [
        out.into(),
        found,
        values,
        place.step.into(),
        attention.sinks.into(),
        heads.into(),
        dim.into(),
        window.into(),
    ];
    gpu.launch(MODULE, "decode_merge", Shape::new([heads, spans, 1], THREADS), &args)
}

/// Blocks for each multiprocessor that a launch aims at: several times what runs at once, so that few long
/// rows are spread, and no more, as most find nothing to do when rows are many and short.
const BLOCKS: usize = 16;

/// How a block works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// Query heads of a block, and how many blocks a kv head takes.
    heads: usize,
    chunks: usize,
    /// Positions in a stage of the ring.
    tile: usize,
    /// Bytes of shared memory: `struct Desk` of the kernel.
    shared: usize,
}

impl Plan {
    fn new(group: usize, dim: usize, row_bytes: usize) -> Self {
        let heads = match group {
            1 => 1,
            2..=4 => 4,
            5..=8 => 8,
            // Queries of 16 heads as large would leave no room for keys.
            _ if dim > 256 => 8,
            _ => 16,
        };
        // About 16 KiB a stage: several blocks on a multiprocessor, and enough on its way in each.
        let tile = (1 << (16384 / row_bytes).max(16).ilog2()).min(SPLIT);
        let stride = 16 * ((row_bytes / 16) | 1);
        let elements = if heads >= 8 { 4 } else { 8 };
        let ring = (2 * tile * stride).max(THREADS * elements * heads * 4);
        let floats = heads * dim + 256 * heads + 2 * heads * SPLIT + 4 * SPLIT + 3 * heads;
        Self { heads, chunks: group.div_ceil(heads), tile, shared: ring + 2 * SPLIT * 8 + 4 * floats }
    }
}

fn kernel(dtype: CacheDtype, heads: usize) -> &'static str {
    let names = match dtype {
        CacheDtype::F32 => unreachable!("no cache is made of it"),
        CacheDtype::F16 => ["decode_f16_1", "decode_f16_4", "decode_f16_8", "decode_f16_16"],
        CacheDtype::Bf16 => ["decode_bf16_1", "decode_bf16_4", "decode_bf16_8", "decode_bf16_16"],
        CacheDtype::Int8 => ["decode_int8_1", "decode_int8_4", "decode_int8_8", "decode_int8_16"],
        CacheDtype::Fp8 => ["decode_fp8_1", "decode_fp8_4", "decode_fp8_8", "decode_fp8_16"],
    };
    names[[1, 4, 8, 16].iter().position(|n| *n == heads).expect("a plan has one of these")]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What every device that is supported can give a block (99 KiB: 8.6, 8.9, 12.0).
    #[test]
    fn every_shape_fits_into_shared_memory() {
        for group in 1..=32 {
            for dim in (16..=512).step_by(16) {
                for row_bytes in [dim, 2 * dim] {
                    let plan = Plan::new(group, dim, row_bytes);
                    assert!(plan.shared <= 99 << 10, "{group} {dim}: {plan:?}");
                    assert!(plan.heads * plan.chunks >= group && (16..=128).contains(&plan.tile), "{plan:?}");
                }
            }
        }
    }
}
