use super::SeqId;
use serde::{Deserialize, Serialize};

/// Everything one engine step did. Kept in a ring, shown by the batch panel, written by `--trace`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    pub step: u64,
    /// Since the engine started.
    pub started_ms: f64,
    pub phases: Phases,
    /// Tokens scheduled, of `max_num_batched_tokens`.
    pub tokens: usize,
    pub token_budget: usize,
    pub rows: Vec<RowRecord>,
    pub waiting: Vec<Waiting>,
    pub preempted: Vec<Preemption>,
    pub blocks_taken: usize,
    pub blocks_freed: usize,
    /// Cached blocks found and shared this step.
    pub blocks_hit: usize,
    pub blocks_evicted: usize,
    /// Copies made because a shared block was about to be written.
    pub blocks_copied: usize,
    pub blocks_free: usize,
}

/// Where the step's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    pub schedule_ms: f64,
    pub forward_ms: f64,
    /// Logits of the wanted positions (the projection to the vocabulary) and the draws.
    pub sample_ms: f64,
    pub output_ms: f64,
}

impl Phases {
    pub fn total_ms(&self) -> f64 {
        self.schedule_ms + self.forward_ms + self.sample_ms + self.output_ms
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowRecord {
    pub seq: SeqId,
    pub kind: RowKind,
    pub tokens: usize,
    /// Tokens already in the cache when the step began.
    pub computed: usize,
    /// The token drawn, where the row produced one.
    pub sampled: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowKind {
    /// A whole prompt, a chunk of one, or a recomputation after preemption.
    Prefill,
    Decode,
}

/// A sequence that got nothing this step, and why, in words with their numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    pub seq: SeqId,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preemption {
    pub seq: SeqId,
    pub blocks_freed: usize,
    pub reason: String,
}
