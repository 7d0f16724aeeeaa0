//! Operations on one token's row: normalisation, activations to bytes, rotary embedding.

use super::simd::{Isa, Simd, simd_fn};
use crate::compute::RopeStyle;

/// Activations of several tokens as bytes, one scale for each 16 of them. llama.cpp has one for 32
/// (Q8_0) or for 256 (Q8_K); the likeliest token of SmolLM2 then differs from that of unrounded
/// activations at 4.7 % or 9.2 % of positions, with 16 at 2.9 %.
#[derive(Default)]
pub(super) struct Quantized {
    pub(super) cols: usize,
    /// [rows, cols]
    pub(super) bytes: Vec<i8>,
    /// [rows, cols / 16]
    pub(super) scales: Vec<f32>,
    /// Sums of 16 bytes. [rows, cols / 16]
    pub(super) counts: Vec<i32>,
    /// Sums of 32 activations, as rounded: what a weight's minimum is multiplied by. [rows, cols / 32]
    pub(super) sums: Vec<f32>,
}

impl Quantized {
    /// Memory for so many rows: a byte for each activation, a scale and a count for each 16, a sum
    /// for each 32.
    pub(super) fn bytes_for(rows: usize, cols: usize) -> usize {
        rows * (cols + cols / 16 * 8 + cols / 32 * 4)
    }

    /// Makes room; contents are undefined.
    pub(super) fn resize(&mut self, rows: usize, cols: usize) {
        self.cols = cols;
        self.bytes.resize(rows * cols, 0);
        self.scales.resize(rows * cols / 16, 0.0);
        self.counts.resize(rows * cols / 16, 0);
        self.sums.resize(rows * cols / 32, 0.0);
    }
}

/// One row's place in a [`Quantized`], to be written.
pub(super) struct QuantizedRow<'a> {
    pub(super) bytes: &'a mut [i8],
    pub(super) scales: &'a mut [f32],
    pub(super) counts: &'a mut [i32],
    pub(super) sums: &'a mut [f32],
}

simd_fn! {
    /// Root mean square normalisation (Zhang and Sennrich 2019): `out = x / sqrt(mean(x^2) + eps) * weight`.
    pub(super) fn rms_norm(out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) = rms_norm_kernel;
}

unsafe fn rms_norm_kernel<S: Simd>(out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) {
    assert!(out.len() == x.len() && weight.len() == x.len());
    let whole = x.len() / 16 * 16;
    // SAFETY: every access lies below `whole + 16 <= len` of slices of one length.
    unsafe {
        let mut squares = S::splat(0.0);
        for i in (0..whole).step_by(16) {
            let v = S::load(x.as_ptr().add(i));
            squares = S::fma(v, v, squares);
        }
        let rest: f32 = x[whole..].iter().map(|v| v * v).sum();
        let scale = 1.0 / ((S::sum(squares) + rest) / x.len() as f32 + eps).sqrt();
        for i in (0..whole).step_by(16) {
            let v = S::mul(S::load(x.as_ptr().add(i)), S::splat(scale));
            S::store(out.as_mut_ptr().add(i), S::mul(v, S::load(weight.as_ptr().add(i))));
        }
        for i in whole..x.len() {
            out[i] = x[i] * scale * weight[i];
        }
    }
}

/// The same, in place.
pub(super) fn rms_norm_in_place(isa: Isa, x: &mut [f32], weight: &[f32], eps: f32) {
    let mut row = [0.0; 512];
    let row = &mut row[..x.len()];
    row.copy_from_slice(x);
    rms_norm(isa, x, row, weight, eps);
}

simd_fn! {
    /// Each 16 activations to bytes: scale = max |x| / 127. `x.len()` is a multiple of 32.
    pub(super) fn quantize(x: &[f32], out: QuantizedRow) = quantize_kernel;
}

unsafe fn quantize_kernel<S: Simd>(x: &[f32], out: QuantizedRow) {
    let halves = x.len() / 16;
    assert!(out.bytes.len() == x.len() && out.scales.len() == halves && out.counts.len() == halves);
    assert!(out.sums.len() * 2 == halves && x.len().is_multiple_of(32));
    for h in 0..halves {
        // SAFETY: 16 elements from `16 h` lie inside `x` and `out.bytes`.
        unsafe {
            let v = S::load(x.as_ptr().add(16 * h));
            let largest = S::largest(S::abs(v));
            let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            out.counts[h] = S::store_i8(out.bytes.as_mut_ptr().add(16 * h), S::mul(v, S::splat(inverse)));
            out.scales[h] = largest / 127.0;
        }
    }
    for (b, sum) in out.sums.iter_mut().enumerate() {
        let rounded = |h: usize| out.scales[h] * out.counts[h] as f32;
        *sum = rounded(2 * b) + rounded(2 * b + 1);
    }
}

simd_fn! {
    /// `x += y`
    pub(super) fn add(x: &mut [f32], y: &[f32]) = add_kernel;
}

unsafe fn add_kernel<S: Simd>(x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len());
    for (a, b) in x.iter_mut().zip(y) {
        *a += b;
    }
}

/// Rotary position embedding (Su et al. 2021, section 3.4): turns the first `2 * cos.len()` elements
/// of a head; the rest stay.
pub(super) fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32], style: RopeStyle) {
    let n = cos.len();
    match style {
        RopeStyle::Interleaved => {
            for ((pair, c), s) in head[..2 * n].chunks_exact_mut(2).zip(cos).zip(sin) {
                let (a, b) = (pair[0], pair[1]);
                pair[0] = a * c - b * s;
                pair[1] = a * s + b * c;
            }
        }
        RopeStyle::Halves => {
            let (first, second) = head[..2 * n].split_at_mut(n);
            for (((a, b), c), s) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                let (x, y) = (*a, *b);
                *a = x * c - y * s;
                *b = x * s + y * c;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(n: usize, seed: f32) -> Vec<f32> {
        (0..n).map(|i| ((i as f32 + seed) * 0.7).sin() * (1.0 + i as f32 * 0.01)).collect()
    }

    #[test]
    fn normalisation_equals_the_formula() {
        for n in [16, 64, 90, 576] {
            let (x, w) = (wave(n, 0.0), wave(n, 5.0));
            let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n as f64;
            for isa in Isa::available() {
                let mut out = vec![0.0; n];
                rms_norm(isa, &mut out, &x, &w, 1e-5);
                for i in 0..n {
                    let expected = f64::from(x[i]) / (mean + 1e-5).sqrt() * f64::from(w[i]);
                    // Rounding of a sum of n squares and of two products.
                    assert!((f64::from(out[i]) - expected).abs() < 2e-6 * expected.abs().max(1.0), "{i}");
                }
            }
        }
    }

    #[test]
    fn bytes_are_within_half_a_step_and_sums_are_exact() {
        let mut x = wave(96, 1.0);
        x[64..].fill(0.0);
        for isa in Isa::available() {
            let mut q = Quantized::default();
            q.resize(1, 96);
            let Quantized { bytes, scales, counts, sums, .. } = &mut q;
            quantize(isa, &x, QuantizedRow { bytes, scales, counts, sums });
            for (i, x) in x.iter().enumerate() {
                let error = (f32::from(q.bytes[i]) * q.scales[i / 16] - x).abs();
                assert!(error <= q.scales[i / 16] * 0.5001, "{} element {i}", isa.name());
            }
            for h in 0..6 {
                let count: i32 = q.bytes[16 * h..][..16].iter().map(|q| i32::from(*q)).sum();
                assert_eq!(q.counts[h], count);
            }
            let rounded = |h: usize| q.scales[h] * q.counts[h] as f32;
            assert_eq!(q.sums[1], rounded(2) + rounded(3));
        }
    }

    #[test]
    fn rotation_keeps_lengths_and_both_styles_agree_after_reordering() {
        let (cos, sin): (Vec<f32>, Vec<f32>) = (0..4).map(|i| ((i as f32).cos(), (i as f32).sin())).unzip();
        let mut halves = wave(10, 2.0);
        let original = halves.clone();
        let mut pairs: Vec<f32> = (0..4).flat_map(|i| [original[i], original[i + 4]]).collect();
        rotate(&mut halves, &cos, &sin, RopeStyle::Halves);
        rotate(&mut pairs, &cos, &sin, RopeStyle::Interleaved);
        for i in 0..4 {
            assert_eq!((pairs[2 * i], pairs[2 * i + 1]), (halves[i], halves[i + 4]));
        }
        assert_eq!(halves[8..], original[8..]);
        let length = |v: &[f32]| v.iter().map(|x| x * x).sum::<f32>();
        assert!((length(&halves) - length(&original)).abs() < 1e-5);
    }
}
