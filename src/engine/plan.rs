use super::sequence::{Sequence, Share};
use crate::kv::Moves;
use crate::model::{Batch, BlockCopy, Row};
use crate::protocol::{Preemption, RowKind, TokenId, Waiting};

/// What one step does, and why it does not do more. Its memory is used again for every step.
#[derive(Debug, Default)]
pub struct Plan {
    pub batch: Batch,
    /// Beside each row of the batch.
    pub rows: Vec<PlannedRow>,
    /// Before anything of the batch is computed.
    pub moves: Moves,
    pub preempted: Vec<Preemption>,
    /// Sequences that got nothing.
    pub skipped: Vec<Waiting>,
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

impl Plan {
    pub fn clear(&mut self, tokens: usize, outputs: usize) {
        self.batch.clear();
        self.rows.clear();
        self.moves.clear();
        self.preempted.clear();
        self.skipped.clear();
        (self.tokens_left, self.outputs_left) = (tokens, outputs);
        (self.prefix_queries, self.prefix_hits) = (0, 0);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Schedules `share` of the sequence at place `at` of the running ones.
    pub fn push(&mut self, at: usize, seq: &Sequence, share: Share) {
        let Batch { tokens, blocks, rows, .. } = &mut self.batch;
        let (first_token, first_block) = (tokens.len(), blocks.len());
        let start = seq.num_computed;
        tokens.extend(&seq.tokens[start..start + share.tokens]);
        blocks.extend(seq.table.blocks());
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

    /// The copies of all sequences, for the runner.
    pub fn seal(&mut self) {
        let copies = self.moves.copies.iter().map(|(from, to)| BlockCopy { from: *from, to: *to });
        self.batch.copies.extend(copies);
    }
}
