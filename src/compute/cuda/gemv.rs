//! Matrices times one to eight rows: `kernels/gemv.cu`. What counts is how fast weights are read.

use super::elements;
use super::gpu::{Arg, Gpu, Shape};
use super::matmul::{Gate, Out};
use super::memory::Memory;
use super::weights::{Part, by_format};
use crate::compute::{Activation, DeviceError, Result};
use crate::weights::BlockFormat;

const MODULE: &str = "gemv";

/// Rows of activations that it takes at a time.
pub const MOST_ROWS: usize = 8;
/// Threads of a block, and of a team at most.
const THREADS: usize = 128;
/// Smaller teams would not read whole sectors of the scales.
const LEAST_TEAM: usize = 8;
/// Rows of the matrix that a team takes.
const LOT: usize = 4;
/// Threads of a multiprocessor with loads on their way that are enough for all of the memory's
/// bandwidth: 64 bytes each, for about a microsecond.
const BUSY_THREADS: usize = 768;

/// Rows of activations: [rows, cols].
#[derive(Clone, Copy)]
pub enum Ready<'a> {
    /// For quantised formats: q i8 [rows, cols], ds f32x2 [rows, cols / 32], from `rows::to_bytes`.
    Bytes { q: &'a Memory, ds: &'a Memory },
    /// For floats: f32 [rows, cols].
    Floats(&'a Memory),
}

/// `enum Write` of the kernel.
#[derive(Clone, Copy)]
enum Write {
    Store,
    Add,
    Gated(Activation),
}

impl From<Write> for Arg {
    fn from(write: Write) -> Self {
        Arg::I32(match write {
            Write::Store => 0,
            Write::Add => 1,
            Write::Gated(activation) => 2 + elements::code(activation),
        })
    }
}

/// `out[t] (=|+=) W x[t] (+ bias)` for one part of a matrix.
pub fn project(gpu: &Gpu, out: Out, x: Ready, rows: usize, part: &Part) -> Result<()> {
    let offset = part.first_row * size_of::<f32>();
    let write = if out.add { Write::Add } else { Write::Store };
    let (to, bias) = (Arg::Ptr(out.to.at(offset)), Arg::Ptr(out.bias.map_or(0, |bias| bias.at(offset))));
    launch(gpu, (to, out.columns), [bias, None.into()], [part, part], x, rows, write)
}

/// Whether [`gated`] can do it in one.
pub fn can_gate(gate: &Part, up: &Part) -> bool {
    (gate.format, gate.rows, gate.cols) == (up.format, up.rows, up.cols)
}

/// `out[t] = activation(gate x[t] (+ bias)) * (up x[t] (+ bias))`; out f32 [rows, gate's rows].
pub fn gated(gpu: &Gpu, out: &Memory, x: Ready, rows: usize, w: Gate) -> Result<()> {
    if !can_gate(w.gate, w.up) {
        return Err(DeviceError("CUDA: two matrices that differ were to be multiplied in one".into()));
    }
    let biases = [w.gate_bias.into(), w.up_bias.into()];
    launch(gpu, (out.into(), w.gate.rows), biases, [w.gate, w.up], x, rows, Write::Gated(w.activation))
}

/// `gate = activation(gate) * up`, the first `len` values: for matrices that [`gated`] cannot do.
pub fn gate(gpu: &Gpu, gate: &Memory, up: &Memory, len: usize, activation: Activation) -> Result<()> {
    let shape = Shape::new([len.div_ceil(2 * THREADS), 1, 1], 2 * THREADS);
    let args = [gate.into(), up.into(), len.into(), Arg::I32(elements::code(activation))];
    gpu.launch(MODULE, "gemv_gate", shape, &args)
}

fn launch(
    gpu: &Gpu,
    (out, columns): (Arg, usize),
    [bias, up_bias]: [Arg; 2],
    [part, second]: [&Part; 2],
    x: Ready,
    rows: usize,
    write: Write,
) -> Result<()> {
    let (x, ds) = match (x, part.wants_bytes()) {
        (Ready::Bytes { q, ds }, true) => (q.into(), ds.into()),
        (Ready::Floats(x), false) => (x.into(), None.into()),
        _ => return Err(DeviceError(format!("CUDA: rows were not made ready for {}", part.format.name()))),
    };
    let kernel = kernel(part.format, rows);
    let lot = if matches!(write, Write::Gated(_)) { LOT / 2 } else { LOT };
    let shape = Teams::new(part, lot, gpu.facts.multiprocessors as usize);
    let ([q, h, s, d], [q2, h2, s2, d2]) = (part.planes(), second.planes());
    let sizes = [part.rows, part.cols, rows, shape.team.ilog2() as usize].map(Arg::from);
    let [wide, cols, rows, team_log] = sizes;
    #[rustfmt::skip]
    let args = [
        out, columns.into(), bias, up_bias, q, h, s, d, q2, h2, s2, d2, x, ds,
        wide, cols, rows, team_log, write.into(),
    ];
    gpu.launch(MODULE, kernel, Shape::new([shape.blocks, 1, 1], shape.threads), &args)
}

fn kernel(format: BlockFormat, rows: usize) -> &'static str {
    match rows {
        1 => by_format!("gemv_", format, "_1"),
        2 => by_format!("gemv_", format, "_2"),
        3..=4 => by_format!("gemv_", format, "_4"),
        5..=MOST_ROWS => by_format!("gemv_", format, "_8"),
        _ => panic!("{rows} rows, and {MOST_ROWS} are the most"),
    }
}

/// How the threads share a part. Not a matter of the rows of activations: a row's sums are always made
/// in one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Teams {
    /// Threads of a team: a power of two.
    team: usize,
    /// Of a block.
    threads: usize,
    blocks: usize,
}

impl Teams {
    fn new(part: &Part, lot: usize, multiprocessors: usize) -> Self {
        let pieces = part.cols / weights_of_a_piece(part.format);
        Self::of(pieces, part.rows.div_ceil(lot), multiprocessors)
    }

    /// Large enough that all multiprocessors are busy, then with the fewest idle lanes in the last turn.
    fn of(pieces: usize, lots: usize, multiprocessors: usize) -> Self {
        let most = pieces.next_power_of_two().clamp(LEAST_TEAM, THREADS);
        let least = (multiprocessors * BUSY_THREADS).div_ceil(lots).next_power_of_two();
        let least = least.clamp(LEAST_TEAM, most);
        let sizes = (least.ilog2()..=most.ilog2()).map(|log| 1 << log);
        let team = sizes.min_by_key(|team| pieces.next_multiple_of(*team)).unwrap_or(least);
        let few = lots * team < 2 * THREADS * multiprocessors;
        let threads = if few { team.max(32) } else { THREADS };
        Self { team, threads, blocks: lots.div_ceil(threads / team) }
    }
}

/// 16 bytes of the q plane.
const fn weights_of_a_piece(format: BlockFormat) -> usize {
    match format {
        BlockFormat::F32 => 4,
        BlockFormat::F16 | BlockFormat::BF16 => 8,
        BlockFormat::Q8_0 => 16,
        _ => 32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On 132 multiprocessors, as an H200 has.
    #[test]
    fn teams_keep_all_multiprocessors_busy() {
        let of = |cols: usize, rows: usize| {
            let teams = Teams::of(cols / 32, rows.div_ceil(LOT), 132);
            (teams.team, teams.threads, teams.blocks)
        };
        assert_eq!(of(4096, 4096), (128, 128, 1024));
        assert_eq!(of(4096, 1024), (128, 128, 256));
        assert_eq!(of(14336, 4096), (128, 128, 1024));
        assert_eq!(of(4096, 28672), (16, 128, 896));
        assert_eq!(of(4096, 128_256), (8, 128, 2004));
        assert_eq!(of(1536, 151_936), (8, 128, 2374));
        assert_eq!(of(576, 576), (32, 32, 144));
        assert_eq!(of(32, 1), (8, 32, 1));
    }
}
