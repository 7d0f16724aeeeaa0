//! Layers that keep one state for the whole past: token after token, so that neither chunks nor neighbours
//! change a bit. Heads (of a convolution, strips of channels) are shared out over the threads.

mod convolve;
mod delta_rule;
mod scan;

#[cfg(test)]
mod tests;

use super::cache::Cache;
use super::shared::Slots;
use super::{Cpu, Isa};
use crate::compute::{DeviceError, Result, Span, State};
use std::ops::Range;

/// Tokens that a thread takes at a time: what is made ready for them stays in the first-level cache beside
/// the state.
const TOKENS: usize = 16;

/// States are read and written in vectors of so many values.
const LANES: usize = 16;

/// A thread's own memory.
#[derive(Clone, Default)]
pub(super) struct Bench {
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    out: Vec<f32>,
}

/// One part of the states of all sequences; each sequence's is in the last block of its table.
struct States<'a> {
    values: Slots<'a, f32>,
    /// Values from one block to the next.
    block: usize,
    /// Of a block: this part of a state.
    part: Range<usize>,
}

impl<'a> States<'a> {
    fn new(cache: &'a mut Cache, first: usize, len: usize) -> Self {
        let block = cache.shape().block_bytes() / size_of::<f32>();
        assert!(first + len <= block, "a state fits in its block");
        Self { values: Slots::new(cache.values_mut()), block, part: first..first + len }
    }

    /// Some values of a sequence's part: zeros where nothing came before.
    ///
    /// # Safety
    /// Nobody else has them.
    #[allow(clippy::mut_from_ref)]
    unsafe fn take(&self, span: &Span, values: Range<usize>) -> &mut [f32] {
        assert!(values.end <= self.part.len());
        let block = *span.table.last().expect("a sequence with a state has a block for it") as usize;
        let start = block * self.block + self.part.start;
        // SAFETY: the caller's, and blocks of two sequences are not the same.
        let values = unsafe { self.values.take(start + values.start..start + values.end) };
        if span.start == 0 {
            values.fill(0.0);
        }
        values
    }
}

impl Cpu {
    /// Calls `tokens` for every head of every sequence with some rows after the other, and the head's `size`
    /// values of the state.
    fn for_heads(
        &mut self,
        out: &mut [f32],
        spans: &[Span],
        (heads, size): (usize, usize),
        state: State<Self>,
        tokens: impl Fn(Isa, usize, Range<usize>, &Slots<f32>, &mut [f32], &mut Bench) + Sync,
    ) {
        let states = States::new(state.cache, state.first, heads * size);
        let (out, benches, isa) = (Slots::new(out), Slots::new(&mut self.recurrent), self.isa);
        self.pool.run(spans.len() * heads, |task, thread| {
            let (span, head) = (&spans[task / heads], task % heads);
            // SAFETY: a thread runs one task at a time, and a head of a sequence is one task.
            let (bench, state) =
                unsafe { (benches.one(thread), states.take(span, head * size..(head + 1) * size)) };
            for first in (0..span.len).step_by(TOKENS) {
                let rows = span.first + first..span.first + span.len.min(first + TOKENS);
                tokens(isa, head, rows, &out, state, bench);
            }
        });
    }
}

/// `ln(1 + e^x)`, for large x without rounding at all.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn whole_vectors(what: &str, size: usize) -> Result<()> {
    match size % LANES {
        0 => Ok(()),
        _ => Err(DeviceError(format!("the CPU needs {what} of a multiple of {LANES}, not {size}"))),
    }
}
