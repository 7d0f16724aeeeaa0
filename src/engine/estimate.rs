//! SGLang's admission estimate: bet that answers end well before `max_tokens`, and learn from lost bets.

use super::plan::PlannedRow;
use super::scheduler::Scheduler;
use super::sequence::Sequence;
use crate::kv::BlockManager;
use crate::protocol::{PreemptionMode, Reason, RowKind};

/// The share of its `max_tokens` that an answer is expected to use (`new_token_ratio`).
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    ratio: f64,
    least: f64,
    decay: f64,
}

/// Longer answers are not planned for.
const CLIP: usize = 4096;
const INITIAL: f64 = 0.7;
const LEAST_OF_INITIAL: f64 = 0.14;
/// Decode steps from the initial ratio to the least.
const DECAY_STEPS: f64 = 600.0;
/// Tokens each answer is given beyond what it has when a bet was lost.
const RETRACT_STEPS: usize = 20;

impl Estimate {
    pub fn new(conservativeness: f32) -> Self {
        let ratio = (INITIAL * f64::from(conservativeness)).min(1.0);
        let least = ratio * LEAST_OF_INITIAL;
        Self { ratio, least, decay: (ratio - least) / DECAY_STEPS }
    }

    pub fn ratio(&self) -> f64 {
        self.ratio
    }

    /// Every decode step without a retraction makes the bet bolder.
    pub fn step(&mut self, rows: &[PlannedRow]) {
        if !rows.is_empty() && rows.iter().all(|row| row.kind == RowKind::Decode) {
            self.ratio = (self.ratio - self.decay).max(self.least);
        }
    }

    /// A bet was lost: expect of the sequences that are left what they have and a little more.
    pub fn retracted<'a>(&mut self, left: impl Iterator<Item = &'a Sequence>, context: usize) {
        let (mut generated, mut most) = (0, 0);
        for seq in left {
            generated += seq.num_generated() + RETRACT_STEPS;
            most += seq.num_generated() + answer_left(seq, context);
        }
        self.ratio = (generated as f64 / (most + 1) as f64).min(1.0);
    }
}

impl Scheduler {
    /// Whether the tokens that this answer may need are not promised to running ones.
    pub(super) fn estimate_allows(
        &self,
        seq: &Sequence,
        computed: usize,
        kv: &BlockManager,
    ) -> Result<(), Reason> {
        if self.settings.preemption_mode != PreemptionMode::Retract || self.running.is_empty() {
            return Ok(());
        }
        let promised = |seq: &Sequence| {
            // One that ignores the end token uses all it may.
            let ratio = if seq.params.ignore_eos { 1.0 } else { self.estimate.ratio() };
            let prompt_left = seq.num_tokens() - seq.num_computed;
            prompt_left as f64 + answer_left(seq, self.context()) as f64 * ratio
        };
        let running: f64 = self.running.iter().map(|key| promised(&self.sequences[*key])).sum();
        let free = kv.pool().available() * kv.block_size();
        let left = free.saturating_sub(running.ceil() as usize);
        let needed = seq.num_tokens() - computed + answer_left(seq, self.context());
        if needed < left { Ok(()) } else { Err(Reason::Estimate { needed, left }) }
    }
}

/// Tokens an answer may still grow by.
fn answer_left(seq: &Sequence, context: usize) -> usize {
    seq.left_to_draw().min(context.saturating_sub(seq.num_tokens())).min(CLIP)
}
