use super::{
    BeamSearch, Breakpoint, Count, Guided, Inspect, Reprioritise, RequestId, SamplingParams,
    SchedulerSettings, SeqId, Thinking, TokenId, ToolCall, Tools, WhatIf,
};
use serde::{Deserialize, Serialize};

/// What a front end may ask of an engine. Commands act between steps, in the order sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    Submit(Box<Request>),
    /// A new request that goes on from a point inside another one.
    Fork(Box<ForkRequest>),
    /// Ends every choice of the request with [`FinishReason::Abort`](super::FinishReason::Abort);
    /// its blocks are free before the next step. Unknown ids are ignored.
    Abort(RequestId),
    /// New sampling parameters for a request that may be running. The next token obeys.
    SetParams(RequestId, Box<SamplingParams>),
    /// Another place in the queue for a request; see [`Request::priority`].
    SetPriority(Reprioritise),
    /// Answered by [`Event::WhatIf`](super::Event::WhatIf), also while paused.
    WhatIf(Box<WhatIf>),
    /// Answered by [`Event::Counted`](super::Event::Counted).
    Count(Box<Count>),
    /// Answered by [`Event::Inspected`](super::Event::Inspected), also while paused.
    Inspect(Inspect),
    /// Answered by [`Event::Limits`](super::Event::Limits), after some seconds the first time. Measured
    /// while nothing else is to be done: a request ends it.
    MeasureLimits,
    /// No step is taken until `Resume` or `Step`.
    Pause,
    Resume,
    /// While paused: take this many steps, then pause again.
    Step(u32),
    /// Pauses after the first step that meets the condition, and says which and why.
    Break(Breakpoint),
    /// Takes one breakpoint away, or all.
    Clear(Option<u32>),
    /// New scheduler settings; the next step obeys.
    Configure(Box<SchedulerSettings>),
    /// Whose sampling the snapshot should trace in full; `None` is the first running sequence.
    Focus(Option<SeqId>),
    /// Forgets every cached block that no sequence owns, on the device and in host memory. Running
    /// sequences keep theirs (vLLM refuses instead), and a folder keeps what is on disk.
    ResetPrefixCache,
    /// Moves a replay; a live engine says that it is none.
    Replay(ReplayCommand),
    /// Ends running requests with `Abort`, then the engine's threads.
    Shutdown,
}

/// What only a recorded conversation can do. `Pause`, `Resume` and `Step` act on it as well.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum ReplayCommand {
    /// Times the recorded one; above 0.
    Speed(f32),
    /// To where this step has been taken.
    Seek(u64),
    /// So many steps back, and pause.
    Back(u32),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub id: RequestId,
    pub prompt: Prompt,
    pub params: SamplingParams,
    /// How many continuations to sample from the one prompt. Choice `i` uses seed + i.
    pub n: u32,
    /// Sample so many, at least `n`, and return the `n` of the largest mean log-probability, best first.
    /// Nothing is told before all have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_of: Option<u32>,
    /// Split `<think>` spans (or whatever the model's parser knows) from the answer.
    pub parse_reasoning: bool,
    /// Return the K likeliest tokens at every prompt position; the prefix cache is then not read.
    pub prompt_logprobs: Option<u32>,
    /// Lower is served first, under `scheduling_policy = priority`.
    #[serde(default)]
    pub priority: i32,
    /// Requests share cached blocks only with those of the same salt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_salt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guided: Option<Guided>,
    /// With it nothing is sampled, and `n` of at most `width` answers come back, the best first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beam: Option<BeamSearch>,
    #[serde(default)]
    pub tools: Tools,
    #[serde(default)]
    pub thinking: Thinking,
}

impl Request {
    pub fn new(id: RequestId, prompt: Prompt, params: SamplingParams) -> Self {
        Self {
            id,
            prompt,
            params,
            n: 1,
            best_of: None,
            parse_reasoning: true,
            prompt_logprobs: None,
            priority: 0,
            cache_salt: None,
            guided: None,
            beam: None,
            tools: Tools::default(),
            thinking: Thinking::default(),
        }
    }
}

/// A branch of `parent`, running or finished: its first `keep` tokens, prompt included, then `then`.
/// Every full block of the kept part is shared; of a running parent the partial one too, until
/// either writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForkRequest {
    pub id: RequestId,
    pub parent: SeqId,
    pub keep: usize,
    /// Tokens the branch is made to take first. Empty: it draws anew at the fork.
    pub then: Vec<TokenId>,
    pub params: SamplingParams,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Prompt {
    /// Rendered by the model's chat template. Special tokens in the messages stay plain text.
    Chat(Vec<Message>),
    /// Sent as it is, with BOS in front where the model wants one. Special tokens stay plain text.
    Text(String),
    /// Exactly these ids.
    Tokens(Vec<TokenId>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub role: Role,
    pub content: String,
    /// What the model thought before an assistant's answer, where the template wants it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// That an assistant's answer asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Of a tool's answer: the call it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Of a tool's answer: the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Message {
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            reasoning: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    System,
    User,
    Assistant,
    Tool,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}
