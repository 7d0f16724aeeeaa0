//! Angles per position. Computed in f32, as transformers does: at the 100,000th position the rounding of
//! either is a hundredth of a turn of the fastest pair.

use super::scaling::{Llama3, Yarn};
use std::f32::consts::TAU;

/// How fast each pair of a head turns.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::model) struct Angles {
    /// Angle per position. [dims / 2]
    pub(in crate::model) inverse_frequencies: Vec<f32>,
    /// Multiplies cosines and sines: YaRN's attention factor (Peng et al. 2023, section 3.4).
    pub(in crate::model) factor: f32,
}

impl Angles {
    /// Every pair.
    pub(super) fn slower(mut self, by: f32) -> Self {
        self.inverse_frequencies.iter_mut().for_each(|angle| *angle /= by);
        self
    }

    /// Each pair by its own.
    pub(super) fn divided(mut self, by: &[f32]) -> Self {
        self.inverse_frequencies.iter_mut().zip(by).for_each(|(angle, by)| *angle /= by);
        self
    }
}

/// `base^(-2i / dims)` (Su et al. 2021, section 3.2).
pub(super) fn plain(base: f32, dims: usize) -> Angles {
    let angle = |i| 1.0 / base.powf((2 * i) as f32 / dims as f32);
    Angles { inverse_frequencies: (0..dims / 2).map(angle).collect(), factor: 1.0 }
}

/// The base grows with the sequence, so that its slowest pair turns as far as it did in training ("NTK-aware"
/// scaling, made dynamic: Peng et al. 2023, section 3.3 and appendix).
pub(super) fn dynamic(base: f32, dims: usize, factor: f32, trained: usize, len: usize) -> Angles {
    let stretch = factor * len.max(trained) as f32 / trained as f32 - (factor - 1.0);
    plain(base * stretch.powf(dims as f32 / (dims as f32 - 2.0)), dims)
}

/// Pairs that turn often within the trained length stay as they are, those that do not turn once are slowed
/// by the factor, and those between by a part of it (Peng et al. 2023, section 3.2).
pub(super) fn yarn(base: f32, dims: usize, scaling: &Yarn) -> Angles {
    // The pair that turns so many times within the original context. Between two of them is a difference of
    // near numbers.
    let (pairs, base_ln, original) = (dims as f64, f64::from(base).ln(), scaling.original as f64);
    let pair =
        |turns: f32| pairs * (original / (f64::from(turns) * std::f64::consts::TAU)).ln() / (2.0 * base_ln);
    let (mut low, mut high) = (pair(scaling.beta_fast), pair(scaling.beta_slow));
    if scaling.truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(pairs - 1.0));
    if low == high {
        high += 0.001; // no division by nothing
    }
    let mut angles = plain(base, dims);
    for (i, angle) in angles.inverse_frequencies.iter_mut().enumerate() {
        let slowed = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
        *angle = *angle / scaling.factor * slowed as f32 + *angle * (1.0 - slowed) as f32;
    }
    Angles { factor: scaling.attention, ..angles }
}

/// By the length of a pair's wave, beside those that the model was trained on (Grattafiori et al. 2024; the
/// formula is that of the Llama 3.1 release).
pub(super) fn llama3(base: f32, dims: usize, scaling: &Llama3) -> Angles {
    let Llama3 { factor, low, high, original } = *scaling;
    let mut angles = plain(base, dims);
    for angle in &mut angles.inverse_frequencies {
        let waves = original as f32 * *angle / TAU;
        if waves < low {
            *angle /= factor;
        } else if waves <= high {
            let kept = (waves - low) / (high - low);
            *angle = (1.0 - kept) * *angle / factor + kept * *angle;
        }
    }
    angles
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::TAU;

    fn near(ours: &Angles, reference: impl Iterator<Item = f64>) {
        for (i, (ours, reference)) in ours.inverse_frequencies.iter().zip(reference).enumerate() {
            let by = (f64::from(*ours) / reference - 1.0).abs();
            assert!(by < 1e-6, "pair {i} is {by} from the formula");
        }
    }

    fn plain_f64(base: f64, dims: u32) -> impl Iterator<Item = f64> {
        (0..dims / 2).map(move |i| base.powf(f64::from(2 * i) / -f64::from(dims)))
    }

    /// BUGLOG A01: factor 8, low 1, high 4, original context 8192, by the Llama 3.1 release's formula.
    #[test]
    fn llama3_equals_the_formula() {
        let scaling = Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192 };
        let reference = plain_f64(500_000.0, 128).map(|f| match TAU / f {
            short if short < 8192.0 / 4.0 => f,
            long if long > 8192.0 => f / 8.0,
            wavelength => {
                let smooth = (8192.0 / wavelength - 1.0) / 3.0;
                (1.0 - smooth) * f / 8.0 + smooth * f
            }
        });
        near(&llama3(500_000.0, 128, &scaling), reference);
    }

    /// BUGLOG A02: factor 64 with both mscales, as the models that it broke had it; and 1.0 for each.
    #[test]
    fn yarn_equals_the_formula() {
        let (base, dims, factor, original) = (50_000.0, 64, 64.0, 4096.0);
        for (truncate, mscale) in [(true, (1.0, 1.0)), (false, (0.707, 1.0)), (true, (0.0, 0.0))] {
            let of = |m: f64| 0.1 * m * f64::ln(factor) + 1.0;
            let attention = if mscale.0 == 0.0 { of(1.0) } else { of(mscale.0) / of(mscale.1) };
            let scaling = Yarn {
                factor: 64.0,
                original: 4096,
                beta_fast: 32.0,
                beta_slow: 1.0,
                truncate,
                attention: super::super::scaling::yarn_attention(64.0, mscale.0 as f32, mscale.1 as f32),
            };
            let pair = |turns: f64| f64::from(dims) * (original / (turns * TAU)).ln() / (2.0 * f64::ln(base));
            let (low, high) = match truncate {
                true => (pair(32.0).floor().max(0.0), pair(1.0).ceil().min(63.0)),
                false => (pair(32.0).max(0.0), pair(1.0).min(63.0)),
            };
            let reference = plain_f64(base, dims).enumerate().map(|(i, f)| {
                let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                f / factor * ramp + f * (1.0 - ramp)
            });
            let ours = yarn(base as f32, dims as usize, &scaling);
            near(&ours, reference);
            assert!((f64::from(ours.factor) / attention - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn dynamic_ntk_equals_the_formula_and_changes_nothing_for_short_sequences() {
        assert_eq!(dynamic(10_000.0, 64, 2.0, 2048, 100), plain(10_000.0, 64));
        let base = 10_000.0 * f64::powf(2.0 * 3000.0 / 2048.0 - 1.0, 64.0 / 62.0);
        near(&dynamic(10_000.0, 64, 2.0, 2048, 3000), plain_f64(base, 64));
    }
}
