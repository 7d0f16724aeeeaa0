//! Normalisation of one row.

use super::Cpu;
use super::simd::{Isa, Simd, simd_fn};
use crate::compute::{Norm, NormKind};

/// A [`Norm`], or a stretch of one: weights as long as the row.
#[derive(Clone, Copy)]
pub(super) struct RowNorm<'a> {
    pub(super) weight: &'a [f32],
    pub(super) bias: Option<&'a [f32]>,
    pub(super) eps: f32,
    pub(super) kind: NormKind,
}

impl<'a> From<Norm<'a, Cpu>> for RowNorm<'a> {
    fn from(norm: Norm<'a, Cpu>) -> Self {
        Self { weight: norm.weight, bias: norm.bias.map(|bias| &bias[..]), eps: norm.eps, kind: norm.kind }
    }
}

impl<'a> RowNorm<'a> {
    /// The weights of `len` elements from `first` on.
    pub(super) fn part(self, first: usize, len: usize) -> Self {
        Self {
            weight: &self.weight[first..][..len],
            bias: self.bias.map(|bias| &bias[first..][..len]),
            ..self
        }
    }
}

/// `out = norm(x)`
pub(super) fn normalise(isa: Isa, out: &mut [f32], x: &[f32], norm: RowNorm) {
    out.copy_from_slice(x);
    normalise_in_place(isa, out, norm);
}

simd_fn! {
    /// `x = norm(x)`
    pub(super) fn normalise_in_place(x: &mut [f32], norm: RowNorm) = norm_kernel;
}

#[inline(always)]
unsafe fn norm_kernel<S: Simd>(x: &mut [f32], norm: RowNorm) {
    // SAFETY: the instruction set is the caller's.
    unsafe {
        match norm.kind {
            NormKind::Rms => rms::<S>(x, norm.weight, norm.eps),
            NormKind::Layer => layer::<S>(x, norm.weight, norm.eps),
        }
    }
    if let Some(bias) = norm.bias {
        assert_eq!(x.len(), bias.len());
        x.iter_mut().zip(bias).for_each(|(x, bias)| *x += bias);
    }
}

/// Root mean square normalisation (Zhang and Sennrich 2019): `x / sqrt(mean(x^2) + eps) * weight`.
#[inline(always)]
unsafe fn rms<S: Simd>(x: &mut [f32], weight: &[f32], eps: f32) {
    // SAFETY: the instruction set is the caller's.
    unsafe {
        let scale = 1.0 / (squares::<S>(x) / x.len() as f32 + eps).sqrt();
        scale_by::<S>(x, scale, weight);
    }
}

/// Layer normalisation (Ba et al. 2016): `(x - mean(x)) / sqrt(var(x) + eps) * weight`. The mean goes first:
/// a variance from sums of squares loses its digits where the mean is large.
#[inline(always)]
unsafe fn layer<S: Simd>(x: &mut [f32], weight: &[f32], eps: f32) {
    let whole = x.len() / 16 * 16;
    // SAFETY: every access lies below `whole`.
    unsafe {
        let mut sum = S::splat(0.0);
        for i in (0..whole).step_by(16) {
            sum = S::add(sum, S::load(x.as_ptr().add(i)));
        }
        let mean = (S::sum(sum) + x[whole..].iter().sum::<f32>()) / x.len() as f32;
        x.iter_mut().for_each(|x| *x -= mean);
        let scale = 1.0 / (squares::<S>(x) / x.len() as f32 + eps).sqrt();
        scale_by::<S>(x, scale, weight);
    }
}

#[inline(always)]
unsafe fn squares<S: Simd>(x: &[f32]) -> f32 {
    let whole = x.len() / 16 * 16;
    // SAFETY: every access lies below `whole`.
    unsafe {
        let mut squares = S::splat(0.0);
        for i in (0..whole).step_by(16) {
            let v = S::load(x.as_ptr().add(i));
            squares = S::fma(v, v, squares);
        }
        S::sum(squares) + x[whole..].iter().map(|v| v * v).sum::<f32>()
    }
}

/// `x * scale * weight`
#[inline(always)]
unsafe fn scale_by<S: Simd>(x: &mut [f32], scale: f32, weight: &[f32]) {
    assert_eq!(x.len(), weight.len());
    let whole = x.len() / 16 * 16;
    // SAFETY: every access lies below `whole` of slices of one length.
    unsafe {
        for i in (0..whole).step_by(16) {
            let p = x.as_mut_ptr().add(i);
            let v = S::mul(S::load(p), S::splat(scale));
            S::store(p, S::mul(v, S::load(weight.as_ptr().add(i))));
        }
    }
    for (x, weight) in x[whole..].iter_mut().zip(&weight[whole..]) {
        *x = *x * scale * weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(n: usize, seed: f32) -> Vec<f32> {
        (0..n).map(|i| ((i as f32 + seed) * 0.7).sin() * (1.0 + i as f32 * 0.01)).collect()
    }

    /// The formula in f64.
    fn twin(x: &[f32], norm: RowNorm) -> Vec<f64> {
        let n = x.len() as f64;
        let mean = match norm.kind {
            NormKind::Rms => 0.0,
            NormKind::Layer => x.iter().map(|v| f64::from(*v)).sum::<f64>() / n,
        };
        let squares = x.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / n;
        let bias = |i: usize| norm.bias.map_or(0.0, |bias| f64::from(bias[i]));
        let one = |(i, x): (usize, &f32)| {
            (f64::from(*x) - mean) / (squares + f64::from(norm.eps)).sqrt() * f64::from(norm.weight[i])
                + bias(i)
        };
        x.iter().enumerate().map(one).collect()
    }

    #[test]
    fn normalisation_equals_the_formula() {
        for n in [1, 16, 64, 90, 576] {
            let (weight, bias) = (wave(n, 5.0), wave(n, 9.0));
            for (kind, bias, shift) in [
                (NormKind::Rms, None, 0.0),
                (NormKind::Rms, Some(&bias[..]), 0.0),
                (NormKind::Layer, None, 0.0),
                (NormKind::Layer, Some(&bias[..]), 0.0),
                (NormKind::Layer, Some(&bias[..]), 100.0),
            ] {
                let x: Vec<f32> = wave(n, 0.0).iter().map(|x| x + shift).collect();
                let norm = RowNorm { weight: &weight, bias, eps: 1e-5, kind };
                let expected = twin(&x, norm);
                for isa in Isa::available() {
                    let mut out = vec![0.0; n];
                    normalise(isa, &mut out, &x, norm);
                    for (i, (out, expected)) in out.iter().zip(&expected).enumerate() {
                        // Rounding of a sum of n squares and of two products; of a mean beside which the
                        // row is small.
                        let most = (2e-6 + f64::from(shift) * 1e-6) * expected.abs().max(1.0);
                        let error = (f64::from(*out) - expected).abs();
                        assert!(error < most, "{kind:?} {i} of {n} + {shift}, {isa}: {error}");
                    }
                }
            }
        }
    }

    /// A row of one value, and one all of whose values are the same, divide by no zero.
    #[test]
    fn rows_without_variance_become_their_bias() {
        let (weight, bias) = (vec![2.0; 40], wave(40, 1.0));
        for isa in Isa::available() {
            let mut x = vec![3.0; 40];
            let norm = RowNorm { weight: &weight, bias: Some(&bias), eps: 1e-5, kind: NormKind::Layer };
            normalise_in_place(isa, &mut x, norm);
            assert_eq!(x, bias, "{isa}");
        }
    }
}
