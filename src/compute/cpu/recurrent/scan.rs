use super::{Bench, LANES, TOKENS, softplus, whole_vectors};
use crate::compute::cpu::shared::Slots;
use crate::compute::cpu::simd::{Simd, simd_fn};
use crate::compute::cpu::{Cpu, Isa};
use crate::compute::{Result, Scan, Span, State};
use std::ops::Range;

/// Rows of the state that are summed up side by side: one sum waits for itself.
const WIDE: usize = 4;

impl Cpu {
    pub(in crate::compute::cpu) fn scan_spans(
        &mut self,
        out: &mut [f32],
        x: &[f32],
        dt: &[f32],
        spans: &[Span],
        scan: &Scan<Self>,
        state: State<Self>,
    ) -> Result<()> {
        whole_vectors("states", scan.state)?;
        let size = scan.head_dim * scan.state;
        self.for_heads(out, spans, (scan.heads, size), state, |isa, head, rows, out, state, bench| {
            scan.tokens(isa, head, rows, (x, dt), out, state, bench);
        });
        Ok(())
    }
}

impl Scan<'_, Cpu> {
    /// What one head makes of some tokens.
    #[allow(clippy::too_many_arguments)]
    fn tokens(
        &self,
        isa: Isa,
        head: usize,
        rows: Range<usize>,
        (x, dt): (&[f32], &[f32]),
        out: &Slots<f32>,
        state: &mut [f32],
        bench: &mut Bench,
    ) {
        let (dim, group) = (self.head_dim, head / (self.heads / self.groups));
        let made = &mut bench.out;
        made.resize(TOKENS * dim, 0.0);
        let mut steps = [(0.0, 0.0); TOKENS];
        for (t, row) in rows.clone().enumerate() {
            let (least, most) = self.dt_limit;
            let dt = dt[row * self.dt_stride + self.dt + head] + self.dt_bias[head];
            // Not `clamp`: what is not a number must stay that, to be found.
            let dt = softplus(dt).max(least).min(most);
            steps[t] = ((dt * self.a[head]).exp(), dt);
        }
        let tokens = Tokens {
            count: rows.len(),
            rows: &x[rows.start * self.stride..rows.end * self.stride],
            stride: self.stride,
            x: self.x + head * dim,
            b: self.b + group * self.state,
            c: self.c + group * self.state,
            steps: &steps,
            d: self.d[head],
        };
        update(isa, state, (dim, self.state), &tokens, made);
        for (t, row) in rows.enumerate() {
            let start = (row * self.heads + head) * dim;
            // SAFETY: a row's part of a head belongs to one task.
            unsafe { out.take(start..start + dim) }.copy_from_slice(&made[t * dim..][..dim]);
        }
    }
}

/// Made ready for one head.
struct Tokens<'a> {
    count: usize,
    rows: &'a [f32], // [tokens, stride]
    stride: usize,
    /// Of a row.
    x: usize,
    b: usize,
    c: usize,
    /// Decay of the state, and weight of what is new.
    steps: &'a [(f32, f32)],
    d: f32,
}

simd_fn! {
    /// The recurrence for each token, the state being `[dim, size]`: a row of it needs no other, so some
    /// rows go through all tokens while they are near.
    fn update(state: &mut [f32], shape: (usize, usize), tokens: &Tokens, out: &mut [f32]) = update_kernel;
}

unsafe fn update_kernel<S: Simd>(
    state: &mut [f32],
    (dim, size): (usize, usize),
    tokens: &Tokens,
    out: &mut [f32],
) {
    let last = tokens.count.saturating_sub(1) * tokens.stride;
    assert!(state.len() == dim * size && size.is_multiple_of(LANES) && out.len() >= tokens.count * dim);
    assert!(tokens.steps.len() >= tokens.count && tokens.rows.len() >= last + tokens.x + dim);
    assert!(tokens.rows.len() >= last + tokens.b.max(tokens.c) + size);
    let mut row = 0;
    // SAFETY: the lengths are checked, and `row` counts up to `dim`.
    unsafe {
        while row + WIDE <= dim {
            rows::<S, WIDE>(state, (dim, size), tokens, out, row);
            row += WIDE;
        }
        while row < dim {
            rows::<S, 1>(state, (dim, size), tokens, out, row);
            row += 1;
        }
    }
}

/// # Safety
/// As [`update_kernel`] checks, and `first + N <= dim`.
#[inline(always)]
unsafe fn rows<S: Simd, const N: usize>(
    state: &mut [f32],
    (dim, size): (usize, usize),
    tokens: &Tokens,
    out: &mut [f32],
    first: usize,
) {
    // SAFETY: the caller's.
    unsafe {
        let state = state.as_mut_ptr().add(first * size);
        for t in 0..tokens.count {
            let (decay, dt) = tokens.steps[t];
            let row = tokens.rows.as_ptr().add(t * tokens.stride);
            let (x, b, c) = (row.add(tokens.x + first), row.add(tokens.b), row.add(tokens.c));
            let decay = S::splat(decay);
            let mut new = [S::splat(0.0); N];
            new.iter_mut().enumerate().for_each(|(n, new)| *new = S::splat(dt * *x.add(n)));
            let mut sums = [S::splat(0.0); N];
            for i in (0..size).step_by(LANES) {
                let (b, c) = (S::load(b.add(i)), S::load(c.add(i)));
                for (n, sum) in sums.iter_mut().enumerate() {
                    let at = state.add(n * size + i);
                    let next = S::fma(b, new[n], S::mul(S::load(at), decay));
                    S::store(at, next);
                    *sum = S::fma(next, c, *sum);
                }
            }
            for (n, sum) in sums.iter().enumerate() {
                out[t * dim + first + n] = S::sum(*sum) + tokens.d * *x.add(n);
            }
        }
    }
}
