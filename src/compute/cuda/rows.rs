//! Rows of activations: `kernels/rows.cu`, one block a row.

use super::gpu::{Arg, Gpu, Shape};
use super::memory::Memory;
use crate::compute::{Columns, NormKind, Result};

const MODULE: &str = "rows";
const THREADS: usize = 256;

/// What rows are normalised by in front of an operation; without, they stay as they are.
#[derive(Clone, Copy)]
pub struct Norm<'a> {
    pub weight: &'a Memory,       // f32 [n]
    pub bias: Option<&'a Memory>, // f32 [n]
    pub eps: f32,
    pub kind: NormKind,
}

/// Weight, bias, eps, and whether the mean is taken off: as kernels take them.
pub(super) fn parts(norm: Option<Norm>) -> [Arg; 4] {
    let layer = norm.is_some_and(|norm| norm.kind == NormKind::Layer);
    [
        norm.map(|norm| norm.weight).into(),
        norm.and_then(|norm| norm.bias).into(),
        norm.map_or(0.0, |norm| norm.eps).into(),
        usize::from(layer).into(),
    ]
}

fn shape(rows: usize) -> Shape {
    Shape::new([rows, 1, 1], THREADS)
}

/// `out = norm(x)`; `out` may be `x`.
pub fn norm(gpu: &Gpu, out: &Memory, x: &Memory, rows: usize, n: usize, norm: Option<Norm>) -> Result<()> {
    let [weight, bias, eps, layer] = parts(norm);
    let args = [out.into(), x.into(), weight, bias, n.into(), n.into(), eps, layer];
    gpu.launch(MODULE, "rows_norm", shape(rows), &args)
}

/// `x = norm(x)` of the columns at `columns` alone.
pub fn norm_columns(gpu: &Gpu, x: &Memory, rows: usize, columns: Columns, norm: Norm) -> Result<()> {
    let [weight, bias, eps, layer] = parts(Some(norm));
    let at = Arg::Ptr(x.at(columns.first * size_of::<f32>()));
    let args = [at, at, weight, bias, columns.len.into(), columns.stride.into(), eps, layer];
    gpu.launch(MODULE, "rows_norm", shape(rows), &args)
}

/// `x += norm(y)`
pub fn add(gpu: &Gpu, x: &Memory, y: &Memory, rows: usize, n: usize, norm: Option<Norm>) -> Result<()> {
    let [weight, bias, eps, layer] = parts(norm);
    gpu.launch(MODULE, "rows_add", shape(rows), &[x.into(), y.into(), weight, bias, n.into(), eps, layer])
}

/// `q, ds = norm(x)` as bytes: q i8 [rows, n], ds f32x2 [rows, n / 32].
pub fn to_bytes(
    gpu: &Gpu,
    (q, ds): (&Memory, &Memory),
    x: &Memory,
    rows: usize,
    n: usize,
    norm: Option<Norm>,
) -> Result<()> {
    let [weight, bias, eps, layer] = parts(norm);
    let args = [q.into(), ds.into(), x.into(), weight, bias, n.into(), eps, layer];
    gpu.launch(MODULE, "rows_to_bytes", shape(rows), &args)
}

/// `norm(x) = h * scale`: `h f16 [rows, n]`, `scale f32 [rows]`.
pub fn to_f16(
    gpu: &Gpu,
    (h, scale): (&Memory, &Memory),
    x: &Memory,
    rows: usize,
    n: usize,
    norm: Option<Norm>,
) -> Result<()> {
    let [weight, bias, eps, layer] = parts(norm);
    let args = [h.into(), scale.into(), x.into(), weight, bias, n.into(), eps, layer];
    gpu.launch(MODULE, "rows_to_f16", shape(rows), &args)
}

/// `h = norm(x)`: bf16 [rows, n].
pub fn to_bf16(gpu: &Gpu, h: &Memory, x: &Memory, rows: usize, n: usize, norm: Option<Norm>) -> Result<()> {
    let [weight, bias, eps, layer] = parts(norm);
    gpu.launch(MODULE, "rows_to_bf16", shape(rows), &[h.into(), x.into(), weight, bias, n.into(), eps, layer])
}

/// `out[i] = x[rows[i]]`; `rows` are i32 on the device, or the wanted ones of a step.
pub fn gather(gpu: &Gpu, out: &Memory, x: &Memory, rows: Rows, n: usize) -> Result<()> {
    let (count, list, step) = match rows {
        Rows::Of(list, count) => (count, Some(list), None),
        Rows::Wanted(step, most) => (most, None, Some(step)),
    };
    gpu.launch(
        MODULE,
        "rows_gather",
        shape(count),
        &[out.into(), x.into(), list.into(), step.into(), n.into()],
    )
}

#[derive(Clone, Copy)]
pub enum Rows<'a> {
    Of(&'a Memory, usize),
    /// A step, and how many rows it has at most.
    Wanted(&'a Memory, usize),
}
