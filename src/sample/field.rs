use super::select::{Entry, Peaks, keep_first, keep_mass};
use super::softmax::{STRETCH, Softmax, mass, weight};
use crate::protocol::TokenId;

/// The tokens that can still be drawn, and how likely each is among them. Nothing is listed until
/// a stage cuts; from then on `entries` are the survivors, in order of id.
pub struct Field<'a> {
    pub logits: &'a [f32],
    /// The largest logit; finite.
    pub max: f32,
    /// 1 / temperature.
    pub scale: f32,
    pub peaks: &'a mut Peaks,
    pub lists: &'a mut Lists,
    pub listed: bool,
}

/// Memory that is used again for every row.
#[derive(Debug, Default)]
pub struct Lists {
    pub entries: Vec<Entry>,
    pub work: Vec<Entry>,
    sums: Vec<f64>,
}

/// How far below the likeliest token, in e-folds of probability, the members of a top-p set are
/// looked for: nearly always the first reach is enough.
const REACHES: [f32; 3] = [8.0, 20.0, f32::INFINITY];

impl Field<'_> {
    /// Keeps the k likeliest. All stages give back the last token they kept, if they cut.
    pub fn top_k(&mut self, k: usize) -> Option<Entry> {
        let Lists { entries, work, .. } = self.lists;
        if self.listed {
            return keep_first(entries, k, work);
        }
        self.peaks.top(self.logits, k, entries, work);
        self.listed = true;
        entries.iter().copied().max_by(Entry::order)
    }

    /// Keeps the fewest likeliest tokens whose probability reaches `p`.
    pub fn top_p(&mut self, p: f32) -> Option<Entry> {
        let target = f64::from(p) * self.total();
        if !self.listed {
            for reach in REACHES {
                let bound = self.max - reach / self.scale;
                self.peaks.at_least(self.logits, bound, &mut self.lists.entries);
                if self.total_listed() >= target {
                    break;
                }
            }
            self.listed = true;
        }
        let Lists { entries, work, .. } = self.lists;
        keep_mass(entries, target, |logit| weight(logit, self.max, self.scale), work)
    }

    /// Drops tokens less likely than this share of the likeliest.
    pub fn min_p(&mut self, share: f32) -> Option<Entry> {
        let bound = (self.max + share.ln() / self.scale).min(self.max);
        match self.listed {
            true => self.lists.entries.retain(|entry| entry.logit >= bound),
            false => self.peaks.at_least(self.logits, bound, &mut self.lists.entries),
        }
        self.listed = true;
        Some(Entry { logit: bound, id: TokenId::MAX })
    }

    /// The token at which the summed probability, in order of id, passes `u` of [0, 1).
    pub fn draw(&mut self, u: f64) -> TokenId {
        let target = u * self.total();
        let (max, scale) = (self.max, self.scale);
        let walk = |tokens: &mut dyn Iterator<Item = (TokenId, f32)>, mut sum: f64| {
            let mut last = None;
            for (id, logit) in tokens.filter(|(_, logit)| *logit > f32::NEG_INFINITY) {
                sum += f64::from(weight(logit, max, scale));
                last = Some(id);
                if sum > target {
                    break;
                }
            }
            last
        };
        let drawn = if self.listed {
            walk(&mut self.lists.entries.iter().map(|entry| (entry.id, entry.logit)), 0.0)
        } else {
            let (stretch, before) = self.stretch_at(target);
            let start = stretch * STRETCH;
            walk(&mut (start as TokenId..).zip(self.logits[start..].iter().copied()), before)
        };
        // Rounding may leave the last token of a row behind; the likeliest is always right.
        drawn.unwrap_or_else(|| self.peaks.first(self.logits).id)
    }

    pub fn survivors(&self) -> usize {
        match self.listed {
            true => self.lists.entries.len(),
            false => self.peaks.count_at_least(self.logits, f32::MIN),
        }
    }

    /// Of what is left: the sum of all weights, and the entropy.
    pub fn softmax(&self) -> Softmax {
        if !self.listed {
            return Softmax::scaled(self.logits, self.max, self.scale);
        }
        let sum = self.total_listed();
        let entropy = self.lists.entries.iter().map(|entry| self.weight(entry.logit) / sum);
        let entropy = entropy.filter(|p| *p > 0.0).map(|p| -p * p.ln()).sum::<f64>() as f32;
        Softmax { max: self.max, sum, entropy }
    }

    pub fn weight(&self, logit: f32) -> f64 {
        f64::from(weight(logit, self.max, self.scale))
    }

    /// Sum of the survivors' weights; the likeliest weighs 1.
    fn total(&mut self) -> f64 {
        if self.listed {
            return self.total_listed();
        }
        let (max, scale) = (self.max, self.scale);
        self.lists.sums.clear();
        self.lists.sums.extend(self.logits.chunks(STRETCH).map(|stretch| mass(stretch, max, scale)));
        self.lists.sums.iter().sum()
    }

    fn total_listed(&self) -> f64 {
        self.lists.entries.iter().map(|entry| self.weight(entry.logit)).sum()
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
}
