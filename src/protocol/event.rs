use super::{
    BeamScore, Command, DeviceLimits, Inspected, KvEvent, RequestId, SamplingParams, SchedulerSettings,
    SeqId, TokenId, ToolCallDelta, WhatIfAnswer,
};
use serde::{Deserialize, Serialize};

/// What an engine reports, in order. One `Vec<Event>` is sent a step.
///
/// Every choice of every request, refused ones too, ends in exactly one [`Event::Finished`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// Progress of loading the model, in bytes.
    Loading {
        stage: LoadStage,
        done: u64,
        total: u64,
    },
    Ready(Box<ModelInfo>),
    /// No model: every request is refused from here on.
    LoadFailed(Failure),
    /// The request passed intake. `rendered` is the prompt exactly as the template made it.
    Accepted {
        id: RequestId,
        prompt_tokens: usize,
        rendered: String,
    },
    /// First scheduled; `cached_tokens` of the prompt came from the prefix cache.
    Started {
        seq: SeqId,
        cached_tokens: usize,
    },
    /// A sampled token, before it is known which characters it completes.
    Token {
        seq: SeqId,
        token: Box<TokenInfo>,
    },
    /// Whole characters of the answer or of the thoughts. Concatenated they are the full text.
    Delta {
        seq: SeqId,
        part: Part,
    },
    /// The parameters in force from the `at`-th generated token on.
    ParamsApplied {
        seq: SeqId,
        at: usize,
        params: Box<SamplingParams>,
    },
    /// The K likeliest tokens after each prompt position, for `Request::prompt_logprobs`.
    PromptLogprobs {
        id: RequestId,
        first_position: usize,
        rows: Vec<Vec<TopToken>>,
        /// What the prompt has after each position, but for the last.
        #[serde(default)]
        next: Vec<ScoredToken>,
    },
    Finished {
        seq: SeqId,
        outcome: Box<Outcome>,
    },
    Paused(bool),
    WhatIf(Box<WhatIfAnswer>),
    /// The tokens of each text, or of the one prompt.
    Counted {
        ticket: u64,
        tokens: Result<Vec<usize>, Failure>,
    },
    Inspected(Inspected),
    /// Or why they are not known.
    Limits(Result<Box<DeviceLimits>, String>),
    /// A breakpoint was met at this step, and why; the engine is paused.
    Broke {
        id: u32,
        step: u64,
        why: String,
    },
    /// Scheduler settings in force from the next step on.
    Configured(Box<SchedulerSettings>),
    /// For whom subscribes to the content of the cache.
    Kv(Vec<KvEvent>),
    /// Something the user should know that ends nothing.
    Note(String),
    /// In a replay: what the front end of that time sent.
    Sent(Box<Command>),
    /// This is a replay of these steps, at this multiple of the recorded speed.
    Replaying {
        first: u64,
        last: u64,
        speed: f32,
    },
    /// A replay went back. Everything said so far is forgotten; what is true at the earlier point
    /// follows, from the beginning.
    Rewound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadStage {
    Reading,
    Repacking,
}

/// What the model is and where it runs, as found in its file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelInfo {
    /// Catalogue name, or the file's stem.
    pub name: String,
    pub path: String,
    pub architecture: String,
    pub parameters: u64,
    /// The commonest block format of the weights, by bytes: `Q4_1`.
    pub quantization: String,
    /// What its matrices lost, where they were encoded while the model was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantized: Option<String>,
    pub file_bytes: u64,
    pub layers: usize,
    pub vocab_size: usize,
    /// Longest prompt plus answer, in tokens.
    pub context_length: usize,
    /// What the model was trained for; `context_length` may be less where memory is short.
    pub trained_context_length: usize,
    pub has_chat_template: bool,
    /// The family of [`REASONING_PARSERS`](super::REASONING_PARSERS), or none.
    pub reasoning_parser: Option<String>,
    /// The format of [`TOOL_CALL_PARSERS`](super::TOOL_CALL_PARSERS), or none.
    pub tool_call_parser: Option<String>,
    /// `CPU (2 threads, AVX2)`.
    pub device: String,
    /// Why this device: `no CUDA device found`.
    pub device_reason: String,
    /// That sequences can own: the null block is not among them.
    pub kv_blocks: usize,
    pub block_size: usize,
    /// In layers that keep keys and values; what their blocks leave empty is counted.
    pub kv_bytes_per_token: usize,
    /// What a sequence takes whatever its length: states of recurrent layers.
    pub state_bytes: usize,
    pub weights_bytes: u64,
    pub load_ms: f64,
}

/// One sampled token with its place among the alternatives. Log-probabilities are natural, of the
/// raw distribution (before penalties and temperature), as vLLM's `raw_logprobs`, unless
/// `logprobs_mode` is `processed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenInfo {
    pub id: TokenId,
    /// The token's own text; bytes that are no character are shown as U+FFFD.
    pub text: String,
    pub bytes: Vec<u8>,
    pub logprob: f32,
    /// 1 is the likeliest: how many tokens have a logit at least as large.
    pub rank: u32,
    /// Of the raw distribution, in nats.
    pub entropy: f32,
    /// The K likeliest, best first, when the request asked for logprobs.
    pub top: Vec<TopToken>,
    /// It was not drawn: nothing else could follow. Its probability is then 1 (log-probability 0, rank
    /// 1, entropy 0), of the distribution that was left; the model was not asked for its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// Where the reasoning parser sent the token's text.
    pub channel: Channel,
    /// Text held back so far: half a character, or what may become a stop string, a tag or a call.
    pub held: String,
    /// Why the end of it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<HeldBack>,
}

/// Why text is not shown yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldBack {
    /// The rest of its bytes is missing.
    Character,
    StopString,
    Tag,
    /// A call whose name is not known yet.
    ToolCall,
}

impl HeldBack {
    /// What the held text may turn out to be.
    pub fn name(self) -> &'static str {
        match self {
            HeldBack::Character => "half a character",
            HeldBack::StopString => "a stop string?",
            HeldBack::Tag => "a tag?",
            HeldBack::ToolCall => "a tool call?",
        }
    }
}

/// A token of the prompt, as the model expected it: log-probability in nats and rank, of the raw
/// distribution at the position before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoredToken {
    pub id: TokenId,
    pub logprob: f32,
    pub rank: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopToken {
    pub id: TokenId,
    pub text: String,
    pub logit: f32,
    pub logprob: f32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    #[default]
    Content,
    Reasoning,
    /// Part of a tool call.
    Tool,
    /// The token is (part of) a tag, a stop string or an end token: shown to nobody.
    Marker,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Part {
    Text(String),
    Reasoning(String),
    ToolCall(ToolCallDelta),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub reason: FinishReason,
    pub usage: Usage,
    pub timings: Timings,
    /// The seed in force, also when the engine chose it.
    pub seed: u64,
    pub params: SamplingParams,
    /// Of an answer that beam search found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beam: Option<BeamScore>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FinishReason {
    /// An end token, or one of `stop_token_ids`.
    Stop,
    /// One of the request's stop strings.
    StopString(String),
    /// The answer ended by itself and asks for tools to be called.
    ToolCalls,
    /// `max_tokens`, or the context is full.
    Length,
    /// The answer went round in circles (`repetition_max_pattern`).
    Repetition,
    Abort,
    Error(Failure),
}

impl FinishReason {
    /// The name in JSON output.
    pub fn name(&self) -> &'static str {
        match self {
            FinishReason::Stop | FinishReason::StopString(_) => "stop",
            FinishReason::ToolCalls => "tool_calls",
            FinishReason::Length => "length",
            FinishReason::Repetition => "repetition",
            FinishReason::Abort => "abort",
            FinishReason::Error(_) => "error",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
}

impl Failure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// Who can do something about it; the exit status of scripted use follows from this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// A parameter is out of range.
    BadRequest,
    /// The prompt can never fit: context or KV cache.
    TooLong,
    /// A grammar, a schema or a regular expression cannot be used.
    Grammar,
    /// The chat template is missing or raised.
    Template,
    /// Memory or queue is full: try again later.
    Busy,
    /// The model file is missing or cannot be used.
    Model,
    /// The device or the engine failed.
    Internal,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    pub completion_tokens: usize,
    pub reasoning_tokens: usize,
    /// Of the completion, the tokens that were not drawn.
    #[serde(default)]
    pub forced_tokens: usize,
}

/// Of one choice, in milliseconds. TTFT and E2EL count from the request's arrival at the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    pub queue_ms: f64,
    pub ttft_ms: f64,
    /// Mean gap between consecutive tokens.
    pub itl_ms_mean: f64,
    /// (E2EL - TTFT) / (tokens - 1).
    pub tpot_ms: f64,
    pub e2el_ms: f64,
    /// Generated tokens over the time from the first to the last; of the whole time for one token.
    pub tokens_per_second: f64,
    /// Prompt tokens computed (not cached) over TTFT less queueing.
    pub prompt_tokens_per_second: f64,
    pub preemptions: u32,
}
