use super::bias::{bias, biases};
use super::dry::{DryMemory, dry};
use super::field::{Edited, Field, Lists};
use super::peaks::{Peaks, Unusable};
use super::penalties::{Occurrences, penalize, penalizes};
use super::random::uniforms;
use super::select::Entry;
use super::softmax::Softmax;
use super::steer::{adaptive_p, mirostat, temperature};
use super::trace::Trail;
use super::{RowError, SampleRow, Sampled, SamplerState};
use crate::protocol::{LogprobsMode, Stage, TokenId, TopToken};
use std::cell::Cell;

/// Memory of the sampler, used again for every row: no row allocates once it has grown.
#[derive(Debug, Default)]
pub struct Scratch {
    peaks: Peaks,
    likeliest: Vec<Entry>,
    edited: Edited,
    lists: Lists,
    seen: Occurrences,
    dry: DryMemory,
}

/// What is said of a token: its place in the raw distribution, or in the one drawn from.
struct Told {
    logprob: f32,
    rank: u32,
    top: Vec<TopToken>,
}

/// Draws a token from one row of logits, or scores the row.
///
/// # Errors
/// [`RowError`] where the logits are no numbers or no token is left.
pub fn sample(logits: &[f32], row: &SampleRow, scratch: &mut Scratch) -> Result<Sampled, RowError> {
    let position = row.tokens.len();
    let raw = scratch.peaks.survey(logits).map_err(|why| match why {
        Unusable::NotANumber => RowError::NotANumber { position },
        Unusable::AllMasked => RowError::AllMasked { position },
    })?;
    let Scratch { peaks, likeliest, edited, lists, seen, dry } = scratch;
    peaks.top(logits, row.top.max(row.trace), likeliest, &mut lists.work);
    likeliest.sort_unstable_by(Entry::order);

    let tell = |token: TokenId| Told {
        logprob: raw.logprob(logits[token as usize]),
        rank: peaks.count_at_least(logits, logits[token as usize]) as u32,
        top: likeliest.iter().take(row.top).map(|entry| top_token(entry, &raw)).collect(),
    };
    if !row.draw {
        let token = row.target.unwrap_or_else(|| peaks.first(logits).id);
        return Ok(sampled(token, tell(token), &raw, row.state));
    }
    let field = Field::new(logits, peaks, raw, edited, lists);
    let trail = Trail::new(&likeliest[..likeliest.len().min(row.trace)]);
    let mut chain = Chain::new(row, field, trail, seen, dry);
    if row.beams > 0 {
        let top = chain.continuations(&raw)?;
        let Told { logprob, rank, .. } = tell(top[0].id);
        return Ok(sampled(top[0].id, Told { logprob, rank, top }, &raw, row.state));
    }
    row.keep.into_iter().for_each(|keep| copy_to(keep, logits));
    chain.run(|_| true)?;
    let drawn = chain.draw();
    let told = chain.told.take().unwrap_or_else(|| tell(drawn.id));
    let raw_entry = Entry { logit: logits[drawn.id as usize], id: drawn.id };
    let trace = chain.trail.finish(row, &raw, raw_entry, &chain.field);
    Ok(Sampled { trace, ..sampled(drawn.id, told, &raw, chain.state) })
}

/// In the memory that is there.
fn copy_to(keep: &Cell<Vec<f32>>, logits: &[f32]) {
    let mut copy = keep.take();
    copy.clear();
    copy.extend_from_slice(logits);
    keep.set(copy);
}

fn sampled(token: TokenId, told: Told, raw: &Softmax, state: SamplerState) -> Sampled {
    let Told { logprob, rank, top } = told;
    Sampled { token, logprob, rank, entropy: raw.entropy, top, state, trace: None }
}

/// The stages in their order over one row.
struct Chain<'a> {
    row: &'a SampleRow<'a>,
    field: Field<'a>,
    trail: Trail,
    seen: &'a mut Occurrences,
    dry: &'a mut DryMemory,
    state: SamplerState,
    /// Of the draw, and of XTC's coin.
    numbers: [f64; 2],
    /// One token is left for good.
    decided: bool,
    /// Probabilities that adaptive-p found.
    before: Vec<(Entry, f32)>,
    /// Where it is of the distribution drawn from.
    told: Option<Told>,
}

impl<'a> Chain<'a> {
    fn new(
        row: &'a SampleRow<'a>,
        field: Field<'a>,
        trail: Trail,
        seen: &'a mut Occurrences,
        dry: &'a mut DryMemory,
    ) -> Self {
        seen.begin();
        let numbers = uniforms(row.seed, row.tokens.len() as u64);
        let (state, before) = (row.state, Vec::new());
        Self { row, field, trail, seen, dry, state, numbers, decided: false, before, told: None }
    }

    fn run(&mut self, takes_part: impl Fn(Stage) -> bool) -> Result<(), RowError> {
        self.trail.note(Stage::Raw, true, &self.field);
        for stage in self.row.params.sampler_order.stages().iter().filter(|stage| takes_part(**stage)) {
            let active = self.is_active(*stage);
            if active {
                self.act(*stage);
                self.check()?;
            }
            self.trail.note(*stage, active, &self.field);
        }
        Ok(())
    }

    /// For beam search: the likeliest tokens that may follow, best first, at least one. Only the stages
    /// that change or forbid single tokens take part.
    fn continuations(&mut self, raw: &Softmax) -> Result<Vec<TopToken>, RowError> {
        use Stage::{Bias, Dry, Frequency, Grammar, Presence, Repetition};
        self.run(|stage| matches!(stage, Bias | Grammar | Repetition | Frequency | Presence | Dry))?;
        self.field.likeliest(self.row.beams);
        Ok(self.field.lists.work.iter().map(|entry| top_token(entry, raw)).collect())
    }

    /// Edits may leave nothing, or scale a logit beyond all numbers.
    fn check(&self) -> Result<(), RowError> {
        let position = self.row.tokens.len();
        match self.field.max {
            f32::NEG_INFINITY => Err(RowError::AllMasked { position }),
            f32::INFINITY => Err(RowError::NotANumber { position }),
            _ => Ok(()),
        }
    }

    /// Whether its setting makes it do something. Mirostat does alone what the other cuts would.
    fn is_active(&self, stage: Stage) -> bool {
        let p = self.row.params;
        let steered = p.mirostat > 0 && self.row.params.sampler_order.stages().contains(&Stage::Mirostat);
        match stage {
            _ if self.decided => false,
            Stage::Raw => false,
            Stage::Bias => biases(self.row),
            Stage::Grammar => self.row.mask.is_some(),
            Stage::Repetition | Stage::Frequency | Stage::Presence => penalizes(stage, p),
            Stage::Dry => p.dry_multiplier > 0.0,
            Stage::Temperature => p.temperature != 1.0 || p.dynatemp_range > 0.0,
            Stage::Mirostat => steered,
            _ if steered => false,
            Stage::TopNSigma => p.top_n_sigma > 0.0,
            Stage::TopK => p.top_k > 0 && (p.top_k as usize) < self.field.vocab(),
            Stage::TypicalP => p.typical_p < 1.0,
            Stage::TopP => p.top_p < 1.0,
            Stage::MinP => p.min_p > 0.0,
            Stage::Xtc => p.xtc_threshold <= 0.5 && self.numbers[1] < f64::from(p.xtc_probability),
            Stage::AdaptiveP => p.adaptive_target.is_some(),
        }
    }

    fn act(&mut self, stage: Stage) {
        let (row, field) = (self.row, &mut self.field);
        let p = row.params;
        match stage {
            Stage::Raw => {}
            Stage::Bias => bias(field, row),
            Stage::Grammar => row.mask.into_iter().for_each(|mask| field.keep_mask(mask)),
            Stage::Repetition | Stage::Frequency | Stage::Presence => penalize(stage, field, row, self.seen),
            Stage::Dry => dry(field, row, self.dry),
            Stage::Temperature if p.is_greedy() => self.decide(),
            Stage::Temperature => temperature(field, p),
            Stage::TopNSigma => field.top_n_sigma(p.top_n_sigma),
            Stage::TopK => field.top_k(p.top_k as usize),
            Stage::TypicalP => field.typical_p(p.typical_p),
            Stage::TopP => field.top_p(p.top_p),
            Stage::MinP => field.min_p(p.min_p),
            Stage::Xtc => field.xtc(p.xtc_threshold),
            Stage::Mirostat => mirostat(field, p, &self.state),
            Stage::AdaptiveP => self.before = adaptive_p(field, p, &self.state),
        }
    }

    /// The likeliest, and nothing after it. What is told of it is of the distribution before.
    fn decide(&mut self) {
        if self.is_processed() {
            self.told = Some(self.tell(self.field.first()));
        }
        self.field.top_k(1);
        self.decided = true;
    }

    fn draw(&mut self) -> Entry {
        let drawn = if self.decided { self.field.first() } else { self.field.draw(self.numbers[0]) };
        if self.is_processed() && self.told.is_none() {
            self.told = Some(self.tell(drawn));
        }
        self.remember(drawn);
        drawn
    }

    /// What the next token's stages must know of this one.
    fn remember(&mut self, drawn: Entry) {
        let p = self.row.params;
        if self.is_active(Stage::Mirostat) {
            let bits = -self.field.softmax().logprob(drawn.logit) / std::f32::consts::LN_2;
            self.state.surprised(p, bits);
        }
        if let Some((_, probability)) = self.before.iter().find(|(entry, _)| entry.id == drawn.id) {
            self.state.drew(p, *probability);
        }
    }

    fn is_processed(&self) -> bool {
        self.row.params.logprobs_mode == LogprobsMode::Processed
    }

    fn tell(&mut self, token: Entry) -> Told {
        let softmax = self.field.softmax();
        let rank = self.field.count_at_least(token.logit) as u32;
        let mut top = Vec::new();
        if self.row.top > 0 {
            self.field.likeliest(self.row.top);
            top.extend(self.field.lists.work.iter().map(|entry| top_token(entry, &softmax)));
        }
        Told { logprob: softmax.logprob(token.logit), rank, top }
    }
}

fn top_token(entry: &Entry, softmax: &Softmax) -> TopToken {
    let (id, logit) = (entry.id, entry.logit);
    TopToken { id, text: String::new(), logit, logprob: softmax.logprob(logit) }
}
