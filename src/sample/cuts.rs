//! The stages that take tokens away by how likely they are. Each keeps one token at least.

use super::field::Field;
use super::select::{Entry, keep_first, keep_mass};
use super::softmax::{STRETCH, moments, weight};

/// How far below the likeliest token, in e-folds of probability, the members of a top-p set are
/// looked for: nearly always the first reach is enough.
const REACHES: [f32; 3] = [8.0, 20.0, f32::INFINITY];
/// The same for typical-p, from the entropy to both sides.
const TYPICAL_REACHES: [f32; 3] = [1.0, 4.0, f32::INFINITY];

impl Field<'_> {
    /// Keeps the k likeliest: Fan et al., "Hierarchical Neural Story Generation" (2018), section 5.4.
    pub fn top_k(&mut self, k: usize) {
        if self.listed {
            let lists = &mut *self.lists;
            keep_first(&mut lists.entries, k, &mut lists.work);
            return;
        }
        let (mut entries, mut work) =
            (std::mem::take(&mut self.lists.entries), std::mem::take(&mut self.lists.work));
        let (logits, peaks) = self.row();
        peaks.top(logits, k, &mut entries, &mut work);
        (self.lists.entries, self.lists.work) = (entries, work);
        self.listed = true;
    }

    /// Keeps the fewest likeliest tokens whose probability reaches `p`: Holtzman et al., "The Curious
    /// Case of Neural Text Degeneration" (2019), section 3.1.
    pub fn top_p(&mut self, p: f32) {
        let target = f64::from(p) * self.mass();
        if !self.listed {
            for reach in REACHES {
                self.listed = false;
                self.list(self.max - reach / self.scale);
                if self.total_listed() >= target {
                    break;
                }
            }
        }
        let (max, scale, lists) = (self.max, self.scale, &mut *self.lists);
        keep_mass(&mut lists.entries, target, |logit| weight(logit, max, scale), &mut lists.work);
    }

    /// Drops tokens less likely than this share of the likeliest: Nguyen et al., "Turning Up the
    /// Heat" (2024), section 3.
    pub fn min_p(&mut self, share: f32) {
        self.list((self.max + share.ln() / self.scale).min(self.max));
    }

    /// Keeps the tokens whose surprise is nearest the entropy, until their probability reaches `p`:
    /// Meister et al., "Locally Typical Sampling" (2022), section 3.
    pub fn typical_p(&mut self, p: f32) {
        let softmax = self.softmax();
        let target = f64::from(p) * softmax.sum;
        let off = |logit: f32| (-softmax.logprob(logit) - softmax.entropy).abs();
        if !self.listed {
            for reach in TYPICAL_REACHES {
                self.listed = false;
                // Its surprise is `reach` above the entropy.
                let distance = softmax.sum.ln() as f32 - softmax.entropy - reach;
                self.list(self.max + distance / self.scale);
                self.lists.entries.retain(|entry| off(entry.logit) <= reach);
                if self.total_listed() >= target {
                    break;
                }
            }
        }
        let order = |a: &Entry, b: &Entry| off(a.logit).total_cmp(&off(b.logit)).then(a.id.cmp(&b.id));
        let mut entries = std::mem::take(&mut self.lists.entries);
        entries.sort_unstable_by(order);
        let mut sum = 0.0;
        let reached = |entry: &Entry| {
            sum += self.weight(entry.logit);
            sum >= target
        };
        let kept = entries.iter().position(reached).map_or(entries.len(), |last| last + 1);
        entries.truncate(kept);
        entries.sort_unstable_by_key(|entry| entry.id);
        self.lists.entries = entries;
        self.settle();
    }

    /// Keeps logits within n standard deviations of the largest: Tang et al., "Top-nσ: Not All Logits
    /// Are You Need" (2024), section 3. What was cut before does not count.
    pub fn top_n_sigma(&mut self, n: f32) {
        let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
        let mut add = |(c, s, q): (f64, f64, f64)| {
            (count, sum, squares) = (count + c, sum + s, squares + q);
        };
        if self.listed {
            let distances = self.lists.entries.iter().map(|entry| f64::from(entry.logit - self.max));
            distances.for_each(|d| add((1.0, d, d * d)));
        } else {
            self.row().0.chunks(STRETCH).for_each(|stretch| add(moments(stretch, self.max)));
        }
        let mean = sum / count;
        let deviation = (squares / count - mean * mean).max(0.0).sqrt();
        self.list(self.max - (f64::from(n) * deviation) as f32);
    }

    /// Of the tokens of at least this probability, only the least likely stays: p-e-w, "Exclude Top
    /// Choices", oobabooga/text-generation-webui#6335 (2024).
    pub fn xtc(&mut self, threshold: f32) {
        let bound = self.max + (f64::from(threshold) * self.mass()).ln() as f32 / self.scale;
        let mut above = std::mem::take(&mut self.lists.work);
        self.above(bound, &mut above);
        if let Some(last) = above.iter().copied().max_by(Entry::order) {
            above.iter().filter(|entry| entry.id != last.id).for_each(|entry| self.ban(entry.id));
        }
        self.lists.work = above;
        self.settle();
    }

    fn above(&self, bound: f32, out: &mut Vec<Entry>) {
        if self.listed {
            out.clear();
            out.extend(self.lists.entries.iter().filter(|entry| entry.logit >= bound));
        } else {
            let (logits, peaks) = self.row();
            peaks.at_least(logits, bound, out);
        }
    }

    /// Keeps tokens of at most so many bits of surprise, the likeliest in any case.
    pub fn at_most_surprise(&mut self, bits: f32) {
        let least = f64::from(-bits * std::f32::consts::LN_2) + self.mass().ln();
        self.list((self.max + least as f32 / self.scale).min(self.max));
    }

    /// The first version of Mirostat: how many tokens to keep for a surprise of `bits`, from the slope
    /// of the likeliest 100 on a log-log scale (Zipf's law).
    pub fn zipf_k(&mut self, bits: f32) -> usize {
        const LIKELIEST: usize = 100;
        self.likeliest(LIKELIEST);
        let (mut products, mut squares) = (0.0f32, 0.0f32);
        for (i, pair) in self.lists.work.windows(2).enumerate() {
            let t = ((i + 2) as f32 / (i + 1) as f32).ln();
            products += t * (pair[0].logit - pair[1].logit) * self.scale;
            squares += t * t;
        }
        let s = products / squares;
        let epsilon = s - 1.0;
        let k = (epsilon * bits.exp2() / (1.0 - (self.vocab() as f32).powf(-epsilon))).powf(1.0 / s);
        // What is no number, where one token is left, is 0 here.
        (k as usize).max(1)
    }
}
