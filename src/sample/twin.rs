//! The stages once more, slowly: whole rows in double precision, fully sorted, a plain loop for every
//! formula. What the sampler does must be what this does, in any order of stages.
#![allow(clippy::unwrap_used)]

use super::random::uniforms;
use super::*;
use crate::protocol::{SamplerOrder, Stage};
use proptest::prelude::*;

/// A row's logits, -infinity where a token cannot be drawn.
struct Twin<'a> {
    x: Vec<f64>,
    row: &'a SampleRow<'a>,
    /// How near the nearest decision was, relative to what was compared: rounding may turn it.
    margin: f64,
    state: SamplerState,
    decided: bool,
    /// Adaptive-p made logits that single precision cannot tell apart.
    blurred: bool,
}

impl Twin<'_> {
    fn alive(&self) -> Vec<usize> {
        (0..self.x.len()).filter(|i| self.x[*i] > f64::NEG_INFINITY).collect()
    }

    fn probabilities(&self) -> Vec<f64> {
        let max = self.x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = self.x.iter().map(|x| (x - max).exp()).sum();
        self.x.iter().map(|x| (x - max).exp() / sum).collect()
    }

    fn entropy(&self) -> f64 {
        self.probabilities().iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum()
    }

    /// Likeliest first, ties to the lower id.
    fn sorted(&self) -> Vec<usize> {
        let mut order = self.alive();
        order.sort_by(|a, b| self.x[*b].total_cmp(&self.x[*a]).then(a.cmp(b)));
        order
    }

    fn keep(&mut self, kept: &[usize]) {
        for i in 0..self.x.len() {
            if !kept.contains(&i) {
                self.x[i] = f64::NEG_INFINITY;
            }
        }
    }

    fn compared(&mut self, value: f64, bound: f64) {
        self.margin = self.margin.min((value - bound).abs() / bound.abs().max(1e-3));
    }

    /// Keeps the first so many of these. Logits that differ in double precision alone have no order.
    fn keep_first(&mut self, order: &[usize], kept: usize) {
        let kept = kept.clamp(1, order.len());
        if let Some(next) = order.get(kept) {
            let gap = self.x[order[kept - 1]] - self.x[*next];
            self.margin = if gap > 0.0 || self.blurred { self.margin.min(gap / 20.0) } else { self.margin };
        }
        self.keep(&order[..kept]);
    }

    /// How many of these, in this order, until their probability reaches `p`.
    fn until(&mut self, order: &[usize], p: f64) -> usize {
        let probabilities = self.probabilities();
        let mut sum = 0.0;
        for (n, i) in order.iter().enumerate() {
            sum += probabilities[*i];
            self.compared(sum, p);
            if sum >= p {
                return n + 1;
            }
        }
        order.len()
    }

    /// How often a token occurs: in prompt and answer, and where frequency and presence count it.
    fn counts(&self, id: usize) -> (usize, usize) {
        let row = self.row;
        let count = |tokens: &[TokenId]| tokens.iter().filter(|t| **t as usize == id).count();
        match row.params.penalty_last_n {
            None => (count(row.tokens), count(&row.tokens[row.prompt_len..])),
            Some(n) => {
                let window = &row.tokens[row.tokens.len().saturating_sub(n as usize)..];
                (count(window), count(window))
            }
        }
    }

    fn penalize(&mut self, stage: Stage) {
        let p = self.row.params;
        for id in 0..self.x.len() {
            let (anywhere, counted) = self.counts(id);
            let x = self.x[id];
            let (repetition, frequency) = (f64::from(p.repetition_penalty), f64::from(p.frequency_penalty));
            self.x[id] = match stage {
                Stage::Repetition if anywhere > 0 && x > 0.0 => x / repetition,
                Stage::Repetition if anywhere > 0 => x * repetition,
                Stage::Frequency => x - frequency * counted as f64,
                Stage::Presence if counted > 0 => x - f64::from(p.presence_penalty),
                _ => x,
            };
        }
    }

    fn bias(&mut self) {
        let (row, p) = (self.row, self.row.params);
        let answer = &row.tokens[row.prompt_len..];
        for id in 0..self.x.len() {
            let token = id as TokenId;
            self.x[id] += f64::from(p.logit_bias.get(&token).copied().unwrap_or(0.0));
            let bad = row
                .phrases
                .bad_words
                .iter()
                .any(|word| *word.last().unwrap() == token && answer.ends_with(&word[..word.len() - 1]));
            let ends = row.end_tokens.contains(&token) || p.stop_token_ids.contains(&token);
            if bad
                || p.banned_token_ids.contains(&token)
                || !p.allowed_token_ids.is_empty() && !p.allowed_token_ids.contains(&token)
                || ends && answer.len() < p.min_tokens as usize
            {
                self.x[id] = f64::NEG_INFINITY;
            }
        }
    }

    fn dry(&mut self) {
        let (row, p) = (self.row, self.row.params);
        let tokens = row.tokens;
        let window =
            &tokens[tokens.len().saturating_sub(p.dry_penalty_last_n.map_or(usize::MAX, |n| n as usize))..];
        let n = window.len();
        let breaker = (0..n).rev().find(|at| row.phrases.breakers.contains_key(&window[*at]));
        let limit = breaker.map_or(n, |at| n - 1 - at);
        let mut longest = vec![0; self.x.len()];
        for end in 1..n {
            let same = (0..end).take_while(|i| window[end - 1 - i] == window[n - 1 - i]).count();
            let next = &mut longest[window[end] as usize];
            *next = (*next).max(same.min(limit));
        }
        for (id, length) in longest.iter().enumerate().filter(|(_, l)| **l >= p.dry_allowed_length as usize) {
            let exponent = (length - p.dry_allowed_length as usize) as i32;
            self.x[id] -= f64::from(p.dry_multiplier) * f64::from(p.dry_base).powi(exponent);
        }
    }

    fn temperature(&mut self) {
        let p = self.row.params;
        let (mut t, range) = (f64::from(p.temperature), f64::from(p.dynatemp_range));
        if p.is_greedy() {
            self.decided = true;
            let order = self.sorted();
            return self.keep_first(&order, 1);
        }
        if range > 0.0 {
            let most = (self.alive().len().max(2) as f64).ln();
            let share = (self.entropy() / most).powf(f64::from(p.dynatemp_exponent));
            let lowest = (t - range).max(0.0);
            t = lowest + (t + range - lowest) * share;
            self.compared(t, 1e-5);
        }
        if t < 1e-5 {
            let order = self.sorted();
            return self.keep_first(&order, 1);
        }
        self.x.iter_mut().for_each(|x| *x /= t);
    }

    fn sigma(&mut self) {
        let alive = self.alive();
        let n = alive.len() as f64;
        let mean = alive.iter().map(|i| self.x[*i]).sum::<f64>() / n;
        let deviation = (alive.iter().map(|i| (self.x[*i] - mean).powi(2)).sum::<f64>() / n).sqrt();
        let bound = self.x[self.sorted()[0]] - f64::from(self.row.params.top_n_sigma) * deviation;
        self.at_least(bound);
    }

    fn at_least(&mut self, bound: f64) {
        let best = self.sorted()[0];
        for i in self.alive() {
            // Bounds are compared where the logits are: their last places are of the largest's size.
            self.margin = self.margin.min((self.x[i] - bound).abs() / 20.0);
            if self.x[i] < bound && i != best {
                self.x[i] = f64::NEG_INFINITY;
            }
        }
    }

    fn typical(&mut self) {
        let (probabilities, entropy) = (self.probabilities(), self.entropy());
        let off = |i: &usize| (-probabilities[*i].ln() - entropy).abs();
        let mut order = self.alive();
        order.sort_by(|a, b| off(a).total_cmp(&off(b)).then(a.cmp(b)));
        let kept = self.until(&order, f64::from(self.row.params.typical_p));
        if kept < order.len() {
            self.margin = self.margin.min(off(&order[kept]) - off(&order[kept - 1]));
        }
        self.keep(&order[..kept]);
    }

    fn xtc(&mut self) {
        let threshold = f64::from(self.row.params.xtc_threshold);
        let probabilities = self.probabilities();
        let order = self.sorted();
        order.iter().for_each(|i| self.compared(probabilities[*i], threshold));
        let above = order.iter().filter(|i| probabilities[**i] >= threshold).count();
        if above > 1 {
            let gap = self.x[order[above - 2]] - self.x[order[above - 1]];
            self.margin = if gap > 0.0 || self.blurred { self.margin.min(gap / 20.0) } else { self.margin };
        }
        self.keep(&order[above.saturating_sub(1)..]);
    }

    fn mirostat(&mut self) {
        let p = self.row.params;
        let mu = f64::from(self.state.mu.unwrap_or(2.0 * p.mirostat_tau));
        let (probabilities, order) = (self.probabilities(), self.sorted());
        if p.mirostat == 2 {
            order.iter().for_each(|i| self.compared(-probabilities[*i].log2(), mu));
            let kept = order.iter().take_while(|i| -probabilities[**i].log2() <= mu).count();
            return self.keep_first(&order, kept);
        }
        let (mut products, mut squares) = (0.0, 0.0);
        for i in 0..order.len().min(100) - 1 {
            let t = ((i + 2) as f64 / (i + 1) as f64).ln();
            products += t * (probabilities[order[i]] / probabilities[order[i + 1]]).ln();
            squares += t * t;
        }
        let s = products / squares;
        let n = self.x.len() as f64;
        let k = (((s - 1.0) * mu.exp2()) / (1.0 - n.powf(1.0 - s))).powf(1.0 / s);
        self.compared(k, k.round());
        self.keep_first(&order, k as usize);
    }

    fn adaptive(&mut self) {
        let p = self.row.params;
        let (target, decay) = (f64::from(p.adaptive_target.unwrap()), f64::from(p.adaptive_decay));
        let forever = 1.0 / (1.0 - decay);
        let (sum, weight) =
            self.state.drawn.map_or((target * forever, forever), |(s, w)| (s.into(), w.into()));
        let adapted = (2.0 * target - sum / weight).clamp(0.0, 1.0);
        let probabilities = self.probabilities();
        self.blurred = true;
        for i in self.alive() {
            let distance = (probabilities[i] - adapted).abs() / 0.3;
            self.x[i] = 5.0 - 10.0 * distance * distance / (1.0 + distance);
        }
    }

    fn act(&mut self, stage: Stage) {
        let p = self.row.params;
        let steered = p.mirostat > 0 && p.sampler_order.stages().contains(&Stage::Mirostat);
        let idle = steered && stage.cuts() && !matches!(stage, Stage::Mirostat | Stage::Temperature);
        match stage {
            _ if self.decided || idle => {}
            Stage::Raw => {}
            Stage::Bias => self.bias(),
            Stage::Grammar => {
                let mask = self.row.mask;
                let allowed = |i: &usize| mask.is_none_or(|mask| mask.allows(*i as TokenId));
                let kept: Vec<usize> = self.alive().into_iter().filter(allowed).collect();
                self.keep(&kept);
            }
            Stage::Repetition | Stage::Frequency | Stage::Presence => self.penalize(stage),
            Stage::Dry if p.dry_multiplier > 0.0 => self.dry(),
            Stage::Temperature => self.temperature(),
            Stage::TopNSigma if p.top_n_sigma > 0.0 => self.sigma(),
            Stage::TopK if p.top_k > 0 => {
                let order = self.sorted();
                self.keep_first(&order, p.top_k as usize);
            }
            Stage::TypicalP if p.typical_p < 1.0 => self.typical(),
            Stage::TopP if p.top_p < 1.0 => {
                let order = self.sorted();
                let kept = self.until(&order, f64::from(p.top_p));
                self.keep_first(&order, kept);
            }
            Stage::MinP if p.min_p > 0.0 => {
                let best = self.x[self.sorted()[0]];
                self.at_least(best + f64::from(p.min_p).ln());
            }
            Stage::Xtc => {
                let coin = uniforms(self.row.seed, self.row.tokens.len() as u64)[1];
                if p.xtc_threshold <= 0.5 && coin < f64::from(p.xtc_probability) {
                    self.xtc();
                }
            }
            Stage::Mirostat if p.mirostat > 0 => self.mirostat(),
            Stage::AdaptiveP if p.adaptive_target.is_some() => self.adaptive(),
            _ => {}
        }
    }
}

/// Every stage off or on by a toss, in an order by a toss.
fn params() -> impl Strategy<Value = SamplingParams> {
    use prop::option::weighted;
    let edits = (
        weighted(0.3, 0.5f32..2.0),
        weighted(0.3, -1.0f32..1.0),
        weighted(0.3, -1.0f32..1.0),
        weighted(0.3, 0u32..20),
        weighted(0.3, (0.1f32..2.0, 1.0f32..2.0, 1u32..4)),
        weighted(0.3, prop::collection::btree_map(0u32..40, -4.0f32..4.0, 1..6)),
        prop::collection::vec(0u32..40, 0..4),
        weighted(0.2, prop::collection::vec(0u32..60, 20..40)),
        0u32..20,
    );
    let cuts = (
        weighted(0.8, 0.3f32..3.0),
        weighted(0.3, (0.1f32..1.0, 0.5f32..2.0)),
        weighted(0.3, 0.5f32..3.0),
        weighted(0.4, 1u32..80),
        weighted(0.3, 0.2f32..0.99),
        weighted(0.4, 0.2f32..0.99),
        weighted(0.4, 0.001f32..0.5),
        weighted(0.3, (0.3f32..1.0, 0.01f32..0.4)),
        weighted(0.2, (1u32..3, 1.0f32..6.0)),
        weighted(0.2, 0.05f32..0.95),
    );
    let rest: Vec<Stage> = Stage::ALL[2..].to_vec();
    (edits, cuts, Just(rest).prop_shuffle(), prop::bool::weighted(0.1)).prop_map(|(e, c, order, greedy)| {
        let off = SamplingParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Default::default() };
        let order = [Stage::Bias, Stage::Grammar].into_iter().chain(order);
        SamplingParams {
            repetition_penalty: e.0.unwrap_or(1.0),
            frequency_penalty: e.1.unwrap_or(0.0),
            presence_penalty: e.2.unwrap_or(0.0),
            penalty_last_n: e.3,
            dry_multiplier: e.4.map_or(0.0, |dry| dry.0),
            dry_base: e.4.map_or(1.75, |dry| dry.1),
            dry_allowed_length: e.4.map_or(2, |dry| dry.2),
            logit_bias: e.5.unwrap_or_default(),
            banned_token_ids: e.6,
            allowed_token_ids: e.7.unwrap_or_default(),
            min_tokens: e.8,
            stop_token_ids: vec![7],
            temperature: if greedy { 0.0 } else { c.0.unwrap_or(1.0) },
            dynatemp_range: c.1.map_or(0.0, |d| d.0),
            dynatemp_exponent: c.1.map_or(1.0, |d| d.1),
            top_n_sigma: c.2.unwrap_or(0.0),
            top_k: c.3.unwrap_or(0),
            typical_p: c.4.unwrap_or(1.0),
            top_p: c.5.unwrap_or(1.0),
            min_p: c.6.unwrap_or(0.0),
            xtc_probability: c.7.map_or(0.0, |x| x.0),
            xtc_threshold: c.7.map_or(0.1, |x| x.1),
            mirostat: c.8.map_or(0, |m| m.0),
            mirostat_tau: c.8.map_or(5.0, |m| m.1),
            adaptive_target: c.9,
            sampler_order: SamplerOrder::try_from(order.collect::<Vec<_>>()).unwrap(),
            ..off
        }
    })
}

/// Logits as models have them, a few of them far above the others.
fn logits() -> impl Strategy<Value = Vec<f32>> {
    let logit = prop_oneof![9 => -9.0f32..3.0, 1 => 2.0f32..9.0];
    prop::collection::vec(logit, 60..400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]
    #[test]
    fn the_sampler_is_its_slow_twin(
        logits in logits(),
        params in params(),
        (tokens, prompt_len) in (prop::collection::vec(0u32..40, 1..30), 0usize..10),
        mask in prop::option::weighted(0.3, prop::collection::vec(any::<u32>(), 13)),
        seed in any::<u64>(),
        state in (prop::option::of(1.0f32..8.0), prop::option::of(0.1f32..0.9)),
    ) {
        let phrases = Phrases {
            bad_words: vec![vec![3], vec![1, 2]],
            breakers: [(5, vec![vec![]])].into(),
        };
        let mask = mask.map(TokenMask);
        let row = SampleRow {
            seq: SeqId::default(),
            params: &params,
            seed,
            tokens: &tokens,
            prompt_len: prompt_len.min(tokens.len()),
            end_tokens: &[8, 9],
            mask: mask.as_ref(),
            phrases: &phrases,
            state: SamplerState { mu: state.0, drawn: state.1.map(|p| (p * 5.0, 5.0)) },
            draw: true,
            target: None,
            top: 0,
            beams: 0,
            trace: logits.len(),
            keep: None,
        };
        let x = logits.iter().map(|x| f64::from(*x)).collect();
        let mut twin = Twin { x, row: &row, margin: f64::INFINITY, state: row.state, decided: false, blurred: false };
        let got = sample(&logits, &row, &mut Scratch::default());
        for stage in params.sampler_order.stages() {
            twin.act(*stage);
            if twin.alive().is_empty() {
                prop_assert_eq!(got, Err(RowError::AllMasked { position: tokens.len() }));
                return Ok(());
            }
        }
        // A decision that single precision may turn is no fault.
        prop_assume!(twin.margin > 1e-5);
        let got = got.unwrap();
        let right = twin.probabilities();
        let trace = got.trace.unwrap();
        for c in &trace.candidates {
            let right = right[c.id as usize];
            prop_assert_eq!(c.cut_by.is_some(), right == 0.0 && twin.x[c.id as usize] == f64::NEG_INFINITY,
                "token {} {:?} {}", c.id, c.cut_by, right);
            let off = (f64::from(c.probability) - right).abs();
            prop_assert!(off < 1e-5 + 1e-3 * right, "token {}: {} for {right}", c.id, c.probability);
        }
        prop_assert!(right[got.token as usize] > 0.0);
        if params.mirostat > 0 && !twin.decided {
            let surprise = -right[got.token as usize].log2();
            let mu = f64::from(state.0.unwrap_or(2.0 * params.mirostat_tau));
            let wanted = mu - 0.1 * (surprise - f64::from(params.mirostat_tau));
            prop_assert!((f64::from(got.state.mu.unwrap()) - wanted).abs() < 1e-2);
        }
    }
}
