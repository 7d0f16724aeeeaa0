//! Matrix times activations: make the activations ready, then share the tiles out.

use super::Cpu;
use super::Isa;
use super::format::TILE;
use super::matmul::{self, Panel, Sums, Tokens};
use super::matrix::{Matrix, Tile};
use super::norm;
use super::routing::Scores;
use super::rows;
use super::shared::Slots;
use super::simd;
use crate::compute::{Gate, Norm, Write};

/// Up to so many activations are made ready by the calling thread alone.
const ALONE: usize = 8 << 10;

/// Products that a task should have at least: some microsecond.
pub(super) const TASK: usize = 1 << 15;

/// What [`Cpu::prepare`] left for the multiplication.
#[derive(Clone, Copy)]
pub(super) struct Prepared {
    rows: usize,
    normalised: bool,
}

impl Cpu {
    /// Normalises the rows where asked, and turns them to bytes where some of the matrices, which have
    /// one number of columns, want bytes.
    pub(super) fn prepare(
        &mut self,
        x: &[f32],
        rows: usize,
        norm: Option<Norm<Self>>,
        matrices: &[&Matrix],
    ) -> Prepared {
        let (isa, cols) = (self.isa, matrices[0].cols);
        let wants_bytes = matrices.iter().any(|w| w.wants_bytes());
        let prepared = Prepared { rows, normalised: norm.is_some() };
        if prepared.normalised && self.floats.len() < rows * cols {
            self.floats.resize(rows * cols, 0.0);
        }
        if wants_bytes {
            self.quantized.resize(rows, cols, simd::tokens_at_a_time(isa));
        }
        let (floats, quantized) = (Slots::new(&mut self.floats), self.quantized.writer());
        let ready = |row: usize| {
            let mut source = &x[row * cols..][..cols];
            if let Some(norm) = &norm {
                // SAFETY: every row is made ready once, and rows do not overlap.
                let out = unsafe { floats.take(row * cols..(row + 1) * cols) };
                norm::normalise(isa, out, source, (*norm).into());
                source = out;
            }
            if wants_bytes {
                rows::quantize(isa, source, row, &quantized);
            }
        };
        if rows * cols <= ALONE {
            (0..rows).for_each(ready);
        } else if norm.is_some() || wants_bytes {
            self.pool.run(rows, |row, _| ready(row));
        }
        prepared
    }

    pub(super) fn normalise_rows(&self, out: &mut [f32], x: &[f32], rows: usize, norm: Norm<Self>) {
        let (isa, cols) = (self.isa, norm.weight.len());
        let out = Slots::new(out);
        let one = |row: usize| {
            let at = row * cols..(row + 1) * cols;
            // SAFETY: rows do not overlap.
            norm::normalise(isa, unsafe { out.take(at.clone()) }, &x[at], norm.into());
        };
        if rows * cols <= ALONE {
            (0..rows).for_each(one);
        } else {
            self.pool.run(rows, |row, _| one(row));
        }
    }

    /// `out[t] (=|+=) w x[t] (+ bias)`
    pub(super) fn multiply(
        &mut self,
        out: &mut [f32],
        x: &[f32],
        prepared: Prepared,
        w: &Matrix,
        write: Write<Self>,
    ) {
        let (out, isa) = (Slots::new(out), self.isa);
        let (Write::Store { bias } | Write::Add { bias }) = &write;
        self.for_tiles(w, x, prepared, |tile, tokens, bench| {
            let Bench { panel, sums: [sums, _], .. } = bench;
            let sums = product(isa, &tile, tokens, *bias, panel, sums);
            for (t, Sums(sums)) in tokens.rows.clone().zip(&*sums) {
                let start = t * w.rows + tile.first_row;
                // SAFETY: a tile's rows of a token belong to one task.
                let out = unsafe { out.take(start..start + tile.rows) };
                match write {
                    Write::Store { .. } => out.copy_from_slice(&sums[..tile.rows]),
                    Write::Add { .. } => out.iter_mut().zip(sums).for_each(|(o, s)| *o += *s),
                }
            }
        });
    }

    /// `out[t] = activation(gate x[t]) * (up x[t])`
    pub(super) fn multiply_gated(&mut self, out: &mut [f32], x: &[f32], prepared: Prepared, op: Gate<Self>) {
        let Gate { gate, up, gate_bias, up_bias, activation } = op;
        assert_eq!((gate.rows, gate.cols), (up.rows, up.cols));
        let (out, isa) = (Slots::new(out), self.isa);
        self.for_tiles(gate, x, prepared, |tile, tokens, bench| {
            let Bench { panel, sums: [gates, ups], .. } = bench;
            let gates = product(isa, &tile, tokens, gate_bias, panel, gates);
            let ups = product(isa, &up.tile(tile.first_row / TILE), tokens, up_bias, panel, ups);
            matmul::gate_sums(isa, activation, gates, ups);
            for (t, Sums(gates)) in tokens.rows.clone().zip(&*gates) {
                let start = t * gate.rows + tile.first_row;
                // SAFETY: a tile's rows of a token belong to one task.
                unsafe { out.take(start..start + tile.rows) }.copy_from_slice(&gates[..tile.rows]);
            }
        });
    }

    /// Calls `each` for every tile and every stretch of tokens, a few tiles a task: enough tasks to
    /// share evenly, and large enough that taking one costs nothing.
    fn for_tiles(
        &mut self,
        w: &Matrix,
        x: &[f32],
        prepared: Prepared,
        each: impl Fn(Tile, &Tokens, &mut Bench) + Sync,
    ) {
        let floats = if prepared.normalised { &self.floats } else { x };
        let at_once = rows_at_once(w.cols).min(prepared.rows);
        let tiles = w.tiles();
        let enough = TASK.div_ceil(w.cols * at_once);
        let per_task = (tiles / (self.pool.threads() * 8)).clamp(1, enough);
        let tasks = tiles.div_ceil(per_task);
        let benches = Slots::new(&mut self.benches);
        self.pool.run(prepared.rows.div_ceil(at_once) * tasks, |task, thread| {
            let (stretch, task) = (task / tasks, task % tasks);
            let rows = stretch * at_once..((stretch + 1) * at_once).min(prepared.rows);
            let tokens = Tokens { quantized: &self.quantized, floats, cols: w.cols, rows };
            // SAFETY: a thread runs one task at a time.
            let bench = unsafe { benches.one(thread) };
            for index in task * per_task..((task + 1) * per_task).min(tiles) {
                each(w.tile(index), &tokens, bench);
            }
        });
    }
}

/// Rows whose activations are read again for every tile: as many as stay in the second-level cache, in
/// whole groups.
pub(super) fn rows_at_once(cols: usize) -> usize {
    const BYTES: usize = 384 << 10;
    (BYTES / cols).clamp(16, 512) / 16 * 16
}

/// A thread's own memory.
#[derive(Clone)]
pub(super) struct Bench {
    pub(super) panel: Panel,
    pub(super) sums: [Vec<Sums>; 2],
    pub(super) scores: Scores,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self { panel: Panel::new(), sums: [Vec::new(), Vec::new()], scores: Scores::default() }
    }
}

/// `tile x[t] (+ bias)` of every token.
pub(super) fn product<'a>(
    isa: Isa,
    tile: &Tile,
    tokens: &Tokens,
    bias: Option<&Vec<f32>>,
    panel: &mut Panel,
    sums: &'a mut Vec<Sums>,
) -> &'a mut [Sums] {
    sums.resize(tokens.rows.len(), Sums([0.0; TILE]));
    matmul::multiply_tile(isa, tile.format, tile.bytes, tokens, panel, sums);
    if let Some(bias) = bias {
        let bias = &bias[tile.first_row..][..tile.rows];
        for Sums(sums) in sums.iter_mut() {
            sums.iter_mut().zip(bias).for_each(|(s, b)| *s += b);
        }
    }
    sums
}
