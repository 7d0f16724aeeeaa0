//! Mixtures of experts: rows go to their experts and come back.

use super::grouped::Grouped;
use super::project::{Bench, product};
use super::routing::{self, Choice};
use super::rows::Quantized;
use super::shared::Slots;
use super::{Cpu, matmul, rows};
use crate::compute::{DeviceError, Experts, MixtureShape, Result, Routing};

/// What rows come to inside their experts waits in no more than this, or in what 16 rows take.
const MOST_WAITING_BYTES: usize = 64 << 20;

/// Kept from call to call for its memory. A place is a row in one of its experts; places stand in the
/// order of their experts.
pub(super) struct Mixing {
    pub(super) most_waiting_bytes: usize,
    /// [rows, top]
    choices: Vec<Choice>,
    /// Of each place, its row.
    rows: Vec<usize>,
    /// [rows, top]: the place of a choice.
    places: Vec<usize>,
    /// Of each expert, the place for its next row.
    next: Vec<usize>,
    grouped: Grouped,
    /// [places, width]
    hidden: Vec<f32>,
    /// [places, dim]
    results: Vec<f32>,
}

impl Default for Mixing {
    fn default() -> Self {
        Self {
            most_waiting_bytes: MOST_WAITING_BYTES,
            choices: Vec::new(),
            rows: Vec::new(),
            places: Vec::new(),
            next: Vec::new(),
            grouped: Grouped::default(),
            hidden: Vec::new(),
            results: Vec::new(),
        }
    }
}

impl Mixing {
    /// Most memory for passes of so many rows: floats and, of the widest, bytes.
    pub(super) fn bytes_for(rows: usize, mixture: &MixtureShape) -> usize {
        let MixtureShape { top, dim, width, .. } = *mixture;
        let places = rows.min(rows_at_once(MOST_WAITING_BYTES, top, dim + width)) * top;
        places * (dim + width) * size_of::<f32>() + Quantized::bytes_for(places, dim.max(width))
    }
}

fn rows_at_once(bytes: usize, top: usize, columns: usize) -> usize {
    (bytes / (size_of::<f32>() * top * columns)).max(16)
}

impl Cpu {
    pub(super) fn mix_experts(
        &mut self,
        out: &mut [f32],
        x: &[f32],
        rows: usize,
        logits: &[f32],
        routing: &Routing<Self>,
        experts: &Experts<Self>,
    ) -> Result<()> {
        routing::check(routing, experts.count)?;
        let Experts { count, gate, up, down, .. } = experts;
        let (dim, width) = (gate.cols, down.cols);
        let stacked = [gate, up, down].map(|w| w.parts()) == [*count; 3];
        if !stacked || gate.rows != count * width || up.rows != gate.rows || down.rows != count * dim {
            return Err(DeviceError(format!(
                "matrices of {count} experts of {dim} x {width} do not fit together"
            )));
        }
        let at_once = rows_at_once(self.mixing.most_waiting_bytes, routing.top, dim + width);
        let mut mixing = std::mem::take(&mut self.mixing);
        for first in (0..rows).step_by(at_once) {
            let rows = at_once.min(rows - first);
            let (out, x) = (&mut out[first * dim..], &x[first * dim..]);
            self.choose(&mut mixing, rows, &logits[first * count..], routing);
            mixing.sort(rows, routing.top, *count);
            self.go_through(&mut mixing, x, experts);
            self.come_back(&mixing, out, dim, rows, routing.top);
        }
        self.mixing = mixing;
        Ok(())
    }

    fn choose(&mut self, mixing: &mut Mixing, rows: usize, logits: &[f32], routing: &Routing<Self>) {
        mixing.choices.resize(rows * routing.top, Choice::default());
        let choices = Slots::new(&mut mixing.choices);
        let benches = Slots::new(&mut self.benches);
        let one = |row: usize, thread: usize| {
            // SAFETY: a thread chooses for one row at a time, and rows do not overlap.
            let (bench, out) =
                unsafe { (benches.one(thread), choices.take(row * routing.top..(row + 1) * routing.top)) };
            routing::route(
                &logits[row * routing.experts..][..routing.experts],
                routing,
                &mut bench.scores,
                out,
            );
        };
        if rows < 8 {
            (0..rows).for_each(|row| one(row, 0));
        } else {
            self.pool.run(rows, one);
        }
    }

    /// `down(activation(gate x) * (up x))` in every place.
    fn go_through(&mut self, mixing: &mut Mixing, x: &[f32], experts: &Experts<Self>) {
        let Experts { gate, up, down, gate_bias, up_bias, down_bias, activation, .. } = *experts;
        let (isa, dim, width) = (self.isa, gate.cols, down.cols);
        let Mixing { grouped, rows, hidden, results, .. } = mixing;
        let places = grouped.rows();
        hidden.resize(hidden.len().max(places * width), 0.0);
        results.resize(results.len().max(places * dim), 0.0);
        grouped.prepare(&self.pool, isa, &[gate, up], |place| &x[rows[place] * dim..][..dim]);
        let out = Slots::new(hidden);
        grouped.for_tiles(&self.pool, &mut self.benches, gate, |tile, at, tokens, bench| {
            let Bench { panel, sums: [gates, ups], .. } = bench;
            let gates = product(isa, &tile, tokens, gate_bias, panel, gates);
            let ups = product(isa, &up.part_tile(at.part, at.tile), tokens, up_bias, panel, ups);
            matmul::gate_sums(isa, activation, gates, ups);
            // SAFETY: a tile's columns of a place belong to one task.
            unsafe { at.write(&out, width, &tile, gates) };
        });
        grouped.prepare(&self.pool, isa, &[down], |place| &hidden[place * width..][..width]);
        let out = Slots::new(results);
        grouped.for_tiles(&self.pool, &mut self.benches, down, |tile, at, tokens, bench| {
            let Bench { panel, sums: [sums, _], .. } = bench;
            let sums = product(isa, &tile, tokens, down_bias, panel, sums);
            // SAFETY: as above.
            unsafe { at.write(&out, dim, &tile, sums) };
        });
    }

    /// Adds up what a row's experts made of it, in the order of its choices: whatever else was in the batch.
    fn come_back(&self, mixing: &Mixing, out: &mut [f32], dim: usize, rows: usize, top: usize) {
        let isa = self.isa;
        let out = Slots::new(out);
        let one = |row: usize| {
            // SAFETY: rows do not overlap.
            let out = unsafe { out.take(row * dim..(row + 1) * dim) };
            for slot in row * top..(row + 1) * top {
                let result = &mixing.results[mixing.places[slot] * dim..][..dim];
                rows::add(isa, out, result, mixing.choices[slot].weight);
            }
        };
        if rows < 8 {
            (0..rows).for_each(one);
        } else {
            self.pool.run(rows, |row, _| one(row));
        }
    }
}

impl Mixing {
    /// Gives every choice its place: experts in order, and the rows of each in order.
    fn sort(&mut self, rows: usize, top: usize, experts: usize) {
        let Self { choices, next, grouped, .. } = self;
        next.clear();
        next.resize(experts, 0);
        choices[..rows * top].iter().for_each(|choice| next[choice.expert] += 1);
        grouped.clear();
        let mut first = 0;
        for (expert, next) in next.iter_mut().enumerate() {
            grouped.push(expert, *next);
            first += std::mem::replace(next, first);
        }
        self.rows.resize(rows * top, 0);
        self.places.resize(rows * top, 0);
        for (slot, choice) in self.choices[..rows * top].iter().enumerate() {
            let place = self.next[choice.expert];
            self.next[choice.expert] += 1;
            self.places[slot] = place;
            self.rows[place] = slot / top;
        }
    }
}
