//! Matrix times activations: make the activations ready, then share the tiles out.

use super::Cpu;
use super::format::TILE;
use super::matmul::{self, CHUNK, Sums, Tokens};
use super::matrix::{Matrix, Tile};
use super::rows::{self, QuantizedRow};
use super::shared::Slots;
use crate::compute::{Gate, Norm, Write};

/// Fewer rows than this are made ready by the calling thread alone.
const ROWS_ALONE: usize = 4;

/// What [`Cpu::prepare`] left for the multiplication.
#[derive(Clone, Copy)]
pub(super) struct Prepared {
    rows: usize,
    normalised: bool,
}

impl Cpu {
    /// Normalises the rows where asked, and turns them to bytes where the weights want bytes.
    pub(super) fn prepare(
        &mut self,
        x: &[f32],
        rows: usize,
        norm: Option<Norm<Self>>,
        w: &Matrix,
    ) -> Prepared {
        let (isa, cols, wants_bytes) = (self.isa, w.cols, w.wants_bytes());
        let prepared = Prepared { rows, normalised: norm.is_some() };
        if prepared.normalised && self.floats.len() < rows * cols {
            self.floats.resize(rows * cols, 0.0);
        }
        let q = &mut self.quantized;
        if wants_bytes {
            q.resize(rows, cols);
        }
        let floats = Slots::new(&mut self.floats);
        let (bytes, scales) = (Slots::new(&mut q.bytes), Slots::new(&mut q.scales));
        let (counts, sums) = (Slots::new(&mut q.counts), Slots::new(&mut q.sums));
        let ready = |row: usize| {
            let mut source = &x[row * cols..][..cols];
            // SAFETY: every row is made ready once, and rows do not overlap.
            unsafe {
                if let Some(norm) = &norm {
                    let out = floats.take(row * cols..(row + 1) * cols);
                    rows::rms_norm(isa, out, source, norm.weight, norm.eps);
                    source = out;
                }
                if wants_bytes {
                    let halves = cols / 16;
                    let out = QuantizedRow {
                        bytes: bytes.take(row * cols..(row + 1) * cols),
                        scales: scales.take(row * halves..(row + 1) * halves),
                        counts: counts.take(row * halves..(row + 1) * halves),
                        sums: sums.take(row * halves / 2..(row + 1) * halves / 2),
                    };
                    rows::quantize(isa, source, out);
                }
            }
        };
        if rows < ROWS_ALONE {
            (0..rows).for_each(ready);
        } else if norm.is_some() || wants_bytes {
            self.pool.run(rows, |row, _| ready(row));
        }
        prepared
    }

    /// `out[t] (=|+=) w x[t] (+ bias)`
    pub(super) fn multiply(
        &self,
        out: &mut [f32],
        x: &[f32],
        prepared: Prepared,
        w: &Matrix,
        write: Write<Self>,
    ) {
        let out = Slots::new(out);
        let (Write::Store { bias } | Write::Add { bias }) = &write;
        self.for_tiles(w, prepared.rows, |tile, first, count, [sums, _]| {
            let tokens = self.tokens(x, prepared, w, first, count);
            matmul::multiply_tile(self.isa, tile.format, tile.bytes, tokens, sums);
            add_bias(sums, count, &tile, *bias);
            for (t, sums) in sums.iter().enumerate().take(count) {
                let start = (first + t) * w.rows + tile.first_row;
                // SAFETY: a tile's rows of a token belong to one task.
                let out = unsafe { out.take(start..start + tile.rows) };
                match write {
                    Write::Store { .. } => out.copy_from_slice(&sums[..tile.rows]),
                    Write::Add { .. } => out.iter_mut().zip(sums).for_each(|(o, s)| *o += s),
                }
            }
        });
    }

    /// `out[t] = activation(gate x[t]) * (up x[t])`
    pub(super) fn multiply_gated(&self, out: &mut [f32], x: &[f32], prepared: Prepared, op: Gate<Self>) {
        let Gate { gate, up, gate_bias, up_bias, activation } = op;
        assert_eq!((gate.rows, gate.cols), (up.rows, up.cols));
        let out = Slots::new(out);
        self.for_tiles(gate, prepared.rows, |tile, first, count, [gates, ups]| {
            let tokens = self.tokens(x, prepared, gate, first, count);
            matmul::multiply_tile(self.isa, tile.format, tile.bytes, tokens, gates);
            add_bias(gates, count, &tile, gate_bias);
            let other = up.tile(tile.first_row / TILE);
            matmul::multiply_tile(self.isa, other.format, other.bytes, tokens, ups);
            add_bias(ups, count, &other, up_bias);
            matmul::gate_sums(self.isa, activation, gates, ups, count);
            for (t, gates) in gates.iter().enumerate().take(count) {
                let start = (first + t) * gate.rows + tile.first_row;
                // SAFETY: a tile's rows of a token belong to one task.
                unsafe { out.take(start..start + tile.rows) }.copy_from_slice(&gates[..tile.rows]);
            }
        });
    }

    fn tokens<'a>(
        &'a self,
        x: &'a [f32],
        prepared: Prepared,
        w: &Matrix,
        first: usize,
        count: usize,
    ) -> Tokens<'a> {
        let floats = if prepared.normalised { &self.floats } else { x };
        Tokens { quantized: &self.quantized, floats, cols: w.cols, first, count }
    }

    /// Calls `each(tile, first token, tokens, room for two tiles' sums)` for every tile and every
    /// chunk of tokens, a few tiles a task: enough tasks to share evenly, few enough that taking
    /// one costs nothing.
    fn for_tiles(&self, w: &Matrix, rows: usize, each: impl Fn(Tile, usize, usize, &mut [Sums; 2]) + Sync) {
        let tiles = w.tiles();
        let per_task = (tiles / (self.pool.threads() * 8)).max(1);
        self.pool.run(tiles.div_ceil(per_task), |task, _| {
            let mut sums = [[[0.0; TILE]; CHUNK]; 2];
            for index in task * per_task..((task + 1) * per_task).min(tiles) {
                for first in (0..rows).step_by(CHUNK) {
                    each(w.tile(index), first, CHUNK.min(rows - first), &mut sums);
                }
            }
        });
    }
}

fn add_bias(sums: &mut Sums, count: usize, tile: &Tile, bias: Option<&Vec<f32>>) {
    let Some(bias) = bias else { return };
    let bias = &bias[tile.first_row..][..tile.rows];
    for sums in &mut sums[..count] {
        sums.iter_mut().zip(bias).for_each(|(s, b)| *s += b);
    }
}
