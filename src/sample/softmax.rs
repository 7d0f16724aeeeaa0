//! Passes over a whole row, written in lanes so that the compiler makes vector code of them.

use crate::base::wide;
use std::f32::consts::LOG2_E;
use std::f64::consts::LN_2;

/// Sums are taken in single precision over a stretch this long, then carried on in double.
pub const STRETCH: usize = 4096;
pub const LANES: usize = 16;

/// The softmax of a row, relative to its largest logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Softmax {
    pub max: f32,
    /// 1 / temperature.
    pub scale: f32,
    /// Of e^((x - max) * scale) over the row.
    pub sum: f64,
    /// In nats.
    pub entropy: f32,
}

impl Softmax {
    /// At temperature 1 / `scale`. `max` is the largest of `logits` and finite.
    pub fn of(logits: &[f32], max: f32, scale: f32) -> Self {
        let (mut sum, mut product) = (0.0, 0.0);
        for stretch in logits.chunks(STRETCH) {
            let (s, p) = stretch_sums(stretch, max, scale);
            sum += s;
            product += p;
        }
        Self::new(max, scale, sum, product)
    }

    /// From the sums of e^d and of d e^d, with d = (x - max) * scale.
    pub fn new(max: f32, scale: f32, sum: f64, product: f64) -> Self {
        // -sum p ln p with ln p = d - ln sum.
        let entropy = (sum.ln() - product / sum).max(0.0) as f32;
        Self { max, scale, sum, entropy }
    }

    pub fn logprob(&self, logit: f32) -> f32 {
        (f64::from(logit - self.max) * f64::from(self.scale) - self.sum.ln()) as f32
    }

    pub fn probability(&self, logit: f32) -> f32 {
        self.logprob(logit).exp()
    }
}

wide! {
    /// Sums of e^d and of d e^d, with d = (x - max) * scale.
    fn stretch_sums(stretch: &[f32], max: f32, scale: f32) -> (f64, f64) = fused stretch_sums_kernel;
}

#[inline(always)]
fn stretch_sums_kernel<const FUSED: bool>(stretch: &[f32], max: f32, scale: f32) -> (f64, f64) {
    let mut sums = Sums::default();
    let (full, rest) = stretch.as_chunks::<LANES>();
    for chunk in full {
        sums.add::<FUSED>(chunk, max, scale * LOG2_E);
    }
    sums.add_rest::<FUSED>(rest, max, scale * LOG2_E);
    sums.total()
}

/// Sums of 2^d and of d 2^d in lanes, with d = (x - max) * scale. A logit that is no number makes the
/// second one none.
#[derive(Default)]
pub struct Sums {
    sums: [f32; LANES],
    products: [f32; LANES],
}

impl Sums {
    #[inline(always)]
    pub fn add<const FUSED: bool>(&mut self, chunk: &[f32; LANES], max: f32, scale: f32) {
        for (lane, x) in chunk.iter().enumerate() {
            let d = floored((x - max) * scale);
            let e = exp2::<FUSED>(d);
            self.sums[lane] += e;
            self.products[lane] = multiply_add::<FUSED>(d, e, self.products[lane]);
        }
    }

    /// Fewer than a chunk.
    #[inline(always)]
    pub fn add_rest<const FUSED: bool>(&mut self, rest: &[f32], max: f32, scale: f32) {
        if !rest.is_empty() {
            let mut chunk = [f32::NEG_INFINITY; LANES];
            chunk[..rest.len()].copy_from_slice(rest);
            self.add::<FUSED>(&chunk, max, scale);
        }
    }

    /// Of e^d' and of d' e^d', with d' = d ln 2.
    #[inline(always)]
    pub fn total(&self) -> (f64, f64) {
        (total(&self.sums), total(&self.products) * LN_2)
    }
}

wide! {
    /// Sum of e^((x - max) * scale) over one stretch.
    pub fn mass(logits: &[f32], max: f32, scale: f32) -> f64 = fused mass_kernel;
}

#[inline(always)]
fn mass_kernel<const FUSED: bool>(logits: &[f32], max: f32, scale: f32) -> f64 {
    let log2_scale = scale * LOG2_E;
    let mut sums = [0.0f32; LANES];
    let (full, rest) = logits.as_chunks::<LANES>();
    for chunk in full {
        for lane in 0..LANES {
            sums[lane] += exp2::<FUSED>(floored((chunk[lane] - max) * log2_scale));
        }
    }
    total(&sums) + rest.iter().map(|x| f64::from(weight(*x, max, scale))).sum::<f64>()
}

wide! {
    /// How many of a stretch are not masked, the sum of their distances to `max`, and of the squares.
    pub fn moments(stretch: &[f32], max: f32) -> (f64, f64, f64) = moments_kernel;
}

#[inline(always)]
fn moments_kernel(stretch: &[f32], max: f32) -> (f64, f64, f64) {
    let (mut counts, mut sums, mut squares) = ([0.0f32; LANES], [0.0f32; LANES], [0.0f32; LANES]);
    let (full, rest) = stretch.as_chunks::<LANES>();
    let mut last = [f32::NEG_INFINITY; LANES];
    last[..rest.len()].copy_from_slice(rest);
    for group in full.iter().chain([&last]) {
        for lane in 0..LANES {
            let open = group[lane] > f32::NEG_INFINITY;
            let d = if open { group[lane] - max } else { 0.0 };
            counts[lane] += if open { 1.0 } else { 0.0 };
            sums[lane] += d;
            squares[lane] += d * d;
        }
    }
    (total(&counts), total(&sums), total(&squares))
}

/// e^((x - max) * scale) as the passes compute it; exactly 0 for a masked token.
pub fn weight(logit: f32, max: f32, scale: f32) -> f32 {
    let masked = logit == f32::NEG_INFINITY;
    if masked { 0.0 } else { exp2::<false>(floored((logit - max) * (scale * LOG2_E))) }
}

fn total(lanes: &[f32; LANES]) -> f64 {
    lanes.iter().map(|x| f64::from(*x)).sum()
}

#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// 2^-125.5 is 1.6e-38, about the smallest that [`exp2`] can name without a denormal, and nothing
/// beside the 1 of the likeliest token. What is no number stays none.
#[inline(always)]
fn floored(x: f32) -> f32 {
    const FLOOR: f32 = -125.5;
    if FLOOR > x { FLOOR } else { x }
}

/// 2^x for x in [-125.5, 0]: the whole part goes into the exponent bits, a polynomial does the rest.
/// No branch and no call, so that it can be done in lanes.
#[inline(always)]
fn exp2<const FUSED: bool>(x: f32) -> f32 {
    /// Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let rounded = x + ROUND;
    let f = x - (rounded - ROUND);
    // Fitted to 2^f on [-1/2, 1/2] so that the largest relative error is least.
    let mut p = 1.326_47e-3;
    p = multiply_add::<FUSED>(p, f, 9.671_51e-3);
    p = multiply_add::<FUSED>(p, f, 5.550_734e-2);
    p = multiply_add::<FUSED>(p, f, 2.402_224_2e-1);
    p = multiply_add::<FUSED>(p, f, std::f32::consts::LN_2);
    p = multiply_add::<FUSED>(p, f, 1.0);
    f32::from_bits(p.to_bits().wrapping_add(rounded.to_bits() << 23))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp2_is_that_of_double_precision_to_the_last_places() {
        let mut worst = 0.0f64;
        for i in 0..=1_255_000 {
            let x = -(i as f32) / 10_000.0;
            let right = f64::from(x).exp2();
            let off = |got: f32| (f64::from(got) - right).abs() / right;
            worst = worst.max(off(exp2::<false>(x))).max(off(exp2::<true>(x)));
        }
        // A unit in the last place is 1.2e-7 of the value at most.
        assert!(worst < 3.5e-7, "relative error {worst}");
    }

    #[test]
    fn sums_and_entropy_agree_with_the_plain_formulas() {
        let logits: Vec<f32> = (0..10_007).map(|i| ((i * 7919) % 1013) as f32 / 97.0).collect();
        let max = logits.iter().copied().fold(f32::MIN, f32::max);
        let sum: f64 = logits.iter().map(|x| f64::from(x - max).exp()).sum();
        let entropy: f64 = logits.iter().map(|x| f64::from(x - max).exp() / sum).map(|p| -p * p.ln()).sum();
        let got = Softmax::of(&logits, max, 1.0);
        assert!((got.sum / sum - 1.0).abs() < 1e-6, "{} {sum}", got.sum);
        assert!((f64::from(got.entropy) - entropy).abs() < 1e-5, "{} {entropy}", got.entropy);
        let half: f64 = logits.iter().map(|x| (f64::from(x - max) * 0.5).exp()).sum();
        assert!((mass(&logits, max, 0.5) / half - 1.0).abs() < 1e-5);
        let (count, sum, squares) = moments(&logits, max);
        let right = logits.iter().map(|x| f64::from(x - max));
        assert_eq!(count, 10_007.0);
        assert!((sum / right.clone().sum::<f64>() - 1.0).abs() < 1e-5);
        assert!((squares / right.map(|d| d * d).sum::<f64>() - 1.0).abs() < 1e-5);
    }

    #[test]
    fn masked_tokens_weigh_nothing_and_one_sure_token_has_no_entropy() {
        let row = [f32::NEG_INFINITY, 3.0, f32::NEG_INFINITY];
        let softmax = Softmax::of(&row, 3.0, 1.0);
        assert!(softmax.sum == 1.0 && softmax.entropy < 1e-30);
        assert_eq!(softmax.logprob(f32::NEG_INFINITY), f32::NEG_INFINITY);
        assert_eq!(weight(f32::NEG_INFINITY, 3.0, 1.0), 0.0);
    }
}
