use super::TokenMask;
use super::peaks::{CHUNK, Peaks};
use super::select::Entry;
use super::softmax::{STRETCH, Softmax, mass, weight};
use crate::base::wide;
use crate::protocol::TokenId;

/// The tokens that can still be drawn, and how likely each is among them. Nothing is listed until
/// a stage cuts; from then on `entries` are the survivors, in order of id. The model's row is never
/// written: the first stage that changes a logit of a whole row gets a copy of it.
pub struct Field<'a> {
    raw: &'a [f32],
    raw_peaks: &'a Peaks,
    edited: Option<&'a mut Edited>,
    spare: Option<&'a mut Edited>,
    /// The largest logit; finite.
    pub max: f32,
    /// 1 / temperature.
    pub scale: f32,
    /// Of the raw row: at temperature 1 and before any edit, its sum is the field's.
    of_raw: Softmax,
    pub lists: &'a mut Lists,
    pub listed: bool,
}

/// Memory that is used again for every row.
#[derive(Debug, Default)]
pub struct Lists {
    pub entries: Vec<Entry>,
    pub work: Vec<Entry>,
    pub sums: Vec<f64>,
}

/// A row with some logits changed.
#[derive(Debug, Default)]
pub struct Edited {
    logits: Vec<f32>,
    peaks: Peaks,
    /// Changed since the peaks were right.
    touched: Vec<TokenId>,
}

/// A mask that lets fewer tokens than this through becomes a list of them; the rest is not looked at.
const FEW_ALLOWED: usize = 4096;

impl<'a> Field<'a> {
    pub fn new(
        raw: &'a [f32],
        raw_peaks: &'a Peaks,
        of_raw: Softmax,
        spare: &'a mut Edited,
        lists: &'a mut Lists,
    ) -> Self {
        let (spare, max) = (Some(spare), of_raw.max);
        Self { raw, raw_peaks, edited: None, spare, max, scale: 1.0, of_raw, lists, listed: false }
    }

    pub fn vocab(&self) -> usize {
        self.raw.len()
    }

    /// The row as it is now, where nothing is listed.
    pub fn row(&self) -> (&[f32], &Peaks) {
        row(self.raw, self.raw_peaks, &self.edited)
    }

    /// A token with its present logit, if it can still be drawn.
    pub fn entry(&self, id: TokenId) -> Option<Entry> {
        if self.listed {
            let at = self.lists.entries.binary_search_by_key(&id, |entry| entry.id).ok()?;
            return self.lists.entries.get(at).copied();
        }
        let logit = *self.row().0.get(id as usize)?;
        (logit > f32::NEG_INFINITY).then_some(Entry { logit, id })
    }

    /// Changes a logit, as it is at the temperature in force. [`settle`](Self::settle) ends the changes.
    pub fn edit(&mut self, id: TokenId, change: impl Fn(f32) -> f32) {
        let scale = self.scale;
        let changed = |logit: f32| change(logit * scale) / scale;
        if self.listed {
            if let Ok(at) = self.lists.entries.binary_search_by_key(&id, |entry| entry.id) {
                self.lists.entries[at].logit = changed(self.lists.entries[at].logit);
            }
        } else if (id as usize) < self.raw.len() {
            let edited = self.own();
            edited.logits[id as usize] = changed(edited.logits[id as usize]);
            edited.touched.push(id);
        }
    }

    pub fn ban(&mut self, id: TokenId) {
        self.edit(id, |_| f32::NEG_INFINITY);
    }

    /// After edits: what is masked is gone, and the largest logit is known again; -infinity where
    /// nothing is left.
    pub fn settle(&mut self) {
        if self.listed {
            self.lists.entries.retain(|entry| entry.logit > f32::NEG_INFINITY);
            self.max = self.lists.entries.iter().map(|e| e.logit).fold(f32::NEG_INFINITY, f32::max);
        } else if let Some(edited) = &mut self.edited {
            edited.settle();
            self.max = edited.peaks.max();
        }
    }

    /// Nothing beside these tokens stays.
    pub fn keep_ids(&mut self, ids: &[TokenId]) {
        let mut kept: Vec<Entry> = std::mem::take(&mut self.lists.work);
        kept.clear();
        kept.extend(ids.iter().filter_map(|id| self.entry(*id)));
        kept.sort_unstable_by_key(|entry| entry.id);
        kept.dedup_by_key(|entry| entry.id);
        self.lists.work = std::mem::replace(&mut self.lists.entries, kept);
        self.listed = true;
        self.settle();
    }

    /// Nothing beside what the mask allows stays. Tokens that it is too short for are not allowed.
    pub fn keep_mask(&mut self, mask: &TokenMask) {
        let allowed: usize = mask.count();
        if self.listed {
            self.lists.entries.retain(|entry| mask.allows(entry.id));
            self.settle();
        } else if allowed < FEW_ALLOWED {
            let Lists { entries, .. } = &mut *self.lists;
            let (logits, _) = row(self.raw, self.raw_peaks, &self.edited);
            entries.clear();
            entries.extend(mask.ids().filter_map(|id| {
                let logit = *logits.get(id as usize)?;
                Some(Entry { logit, id })
            }));
            self.listed = true;
            self.settle();
        } else {
            let edited = self.own();
            forbid(&mut edited.logits, &mask.0);
            edited.touched.clear();
            edited.peaks.measure(&edited.logits);
            self.max = edited.peaks.max();
        }
    }

    /// Lists the survivors of at least this logit, and drops the others.
    pub fn list(&mut self, bound: f32) {
        let Lists { entries, .. } = &mut *self.lists;
        if self.listed {
            entries.retain(|entry| entry.logit >= bound);
        } else {
            let (logits, peaks) = row(self.raw, self.raw_peaks, &self.edited);
            peaks.at_least(logits, bound, entries);
        }
        self.listed = true;
    }

    /// The k likeliest into `lists.work`, best first.
    pub fn likeliest(&mut self, k: usize) {
        let Lists { entries, work, .. } = &mut *self.lists;
        if self.listed {
            work.clone_from(entries);
        } else {
            let (logits, peaks) = row(self.raw, self.raw_peaks, &self.edited);
            peaks.top(logits, k, work, entries);
        }
        work.sort_unstable_by(Entry::order);
        work.truncate(k);
    }

    /// The token at which the summed probability, in order of id, passes `u` of [0, 1).
    pub fn draw(&mut self, u: f64) -> Entry {
        let target = u * self.total();
        let (max, scale) = (self.max, self.scale);
        let walk = |tokens: &mut dyn Iterator<Item = Entry>, mut sum: f64| {
            let mut last = None;
            for entry in tokens.filter(|entry| entry.logit > f32::NEG_INFINITY) {
                sum += f64::from(weight(entry.logit, max, scale));
                last = Some(entry);
                if sum > target {
                    break;
                }
            }
            last
        };
        let drawn = if self.listed {
            walk(&mut self.lists.entries.iter().copied(), 0.0)
        } else {
            let (stretch, before) = self.stretch_at(target);
            let start = stretch * STRETCH;
            let tokens = self.row().0[start..].iter().zip(start as TokenId..);
            walk(&mut tokens.map(|(&logit, id)| Entry { logit, id }), before)
        };
        // Rounding may leave the last token of a row behind; the likeliest is always right.
        drawn.unwrap_or_else(|| self.first())
    }

    /// The likeliest token, ties to the lowest id.
    pub fn first(&self) -> Entry {
        if self.listed {
            let best = self.lists.entries.iter().copied().min_by(Entry::order);
            return best.unwrap_or(Entry { logit: f32::NEG_INFINITY, id: 0 });
        }
        let (logits, peaks) = self.row();
        peaks.first(logits)
    }

    pub fn survivors(&self) -> usize {
        self.count_at_least(f32::MIN)
    }

    pub fn count_at_least(&self, bound: f32) -> usize {
        if self.listed {
            return self.lists.entries.iter().filter(|entry| entry.logit >= bound).count();
        }
        let (logits, peaks) = self.row();
        peaks.count_at_least(logits, bound)
    }

    /// Of what is left: the sum of all weights, and the entropy.
    pub fn softmax(&self) -> Softmax {
        if !self.listed {
            return match self.is_raw() {
                true => self.of_raw,
                false => Softmax::of(self.row().0, self.max, self.scale),
            };
        }
        let sum = self.total_listed();
        let entropy = self.lists.entries.iter().map(|entry| self.weight(entry.logit) / sum);
        let entropy = entropy.filter(|p| *p > 0.0).map(|p| -p * p.ln()).sum::<f64>() as f32;
        Softmax { max: self.max, scale: self.scale, sum, entropy }
    }

    pub fn weight(&self, logit: f32) -> f64 {
        f64::from(weight(logit, self.max, self.scale))
    }

    /// Sum of the survivors' weights; the likeliest weighs 1.
    pub fn mass(&mut self) -> f64 {
        if !self.listed && self.is_raw() { self.of_raw.sum } else { self.total() }
    }

    pub fn total_listed(&self) -> f64 {
        self.lists.entries.iter().map(|entry| self.weight(entry.logit)).sum()
    }

    /// The same, and where nothing is listed with the sum of each stretch, for a draw.
    fn total(&mut self) -> f64 {
        if self.listed {
            return self.total_listed();
        }
        let (max, scale) = (self.max, self.scale);
        let (logits, _) = row(self.raw, self.raw_peaks, &self.edited);
        self.lists.sums.clear();
        self.lists.sums.extend(logits.chunks(STRETCH).map(|stretch| mass(stretch, max, scale)));
        self.lists.sums.iter().sum()
    }

    /// The stretch in which the sum passes `target`, and the sum before it.
    fn stretch_at(&self, target: f64) -> (usize, f64) {
        let mut before = 0.0;
        for (at, sum) in self.lists.sums.iter().enumerate() {
            if before + sum > target {
                return (at, before);
            }
            before += sum;
        }
        (0, 0.0)
    }

    fn is_raw(&self) -> bool {
        self.edited.is_none() && self.scale == 1.0
    }

    /// The row's copy, made when first asked for.
    fn own(&mut self) -> &mut Edited {
        if let Some(spare) = self.spare.take() {
            spare.logits.clear();
            spare.logits.extend_from_slice(self.raw);
            spare.peaks.clone_from(self.raw_peaks);
            spare.touched.clear();
            self.edited = Some(spare);
        }
        self.edited.as_mut().expect("the spare row became it")
    }
}

/// By its parts, so that a list can be written meanwhile.
fn row<'a>(raw: &'a [f32], raw_peaks: &'a Peaks, edited: &'a Option<&mut Edited>) -> (&'a [f32], &'a Peaks) {
    edited.as_ref().map_or((raw, raw_peaks), |edited| (&edited.logits, &edited.peaks))
}

impl Edited {
    /// Beyond a few changes, one look at the whole row is cheaper.
    fn settle(&mut self) {
        match self.touched.len() * 2 < self.logits.len() / CHUNK {
            true => self.touched.iter().for_each(|id| self.peaks.refresh(&self.logits, *id)),
            false => self.peaks.measure(&self.logits),
        }
        self.touched.clear();
    }
}

wide! {
    /// -infinity for every token whose bit is not set.
    fn forbid(logits: &mut [f32], mask: &[u32]) = forbid_kernel;
}

#[inline(always)]
fn forbid_kernel(logits: &mut [f32], mask: &[u32]) {
    let words = mask.iter().copied().chain(std::iter::repeat(0));
    for (group, bits) in logits.chunks_mut(32).zip(words) {
        for (lane, x) in group.iter_mut().enumerate() {
            *x = if bits >> lane & 1 == 1 { *x } else { f32::NEG_INFINITY };
        }
    }
}
