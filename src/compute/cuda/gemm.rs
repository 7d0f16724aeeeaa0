//! Matrices times more than a few rows, on tensor cores: `kernels/gemm.cu`.
//!
//! Activations come made ready (`rows`): f16 with a scale a row for f16 and for blocks, which are
//! dequantised on the way; bf16 for bf16; f32 for f32; bytes for Q8_0 where both sides may be bytes; e4m3
//! for e4m3 (`kernels/gemm_fp8.cu`).

use super::elements;
use super::gemv::can_gate;
use super::gpu::{Arg, Gpu, Shape};
use super::matmul::{Gate, Out};
use super::memory::Memory;
use super::rows::{self, Norm};
use super::weights::Part;
use crate::compute::{Activation, DeviceError, Result};
use crate::weights::BlockFormat;

const MODULE: &str = "gemm";
/// What has instructions for it from Ada on.
const FP8_MODULE: &str = "gemm_fp8";
const FP8_CAPABILITY: u32 = 89;

/// Columns of a tile; half as many of each where two matrices share it.
pub(super) const COLUMNS: usize = 128;
/// Bytes of a row of activations that are one step.
const STEP: usize = 128;
/// Rows and columns of a block of `gemm_f32`.
const F32_SIDE: usize = 64;
/// Threads of `gemm_sum`.
const SUM_THREADS: usize = 256;
/// Steps that a split has at least: fewer are over before the copies are under way.
const LEAST_STEPS: usize = 4;
/// Splits at most: each is written and read once more.
const MOST_SPLITS: usize = 8;

/// Rows of activations, [rows, cols].
#[derive(Clone, Copy)]
pub enum Ready<'a> {
    /// For F16 and blocks: `h f16 [rows, cols]`, `scale f32 [rows]`.
    F16 { h: &'a Memory, scale: &'a Memory },
    /// For BF16.
    Bf16(&'a Memory),
    /// For F32.
    F32(&'a Memory),
    /// For Q8_0: q i8 [rows, cols], ds f32x2 [rows, cols / 32].
    Bytes { q: &'a Memory, ds: &'a Memory },
    /// For [`Fp8`]: `q e4m3 [rows, cols]`, `scale f32 [rows]`, from [`to_e4m3`].
    E4m3 { q: &'a Memory, scale: &'a Memory },
}

/// A matrix of bytes with three bits after the point: weight = e4m3(q) * scale.
pub struct Fp8 {
    pub q: Memory,     // [rows, cols]
    pub scale: Memory, // f32 [rows], or one
    pub scale_of_rows: bool,
    pub rows: usize,
    pub cols: usize,
}

/// How a product is cut into blocks. Nothing but shapes decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub tile: Tile,
    /// Blocks that share the columns of a tile's rows; their sums are added afterwards, in order.
    pub splits: usize,
}

/// Rows of activations of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tile {
    Rows16 = 16,
    Rows32 = 32,
    Rows64 = 64,
    Rows128 = 128,
}

impl Tile {
    pub const ALL: [Tile; 4] = [Tile::Rows16, Tile::Rows32, Tile::Rows64, Tile::Rows128];

    pub(super) fn rows(self) -> usize {
        self as usize
    }

    /// Blocks that a multiprocessor has at a time.
    fn resident(self) -> usize {
        match self {
            Tile::Rows16 | Tile::Rows32 => 4,
            Tile::Rows64 => 3,
            Tile::Rows128 => 2,
        }
    }

    fn threads(self) -> usize {
        if self == Tile::Rows128 { 256 } else { 128 }
    }
}

impl Plan {
    /// For `rows` of activations and `tiles` of columns, each of `steps`.
    pub fn new(rows: usize, tiles: usize, steps: usize, multiprocessors: usize) -> Self {
        let padded = |tile: Tile| rows.next_multiple_of(tile.rows());
        let blocks = |tile: Tile| tiles * rows.div_ceil(tile.rows());
        let tile = match rows {
            ..=16 => Tile::Rows16,
            17..=32 => Tile::Rows32,
            // The large one multiplies more with what it loads, if that is not by multiplying nothing, and
            // if there are enough of them.
            _ if rows > 64
                && padded(Tile::Rows128) * 7 <= padded(Tile::Rows64) * 8
                && blocks(Tile::Rows128) >= multiprocessors =>
            {
                Tile::Rows128
            }
            _ => Tile::Rows64,
        };
        let splits = (multiprocessors * tile.resident() / blocks(tile)).min(steps / LEAST_STEPS);
        Self { tile, splits: splits.clamp(1, MOST_SPLITS) }
    }

    fn of(gpu: &Gpu, part: &Part, rows: usize, width: usize) -> Self {
        let steps = (part.cols * 2).div_ceil(STEP);
        Self::new(rows, part.rows.div_ceil(width), steps, gpu.facts.multiprocessors as usize)
    }

    /// Bytes that the splits' sums need for `rows` and a part of `columns` rows; twice for two parts.
    pub fn work_bytes(self, rows: usize, columns: usize) -> usize {
        if self.splits > 1 { self.splits * rows * columns * size_of::<f32>() } else { 0 }
    }
}

/// Bytes of work that [`project`] needs for any number of rows up to `rows`.
pub fn work_bytes(gpu: &Gpu, part: &Part, rows: usize) -> usize {
    most_work(gpu, part, rows, COLUMNS)
}

/// The same for [`gated`].
pub fn gated_work_bytes(gpu: &Gpu, gate: &Gate, rows: usize) -> usize {
    2 * most_work(gpu, gate.gate, rows, COLUMNS / 2).max(most_work(gpu, gate.up, rows, COLUMNS))
}

/// More rows of one tile need no fewer bytes, so the largest of each tile are enough.
fn most_work(gpu: &Gpu, part: &Part, rows: usize, width: usize) -> usize {
    let bytes = |rows| Plan::of(gpu, part, rows, width).work_bytes(rows, part.rows);
    // With more rows than these there are blocks enough, and no splits.
    let most = rows.min(gpu.facts.multiprocessors as usize * Tile::Rows128.rows());
    (1..=most.div_ceil(16)).map(|n| bytes((n * 16).min(rows))).max().unwrap_or(0)
}

/// `out[t] (=|+=) W x[t] (+ bias)` for one part of a matrix. `work` has [`work_bytes`].
pub fn project(gpu: &Gpu, out: Out, x: Ready, rows: usize, part: &Part, work: &Memory) -> Result<()> {
    project_by(gpu, Plan::of(gpu, part, rows, COLUMNS), out, x, rows, part, work)
}

/// With a plan of one's own.
pub fn project_by(
    gpu: &Gpu,
    plan: Plan,
    out: Out,
    x: Ready,
    rows: usize,
    part: &Part,
    work: &Memory,
) -> Result<()> {
    let offset = part.first_row * size_of::<f32>();
    let to = To {
        at: out.to.at(offset),
        columns: out.columns,
        bias: [out.bias.map_or(0, |bias| bias.at(offset)), 0],
        write: if out.add { Write::Add } else { Write::Store },
    };
    Product { gpu, plan, x, rows, work }.run(to, part, None)
}

/// `out[t] = activation(G x[t] (+ bias)) * (U x[t] (+ bias))`, out f32 [rows, rows of a part]. `work` has
/// [`gated_work_bytes`].
pub fn gated(gpu: &Gpu, out: &Memory, x: Ready, rows: usize, gate: &Gate, work: &Memory) -> Result<()> {
    gated_by(gpu, Plan::of(gpu, gate.gate, rows, COLUMNS / 2), out, x, rows, gate, work)
}

pub fn gated_by(
    gpu: &Gpu,
    plan: Plan,
    out: &Memory,
    x: Ready,
    rows: usize,
    gate: &Gate,
    work: &Memory,
) -> Result<()> {
    let at = |bias: Option<&Memory>| bias.map_or(0, |bias| bias.at(0));
    let (columns, biases) = (gate.gate.rows, [at(gate.gate_bias), at(gate.up_bias)]);
    let to = To { at: out.at(0), columns, bias: biases, write: Write::Gated(gate.activation) };
    let product = Product { gpu, plan, x, rows, work };
    if can_gate(gate.gate, gate.up) && gate.gate.format != BlockFormat::F32 {
        return product.run(to, gate.gate, Some(gate.up));
    }
    // One after the other: the second finds what is to be its gate in `out`.
    product.run(To { write: Write::Store, ..to }, gate.gate, None)?;
    product.run(To { bias: [biases[1], 0], ..to }, gate.up, None)
}

/// `out[t] (=|+=) W x[t] (+ bias)` in e4m3, from Ada on; out f32 [rows, out.columns]. `work` as for a part of
/// this size.
pub fn project_fp8(gpu: &Gpu, out: Out, x: Ready, rows: usize, w: &Fp8, work: &Memory) -> Result<()> {
    let steps = w.cols.div_ceil(STEP);
    let multiprocessors = gpu.facts.multiprocessors as usize;
    project_fp8_by(
        gpu,
        Plan::new(rows, w.rows.div_ceil(COLUMNS), steps, multiprocessors),
        out,
        x,
        rows,
        w,
        work,
    )
}

pub fn project_fp8_by(
    gpu: &Gpu,
    plan: Plan,
    out: Out,
    x: Ready,
    rows: usize,
    w: &Fp8,
    work: &Memory,
) -> Result<()> {
    fp8_can_be_computed(gpu)?;
    let (at, bias) = (out.to.at(0), [out.bias.map_or(0, |bias| bias.at(0)), 0]);
    let write = if out.add { Write::Add } else { Write::Store };
    let to = To { at, columns: out.columns, bias, write };
    Product { gpu, plan, x, rows, work }.split(to, Kernels::E4m3, w.into(), None)
}

/// `norm(x) = e4m3(q) * scale`: `q [rows, n]`, `scale f32 [rows]` = max|norm(x)| / 448.
pub fn to_e4m3(
    gpu: &Gpu,
    (q, scale): (&Memory, &Memory),
    x: &Memory,
    rows: usize,
    n: usize,
    norm: Option<Norm>,
) -> Result<()> {
    fp8_can_be_computed(gpu)?;
    let [weight, bias, eps, layer] = rows::parts(norm);
    let args = [q.into(), scale.into(), x.into(), weight, bias, n.into(), eps, layer];
    gpu.launch(FP8_MODULE, "rows_to_e4m3", Shape::new([rows, 1, 1], 256), &args)
}

fn fp8_can_be_computed(gpu: &Gpu) -> Result<()> {
    let capability = gpu.facts.capability;
    if capability >= FP8_CAPABILITY {
        return Ok(());
    }
    let [has, needs] = [capability, FP8_CAPABILITY].map(|c| format!("{}.{}", c / 10, c % 10));
    Err(DeviceError(format!("CUDA: FP8 needs compute capability {needs}, and the device has {has}")))
}

/// `enum Write` of the kernels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    Store,
    Add,
    SideBySide,
    Gated(Activation),
}

impl From<Write> for Arg {
    fn from(write: Write) -> Self {
        Arg::I32(match write {
            Write::Store => 0,
            Write::Add => 1,
            Write::SideBySide => 2,
            Write::Gated(activation) => 3 + elements::code(activation),
        })
    }
}

#[derive(Clone, Copy)]
struct To {
    at: u64,
    columns: usize,
    /// Of the first matrix and of the second; 0 is none.
    bias: [u64; 2],
    write: Write,
}

/// One of the matrices of a product, as kernels take it.
#[derive(Clone, Copy)]
struct Weights {
    planes: [Arg; 4],
    /// f32 of every row or, where `scale_step` is 0, of all; 0 is none.
    scale: u64,
    scale_step: i32,
    /// `gemm::Scales`
    scales: i32,
    rows: usize,
    cols: usize,
}

impl From<&Part> for Weights {
    fn from(part: &Part) -> Self {
        let (rows, cols) = (part.rows, part.cols);
        Self { planes: part.planes(), scale: 0, scale_step: 0, scales: scales(part.format), rows, cols }
    }
}

impl From<&Fp8> for Weights {
    fn from(w: &Fp8) -> Self {
        let (scale, scale_step) = (w.scale.at(0), w.scale_of_rows.into());
        Self { planes: fp8_planes(w), scale, scale_step, scales: 0, rows: w.rows, cols: w.cols }
    }
}

fn fp8_planes(w: &Fp8) -> [Arg; 4] {
    [(&w.q).into(), Arg::Ptr(0), Arg::Ptr(0), Arg::Ptr(0)]
}

struct Product<'a> {
    gpu: &'a Gpu,
    plan: Plan,
    x: Ready<'a>,
    rows: usize,
    work: &'a Memory,
}

impl Product<'_> {
    fn run(&self, to: To, part: &Part, up: Option<&Part>) -> Result<()> {
        let Some(kernels) = kernels(part.format, self.x) else {
            let name = part.format.name();
            return Err(DeviceError(format!("CUDA: rows were not made ready for {name}")));
        };
        match self.x {
            Ready::F32(x) => self.f32(to, x, part),
            _ => self.split(to, kernels, part.into(), up.map(Weights::from)),
        }
    }

    fn split(&self, to: To, kernels: Kernels, w: Weights, up: Option<Weights>) -> Result<()> {
        let steps = (w.cols * kernels.x_size()).div_ceil(STEP);
        let per_split = steps.div_ceil(self.plan.splits);
        let splits = steps.div_ceil(per_split);
        if splits == 1 {
            return self.tiles(to, kernels, (w, up), (1, steps));
        }
        let width = if up.is_some() { 2 * w.rows } else { w.rows };
        let needed = splits * self.rows * width * size_of::<f32>();
        assert!(needed <= self.work.bytes(), "{needed} bytes of work and {} there", self.work.bytes());
        let write = if up.is_some() { Write::SideBySide } else { Write::Store };
        let sums = To { at: self.work.at(0), columns: width, bias: [0, 0], write };
        self.tiles(sums, kernels, (w, up), (splits, per_split))?;
        self.sum(to, w.rows, up.is_some(), splits)
    }

    fn tiles(
        &self,
        to: To,
        kernels: Kernels,
        (w, up): (Weights, Option<Weights>),
        (splits, per_split): (usize, usize),
    ) -> Result<()> {
        let none = Arg::Ptr(0);
        let (x, ds, x_scale): (Arg, Arg, Arg) = match self.x {
            Ready::F16 { h, scale } => (h.into(), none, scale.into()),
            Ready::E4m3 { q, scale } => (q.into(), none, scale.into()),
            Ready::Bf16(x) | Ready::F32(x) => (x.into(), none, none),
            Ready::Bytes { q, ds } => (q.into(), ds.into(), none),
        };
        let [q0, h0, s0, d0] = w.planes;
        let [q1, h1, s1, d1] = up.map_or([none; 4], |up| up.planes);
        let up_scale = up.map_or(0, |up| up.scale);
        #[rustfmt::skip]
        let args = [
            Arg::Ptr(to.at), to.columns.into(), Arg::I32(w.scales), x, ds, x_scale,
            q0, h0, s0, d0, q1, h1, s1, d1,
            Arg::Ptr(w.scale), Arg::Ptr(up_scale), Arg::I32(w.scale_step),
            Arg::Ptr(to.bias[0]), Arg::Ptr(to.bias[1]),
            self.rows.into(), w.rows.into(), w.cols.into(), to.write.into(), per_split.into(),
        ];
        let (tile, width) = (self.plan.tile, if up.is_some() { COLUMNS / 2 } else { COLUMNS });
        let blocks = self.rows.div_ceil(tile.rows()) * w.rows.div_ceil(width);
        let shape = Shape::new([blocks, 1, splits], tile.threads()).shared(kernels.shared(tile));
        self.gpu.launch(kernels.module(), kernels.name(tile), shape, &args)
    }

    /// Columns over blocks, rows over blocks.
    fn sum(&self, to: To, columns: usize, gated: bool, splits: usize) -> Result<()> {
        let args = [
            Arg::Ptr(to.at),
            to.columns.into(),
            self.work.into(),
            splits.into(),
            Arg::Ptr(to.bias[0]),
            Arg::Ptr(to.bias[1]),
            self.rows.into(),
            columns.into(),
            Arg::I32(gated.into()),
            to.write.into(),
        ];
        let shape = Shape::new([self.rows, columns.div_ceil(SUM_THREADS), 1], SUM_THREADS);
        self.gpu.launch(MODULE, "gemm_sum", shape, &args)
    }

    fn f32(&self, to: To, x: &Memory, part: &Part) -> Result<()> {
        let [w, ..] = part.planes();
        let args = [
            Arg::Ptr(to.at),
            to.columns.into(),
            x.into(),
            w,
            Arg::Ptr(to.bias[0]),
            self.rows.into(),
            part.rows.into(),
            part.cols.into(),
            to.write.into(),
        ];
        let grid = [self.rows.div_ceil(F32_SIDE), part.rows.div_ceil(F32_SIDE), 1];
        self.gpu.launch(MODULE, "gemm_f32", Shape::new(grid, 256), &args)
    }
}

/// Formats that share kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernels {
    F32,
    F16,
    Bf16,
    Bits4,
    Bits5,
    Bits6,
    Bits8,
    Int8,
    E4m3,
}

/// Those that multiply a format with such activations.
pub(super) fn kernels(format: BlockFormat, x: Ready) -> Option<Kernels> {
    use BlockFormat as B;
    Some(match (format, x) {
        (B::F32, Ready::F32(_)) => Kernels::F32,
        (B::BF16, Ready::Bf16(_)) => Kernels::Bf16,
        (B::F16, Ready::F16 { .. }) => Kernels::F16,
        (B::Q4_0 | B::Q4_1 | B::Q4_K, Ready::F16 { .. }) => Kernels::Bits4,
        (B::Q5_0 | B::Q5_1 | B::Q5_K, Ready::F16 { .. }) => Kernels::Bits5,
        (B::Q6_K, Ready::F16 { .. }) => Kernels::Bits6,
        (B::Q8_0, Ready::F16 { .. }) => Kernels::Bits8,
        (B::Q8_0, Ready::Bytes { .. }) => Kernels::Int8,
        _ => return None,
    })
}

/// `gemm::Scales`
pub(super) fn scales(format: BlockFormat) -> i32 {
    use BlockFormat as B;
    match format {
        B::F32 | B::F16 | B::BF16 => 0,
        B::Q4_0 | B::Q5_0 | B::Q8_0 => 1,
        B::Q4_1 | B::Q5_1 => 2,
        B::Q4_K | B::Q5_K => 3,
        B::Q6_K => 4,
        other => crate::compute::not_taken(other),
    }
}

macro_rules! by_tile {
    ($name:literal, $tile:expr) => {
        match $tile {
            Tile::Rows16 => concat!("gemm_", $name, "_16"),
            Tile::Rows32 => concat!("gemm_", $name, "_32"),
            Tile::Rows64 => concat!("gemm_", $name, "_64"),
            Tile::Rows128 => concat!("gemm_", $name, "_128"),
        }
    };
}

/// Dynamic shared memory of every kernel, in the order of `gemm_shared`, which a test compares.
#[doc(hidden)]
pub fn shared_of_kernels() -> Vec<usize> {
    use Kernels as K;
    let kernels = [K::F16, K::Bf16, K::Bits4, K::Bits5, K::Bits6, K::Bits8, K::Int8, K::E4m3];
    kernels.into_iter().flat_map(|kernels| Tile::ALL.map(|tile| kernels.shared(tile))).collect()
}

impl Kernels {
    fn name(self, tile: Tile) -> &'static str {
        match self {
            Kernels::F32 => "gemm_f32",
            Kernels::F16 => by_tile!("f16", tile),
            Kernels::Bf16 => by_tile!("bf16", tile),
            Kernels::Bits4 => by_tile!("bits4", tile),
            Kernels::Bits5 => by_tile!("bits5", tile),
            Kernels::Bits6 => by_tile!("bits6", tile),
            Kernels::Bits8 => by_tile!("bits8", tile),
            Kernels::Int8 => by_tile!("int8", tile),
            Kernels::E4m3 => by_tile!("e4m3", tile),
        }
    }

    fn module(self) -> &'static str {
        if self == Kernels::E4m3 { FP8_MODULE } else { MODULE }
    }

    /// Bytes of an activation.
    fn x_size(self) -> usize {
        match self {
            Kernels::F32 => 4,
            Kernels::Int8 | Kernels::E4m3 => 1,
            _ => 2,
        }
    }

    /// Dynamic shared memory: `gemm::Tile::SHARED`.
    pub(super) fn shared(self, tile: Tile) -> usize {
        let rows = tile.rows();
        let packed = |chunks: usize| chunks * (COLUMNS * 16 + 128 / chunks);
        // Of a step: weights, what belongs to 32 of them (high bits, words of scales), and scales made ready.
        let (weights, subs, high, words, ready) = match self {
            Kernels::F32 => return 0,
            Kernels::F16 | Kernels::Bf16 | Kernels::E4m3 => (COLUMNS * 128, 2, 0, 0, 0),
            Kernels::Bits4 => (packed(2), 2, 0, 2, 8),
            Kernels::Bits5 => (packed(2), 2, 4, 2, 8),
            Kernels::Bits6 => (packed(2), 2, 8, 2, 8),
            Kernels::Bits8 => (packed(4), 2, 0, 1, 4),
            Kernels::Int8 => (COLUMNS * 128, 4, 0, 1, 4),
        };
        let x_scales = if self == Kernels::Int8 { subs * rows * 8 } else { 0 };
        let stage = rows * 128 + weights + subs * COLUMNS * (high + 4 * words) + x_scales;
        let stages = match (self, tile) {
            (Kernels::Int8, Tile::Rows64 | Tile::Rows128) => 2,
            (Kernels::Bits4 | Kernels::Bits5, _) => 4,
            (_, Tile::Rows128) => 3,
            _ => 4,
        };
        stages * stage + 2 * subs * COLUMNS * ready
    }
}
