use super::sequence::{Sequence, Share};
use crate::kv::{CopyOnWrite, Shortage};
use crate::model::{Batch, BlockCopy, Row};
use crate::protocol::{RowKind, SeqId, TokenId};
use std::fmt;

/// What one step does, and why it does not do more. Its memory is used again for every step.
#[derive(Debug, Default)]
pub struct Plan {
    pub batch: Batch,
    /// Beside each row of the batch.
    pub rows: Vec<PlannedRow>,
    pub preempted: Vec<Preempted>,
    /// Sequences that got nothing.
    pub skipped: Vec<(SeqId, Reason)>,
    pub tokens_left: usize,
    pub outputs_left: usize,
    /// Tokens looked up in the prefix cache by sequences admitted for the first time, and found.
    pub prefix_queries: usize,
    pub prefix_hits: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct PlannedRow {
    /// Into the scheduler's running sequences.
    pub at: usize,
    pub kind: RowKind,
    /// Filled in when the step is accounted.
    pub drawn: Option<TokenId>,
}

#[derive(Clone, Copy, Debug)]
pub struct Preempted {
    pub seq: SeqId,
    pub blocks_freed: usize,
    /// Who needed the blocks, and how many.
    pub by: SeqId,
    pub shortage: Shortage,
}

/// Why a sequence waits. Plain numbers; [`fmt::Display`] puts them into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Budget { tokens: usize },
    Outputs { outputs: usize },
    Slots { running: usize, most: usize },
    Blocks(Shortage),
    Behind { ahead: usize },
    Preempting { victims: usize },
}

impl Plan {
    pub fn clear(&mut self, tokens: usize, outputs: usize) {
        self.batch.clear();
        self.rows.clear();
        self.preempted.clear();
        self.skipped.clear();
        (self.tokens_left, self.outputs_left) = (tokens, outputs);
        (self.prefix_queries, self.prefix_hits) = (0, 0);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Schedules `share` of the sequence at place `at` of the running ones.
    pub fn push(&mut self, at: usize, seq: &Sequence, share: Share, groups: usize) {
        let Batch { tokens, blocks, rows, .. } = &mut self.batch;
        let (first_token, first_block) = (tokens.len(), blocks.len());
        let start = seq.num_computed;
        tokens.extend(&seq.tokens[start..start + share.tokens]);
        // Every group keeps all blocks for now: the same table for each.
        (0..groups).for_each(|_| blocks.extend(seq.table.blocks()));
        let row = Row {
            seq: seq.id,
            tokens: first_token..tokens.len(),
            start,
            blocks: first_block..blocks.len(),
            outputs: share.outputs,
        };
        self.tokens_left -= share.tokens;
        self.outputs_left -= row.num_outputs();
        rows.push(row);
        let one_new = start >= seq.prompt_len && start + 1 == seq.tokens.len();
        let kind = if one_new { RowKind::Decode } else { RowKind::Prefill };
        self.rows.push(PlannedRow { at, kind, drawn: None });
    }

    pub fn copy(&mut self, copy: Option<CopyOnWrite>) {
        self.batch.copies.extend(copy.map(|CopyOnWrite { from, to }| BlockCopy { from, to }));
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Budget { tokens } => write!(f, "the step's budget of {tokens} tokens is used up"),
            Reason::Outputs { outputs } => write!(f, "the step's {outputs} output rows are used up"),
            Reason::Slots { running, most } => write!(f, "{running} of {most} sequences are running"),
            Reason::Blocks(shortage) => write!(f, "{}; head of the queue", Words(shortage)),
            Reason::Behind { ahead } => write!(f, "behind {ahead} in the queue"),
            Reason::Preempting { victims } => {
                write!(f, "nothing is admitted in a step that preempted ({victims})")
            }
        }
    }
}

impl fmt::Display for Preempted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by == self.seq {
            true => write!(f, "it {}", Words(&self.shortage)),
            false => write!(f, "sequence {} {}", self.by, Words(&self.shortage)),
        }
    }
}

struct Words<'a>(&'a Shortage);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortage { needed, free, cached, reserved } = self.0;
        let s = if *needed == 1 { "" } else { "s" };
        write!(f, "needs {needed} block{s}, {free} free, {cached} evictable")?;
        match reserved {
            0 => Ok(()),
            _ => write!(f, ", {reserved} reserved for running prompts"),
        }
    }
}
