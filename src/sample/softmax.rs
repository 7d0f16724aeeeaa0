//! Passes over a whole row, written in lanes so that the compiler makes vector code of them.

/// Sums are taken in single precision over a stretch this long, then carried on in double.
pub const STRETCH: usize = 4096;
const LANES: usize = 16;

/// The softmax of a row, relative to its largest logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Softmax {
    pub max: f32,
    /// Of e^(x - max) over the row.
    pub sum: f64,
    /// In nats.
    pub entropy: f32,
}

impl Softmax {
    /// Of the row's own distribution. `max` is the largest of `logits` and finite.
    pub fn of(logits: &[f32], max: f32) -> Self {
        Self::scaled(logits, max, 1.0)
    }

    /// Of the distribution at temperature 1 / `scale`.
    pub fn scaled(logits: &[f32], max: f32, scale: f32) -> Self {
        let (mut sum, mut weighted) = (0.0, 0.0);
        for stretch in logits.chunks(STRETCH) {
            let (s, w) = stretch_sums(stretch, max, scale);
            sum += s;
            weighted += w;
        }
        // -sum p ln p with ln p = d - ln sum.
        let entropy = (sum.ln() - weighted / sum).max(0.0) as f32;
        Self { max, sum, entropy }
    }

    pub fn logprob(&self, logit: f32) -> f32 {
        (f64::from(logit - self.max) - self.sum.ln()) as f32
    }

    pub fn probability(&self, logit: f32) -> f32 {
        (f64::from(logit - self.max).exp() / self.sum) as f32
    }
}

/// Sums of e^d and of d e^d, with d = (x - max) * scale.
fn stretch_sums(stretch: &[f32], max: f32, scale: f32) -> (f64, f64) {
    let (mut sums, mut weighted) = ([0.0f32; LANES], [0.0f32; LANES]);
    let (full, rest) = stretch.as_chunks::<LANES>();
    for chunk in full {
        for lane in 0..LANES {
            let d = floored((chunk[lane] - max) * scale);
            let e = exp(d);
            sums[lane] += e;
            weighted[lane] += d * e;
        }
    }
    let (mut sum, mut product) = (total(&sums), total(&weighted));
    for x in rest {
        let d = floored((x - max) * scale);
        sum += f64::from(exp(d));
        product += f64::from(d * exp(d));
    }
    (sum, product)
}

/// Sum of e^((x - max) * scale) over one stretch.
pub fn mass(logits: &[f32], max: f32, scale: f32) -> f64 {
    let mut sums = [0.0f32; LANES];
    let (full, rest) = logits.as_chunks::<LANES>();
    for chunk in full {
        for lane in 0..LANES {
            sums[lane] += exp(floored((chunk[lane] - max) * scale));
        }
    }
    total(&sums) + rest.iter().map(|x| f64::from(weight(*x, max, scale))).sum::<f64>()
}

/// e^((x - max) * scale) as the passes compute it; exactly 0 for a masked token.
pub fn weight(logit: f32, max: f32, scale: f32) -> f32 {
    if logit == f32::NEG_INFINITY { 0.0 } else { exp(floored((logit - max) * scale)) }
}

/// How many of the row are at least `bound`.
pub fn count_at_least(logits: &[f32], bound: f32) -> u32 {
    let mut counts = [0u32; LANES];
    let (full, rest) = logits.as_chunks::<LANES>();
    for chunk in full {
        for lane in 0..LANES {
            counts[lane] += u32::from(chunk[lane] >= bound);
        }
    }
    counts.iter().sum::<u32>() + rest.iter().filter(|x| **x >= bound).count() as u32
}

fn total(lanes: &[f32; LANES]) -> f64 {
    lanes.iter().map(|x| f64::from(*x)).sum()
}

/// e^-87 is the smallest that [`exp`] can name without a denormal: 1.6e-38, nothing beside the 1
/// of the likeliest token.
#[inline(always)]
fn floored(d: f32) -> f32 {
    if d < -87.0 { -87.0 } else { d }
}

/// e^x for x in [-87, 0], to 2 units in the last place: x = n ln 2 + r, a polynomial for e^r, and
/// n added to the exponent bits. No branch and no call, so that it can be done in lanes.
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts; the first has few enough bits that n times it is exact.
    const LN2_HIGH: f32 = 0.693_359_375;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    // Cephes' coefficients for e^r on [-ln 2 / 2, ln 2 / 2].
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let y = p * r * r + r + 1.0;
    f32::from_bits(y.to_bits().wrapping_add(rounded.to_bits() << 23))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_that_of_double_precision_to_the_last_places() {
        let mut worst = 0.0f64;
        for i in 0..=870_000 {
            let x = -(i as f32) / 10_000.0;
            let right = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - right).abs() / right);
        }
        assert!(worst < 2.5e-7, "relative error {worst}");
    }

    #[test]
    fn sums_and_entropy_agree_with_the_plain_formulas() {
        let logits: Vec<f32> = (0..10_007).map(|i| ((i * 7919) % 1013) as f32 / 97.0).collect();
        let max = logits.iter().copied().fold(f32::MIN, f32::max);
        let sum: f64 = logits.iter().map(|x| f64::from(x - max).exp()).sum();
        let entropy: f64 = logits.iter().map(|x| f64::from(x - max).exp() / sum).map(|p| -p * p.ln()).sum();
        let got = Softmax::of(&logits, max);
        assert!((got.sum / sum - 1.0).abs() < 1e-6, "{} {sum}", got.sum);
        assert!((f64::from(got.entropy) - entropy).abs() < 1e-5, "{} {entropy}", got.entropy);
        let half: f64 = logits.iter().map(|x| (f64::from(x - max) * 0.5).exp()).sum();
        assert!((mass(&logits, max, 0.5) / half - 1.0).abs() < 1e-5);
    }

    #[test]
    fn masked_tokens_weigh_nothing_and_one_sure_token_has_no_entropy() {
        let row = [f32::NEG_INFINITY, 3.0, f32::NEG_INFINITY];
        let softmax = Softmax::of(&row, 3.0);
        assert!(softmax.sum == 1.0 && softmax.entropy < 1e-30);
        assert_eq!(softmax.logprob(f32::NEG_INFINITY), f32::NEG_INFINITY);
        assert_eq!(weight(f32::NEG_INFINITY, 3.0, 1.0), 0.0);
    }
}
