//! Conditions that stop the engine, as typed after `/break` and as shown.

use super::{RequestId, SequenceState, TokenId};
use serde::{Deserialize, Serialize};

/// Stops the engine after the first step that did this.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Breakpoint {
    /// Any sequence gave its blocks back.
    Preemption,
    /// Any cached block was dropped.
    Eviction,
    /// Any shared block was copied because it was about to be written.
    CopyOnWrite,
    /// A sequence drew this token.
    Token { request: Option<RequestId>, token: TokenMatch },
    /// Of the distribution that a token was drawn from, before the sampler's stages, in nats.
    Entropy(Threshold),
    /// Of the drawn token, in the same distribution.
    Probability(Threshold),
    /// Share of the blocks that sequences own.
    KvUse { above: f32 },
    /// The request got into this state.
    State { request: Option<RequestId>, state: WatchedState },
    /// This step was taken.
    Step(u64),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenMatch {
    Id(TokenId),
    /// The token's text contains this.
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    Above(f32),
    Below(f32),
}

/// States one can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchedState {
    Is(SequenceState),
    Finished,
}

/// A breakpoint in force. Ids are counted from 1 and never used again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetBreakpoint {
    pub id: u32,
    pub on: Breakpoint,
    pub hits: u64,
}
