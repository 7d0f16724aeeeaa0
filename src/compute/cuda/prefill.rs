//! Attention of spans of more than one row over their paged past: `kernels/prefill.cu`.
//!
//! A step's spans come as tiles of a fixed number of rows. How many rows that is, is the host's choice,
//! the same for every layer of a model; [`tile_rows`] says what fills a block's products.

use super::decode::Attention;
use super::gpu::{Arg, Gpu, Shape};
use super::kv::{Cache, Place};
use super::memory::Memory;
use crate::compute::{CacheDtype, CacheShape, DeviceError, Result};

const MODULE: &str = "prefill";
const THREADS: usize = 128;
/// Positions that are walked at a time.
const STEP: usize = 32;
/// Largest head.
const MOST_DIM: usize = 256;

/// Tiles of the step's spans of more than one row.
#[derive(Clone, Copy)]
pub struct Tiles {
    /// How many a step of this size has at most.
    pub most: usize,
    /// Rows of a whole tile, as the step was cut.
    pub rows: usize,
}

/// Short spans whose past is cut, so that many blocks work on it.
///
/// What is cut depends on the span alone: it has at most `rows` rows, and ends behind 512 positions; then
/// it is cut into splits of 512, 1,024, 2,048... positions, the least of which there are at most `most`.
#[derive(Clone, Copy)]
pub struct Splits<'a> {
    pub limits: SplitLimits,
    /// [`SplitLimits::bytes`] to work in.
    pub workspace: &'a Memory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitLimits {
    /// Sequences of a step; those beyond are not cut.
    pub spans: usize,
    /// Rows of a short span.
    pub rows: usize,
    pub most: usize,
}

impl SplitLimits {
    const NONE: Self = Self { spans: 0, rows: 0, most: 1 };

    /// f32x2 [spans, rows, heads, most] of (largest score, sum); f32 [spans, rows, heads, most, head_dim]
    pub fn bytes(self, heads: usize, head_dim: usize) -> usize {
        self.sums_bytes(heads) / 2 * (2 + head_dim)
    }

    fn sums_bytes(self, heads: usize) -> usize {
        self.spans * self.rows * heads * self.most * 8
    }
}

/// Rows of the kernel's products, and columns that its tiles are padded to.
fn block(head_dim: usize) -> (usize, usize) {
    match head_dim {
        ..=64 => (128, 64),
        65..=128 => (128, 128),
        _ => (64, 256),
    }
}

/// Rows of a tile that fill one block, when `group` query heads share a key head.
pub fn tile_rows(head_dim: usize, group: usize) -> usize {
    (block(head_dim).0 / group).max(1)
}

/// # Errors
/// There is no kernel for heads of this size.
pub fn check(head_dim: usize) -> Result<()> {
    if head_dim > MOST_DIM || !head_dim.is_multiple_of(16) {
        return Err(DeviceError(format!(
            "CUDA: attention over prompts has no kernel for heads of {head_dim}: multiples of 16 up to \
             {MOST_DIM} are known; use --device cpu"
        )));
    }
    Ok(())
}

/// `out[row] = softmax(scores of row) V` for every row of a tile; other rows of `out` are left alone.
/// out f32 [rows, heads * head_dim]; qkv f32 [rows, (heads + 2 kv_heads) * head_dim].
pub fn attend(
    gpu: &Gpu,
    (out, qkv): (&Memory, &Memory),
    cache: &Cache,
    place: Place,
    attention: &Attention,
    tiles: Tiles,
    splits: Option<Splits>,
) -> Result<()> {
    let CacheShape { kv_heads, head_dim, block_size, dtype, .. } = cache.shape();
    let heads = attention.heads;
    check(head_dim)?;
    let (rows, columns) = block(head_dim);
    let limits = splits.map_or(SplitLimits::NONE, |splits| splits.limits);
    let (sums, parts) = match splits {
        Some(Splits { workspace, .. }) => {
            assert!(workspace.bytes() >= limits.bytes(heads, head_dim), "the workspace is the caller's");
            (Arg::Ptr(workspace.at(0)), Arg::Ptr(workspace.at(limits.sums_bytes(heads))))
        }
        None => (Arg::from(None), Arg::from(None)),
    };
    // Without a window: one that everything lies in.
    let window = Arg::from(attention.window.unwrap_or(i32::MAX as usize));
    let blocks = (tiles.rows * heads / kv_heads).div_ceil(rows);
    let args = [
        out.into(),
        qkv.into(),
        Arg::Ptr(cache.memory.at(0)),
        place.step.into(),
        attention.sinks.into(),
        parts,
        sums,
        place.group.into(),
        heads.into(),
        kv_heads.into(),
        head_dim.into(),
        block_size.into(),
        cache.stride().into(),
        usize::from(dtype == CacheDtype::Fp8).into(),
        window,
        tiles.rows.into(),
        limits.rows.into(),
        limits.most.into(),
        limits.spans.into(),
        attention.scale.into(),
        attention.cap.unwrap_or(0.0).into(),
    ];
    let shape = Shape::new([tiles.most, kv_heads, blocks * limits.most], THREADS);
    gpu.launch(MODULE, kernel(dtype, columns), shape.shared(shared_bytes(rows, columns)), &args)?;
    if limits.most == 1 {
        return Ok(());
    }
    let args = [
        out.into(),
        parts,
        sums,
        place.step.into(),
        attention.sinks.into(),
        heads.into(),
        head_dim.into(),
        window,
        limits.rows.into(),
        limits.most.into(),
        limits.spans.into(),
    ];
    let shape = Shape::new([tiles.most, heads, limits.rows.min(tiles.rows)], THREADS);
    gpu.launch(MODULE, "prefill_merge", shape, &args)
}

fn kernel(dtype: CacheDtype, columns: usize) -> &'static str {
    match (dtype, columns) {
        (CacheDtype::F32, _) => unreachable!("no cache is made of it"),
        (CacheDtype::F16, 64) => "prefill_f16_64",
        (CacheDtype::F16, 128) => "prefill_f16_128",
        (CacheDtype::F16, _) => "prefill_f16_256",
        (CacheDtype::Bf16, 64) => "prefill_bf16_64",
        (CacheDtype::Bf16, 128) => "prefill_bf16_128",
        (CacheDtype::Bf16, _) => "prefill_bf16_256",
        (CacheDtype::Int8 | CacheDtype::Fp8, 64) => "prefill_bytes_64",
        (CacheDtype::Int8 | CacheDtype::Fp8, 128) => "prefill_bytes_128",
        (CacheDtype::Int8 | CacheDtype::Fp8, _) => "prefill_bytes_256",
    }
}

/// Queries, two stages of keys and values (or as much in another order), addresses and scales of two
/// stages, factors of queries.
fn shared_bytes(rows: usize, columns: usize) -> usize {
    rows * columns * 2 + 2 * (2 * STEP * columns * 2) + 2 * STEP * 8 + 4 * STEP * 4 + rows * 4
}
