//! One pass, told as a whole.

use super::RopeTable;

/// Tokens of one sequence in a launch.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// Rows of the buffers: `first .. first + len`.
    pub first: usize,
    pub len: usize,
    /// Position of the first of them in its sequence.
    pub start: usize,
    /// Block `i` of the sequence holds positions `i * block_size ..`.
    pub table: &'a [u32],
}

/// The numbers of one pass: what its operations name again, one by one.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    pub tokens: &'a [u32],
    /// For each cache group, the rows with their tables in it.
    pub groups: &'a [Vec<Span<'a>>],
    pub ropes: &'a [RopeTable],
    /// Rows whose hidden state is wanted, in order.
    pub wanted: &'a [usize],
}

/// The largest pass there will be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    pub tokens: usize,
    pub outputs: usize,
    /// Cache groups, and blocks of the longest table in one.
    pub groups: usize,
    pub blocks: usize,
    pub vocab: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}
