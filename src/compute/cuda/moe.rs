//! Mixtures of experts: `kernels/moe.cu` (which experts, and their sum), `moe_gemv.cu` (products for few
//! rows), `moe_gemm.cu` (for many).
//!
//! A pair is one expert of one row, `row * top + slot`; all that lies between router and sum lies in the
//! order of pairs. Weights of all experts of a layer are stacked: rows of expert e begin at `e * n`. With
//! `logits` f32 [rows, experts] from the router's matrix and `x` the rows after the norm, a layer is:
//!
//! | | few rows ([`few`]) | many ([`many`]) |
//! |---|---|---|
//! | 1 | [`route`]: experts and weights of each pair | the same |
//! | 2 | | [`sort`]: pairs by expert |
//! | 3 | `rows::to_bytes` of x, `rows` of them | `rows::to_f16` (`to_bf16` for BF16) |
//! | 4 | [`few`] with gate and up, [`Of::Rows`] | [`many`], the same |
//! | 5 | `rows::to_bytes` of its output, `pairs` of them | `rows::to_f16` (`to_bf16`) |
//! | 6 | [`few`] with down, [`Of::Pairs`] | [`many`], the same |
//! | 7 | [`combine`]: added to the residual stream, or to a shared expert's output | the same |
//!
//! In [`few`], weights that are floats take f32 rows instead of bytes (steps 3 and 5 fall away). Rows that a
//! captured graph has and the step has not get no expert: their pairs are neither sorted nor computed.

use super::elements;
use super::gemm::{self, Kernels, Tile};
use super::gemv;
use super::gpu::{Arg, Gpu, Shape};
use super::memory::Memory;
use super::weights::{Part, by_format};
use crate::compute::{Activation, DeviceError, ExpertGroups, Result, Score};
use crate::weights::BlockFormat;

const MODULE: &str = "moe";
pub const MOST_EXPERTS: usize = 256;
pub const MOST_TOP: usize = 32;
/// Pairs of a tile of [`many`]: for a few of each expert, and for prefill.
pub const TILES: [Tile; 2] = [Tile::Rows16, Tile::Rows64];
/// Pairs of a block that sorts (`CHUNK`).
const CHUNK: usize = 256;

/// How a router's logits become experts and weights.
#[derive(Clone, Copy)]
pub struct Router<'a> {
    pub experts: usize,
    /// Experts of a row.
    pub top: usize,
    pub score: Score,
    /// `f32 [experts]`, added to scores for the choice and not for the weight (DeepSeek-V3).
    pub bias: Option<&'a Memory>,
    pub groups: Option<ExpertGroups>,
    /// Weights of the chosen add up to 1: Mixtral, and wherever the softmax comes after the choice.
    pub renormalise: bool,
    /// On all weights, at last.
    pub scale: f32,
}

/// # Errors
/// There is no kernel that chooses so.
pub fn check(experts: usize, top: usize) -> Result<()> {
    if experts > MOST_EXPERTS || top > MOST_TOP {
        return Err(DeviceError(format!(
            "CUDA: {top} of {experts} experts; at most {MOST_TOP} of {MOST_EXPERTS} are known"
        )));
    }
    Ok(())
}

/// Experts and weights of rows of `logits` f32 [rows, experts]: ids i32 [rows, top], the best first, and
/// weights f32 [rows, top]. Rows beyond those of `step` get expert -1.
pub fn route(
    gpu: &Gpu,
    (ids, weights): (&Memory, &Memory),
    logits: &Memory,
    rows: usize,
    step: Option<&Memory>,
    router: &Router,
) -> Result<()> {
    let Router { experts, top, score, bias, groups, renormalise, scale } = *router;
    const ALL: ExpertGroups = ExpertGroups { all: 1, chosen: 1, by_two: false };
    let ExpertGroups { all, chosen, by_two } = groups.unwrap_or(ALL);
    check(experts, top)?;
    assert!(all <= 32 && experts.is_multiple_of(all) && top <= experts / all * chosen, "{all} groups");
    let sigmoid = usize::from(score == Score::Sigmoid);
    let args: [Arg; 14] = [
        ids.into(),
        weights.into(),
        logits.into(),
        bias.into(),
        step.into(),
        rows.into(),
        experts.into(),
        top.into(),
        sigmoid.into(),
        usize::from(renormalise).into(),
        scale.into(),
        all.into(),
        chosen.into(),
        usize::from(by_two).into(),
    ];
    gpu.launch(MODULE, "moe_route", Shape::new([rows.div_ceil(4), 1, 1], 128), &args)
}

/// Pairs by expert, cut into tiles: room for it, used again every layer.
pub struct Sorted {
    /// i32: how many tiles; then (expert, first place, pairs) of each.
    pub tiles: Memory,
    /// `i32 [pairs]`: pairs by expert, those of an expert in their order.
    pub pairs: Memory,
    /// `i32 [pairs]`: the row of each.
    pub rows: Memory,
    counts: Memory, // i32 [chunks + 1, experts]
    most: usize,
    experts: usize,
    top: usize,
    tile: Tile,
}

impl Sorted {
    /// For at most so many rows, with tiles of `tile` pairs: one of [`TILES`].
    pub fn new(gpu: &Gpu, rows: usize, (top, experts): (usize, usize), tile: Tile) -> Result<Self> {
        let pairs = rows * top;
        let words = |words: usize| gpu.alloc(words * 4, "rows sorted by expert");
        Ok(Self {
            tiles: words(1 + 3 * most_tiles(pairs, experts, tile.rows()))?,
            pairs: words(pairs)?,
            rows: words(pairs)?,
            counts: words((pairs.div_ceil(CHUNK) + 1) * experts)?,
            most: rows,
            experts,
            top,
            tile,
        })
    }

    /// It has room for so many rows of this kind.
    pub(super) fn is_for(&self, rows: usize, kind: (usize, usize), tile: Tile) -> bool {
        self.most >= rows && (self.top, self.experts) == kind && self.tile == tile
    }
}

/// The tile for so many rows: the large one multiplies more with what it loads, once experts have the rows.
pub fn tile_for(rows: usize, (top, experts): (usize, usize)) -> Tile {
    if rows * top <= 24 * experts { Tile::Rows16 } else { Tile::Rows64 }
}

/// Every expert may have one tile that is not full.
fn most_tiles(pairs: usize, experts: usize, tile: usize) -> usize {
    pairs / tile + experts.min(pairs)
}

/// Sorts the pairs of `rows` rows: `ids` of [`route`].
pub fn sort(gpu: &Gpu, sorted: &Sorted, ids: &Memory, rows: usize) -> Result<()> {
    let Sorted { tiles, pairs, rows: rows_of, counts, experts, top, tile, .. } = sorted;
    let (all, experts) = (rows * top, *experts);
    let blocks = all.div_ceil(CHUNK);
    let shape = |blocks: usize| Shape::new([blocks, 1, 1], CHUNK);
    let count: [Arg; 4] = [counts.into(), ids.into(), all.into(), experts.into()];
    gpu.launch(MODULE, "moe_count", shape(blocks), &count)?;
    let offsets: [Arg; 5] = [tiles.into(), counts.into(), blocks.into(), experts.into(), tile.rows().into()];
    gpu.launch(MODULE, "moe_offsets", shape(1), &offsets)?;
    let place: [Arg; 7] =
        [pairs.into(), rows_of.into(), ids.into(), counts.into(), all.into(), experts.into(), (*top).into()];
    gpu.launch(MODULE, "moe_place", shape(blocks), &place)
}

/// What all experts of a layer are multiplied with, and what is done with it.
#[derive(Clone, Copy)]
pub struct Experts<'a> {
    /// [experts * n, k]
    pub weights: &'a Part,
    pub bias: Option<&'a Memory>, // f32 [experts * n]
    pub gated: Option<Up<'a>>,
    /// Rows of an expert.
    pub n: usize,
}

/// `activation(weights x) * (up x)`: of the same format and shape.
#[derive(Clone, Copy)]
pub struct Up<'a> {
    pub weights: &'a Part,
    pub bias: Option<&'a Memory>, // f32 [experts * n]
    pub activation: Activation,
}

impl Experts<'_> {
    /// Planes of both matrices, and biases.
    fn matrices(&self) -> [Arg; 10] {
        let [a, b, c, d] = self.weights.planes();
        let [e, f, g, h] = self.gated.map_or([Arg::Ptr(0); 4], |up| {
            assert!(gemv::can_gate(self.weights, up.weights), "they were found to be alike");
            up.weights.planes()
        });
        [a, b, c, d, e, f, g, h, self.bias.into(), self.gated.and_then(|up| up.bias).into()]
    }

    fn activation(&self) -> Arg {
        Arg::I32(self.gated.map_or(0, |up| elements::code(up.activation)))
    }
}

/// Whose activations they are.
#[derive(Clone, Copy)]
pub enum Of {
    /// A row's, for all its experts, of which there are so many.
    Rows(usize),
    /// Each pair has its own.
    Pairs,
}

/// `out[pair] = W_e x`, out f32 [pairs, n], where every pair reads its expert's weights: for few rows.
pub fn few(
    gpu: &Gpu,
    out: &Memory,
    ids: &Memory,
    pairs: usize,
    (x, of): (gemv::Ready, Of),
    experts: &Experts,
) -> Result<()> {
    let Experts { weights, gated, n, .. } = *experts;
    let (q, ds, x) = match (x, weights.wants_bytes()) {
        (gemv::Ready::Bytes { q, ds }, true) => (Some(q), Some(ds), None),
        (gemv::Ready::Floats(x), false) => (None, None, Some(x)),
        _ => return Err(misfit(weights.format)),
    };
    let per_row = match of {
        Of::Rows(top) => top,
        Of::Pairs => 1,
    };
    let kernel = match gated {
        Some(_) => by_format!("moe_gemv_gated_", weights.format, ""),
        None => by_format!("moe_gemv_", weights.format, ""),
    };
    let args = [
        &[out.into(), ids.into(), q.into(), ds.into(), x.into()][..],
        &experts.matrices(),
        &[n.into(), weights.cols.into(), per_row.into(), experts.activation()],
    ];
    gpu.launch("moe_gemv", kernel, Shape::new([n.div_ceil(8), pairs, 1], 128), &args.concat())
}

/// `out[pair] = W_e x` as in [`few`], on tensor cores: for many rows. `sorted` holds the pairs of `rows`
/// rows; x is f16 with its scales, or bf16 for BF16. Experts of F32 have [`few`] alone.
pub fn many(
    gpu: &Gpu,
    out: &Memory,
    (sorted, rows): (&Sorted, usize),
    (x, of): (gemm::Ready, Of),
    experts: &Experts,
) -> Result<()> {
    let Experts { weights, gated, n, .. } = *experts;
    let misfit = || misfit(weights.format);
    let kernels = gemm::kernels(weights.format, x).ok_or_else(misfit)?;
    let kernel = kernel(kernels, sorted.tile).ok_or_else(misfit)?;
    let (x, x_scale) = match x {
        gemm::Ready::F16 { h, scale } => (h, Some(scale)),
        gemm::Ready::Bf16(x) => (x, None),
        _ => return Err(misfit()),
    };
    let rows_of_x = match of {
        Of::Rows(_) => &sorted.rows,
        Of::Pairs => &sorted.pairs,
    };
    let to = [out.into(), Arg::I32(gemm::scales(weights.format)), x.into(), x_scale.into()];
    let lists = [(&sorted.tiles).into(), (&sorted.pairs).into(), rows_of_x.into()];
    let sizes = [n.into(), weights.cols.into(), experts.activation()];
    let args = [&to[..], &lists, &experts.matrices(), &sizes].concat();
    let columns = if gated.is_some() { gemm::COLUMNS / 2 } else { gemm::COLUMNS };
    let tiles = most_tiles(rows * sorted.top, sorted.experts, sorted.tile.rows());
    let shape = Shape::new([n.div_ceil(columns), tiles, 1], 128).shared(kernels.shared(sorted.tile));
    gpu.launch("moe_gemm", kernel, shape, &args)
}

fn misfit(format: BlockFormat) -> DeviceError {
    DeviceError(format!("CUDA: experts of {} are not multiplied with rows made ready so", format.name()))
}

macro_rules! by_tile {
    ($name:literal, $tile:expr) => {
        match $tile {
            Tile::Rows16 => Some(concat!("moe_gemm_", $name, "_16")),
            Tile::Rows64 => Some(concat!("moe_gemm_", $name, "_64")),
            Tile::Rows32 | Tile::Rows128 => None,
        }
    };
}

fn kernel(kernels: Kernels, tile: Tile) -> Option<&'static str> {
    match kernels {
        Kernels::F16 => by_tile!("f16", tile),
        Kernels::Bf16 => by_tile!("bf16", tile),
        Kernels::Bits4 => by_tile!("bits4", tile),
        Kernels::Bits5 => by_tile!("bits5", tile),
        Kernels::Bits6 => by_tile!("bits6", tile),
        Kernels::Bits8 => by_tile!("bits8", tile),
        Kernels::F32 | Kernels::Int8 | Kernels::E4m3 => None,
    }
}

/// `out[row] += weight * y` over the row's pairs, in order: out f32 [rows, n], y f32 [rows, top, n].
pub fn combine(
    gpu: &Gpu,
    out: &Memory,
    y: &Memory,
    (ids, weights): (&Memory, &Memory),
    (rows, top, n): (usize, usize, usize),
) -> Result<()> {
    assert!(n.is_multiple_of(4), "{n}: four columns are added at once");
    let args = [out.into(), y.into(), weights.into(), ids.into(), n.into(), top.into()];
    gpu.launch(MODULE, "moe_combine", Shape::new([n.div_ceil(512), rows, 1], 128), &args)
}
