use super::{Bench, LANES, TOKENS, sigmoid, softplus, whole_vectors};
use crate::compute::cpu::shared::Slots;
use crate::compute::cpu::simd::{Simd, simd_fn};
use crate::compute::cpu::{Cpu, Isa};
use crate::compute::{DeltaRule, Result, Span, State};
use std::ops::Range;

/// Of the squares of a query or key.
const EPS: f32 = 1e-6;

/// Vectors of a row of the state that are summed up side by side: one sum waits for itself.
const WIDE: usize = 4;

impl Cpu {
    pub(in crate::compute::cpu) fn delta_rule_spans(
        &mut self,
        out: &mut [f32],
        x: &[f32],
        gates: &[f32],
        spans: &[Span],
        rule: &DeltaRule<Self>,
        state: State<Self>,
    ) -> Result<()> {
        whole_vectors("keys", rule.key_dim)?;
        whole_vectors("values", rule.value_dim)?;
        let size = rule.key_dim * rule.value_dim;
        self.for_heads(out, spans, (rule.value_heads, size), state, |isa, head, rows, out, state, bench| {
            rule.tokens(isa, head, rows, (x, gates), out, state, bench);
        });
        Ok(())
    }
}

impl DeltaRule<'_, Cpu> {
    /// What one head makes of some tokens.
    #[allow(clippy::too_many_arguments)]
    fn tokens(
        &self,
        isa: Isa,
        head: usize,
        rows: Range<usize>,
        (x, gates): (&[f32], &[f32]),
        out: &Slots<f32>,
        state: &mut [f32],
        bench: &mut Bench,
    ) {
        let (keys, values) = (self.key_dim, self.value_dim);
        let key_head = head / (self.value_heads / self.key_heads);
        let Bench { queries: q, keys: k, values: v, out: made } = bench;
        [&mut *q, &mut *k].into_iter().for_each(|x| x.resize(TOKENS * keys, 0.0));
        [&mut *v, &mut *made].into_iter().for_each(|x| x.resize(TOKENS * values, 0.0));
        let mut pairs = [(0.0, 0.0); TOKENS];
        for (t, row) in rows.clone().enumerate() {
            let x = &x[row * self.stride..][..self.stride];
            let part = |first: usize, head: usize, dim: usize| &x[first + head * dim..][..dim];
            let length = 1.0 / (keys as f32).sqrt();
            to_length(isa, &mut q[t * keys..][..keys], part(self.query, key_head, keys), length);
            to_length(isa, &mut k[t * keys..][..keys], part(self.key, key_head, keys), 1.0);
            v[t * values..][..values].copy_from_slice(part(self.value, head, values));
            pairs[t] = self.gates(&gates[row * self.gates_stride..], head);
        }
        let tokens = Tokens { count: rows.len(), keys, values, q, k, v, gates: &pairs };
        update(isa, state, &tokens, made);
        for (t, row) in rows.enumerate() {
            let start = (row * self.value_heads + head) * values;
            // SAFETY: a row's part of a head belongs to one task.
            unsafe { out.take(start..start + values) }.copy_from_slice(&made[t * values..][..values]);
        }
    }

    /// How much of the state stays, and how much of what is new goes in.
    fn gates(&self, row: &[f32], head: usize) -> (f32, f32) {
        let step = softplus(row[self.a + head] + self.dt_bias[head]);
        ((self.a_log[head] * step).exp(), sigmoid(row[self.b + head]))
    }
}

/// Made ready for one head.
struct Tokens<'a> {
    count: usize,
    keys: usize,
    values: usize,
    q: &'a [f32], // [tokens, keys]
    k: &'a [f32], // [tokens, keys]
    v: &'a [f32], // [tokens, values]
    /// Decay and strength.
    gates: &'a [(f32, f32)],
}

simd_fn! {
    /// `out = x / sqrt(sum(x^2) + eps) * length`
    fn to_length(out: &mut [f32], x: &[f32], length: f32) = to_length_kernel;
}

unsafe fn to_length_kernel<S: Simd>(out: &mut [f32], x: &[f32], length: f32) {
    assert!(out.len() == x.len() && x.len().is_multiple_of(LANES));
    // SAFETY: every access lies inside slices of one length, a multiple of 16.
    unsafe {
        let mut squares = S::splat(0.0);
        for i in (0..x.len()).step_by(LANES) {
            let v = S::load(x.as_ptr().add(i));
            squares = S::fma(v, v, squares);
        }
        let scale = S::splat(length / (S::sum(squares) + EPS).sqrt());
        for i in (0..x.len()).step_by(LANES) {
            S::store(out.as_mut_ptr().add(i), S::mul(S::load(x.as_ptr().add(i)), scale));
        }
    }
}

simd_fn! {
    /// The rule for each token, the state being `[keys, values]`: a column of it needs no other, so a strip
    /// of columns goes through all tokens while it is near.
    fn update(state: &mut [f32], tokens: &Tokens, out: &mut [f32]) = update_kernel;
}

unsafe fn update_kernel<S: Simd>(state: &mut [f32], tokens: &Tokens, out: &mut [f32]) {
    let Tokens { count, keys, values, q, k, v, gates } = *tokens;
    assert!(state.len() == keys * values && values.is_multiple_of(LANES) && gates.len() >= count);
    assert!(q.len() >= count * keys && k.len() >= count * keys);
    assert!(v.len() >= count * values && out.len() >= count * values);
    let mut column = 0;
    // SAFETY: the lengths are checked, and strips end where rows do.
    unsafe {
        while column + WIDE * LANES <= values {
            strip::<S, WIDE>(state, tokens, out, column);
            column += WIDE * LANES;
        }
        while column < values {
            strip::<S, 1>(state, tokens, out, column);
            column += LANES;
        }
    }
}

/// # Safety
/// As [`update_kernel`] checks, and `column + 16 N <= values`.
#[inline(always)]
unsafe fn strip<S: Simd, const N: usize>(state: &mut [f32], tokens: &Tokens, out: &mut [f32], column: usize) {
    let Tokens { keys, values, .. } = *tokens;
    // SAFETY: the caller's.
    unsafe {
        let first = state.as_mut_ptr().add(column);
        for t in 0..tokens.count {
            let (decay, strength) = tokens.gates[t];
            let (q, k) = (tokens.q.as_ptr().add(t * keys), tokens.k.as_ptr().add(t * keys));
            let (decay, at) = (S::splat(decay), t * values + column);
            let mut found = [S::splat(0.0); N];
            for i in 0..keys {
                let (row, k) = (first.add(i * values), S::splat(*k.add(i)));
                for (n, found) in found.iter_mut().enumerate() {
                    *found = S::fma(S::load(row.add(n * LANES)), k, *found);
                }
            }
            let mut new = [S::splat(0.0); N];
            for (n, new) in new.iter_mut().enumerate() {
                let v = S::load(tokens.v.as_ptr().add(at + n * LANES));
                *new = S::mul(S::sub(v, S::mul(found[n], decay)), S::splat(strength));
            }
            let mut sums = [S::splat(0.0); N];
            for i in 0..keys {
                let (row, k, q) = (first.add(i * values), S::splat(*k.add(i)), S::splat(*q.add(i)));
                for (n, sum) in sums.iter_mut().enumerate() {
                    let at = row.add(n * LANES);
                    let next = S::fma(k, new[n], S::mul(S::load(at), decay));
                    S::store(at, next);
                    *sum = S::fma(next, q, *sum);
                }
            }
            for (n, sum) in sums.iter().enumerate() {
                S::store(out.as_mut_ptr().add(at + n * LANES), *sum);
            }
        }
    }
}
