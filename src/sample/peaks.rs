use super::select::{Entry, keep_first};
use super::softmax::{LANES, STRETCH, Softmax, Sums};
use crate::base::wide;
use crate::protocol::TokenId;
use std::f32::consts::LOG2_E;

/// Logits are looked at in chunks; a chunk whose largest is below a bound is passed over.
pub const CHUNK: usize = 128;

/// The largest logit of each chunk of a row: makes "the k likeliest" and "all above a bound" cost
/// a look at a few chunks, where sorting 151,936 logits would cost milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Peaks {
    maxima: Vec<f32>,
}

/// Why nothing can be drawn from a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// A logit is NaN or +infinity.
    NotANumber,
    AllMasked,
}

impl Peaks {
    /// Looks at the whole row, once: every chunk's largest, and the softmax.
    pub fn survey(&mut self, logits: &[f32]) -> Result<Softmax, Unusable> {
        match survey(logits, &mut self.maxima) {
            (_, _, product) if product.is_nan() => Err(Unusable::NotANumber),
            (f32::NEG_INFINITY, ..) => Err(Unusable::AllMasked),
            (max, sum, product) => Ok(Softmax::new(max, 1.0, sum, product)),
        }
    }

    /// The same without the softmax, of a row that was surveyed and has changed.
    pub fn measure(&mut self, logits: &[f32]) {
        measure(logits, &mut self.maxima);
    }

    /// After the logit of `id` changed.
    pub fn refresh(&mut self, logits: &[f32], id: TokenId) {
        let at = id as usize / CHUNK;
        self.maxima[at] = chunk_max(&logits[at * CHUNK..logits.len().min((at + 1) * CHUNK)]);
    }

    /// -infinity where all are masked.
    pub fn max(&self) -> f32 {
        self.maxima.iter().copied().fold(f32::NEG_INFINITY, larger)
    }

    /// The likeliest token, ties to the lowest id.
    pub fn first(&self, logits: &[f32]) -> Entry {
        let max = self.max();
        let chunk = self.maxima.iter().position(|peak| *peak == max).unwrap_or(0) * CHUNK;
        let id = logits[chunk..].iter().position(|x| *x == max).unwrap_or(0) + chunk;
        Entry { logit: max, id: id as TokenId }
    }

    /// All tokens of at least this logit that are not masked, in order of id.
    pub fn at_least(&self, logits: &[f32], bound: f32, out: &mut Vec<Entry>) {
        let bound = bound.max(f32::MIN);
        out.clear();
        for (chunk, _) in self.maxima.iter().enumerate().filter(|(_, peak)| **peak >= bound) {
            let start = chunk * CHUNK;
            let end = logits.len().min(start + CHUNK);
            let tokens = logits[start..end].iter().zip(start as TokenId..);
            out.extend(tokens.filter(|(x, _)| **x >= bound).map(|(&logit, id)| Entry { logit, id }));
        }
    }

    /// How many tokens have at least this logit; masked ones never.
    pub fn count_at_least(&self, logits: &[f32], bound: f32) -> usize {
        count(logits, &self.maxima, bound.max(f32::MIN))
    }

    /// The k likeliest tokens, in order of id; fewer where fewer are not masked.
    pub fn top(&self, logits: &[f32], k: usize, out: &mut Vec<Entry>, work: &mut Vec<Entry>) {
        out.clear();
        if k == 0 {
            return;
        }
        self.at_least(logits, self.kth(k, work), out);
        keep_first(out, k, work);
    }

    /// A bound that at least `k` tokens reach: as many chunks have a peak of that.
    fn kth(&self, k: usize, work: &mut Vec<Entry>) -> f32 {
        if k > self.maxima.len() {
            return f32::MIN;
        }
        work.clear();
        work.extend(self.maxima.iter().zip(0..).map(|(&logit, id)| Entry { logit, id }));
        work.select_nth_unstable_by(k - 1, Entry::order).1.logit
    }
}

wide! {
    /// Every chunk's largest; the row's; and the sums of e^d and of d e^d, with d = x - largest. The
    /// last is NaN where a logit is NaN or +infinity.
    fn survey(logits: &[f32], maxima: &mut Vec<f32>) -> (f32, f64, f64) = fused survey_kernel;
}

/// Sums are kept relative to the largest logit so far, so that one pass does: Milakov and Gimelshein,
/// "Online normalizer calculation for softmax" (2018), section 3. A chunk is summed while it is in the
/// first-level cache.
#[inline(always)]
fn survey_kernel<const FUSED: bool>(logits: &[f32], maxima: &mut Vec<f32>) -> (f32, f64, f64) {
    let (mut max, mut sum, mut product) = (f32::NEG_INFINITY, 0.0, 0.0);
    maxima.clear();
    for stretch in logits.chunks(STRETCH) {
        let mut sums = Sums::default();
        for chunk in stretch.chunks(CHUNK) {
            let peak = chunk_max(chunk);
            maxima.push(peak);
            if peak > max {
                (sum, product) = carried(sum, product, std::mem::take(&mut sums), max - peak);
                max = peak;
            }
            let reference = if max == f32::NEG_INFINITY { 0.0 } else { max };
            let (full, rest) = chunk.as_chunks::<LANES>();
            for group in full {
                sums.add::<FUSED>(group, reference, LOG2_E);
            }
            sums.add_rest::<FUSED>(rest, reference, LOG2_E);
        }
        (sum, product) = carried(sum, product, sums, 0.0);
    }
    (max, sum, product)
}

/// The sums with those of a few lanes added, and all relative to a logit that is larger by `-drop`.
#[inline(always)]
fn carried(sum: f64, product: f64, sums: Sums, drop: f32) -> (f64, f64) {
    let (more, more_product) = sums.total();
    let (sum, product) = (sum + more, product + more_product);
    // From nothing but masked tokens: only what is no number is carried on.
    if drop == f32::NEG_INFINITY {
        return (0.0, product * 0.0);
    }
    let (drop, shrink) = (f64::from(drop), f64::from(drop).exp());
    (sum * shrink, (product + drop * sum) * shrink)
}

wide! {
    /// How many are at least `bound`.
    fn count(logits: &[f32], maxima: &[f32], bound: f32) -> usize = count_kernel;
}

#[inline(always)]
fn count_kernel(logits: &[f32], maxima: &[f32], bound: f32) -> usize {
    let mut count = 0;
    for (chunk, _) in logits.chunks(CHUNK).zip(maxima).filter(|(_, peak)| **peak >= bound) {
        let mut within = 0u32;
        for x in chunk {
            within += u32::from(*x >= bound);
        }
        count += within as usize;
    }
    count
}

wide! {
    /// Every chunk's largest.
    fn measure(logits: &[f32], maxima: &mut Vec<f32>) = measure_kernel;
}

#[inline(always)]
fn measure_kernel(logits: &[f32], maxima: &mut Vec<f32>) {
    maxima.clear();
    maxima.extend(logits.chunks(CHUNK).map(chunk_max));
}

#[inline(always)]
fn chunk_max(chunk: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (full, rest) = chunk.as_chunks::<LANES>();
    for group in full {
        for lane in 0..LANES {
            lanes[lane] = larger(group[lane], lanes[lane]);
        }
    }
    for (lane, x) in rest.iter().enumerate() {
        lanes[lane] = larger(*x, lanes[lane]);
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, larger)
}

/// As the machine's own maximum, which `f32::max` with its care for NaN is not.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::super::select::tests::{row, sorted};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_k_likeliest_are_those_of_a_full_sort(row in row(), k in 0usize..1000) {
            let (mut peaks, mut out, mut work) = (Peaks::default(), Vec::new(), Vec::new());
            peaks.measure(&row);
            peaks.top(&row, k, &mut out, &mut work);
            let mut right = sorted(&row);
            right.truncate(k);
            right.sort_by_key(|entry| entry.id);
            prop_assert_eq!(&out, &right);
            if right.len() == row.len() {
                prop_assert_eq!(peaks.first(&row), sorted(&row)[0]);
            }
        }

        /// One pass gives what two give, whatever is masked and wherever the largest stands.
        #[test]
        fn a_survey_is_the_softmax_of_the_row(row in row(), step in 0.0f32..0.1) {
            let row: Vec<f32> = row.iter().zip(0..).map(|(x, i)| x + step * i as f32).collect();
            let mut peaks = Peaks::default();
            let got = peaks.survey(&row);
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            prop_assert_eq!(peaks.max(), max);
            prop_assert_eq!(got == Err(Unusable::AllMasked), max == f32::NEG_INFINITY);
            if let Ok(got) = got {
                let right = Softmax::of(&row, max, 1.0);
                prop_assert!((got.sum / right.sum - 1.0).abs() < 1e-6, "{} {}", got.sum, right.sum);
                prop_assert!((got.entropy - right.entropy).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn what_is_no_number_is_found_wherever_it_stands() {
        for at in [0, 63, 64, 150, 199] {
            for bad in [f32::NAN, -f32::NAN, f32::INFINITY] {
                let mut row = vec![1.0; 200];
                row[at] = bad;
                assert_eq!(Peaks::default().survey(&row), Err(Unusable::NotANumber), "{bad} at {at}");
                row = vec![f32::NEG_INFINITY; 200];
                row[at] = bad;
                assert_eq!(Peaks::default().survey(&row), Err(Unusable::NotANumber), "{bad} at {at}");
            }
        }
        assert_eq!(Peaks::default().survey(&[f32::NEG_INFINITY; 3]), Err(Unusable::AllMasked));
    }

    #[test]
    fn a_changed_logit_moves_its_peak() {
        let mut row = vec![0.0; 130];
        row[129] = 5.0;
        let mut peaks = Peaks::default();
        peaks.measure(&row);
        row[129] = -1.0;
        peaks.refresh(&row, 129);
        assert_eq!(peaks.first(&row), Entry { logit: 0.0, id: 0 });
    }
}
