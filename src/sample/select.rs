use crate::base::wide;
use crate::protocol::TokenId;
use std::cmp::Ordering;

/// A token and its logit. Sorted: likeliest first, ties to the lower id. Every stage that cuts
/// keeps the front part of this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    pub logit: f32,
    pub id: TokenId,
}

impl Entry {
    /// Less is likelier. Logits are never NaN here.
    pub fn order(&self, other: &Entry) -> Ordering {
        self.key().cmp(&other.key())
    }

    /// The order as one whole number, which is quicker to compare: the logit's bits, turned so that
    /// they descend with it, above the id. Adding 0 makes -0 the same as 0.
    fn key(&self) -> u64 {
        let bits = (self.logit + 0.0).to_bits();
        let descending = if bits >> 31 == 1 { bits } else { !bits & !(1 << 31) };
        (u64::from(descending) << 32) | u64::from(self.id)
    }

    pub fn is_after(&self, last: &Entry) -> bool {
        self.order(last) == Ordering::Greater
    }
}

/// Logits are looked at in chunks; a chunk whose largest is below a bound is passed over.
const CHUNK: usize = 128;
const LANES: usize = 16;

/// The largest logit of each chunk of a row: makes "the k likeliest" and "all above a bound" cost
/// a look at a few chunks, where sorting 151,936 logits would cost milliseconds.
#[derive(Debug, Default)]
pub struct Peaks {
    maxima: Vec<f32>,
    order: Vec<f32>,
}

impl Peaks {
    /// The largest logit, or nothing where one is NaN or +infinity.
    pub fn measure(&mut self, logits: &[f32]) -> Option<f32> {
        let numbers = measure(logits, &mut self.maxima);
        let max = self.max();
        (numbers && max < f32::INFINITY).then_some(max)
    }

    /// After the logit of `id` changed.
    pub fn refresh(&mut self, logits: &[f32], id: TokenId) {
        let at = id as usize / CHUNK;
        let chunk = &logits[at * CHUNK..logits.len().min((at + 1) * CHUNK)];
        self.maxima[at] = chunk_max(chunk, &mut [0; LANES]);
    }

    pub fn max(&self) -> f32 {
        self.maxima.iter().copied().fold(f32::NEG_INFINITY, f32::max)
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

    /// How many tokens have at least this logit.
    pub fn count_at_least(&self, logits: &[f32], bound: f32) -> usize {
        let chunks = self.maxima.iter().zip(logits.chunks(CHUNK)).filter(|(peak, _)| **peak >= bound);
        chunks.map(|(_, chunk)| chunk.iter().filter(|x| **x >= bound).count()).sum()
    }

    /// The k likeliest tokens, in order of id; fewer where fewer are not masked.
    pub fn top(&mut self, logits: &[f32], k: usize, out: &mut Vec<Entry>, work: &mut Vec<Entry>) {
        if k == 0 {
            return out.clear();
        }
        // k chunks have a peak of at least this, so k tokens do.
        let bound = if k <= self.maxima.len() {
            self.order.clone_from(&self.maxima);
            *self.order.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1
        } else {
            f32::MIN
        };
        self.at_least(logits, bound, out);
        keep_first(out, k, work);
    }
}

wide! {
    /// The largest of every chunk; false where something is no number.
    fn measure(logits: &[f32], maxima: &mut Vec<f32>) -> bool = measure_kernel;
}

#[inline(always)]
fn measure_kernel(logits: &[f32], maxima: &mut Vec<f32>) -> bool {
    let mut nan = [0; LANES];
    maxima.clear();
    maxima.extend(logits.chunks(CHUNK).map(|chunk| chunk_max(chunk, &mut nan)));
    nan == [0; LANES]
}

/// The largest of a chunk. Where a lane meets what is no number, its mark is set.
#[inline(always)]
fn chunk_max(chunk: &[f32], nan: &mut [u32; LANES]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (full, rest) = chunk.as_chunks::<LANES>();
    for group in full {
        for lane in 0..LANES {
            let x = group[lane];
            lanes[lane] = larger(x, lanes[lane]);
            nan[lane] |= u32::from(x.is_nan());
        }
    }
    nan[0] |= u32::from(rest.iter().any(|x| x.is_nan()));
    rest.iter().chain(&lanes).copied().fold(f32::NEG_INFINITY, larger)
}

/// As the machine's own maximum, which `f32::max` with its care for NaN is not.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// Keeps the `k` likeliest; the order of the rest of the list stays. Gives the last one kept.
pub fn keep_first(entries: &mut Vec<Entry>, k: usize, work: &mut Vec<Entry>) -> Option<Entry> {
    if k == 0 {
        entries.clear();
        return None;
    }
    if entries.len() <= k {
        return entries.iter().copied().max_by(Entry::order);
    }
    work.clone_from(entries);
    let last = *work.select_nth_unstable_by(k - 1, Entry::order).1;
    entries.retain(|entry| !entry.is_after(&last));
    Some(last)
}

/// Keeps the fewest likeliest entries that together weigh at least `target`, and at least one.
/// Halves the list by weight, so that it is never sorted as a whole. Gives the last one kept.
pub fn keep_mass(
    entries: &mut Vec<Entry>,
    target: f64,
    weight: impl Fn(f32) -> f32,
    work: &mut Vec<Entry>,
) -> Option<Entry> {
    work.clone_from(entries);
    let (mut low, mut high, mut above) = (0, work.len(), 0.0);
    while high - low > 64 {
        let middle = (low + high) / 2;
        work[low..high].select_nth_unstable_by(middle - low, Entry::order);
        let upper: f64 = work[low..middle].iter().map(|entry| f64::from(weight(entry.logit))).sum();
        if above + upper >= target {
            high = middle;
        } else {
            above += upper;
            low = middle;
        }
    }
    work[low..high].sort_unstable_by(Entry::order);
    let reached = |entry: &&Entry| {
        above += f64::from(weight(entry.logit));
        above >= target
    };
    let last = *work[low..high].iter().find(reached).or(work[low..high].last())?;
    entries.retain(|entry| !entry.is_after(&last));
    Some(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sorted(row: &[f32]) -> Vec<Entry> {
        let mut all: Vec<Entry> = row.iter().zip(0..).map(|(&logit, id)| Entry { logit, id }).collect();
        all.retain(|entry| entry.logit > f32::NEG_INFINITY);
        all.sort_by(Entry::order);
        all
    }

    /// Few distinct values, so that ties are the rule; some tokens masked.
    fn row() -> impl Strategy<Value = Vec<f32>> {
        let logit = prop_oneof![8 => (-20i32..20).prop_map(|x| x as f32 / 4.0), 1 => Just(f32::NEG_INFINITY)];
        prop::collection::vec(logit, 1..900)
    }

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

        #[test]
        fn the_smallest_set_that_reaches_a_mass_is_that_of_a_full_sort(row in row(), share in 0.0f64..1.1) {
            let weight = |logit: f32| logit.exp();
            let all = sorted(&row);
            let total: f64 = all.iter().map(|e| f64::from(weight(e.logit))).sum();
            let mut entries = all.clone();
            entries.sort_by_key(|entry| entry.id);
            let last = keep_mass(&mut entries, share * total, weight, &mut Vec::new());
            let mut kept = entries.clone();
            kept.sort_by(Entry::order);
            prop_assert_eq!(&kept[..], &all[..kept.len()], "a front part of the order");
            prop_assert_eq!(last, kept.last().copied());
            let mass = |n: usize| all[..n].iter().map(|e| f64::from(weight(e.logit))).sum::<f64>();
            // Sums taken in another order differ in the last places.
            prop_assert!(kept.len() == all.len() || mass(kept.len()) >= share * total - 1e-9 * total);
            prop_assert!(kept.len() <= 1 || mass(kept.len() - 1) < share * total + 1e-9 * total);
            prop_assert!(all.is_empty() || !kept.is_empty());
        }
    }

    #[test]
    fn what_is_no_number_is_found_wherever_it_stands() {
        for at in [0, 63, 64, 150, 199] {
            for bad in [f32::NAN, -f32::NAN, f32::INFINITY] {
                let mut row = vec![1.0; 200];
                row[at] = bad;
                assert_eq!(Peaks::default().measure(&row), None, "{bad} at {at}");
            }
        }
        assert_eq!(Peaks::default().measure(&[f32::NEG_INFINITY; 3]), Some(f32::NEG_INFINITY));
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
