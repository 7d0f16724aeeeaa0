use super::{BeamView, BlockView, Counters, SamplingTrace, SeqId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

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
    pub slots: Slots,
    /// Sequences that got nothing, running ones first, then the queue in its order.
    pub waiting: Vec<Waiting>,
    pub preempted: Vec<Preemption>,
    pub blocks_taken: usize,
    pub blocks_freed: usize,
    /// Cached blocks found and shared this step.
    pub blocks_hit: usize,
    pub blocks_evicted: usize,
    /// Copies made because a shared block was about to be written.
    pub blocks_copied: usize,
    /// Blocks whose content went to host memory, and came back from it.
    #[serde(default)]
    pub blocks_saved: usize,
    #[serde(default)]
    pub blocks_loaded: usize,
    pub blocks_free: usize,
    /// Blocks that are not what they were after the step before: what the block map needs to go back
    /// and forth.
    #[serde(default)]
    pub blocks: Vec<BlockChange>,
    /// After this step.
    #[serde(default)]
    pub counters: Counters,
    /// Of the focused sequence's token, where it drew one.
    #[serde(default)]
    pub sampling: Option<Arc<SamplingTrace>>,
    /// Of the beam search that this step took further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beams: Option<Arc<BeamView>>,
    /// What the device's operations took, or its kernels; empty unless this step was timed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<OperationTime>,
}

/// All calls of one operation in a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationTime {
    /// `project`, `attend`, …; the projection to the vocabulary is `head`. On a GPU the name of a kernel.
    pub name: Cow<'static, str>,
    pub calls: u32,
    pub us: f64,
    /// Read, and operations; 0 where nobody counts.
    #[serde(default)]
    pub bytes: u64,
    #[serde(default)]
    pub flops: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockChange {
    pub block: u32,
    pub before: BlockView,
    pub after: BlockView,
}

/// Places of the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// `max_num_seqs`.
    pub all: usize,
    pub used: usize,
    /// Held by sequences that have finished: static batching fills them only when all have.
    pub idle: usize,
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

/// A sequence that got nothing this step, and why.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    pub seq: SeqId,
    pub reason: Reason,
}

/// A sequence that gave its blocks back, for whom, and what was missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    pub seq: SeqId,
    pub blocks_freed: usize,
    /// Its blocks went to host memory: it will not be computed again.
    pub swapped: bool,
    pub by: SeqId,
    pub shortage: Shortage,
}

/// Blocks that were needed and not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    pub needed: usize,
    /// Nobody's, content unknown.
    pub free: usize,
    /// Nobody's, content known: would be evicted.
    pub cached: usize,
    /// Promised to prompts that are being computed, or kept by the watermark.
    pub reserved: usize,
}

/// Why a sequence gets nothing in a step. Plain numbers; [`fmt::Display`] puts them into words.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The step's tokens are used up.
    Budget {
        tokens: usize,
    },
    /// Its output rows are.
    Outputs {
        outputs: usize,
    },
    Slots {
        running: usize,
        most: usize,
    },
    Blocks(Shortage),
    Behind {
        ahead: usize,
    },
    Preempting {
        victims: usize,
    },
    /// Chunked prefill is off and the prompt is longer than what is left of the budget.
    Unsplit {
        prompt: usize,
        left: usize,
    },
    /// `prefill_schedule_interval`.
    Interval {
        steps: u32,
        of: u32,
    },
    /// Its turn of round robin has not come.
    Turn {
        slice_ms: f32,
        ahead: usize,
    },
    /// Static batching: the batch must finish first.
    Batch {
        running: usize,
    },
    /// SGLang's estimate: tokens its answer may need, and tokens that are not promised to others.
    Estimate {
        needed: usize,
        left: usize,
    },
    /// Another waiting request shares its first tokens and fills the cache first.
    InBatchPrefix {
        by: SeqId,
    },
    /// Its cached blocks are on their way from disk.
    Loading {
        blocks: usize,
    },
    /// Its grammar is being compiled.
    Grammar,
    /// The result of its last step is not read yet.
    InFlight,
    /// One plan serves several steps (`num_scheduler_steps`).
    Round {
        left: u32,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Budget { tokens } => write!(f, "the step's budget of {tokens} tokens is used up"),
            Reason::Outputs { outputs } => write!(f, "the step's {outputs} output rows are used up"),
            Reason::Slots { running, most } => write!(f, "{running} of {most} sequences are running"),
            Reason::Blocks(shortage) => write!(f, "{shortage}; head of the queue"),
            Reason::Behind { ahead } => write!(f, "behind {ahead} in the queue"),
            Reason::Preempting { victims } => {
                write!(f, "nothing is admitted in a step that preempted ({victims})")
            }
            Reason::Unsplit { prompt, left } => {
                write!(f, "a prompt of {prompt} tokens is not split; {left} are left of the budget")
            }
            Reason::Interval { steps, of } => {
                write!(f, "prompts run every {of} steps while others decode; {steps} since the last")
            }
            Reason::Turn { slice_ms, ahead } => {
                write!(f, "turns of {slice_ms} ms; {ahead} before it")
            }
            Reason::Batch { running } => {
                write!(f, "static batching: {running} of the batch still run")
            }
            Reason::Estimate { needed, left } => {
                write!(f, "may need {needed} tokens of KV cache, {left} are not promised to running answers")
            }
            Reason::InBatchPrefix { by } => {
                write!(f, "sequence {by} fills the cache with their common prefix first")
            }
            Reason::Loading { blocks: 1 } => write!(f, "1 cached block is on its way from disk"),
            Reason::Loading { blocks } => write!(f, "{blocks} cached blocks are on their way from disk"),
            Reason::Grammar => write!(f, "grammar compiling"),
            Reason::InFlight => write!(f, "its last step is still running"),
            Reason::Round { left } => write!(f, "the next plan is made in {left} steps"),
        }
    }
}

impl fmt::Display for Preemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by == self.seq {
            true => write!(f, "it {}", self.shortage)?,
            false => write!(f, "sequence {} {}", self.by, self.shortage)?,
        }
        f.write_str(if self.swapped { "; swapped to host memory" } else { "" })
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortage { needed, free, cached, reserved } = self;
        let s = if *needed == 1 { "" } else { "s" };
        write!(f, "needs {needed} block{s}, {free} free, {cached} evictable")?;
        match reserved {
            0 => Ok(()),
            _ => write!(f, ", {reserved} reserved for running prompts"),
        }
    }
}
