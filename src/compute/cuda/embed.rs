//! Token embeddings: `kernels/embed.cu`, one block a token.

use super::gpu::{Gpu, Shape};
use super::memory::Memory;
use super::weights::{Matrix, by_format};
use crate::compute::Result;
use crate::weights::BlockFormat;

const MODULE: &str = "embed";
const THREADS: usize = 256;

/// `out[t] = table[tokens[t]] * scale` for the step's tokens, of which there are at most `rows`.
/// out f32 [rows, table's columns]; a table is one tensor, and so one part.
pub fn embed(gpu: &Gpu, out: &Memory, table: &Matrix, step: &Memory, rows: usize, scale: f32) -> Result<()> {
    launch(gpu, out, table, step, rows, scale, false)
}

/// `out[t] += table[position of t]` for the step's tokens, of which there are at most `rows`.
pub fn add_positions(gpu: &Gpu, out: &Memory, table: &Matrix, step: &Memory, rows: usize) -> Result<()> {
    launch(gpu, out, table, step, rows, 1.0, true)
}

fn launch(
    gpu: &Gpu,
    out: &Memory,
    table: &Matrix,
    step: &Memory,
    rows: usize,
    scale: f32,
    positions: bool,
) -> Result<()> {
    let [part] = table.parts.as_slice() else { panic!("a table of {} parts", table.parts.len()) };
    let [q, h, s, d] = part.planes();
    let by = usize::from(positions);
    let args = [out.into(), q, h, s, d, step.into(), part.cols.into(), scale.into(), by.into()];
    let shape = Shape::new([rows, 1, 1], THREADS.min(part.cols.next_multiple_of(32)));
    gpu.launch(MODULE, by_format!("embed_", part.format, ""), shape, &args)
}
