//! What crosses the line between a front end and an engine: plain data that can be printed, stored
//! and replayed. No behaviour beyond checking a value's range, no threads, no I/O.
//!
//! [`Handle`] is the line itself: commands go in, events come out, the newest [`Snapshot`] lies
//! beside them. A front end cannot tell a local engine from an attached one.

mod beam;
mod breakpoint;
mod cache;
mod command;
mod event;
mod guided;
mod handle;
mod inspect;
mod named;
mod param_spec;
mod params;
mod quantize;
mod record;
mod scheduling;
mod sessions;
mod snapshot;
mod stage;
mod toolbox;
mod tools;

pub use beam::{BeamRow, BeamScore, BeamSearch, BeamView, EarlyStopping, EndedView, PrunedView};
pub use breakpoint::{BadBreakpoint, Breakpoint, SetBreakpoint, Threshold, TokenMatch, WatchedState};
pub use cache::{EvictionPolicy, KvCacheDtype, KvEvent, KvHash, Medium, PrefixCache};
pub use command::{Command, ForkRequest, Message, Prompt, ReplayCommand, Request, Role};
pub use event::{
    Channel, Event, Failure, FailureKind, FinishReason, HeldBack, LoadStage, ModelInfo, Outcome, Part,
    ScoredToken, Timings, TokenInfo, TopToken, Usage,
};
pub use guided::{Grammar, Guided};
pub use handle::{EventReceiver, EventSender, Handle, SnapshotCell, WeakEventSender};
pub use inspect::{
    BlockDetail, CacheNode, CacheTree, Count, Counted, DeviceLimits, Inspect, Inspected, Reprioritise,
    WhatIf, WhatIfAnswer,
};
pub use param_spec::{PARAMS, ParamKind, ParamSpec, ParamValue};
pub use params::{LogprobsMode, OutOfRange, SamplingParams};
pub use quantize::WeightFormat;
pub use record::{
    BlockChange, OperationTime, Phases, Preemption, Reason, RowKind, RowRecord, Shortage, Slots, StepRecord,
    Waiting,
};
pub use scheduling::{
    Batching, PreemptionMode, SCHEDULING, SchedulePolicy, SchedulerSettings, SchedulingPolicy,
    SchedulingSpec, yes_or_no,
};
pub use sessions::{
    LoadedSession, SessionChange, SessionCommand, SessionEvent, SessionFormat, SessionHandle, SessionId,
    SessionKey, SessionMeta, SessionRow, StoredAnswer, StoredCall, StoredSession, StoredTurn, TurnNumber,
    WhichSession,
};
pub use snapshot::{
    BlockView, Candidate, Counters, GrammarView, KvView, MemoryPlan, SamplingTrace, SequenceState,
    SequenceView, Snapshot, StageView, TierView,
};
pub use stage::{SamplerOrder, Stage};

pub use toolbox::{
    CallId, OfferedTool, PlannedAction, PlannedCall, RunHow, ServerState, ServerView, TOOL_ROUNDS,
    ToolCommand, ToolEnd, ToolEvent, ToolHandle, ToolList, ToolResult,
};
pub use tools::{
    REASONING_PARSERS, TOOL_CALL_PARSERS, Thinking, Tool, ToolCall, ToolCallDelta, ToolChoice, Tools,
};

use serde::{Deserialize, Serialize};

/// An id of the model's vocabulary.
pub type TokenId = u32;

/// Chosen by the front end, unique within one handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// One of a request's `n` continuations, counted from 0. The engine's unit of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SeqId {
    pub request: RequestId,
    pub choice: u32,
}

impl std::fmt::Display for SeqId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.choice {
            0 => write!(f, "{}", self.request.0),
            c => write!(f, "{}.{c}", self.request.0),
        }
    }
}
