use super::{
    BeamView, KvEvent, SamplingParams, SchedulerSettings, SeqId, SetBreakpoint, Stage, StepRecord, TokenId,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The engine's state as panels draw it; at most 30 a second, and one on going idle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    pub step: u64,
    pub paused: bool,
    pub sequences: Vec<SequenceView>,
    pub kv: KvView,
    pub counters: Counters,
    /// The newest steps, oldest first.
    pub steps: Vec<Arc<StepRecord>>,
    /// The focused sequence's newest token.
    pub sampling: Option<Arc<SamplingTrace>>,
    /// The newest beam search, after its newest step.
    #[serde(default)]
    pub beams: Option<Arc<BeamView>>,
    /// In force, as last configured.
    #[serde(default)]
    pub scheduler: SchedulerSettings,
    #[serde(default)]
    pub breakpoints: Vec<SetBreakpoint>,
    /// The newest events of the cache's content, oldest first.
    #[serde(default)]
    pub kv_events: Vec<KvEvent>,
    /// What was planned before anything was allocated.
    #[serde(default)]
    pub memory: MemoryPlan,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SequenceView {
    pub seq: SeqId,
    pub state: SequenceState,
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    pub generated_tokens: usize,
    /// Tokens whose keys and values are in the cache.
    pub computed_tokens: usize,
    pub blocks: Vec<u32>,
    pub params: SamplingParams,
    pub preemptions: u32,
    /// Lower is served first, where the policy asks.
    #[serde(default)]
    pub priority: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SequenceState {
    Waiting,
    /// Cached blocks of its prompt are being read from disk (vLLM: WAITING_FOR_REMOTE_KVS).
    Loading,
    /// Its grammar is being compiled (vLLM: WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR).
    Compiling,
    Running,
    Preempted,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KvView {
    pub block_size: usize,
    pub bytes_per_block: usize,
    /// One for each block of the pool, by id.
    pub blocks: Vec<BlockView>,
    /// Free and holding nothing, free but cached (evictable), owned by at least one sequence.
    pub free: usize,
    pub cached: usize,
    pub owned: usize,
    /// Host memory, then disk, where they are on.
    #[serde(default)]
    pub tiers: Vec<TierView>,
}

/// A place beside the device where blocks wait to be used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierView {
    pub medium: super::Medium,
    pub blocks: usize,
    pub used: usize,
    /// Blocks looked for here because the tiers before did not have them, and found.
    pub queries: u64,
    pub hits: u64,
    pub stored: u64,
    pub evicted: u64,
}

/// Bytes of device memory, planned before anything was allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPlan {
    /// Free when the plan was made.
    pub available: u64,
    pub weights: u64,
    pub kv_cache: u64,
    /// Activations and logits.
    pub workspace: u64,
    /// Host tier of the KV cache.
    pub host_kv_cache: u64,
    /// The device has memory of its own, and the host tier takes nothing of it.
    #[serde(default)]
    pub own_memory: bool,
    /// What is left of `available`.
    pub left: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockView {
    /// Sequences that own it: 0 free, above 1 shared.
    pub references: u16,
    /// Its content is known to the prefix cache.
    pub cached: bool,
    /// Whose it is, where it has one owner.
    pub owner: Option<SeqId>,
    /// Step in which it was last taken, hit or freed; 0 is never.
    #[serde(default)]
    pub used: u64,
}

/// Since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Prompt tokens looked up in the prefix cache, and found there.
    pub prefix_queries: u64,
    pub prefix_hits: u64,
    pub evictions: u64,
    pub copies_on_write: u64,
    /// Blocks that were shared instead of computed or copied: by prefix hits and by forks.
    #[serde(default)]
    pub blocks_shared: u64,
    /// Of a sequence's recomputations and of swaps to host memory.
    #[serde(default)]
    pub swaps: u64,
    pub preemptions: u64,
    pub prompt_tokens: u64,
    pub generated_tokens: u64,
    /// Of those, the ones that were not drawn: nothing else could follow.
    #[serde(default)]
    pub forced_tokens: u64,
    /// Time for grammars in steps: masks, and tokens followed.
    #[serde(default)]
    pub grammar_ms: f64,
    pub requests_finished: u64,
    /// Bytes of weights and KV read by the model's steps so far, as its operations count them.
    pub bytes_read: u64,
    pub flops: u64,
    /// Time spent in steps.
    pub busy_ms: f64,
}

/// Why this token: what each stage of the sampler left over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingTrace {
    pub seq: SeqId,
    /// The how-manieth generated token this is, from 0.
    pub index: usize,
    pub params: SamplingParams,
    /// In the order they acted.
    pub stages: Vec<StageView>,
    /// The likeliest of the raw distribution, best first, and the drawn one wherever it ranks.
    pub candidates: Vec<Candidate>,
    pub vocab_size: usize,
    /// Of the raw distribution and of the one drawn from, in nats.
    pub entropy: f32,
    pub final_entropy: f32,
    pub drawn: TokenId,
    /// What its grammar allowed, where one held it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grammar: Option<GrammarView>,
}

/// What a grammar allowed at one token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GrammarView {
    pub allowed: usize,
    /// The answer might have ended here.
    pub may_end: bool,
    /// The first of the allowed tokens, by id.
    pub first: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageView {
    pub stage: Stage,
    /// Tokens that can still be drawn after it.
    pub survivors: usize,
    /// False when its setting makes it do nothing.
    pub active: bool,
    /// Of what is left after it, in nats; only where it acted, and somebody counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entropy: Option<f32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    pub id: TokenId,
    pub text: String,
    pub logit: f32,
    /// Of the raw distribution.
    pub raw_probability: f32,
    /// Of the distribution drawn from; 0 when a stage cut it.
    pub probability: f32,
    pub cut_by: Option<Stage>,
}
