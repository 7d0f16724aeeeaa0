use crate::kv::BlockId;
use crate::protocol::{SeqId, TokenId};
use std::ops::Range;

/// One step's work as plain data: ids and counts, no pointers. Prefill and decode rows differ only
/// in how many tokens they bring.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Copies to make before anything else: copy-on-write.
    pub copies: Vec<BlockCopy>,
    /// Tokens of all rows, one row after the other.
    pub tokens: Vec<TokenId>,
    /// Block tables of all rows; see [`Batch::table`].
    pub blocks: Vec<BlockId>,
    pub rows: Vec<Row>,
}

/// Tokens of one sequence that enter the cache in this step.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub seq: SeqId,
    /// Into [`Batch::tokens`].
    pub tokens: Range<usize>,
    /// Position of the row's first token in its sequence: what is computed already.
    pub start: usize,
    /// Tokens of the sequence when it was begun: decides how fast its rotary pairs turn, where the model has
    /// that depend on the length (see [`RopeLengths`](super::RopeLengths)). The same in all its steps.
    pub rope_len: usize,
    /// Into [`Batch::blocks`]: one table for each cache group, all of the same length, group after group.
    pub blocks: Range<usize>,
    /// At which of its tokens the row wants logits.
    pub outputs: Outputs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// A chunk of a prompt that is not the last.
    None,
    /// After the last token: one output row.
    Last,
    /// After the last token, this many times over: one output row, of the same logits, for each
    /// continuation that starts there.
    Draws(usize),
    /// After every token: as many output rows as tokens.
    All,
}

/// Copy the whole block `from` to `to`, in every layer of every group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    pub from: BlockId,
    pub to: BlockId,
}

impl Batch {
    /// The block table of a row in one cache group: block `i` holds positions
    /// `i * block_size .. (i + 1) * block_size`.
    pub fn table(&self, row: &Row, group: usize, groups: usize) -> &[BlockId] {
        let len = row.blocks.len() / groups;
        &self.blocks[row.blocks.start + group * len..][..len]
    }

    /// Becomes equal to `other`, in the memory it has.
    pub fn copy_from(&mut self, other: &Batch) {
        self.copies.clone_from(&other.copies);
        self.tokens.clone_from(&other.tokens);
        self.blocks.clone_from(&other.blocks);
        self.rows.clone_from(&other.rows);
    }

    /// Empties it and keeps the memory.
    pub fn clear(&mut self) {
        self.copies.clear();
        self.tokens.clear();
        self.blocks.clear();
        self.rows.clear();
    }
}

impl Row {
    pub fn num_outputs(&self) -> usize {
        match self.outputs {
            Outputs::None => 0,
            Outputs::Last => 1,
            Outputs::Draws(n) => n,
            Outputs::All => self.tokens.len(),
        }
    }

    /// For each output row, the index into [`Batch::tokens`] of the token it comes after.
    pub fn output_tokens(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, times) = match self.outputs {
            Outputs::None => (self.tokens.end, 0),
            Outputs::Last => (self.tokens.end - 1, 1),
            Outputs::Draws(n) => (self.tokens.end - 1, n),
            Outputs::All => (self.tokens.start, 1),
        };
        (first..self.tokens.end).flat_map(move |token| std::iter::repeat_n(token, times))
    }
}
