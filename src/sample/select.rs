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
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All that are not masked, likeliest first.
    pub fn sorted(row: &[f32]) -> Vec<Entry> {
        let mut all: Vec<Entry> = row.iter().zip(0..).map(|(&logit, id)| Entry { logit, id }).collect();
        all.retain(|entry| entry.logit > f32::NEG_INFINITY);
        all.sort_by(Entry::order);
        all
    }

    /// Few distinct values, so that ties are the rule; some tokens masked.
    pub fn row() -> impl Strategy<Value = Vec<f32>> {
        let logit = prop_oneof![8 => (-20i32..20).prop_map(|x| x as f32 / 4.0), 1 => Just(f32::NEG_INFINITY)];
        prop::collection::vec(logit, 1..900)
    }

    proptest! {
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
}
