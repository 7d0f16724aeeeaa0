//! Values one by one, and columns of rows: `kernels/elements.cu`.

use super::gpu::{Arg, Gpu, Shape};
use super::memory::Memory;
use crate::compute::{Activation, By, Columns, Result};

const MODULE: &str = "elements";
const THREADS: usize = 256;

/// `enum Activation` of `kernels/activation.cuh`.
pub(super) fn code(activation: Activation) -> i32 {
    match activation {
        Activation::Silu => 0,
        Activation::GeluTanh => 1,
        Activation::Gelu => 2,
        Activation::ClampedSwiglu => 3,
    }
}

fn shape(len: usize, rows: usize) -> Shape {
    Shape::new([len.div_ceil(THREADS), rows, 1], THREADS)
}

/// `x += y * scale`, the first `len` values.
pub fn add(gpu: &Gpu, x: &Memory, y: &Memory, len: usize, scale: f32) -> Result<()> {
    gpu.launch(MODULE, "elements_add", shape(len, 1), &[x.into(), y.into(), len.into(), scale.into()])
}

/// `x = activation(x)`, the first `len` values. [`Activation::ClampedSwiglu`] is none of one value.
pub fn activate(gpu: &Gpu, x: &Memory, len: usize, activation: Activation) -> Result<()> {
    debug_assert!(activation != Activation::ClampedSwiglu, "it takes two");
    let args = [x.into(), len.into(), Arg::I32(code(activation))];
    gpu.launch(MODULE, "elements_activate", shape(len, 1), &args)
}

/// `x = x * scale`, and with a cap `x = cap * tanh(x * scale / cap)`: the first `len` values.
pub fn scale(gpu: &Gpu, x: &Memory, len: usize, scale: f32, cap: Option<f32>) -> Result<()> {
    let args = [x.into(), len.into(), scale.into(), cap.unwrap_or(0.0).into()];
    gpu.launch(MODULE, "elements_scale", shape(len, 1), &args)
}

/// `out[t, to] = x[t, from]`
pub fn copy_columns(gpu: &Gpu, out: (&Memory, Columns), x: (&Memory, Columns), rows: usize) -> Result<()> {
    let ((out, to), (x, from)) = (out, x);
    assert_eq!(to.len, from.len, "as many columns as there are");
    let args = [
        out.into(),
        to.first.into(),
        to.stride.into(),
        x.into(),
        from.first.into(),
        from.stride.into(),
        to.len.into(),
    ];
    gpu.launch(MODULE, "elements_copy", shape(to.len, rows), &args)
}

/// `x[t, at] *= by(gate[t, from])`; one column of the gate serves all of a row's.
pub fn multiply_columns(
    gpu: &Gpu,
    (x, at): (&Memory, Columns),
    (gate, from): (&Memory, Columns),
    rows: usize,
    by: By,
) -> Result<()> {
    assert!(from.len == at.len || from.len == 1, "{} columns by {}", at.len, from.len);
    let by = match by {
        By::Value => 0,
        By::Sigmoid => 1,
        By::Silu => 2,
    };
    let args = [
        x.into(),
        at.first.into(),
        at.stride.into(),
        at.len.into(),
        gate.into(),
        from.first.into(),
        from.stride.into(),
        from.len.into(),
        Arg::I32(by),
    ];
    gpu.launch(MODULE, "elements_multiply", shape(at.len, rows), &args)
}
