use super::sequence::{Sequence, Share};
use super::sequences::Key;
use crate::kv::Moves;
use crate::model::{Batch, BlockCopy, Row};
use crate::protocol::{Preemption, RowKind, Slots, TokenId, Waiting};

/// What one step does, and why it does not do more. Its memory is used again for every step.
#[derive(Debug, Default)]
pub struct Plan {
    pub batch: Batch,
    /// Beside each row of the batch.
    pub rows: Vec<PlannedRow>,
    /// Before anything of the batch is computed.
    pub moves: Moves,
    /// Tokens of the batch that the step before is still drawing.
    pub placeholders: Vec<Placeholder>,
    pub preempted: Vec<Preemption>,
    /// Sequences that got nothing.
    pub skipped: Vec<Waiting>,
    pub slots: Slots,
    pub tokens_left: usize,
    pub outputs_left: usize,
    /// Output rows of the batch.
    pub outputs: usize,
    /// Tokens looked up in the prefix cache by sequences admitted for the first time, and found.
    pub prefix_queries: usize,
    pub prefix_hits: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct PlannedRow {
    pub key: Key,
    pub kind: RowKind,
    /// Filled in when the step is accounted.
    pub drawn: Option<TokenId>,
}

/// `batch.tokens[token]` will be what output row `output` of the step before draws.
#[derive(Clone, Copy, Debug)]
pub struct Placeholder {
    pub token: usize,
    pub output: usize,
}

impl Plan {
    pub fn clear(&mut self, tokens: usize, outputs: usize) {
        self.batch.clear();
        self.rows.clear();
        self.moves.clear();
        self.placeholders.clear();
        self.preempted.clear();
        self.skipped.clear();
        (self.tokens_left, self.outputs_left, self.outputs) = (tokens, outputs, 0);
        (self.prefix_queries, self.prefix_hits) = (0, 0);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Reserves what a row takes of the step; [`Plan::push`] makes the row.
    pub fn charge(&mut self, share: Share) {
        self.tokens_left -= share.tokens;
        self.outputs_left -= share.num_outputs();
    }

    /// Gives back what [`Plan::charge`] took.
    pub fn refund(&mut self, share: Share) {
        self.tokens_left += share.tokens;
        self.outputs_left += share.num_outputs();
    }

    /// A row of the batch from a sequence's next `share`, which is charged already.
    pub fn push(&mut self, key: Key, seq: &mut Sequence, share: Share) {
        let Batch { tokens, blocks, rows, .. } = &mut self.batch;
        let (first_token, first_block) = (tokens.len(), blocks.len());
        let (start, end) = (seq.num_computed, seq.num_computed + share.tokens);
        tokens.extend(&seq.tokens[start..end.min(seq.tokens.len())]);
        if end > seq.tokens.len() {
            self.placeholders.push(Placeholder { token: tokens.len(), output: seq.drawn_at });
            tokens.push(0);
        }
        blocks.extend(seq.table.blocks());
        rows.push(Row {
            seq: seq.id,
            tokens: first_token..tokens.len(),
            start,
            rope_len: seq.rope_len,
            blocks: first_block..blocks.len(),
            outputs: share.outputs,
        });
        let one_new = start >= seq.prompt_len && start + 1 == seq.num_tokens();
        let kind = if one_new { RowKind::Decode } else { RowKind::Prefill };
        self.rows.push(PlannedRow { key, kind, drawn: None });
        seq.drawn_at = self.outputs;
        self.outputs += share.num_outputs();
        seq.advance(share);
    }

    /// The copies of all sequences, for the runner.
    pub fn seal(&mut self) {
        let copies = self.moves.copies.iter().map(|(from, to)| BlockCopy { from: *from, to: *to });
        self.batch.copies.extend(copies);
    }
}
