//! Each head's rows times the head's own matrix.

use super::Cpu;
use super::format::TILE;
use super::matmul::Sums;
use super::matrix::Matrix;
use super::project::{Bench, product};
use super::shared::Slots;
use crate::compute::{DeviceError, HeadColumns, Result};

impl Cpu {
    pub(super) fn multiply_heads(
        &mut self,
        (out, to): (&mut [f32], HeadColumns),
        (x, from): (&[f32], HeadColumns),
        rows: usize,
        heads: usize,
        w: &Matrix,
    ) -> Result<()> {
        if w.parts() != heads || w.rows != heads * to.len || w.cols != from.len {
            let (parts, of) = (w.parts(), (w.rows, w.cols));
            return Err(DeviceError(format!(
                "{heads} heads of {} x {}: not {parts} of {of:?}",
                to.len, from.len
            )));
        }
        let mut grouped = std::mem::take(&mut self.heads);
        grouped.clear();
        (0..heads).for_each(|head| grouped.push(head, rows));
        // Head after head, and its rows in order.
        let place = |at: &HeadColumns, i: usize| i % rows * at.stride + at.first + i / rows * at.step;
        grouped.prepare(&self.pool, self.isa, &[w], |i| &x[place(&from, i)..][..from.len]);
        let (isa, out) = (self.isa, Slots::new(out));
        grouped.for_tiles(&self.pool, &mut self.benches, w, |tile, at, tokens, bench| {
            let Bench { panel, sums: [sums, _], .. } = bench;
            for (i, Sums(sums)) in product(isa, &tile, tokens, None, panel, sums).iter().enumerate() {
                let start = place(&to, at.row + i) + at.tile * TILE;
                // SAFETY: a tile's rows of a head in a token belong to one task.
                unsafe { out.take(start..start + tile.rows) }.copy_from_slice(&sums[..tile.rows]);
            }
        });
        self.heads = grouped;
        Ok(())
    }
}
