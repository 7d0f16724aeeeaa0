//! Questions a front end asks of a running engine, beside requests: they change nothing.

use super::{KvHash, Request, RequestId, SamplingParams, SamplingTrace, SeqId, TokenId};
use serde::{Deserialize, Serialize};

/// Asks what another setting would have made of a token: the same logits, context and random number,
/// other parameters. The engine keeps the logits of the newest tokens of the sequence in focus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhatIf {
    pub seq: SeqId,
    /// The how-manieth generated token, from 0.
    pub index: usize,
    pub params: SamplingParams,
}

/// The answer to [`WhatIf`], with the question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhatIfAnswer {
    pub asked: WhatIf,
    /// Or why it cannot be told: the logits are not kept any more, a parameter is out of range.
    pub trace: Result<Box<SamplingTrace>, String>,
}

/// Asks how many tokens something would be; nothing is computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// Comes back with the answer.
    pub ticket: u64,
    pub what: Counted,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Counted {
    /// The prompt of this request: template, tools and all.
    Prompt(Box<Request>),
    /// Each of these texts by itself, without special tokens.
    Texts(Vec<String>),
}

/// A look inside the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Inspect {
    Block(u32),
    /// The prefix cache as a tree of prefixes, whichever index is in use.
    Tree,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Inspected {
    Block(Box<BlockDetail>),
    Tree(Box<CacheTree>),
}

/// What is known of one block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockDetail {
    pub block: u32,
    /// Who owns it, and at which place of their block table.
    pub owners: Vec<(SeqId, usize)>,
    /// What it holds, in order; at most `block_size`. Empty where nobody knows.
    pub tokens: Vec<(TokenId, String)>,
    /// Its hash and those before it, the first block's first. Empty where its content is not cached.
    pub chain: Vec<KvHash>,
    /// Step in which it was last taken, hit or freed; 0 is never.
    pub used: u64,
    pub references: u16,
    pub cached: bool,
}

/// Every cached prefix; a node's parent stands before it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheTree {
    /// `hash` or `radix`.
    pub index: String,
    pub nodes: Vec<CacheNode>,
    /// Nodes left out because there were too many.
    pub left_out: usize,
}

/// A run of blocks that belong together: no prefix ends or branches inside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheNode {
    /// Index of its parent in the list.
    pub parent: Option<usize>,
    /// The beginning of its text.
    pub text: String,
    pub tokens: usize,
    pub blocks: Vec<u32>,
    /// Sequences that own its last block now.
    pub references: usize,
    /// Newest step in which one of its blocks was used.
    pub used: u64,
}

/// What the device can do at most, measured on all of it that the engine has; per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceLimits {
    /// `2 threads`, `132 multiprocessors`.
    #[serde(default)]
    pub units: String,
    /// Bytes read from a buffer larger than every cache.
    pub memory_read: f64,
    /// Operations in the products that quantised weights are multiplied with; a multiplication and an
    /// addition are two. Of a CPU dot products of bytes, with the fastest instruction there is.
    #[serde(alias = "int8")]
    pub matrix: f64,
    #[serde(alias = "int8_instruction")]
    pub matrix_name: String,
    /// Weights in f16 and bf16 are multiplied at that rate too, not at that of f32.
    #[serde(default)]
    pub halves: bool,
    /// Of f32, counted the same way.
    pub f32: f64,
}

/// The request's place in the queue, from the next step on (lower is served first).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reprioritise {
    pub id: RequestId,
    pub priority: i32,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::protocol::OperationTime;

    /// As versions wrote them that knew processors only.
    #[test]
    fn older_limits_and_times_are_read() {
        let old = r#"{"threads":2,"memory_read":2e10,"int8":4e11,"int8_instruction":"AVX2","f32":9e10}"#;
        let limits: DeviceLimits = serde_json::from_str(old).unwrap();
        assert_eq!((limits.matrix, limits.matrix_name.as_str(), limits.halves), (4e11, "AVX2", false));
        assert_eq!((limits.memory_read, limits.units.as_str()), (2e10, ""));
        let time: OperationTime = serde_json::from_str(r#"{"name":"project","calls":3,"us":1.5}"#).unwrap();
        assert_eq!((time.calls, time.bytes, time.flops), (3, 0, 0));
    }
}
