//! Attention of spans of more than one row over their paged past: `kernels/prefill.cu`.
//!
//! A step's spans come as tiles of a fixed number of rows. How many rows that is, is the host's choice,
//! the same for every layer of a model; [`tile_rows`] says what fills a block's products.

use super::gpu::{Arg, Gpu, Memory, Shape};
use crate::compute::{CacheDtype, DeviceError, Result};

const MODULE: &str = "prefill";
const THREADS: usize = 128;
/// Positions that are walked at a time.
const STEP: usize = 32;
/// Largest head.
const MOST_DIM: usize = 256;

/// Keys and values of one layer: `[block][kv head](K [block_size][dim] | V | K scales | V scales)`.
#[derive(Clone, Copy)]
pub struct Past<'a> {
    pub memory: &'a Memory,
    pub block_size: usize,
    pub dtype: CacheDtype,
    /// Whose block tables of the step: the group that the layer's cache belongs to.
    pub group: usize,
}

#[derive(Clone, Copy)]
pub struct Attention<'a> {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Multiplies scores before the softmax.
    pub scale: f32,
    /// Each token sees the last `window` tokens, itself included.
    pub window: Option<usize>,
    /// Scores are `cap * tanh(score / cap)`.
    pub soft_cap: Option<f32>,
    /// A score of each head that takes part in the softmax and has no value: f32 [heads].
    pub sinks: Option<&'a Memory>,
}

/// A step on the device, and no fewer tiles than it has.
#[derive(Clone, Copy)]
pub struct Tiles<'a> {
    pub step: &'a Memory,
    pub tiles: usize,
    /// Rows of a whole tile.
    pub rows: usize,
}

/// Room for the results of splits: the past of short spans is cut, so that many blocks work on it.
///
/// What is cut depends on the span alone: it has at most `rows` rows, and more than 512 positions; then it
/// is cut into equal splits of 512, 1,024, 2,048... positions, of which there are at most `most`.
pub struct Splits {
    parts: Memory, // f32 [spans, rows, heads, most, head_dim]
    sums: Memory,  // f32x2 [spans, rows, heads, most]
    limits: SplitLimits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitLimits {
    /// Sequences of a step; those beyond are not cut.
    pub spans: usize,
    /// Rows of a short span.
    pub rows: usize,
    pub most: usize,
}

impl Splits {
    pub fn new(gpu: &Gpu, limits: SplitLimits, heads: usize, head_dim: usize) -> Result<Self> {
        let slots = limits.slots(heads);
        let parts = gpu.alloc(slots * head_dim * 4, "splits of attention")?;
        Ok(Self { parts, sums: gpu.alloc(slots * 8, "splits of attention")?, limits })
    }
}

impl SplitLimits {
    fn slots(self, heads: usize) -> usize {
        self.spans * self.rows * heads * self.most
    }

    /// What [`Splits::new`] allocates.
    pub fn bytes(self, heads: usize, head_dim: usize) -> usize {
        self.slots(heads) * (head_dim * 4 + 8)
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

/// `out[row] = softmax(scores of row) V` for every row of a tile; other rows of `out` are left alone.
pub fn attend(
    gpu: &Gpu,
    out: &Memory, // f32 [rows, heads * head_dim]
    qkv: &Memory, // f32 [rows, (heads + 2 kv_heads) * head_dim]
    past: Past,
    attention: &Attention,
    tiles: Tiles,
    splits: Option<&Splits>,
) -> Result<()> {
    let &Attention { heads, kv_heads, head_dim, .. } = attention;
    if head_dim > MOST_DIM || head_dim % 16 != 0 {
        return Err(DeviceError(format!(
            "CUDA: attention over prompts has no kernel for heads of {head_dim}: multiples of 16 up to \
             {MOST_DIM} are known; use --device cpu"
        )));
    }
    let (rows, columns) = block(head_dim);
    let limits = splits.map_or(SplitLimits { spans: 0, rows: 0, most: 1 }, |splits| splits.limits);
    let parts: Arg = splits.map(|splits| &splits.parts).into();
    let sums: Arg = splits.map(|splits| &splits.sums).into();
    // Without a window: one that everything lies in.
    let window = Arg::from(attention.window.unwrap_or(i32::MAX as usize));
    let blocks = (tiles.rows * heads / kv_heads).div_ceil(rows);
    let args = [
        out.into(),
        qkv.into(),
        past.memory.into(),
        tiles.step.into(),
        attention.sinks.into(),
        parts,
        sums,
        past.group.into(),
        heads.into(),
        kv_heads.into(),
        head_dim.into(),
        past.block_size.into(),
        usize::from(past.dtype == CacheDtype::Fp8).into(),
        window,
        tiles.rows.into(),
        limits.rows.into(),
        limits.most.into(),
        limits.spans.into(),
        attention.scale.into(),
        attention.soft_cap.unwrap_or(0.0).into(),
    ];
    let shape = Shape::new([tiles.tiles, kv_heads, blocks * limits.most], THREADS);
    gpu.launch(MODULE, kernel(past.dtype, columns), shape.shared(shared_bytes(rows, columns)), &args)?;
    if limits.most == 1 {
        return Ok(());
    }
    let args = [
        out.into(),
        parts,
        sums,
        tiles.step.into(),
        attention.sinks.into(),
        heads.into(),
        head_dim.into(),
        window,
        limits.rows.into(),
        limits.most.into(),
        limits.spans.into(),
    ];
    let shape = Shape::new([tiles.tiles, heads, limits.rows.min(tiles.rows)], THREADS);
    gpu.launch(MODULE, "prefill_merge", shape, &args)
}

fn kernel(dtype: CacheDtype, columns: usize) -> &'static str {
    match (dtype, columns) {
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
