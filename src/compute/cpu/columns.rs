//! Operations on some columns of every row, and on values without regard to rows.

use super::shared::Slots;
use super::{Cpu, Isa, activation, rows};
use crate::compute::{Activation, By, Columns};

/// Up to so many values are worked on by the calling thread alone; by more threads a stretch at a time.
const ALONE: usize = 16 << 10;
const STRETCH: usize = 4 << 10;

impl Columns {
    /// The columns of one row of `x`.
    fn of<'a>(&self, x: &'a [f32], row: usize) -> &'a [f32] {
        &x[row * self.stride + self.first..][..self.len]
    }

    fn of_mut<'a>(&self, x: &'a mut [f32], row: usize) -> &'a mut [f32] {
        &mut x[row * self.stride + self.first..][..self.len]
    }
}

impl Cpu {
    /// Calls `each` with the places of stretches that together are `0..len`.
    fn for_stretches(&self, x: &mut [f32], each: impl Fn(&mut [f32], usize) + Sync) {
        if x.len() <= ALONE {
            return each(x, 0);
        }
        let len = x.len();
        let slots = Slots::new(x);
        self.pool.run(len.div_ceil(STRETCH), |i, _| {
            let first = i * STRETCH;
            // SAFETY: stretches do not overlap.
            each(unsafe { slots.take(first..len.min(first + STRETCH)) }, first);
        });
    }

    pub(super) fn add_scaled(&self, x: &mut [f32], y: &[f32], scale: f32) {
        self.for_stretches(x, |x, first| rows::add(self.isa, x, &y[first..][..x.len()], scale));
    }

    pub(super) fn activate_all(&self, x: &mut [f32], activation: Activation) {
        self.for_stretches(x, |x, _| activation::activate(self.isa, x, activation));
    }

    pub(super) fn scale_all(&self, x: &mut [f32], scale: f32, cap: Option<f32>) {
        self.for_stretches(x, |x, _| match cap {
            Some(cap) => activation::cap(self.isa, x, scale, cap),
            None => x.iter_mut().for_each(|x| *x *= scale),
        });
    }
}

pub(super) fn copy(out: (&mut [f32], Columns), x: (&[f32], Columns), rows: usize) {
    for row in 0..rows {
        out.1.of_mut(out.0, row).copy_from_slice(x.1.of(x.0, row));
    }
}

/// One column of the gate serves all of a row's.
pub(super) fn multiply(isa: Isa, x: (&mut [f32], Columns), gate: (&[f32], Columns), rows: usize, by: By) {
    for row in 0..rows {
        let (x, gate) = (x.1.of_mut(x.0, row), gate.1.of(gate.0, row));
        match gate {
            [one] => activation::multiply_by_one(isa, x, *one, by),
            _ => activation::multiply(isa, x, gate, by),
        }
    }
}
