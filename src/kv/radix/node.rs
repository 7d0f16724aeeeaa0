use crate::kv::BlockId;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// By the tokens of a child's first block. Ordered, so that a replayed run removes in the same order.
pub type Children = BTreeMap<Box<[u32]>, NodeId>;

/// What the policy looks at first, then second; the node's id makes it unique.
pub type Rank = (i64, u64, NodeId);

#[derive(Debug)]
pub struct Node {
    pub parent: Parent,
    pub children: Children,
    pub tokens: Vec<u32>,     // [blocks * block_size]
    pub blocks: Vec<BlockId>, // [blocks]
    /// Blocks before it, up to the root.
    pub start: usize,
    /// Locks on its blocks and on all below.
    pub lock_ref: u32,
    /// Of those, on its own blocks.
    pub own_locks: u32,
    /// How many of its blocks, from the first on, are protected.
    pub locked: usize,
    pub priority: i32,
    pub hits: u64,
    pub created: u64,
    pub accessed: u64,
    /// Where it stands in `leaves`.
    pub rank: Option<Rank>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    Namespace(u64),
    Node(NodeId),
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    pub node: Option<NodeId>,
    /// Blocks before it, up to the root.
    pub depth: usize,
    /// Locks that name this block. They are their owners', so they outlive its removal.
    pub locks: u32,
}
