mod check;
mod locks;
mod node;
mod walk;

use super::BlockId;
use crate::protocol::EvictionPolicy;
use node::{Children, Node, NodeId, Parent, Place, Rank};
use std::collections::{BTreeSet, HashMap};

/// Finds cached prefixes by their tokens: SGLang's radix cache, over blocks.
///
/// An edge holds the tokens of one or more whole blocks, so two sequences that differ inside a block
/// share nothing of it. A node is split where a sequence leaves it or a match ends inside it.
///
/// ```text
/// namespace 0 ─┬─ [a b c d │ e f g h] blocks 5 9 ─┬─ [i j k l] block 2
///              │                                  └─ [m n o p │ q r s t] blocks 3 7
///              └─ [u v w x] block 4
/// ```
///
/// A sequence that uses a cached prefix locks the prefix's last block, which protects it and all
/// before it. What is not protected is evictable, a block at a time from the ends of the leaves: the
/// end of a prefix goes before its start. Ids and tokens only: who owns a block is the caller's to know.
///
/// Source: Zheng et al., "SGLang: Efficient Execution of Structured Language Model Programs", section 3.
#[derive(Debug)]
pub struct RadixTree {
    block_size: usize,
    policy: EvictionPolicy,
    /// The first nodes of each namespace: an adapter, a tenant's salt. None is empty.
    namespaces: HashMap<u64, Children>,
    nodes: Vec<Node>,
    /// Places in `nodes` to be used again.
    vacant: Vec<NodeId>,
    /// By block id.
    places: Vec<Place>,
    /// Childless nodes that end with an evictable block, the next victim first.
    leaves: BTreeSet<Rank>,
    blocks: usize,
    protected: usize,
    /// Counts matches and inserts: the time of everything here.
    clock: u64,
}

impl RadixTree {
    pub fn new(block_size: usize, eviction: EvictionPolicy) -> Self {
        assert!(block_size > 0, "a block holds at least one token");
        Self {
            block_size,
            policy: eviction,
            namespaces: HashMap::new(),
            nodes: Vec::new(),
            vacant: Vec::new(),
            places: Vec::new(),
            leaves: BTreeSet::new(),
            blocks: 0,
            protected: 0,
            clock: 0,
        }
    }

    /// Appends the blocks that hold the longest cached prefix of `tokens`, `most_blocks` at most.
    /// Counts as a hit of all of them; [`RadixTree::peek`] looks without being noticed.
    pub fn match_prefix(
        &mut self,
        namespace: u64,
        tokens: &[u32],
        most_blocks: usize,
        into: &mut Vec<BlockId>,
    ) {
        let now = self.tick();
        let mut rest = self.whole_blocks(tokens, most_blocks);
        let mut at = Parent::Namespace(namespace);
        while let Some(id) = self.descend(at, rest) {
            let node = self.node_mut(id);
            node.hits += 1;
            node.accessed = now;
            into.extend_from_slice(&node.blocks);
            rest = &rest[node.tokens.len()..];
            at = Parent::Node(id);
            self.settle(id);
        }
    }

    /// How many blocks [`RadixTree::match_prefix`] would find.
    pub fn peek(&self, namespace: u64, tokens: &[u32], most_blocks: usize) -> usize {
        self.path(namespace, tokens, most_blocks).len()
    }

    /// Makes a sequence known: `blocks[i]` holds its tokens from `i * block_size` on. Gives back how
    /// many of them, from the first on, the tree had already, perhaps in other blocks; it takes only
    /// those after. No hit is counted: a growing sequence is inserted again and again.
    pub fn insert(&mut self, namespace: u64, tokens: &[u32], blocks: &[BlockId], priority: i32) -> usize {
        let now = self.tick();
        let mut rest = self.whole_blocks(tokens, blocks.len());
        let blocks = &blocks[..rest.len() / self.block_size];
        let mut at = Parent::Namespace(namespace);
        while let Some(id) = self.descend(at, rest) {
            let node = self.node_mut(id);
            node.priority = node.priority.max(priority);
            node.accessed = now;
            rest = &rest[node.tokens.len()..];
            at = Parent::Node(id);
            self.settle(id);
        }
        let new = &blocks[blocks.len() - rest.len() / self.block_size..];
        if !new.is_empty() {
            self.append(at, rest, new, priority, now);
        }
        blocks.len() - new.len()
    }

    /// The blocks that [`RadixTree::match_prefix`] would find; nothing is changed.
    pub fn path(&self, namespace: u64, tokens: &[u32], most_blocks: usize) -> Vec<BlockId> {
        let mut rest = self.whole_blocks(tokens, most_blocks);
        let mut at = Parent::Namespace(namespace);
        let mut path = Vec::new();
        while let Some(id) = self.child(at, rest) {
            let common = self.common(id, rest);
            path.extend_from_slice(&self.node(id).blocks[..common]);
            if common < self.node(id).blocks.len() {
                break;
            }
            rest = &rest[common * self.block_size..];
            at = Parent::Node(id);
        }
        path
    }

    /// Another block of the same content takes the place of one in the tree. Locks are by block: those
    /// on the old one protect nothing any more, those on the new one do.
    pub fn replace(&mut self, old: BlockId, new: BlockId) {
        let Place { node, depth, locks } = self.places[old as usize];
        let id = node.expect("the old block stands in the tree");
        let new_locks = self.place_mut(new).locks;
        self.places[old as usize].node = None;
        (self.places[new as usize].node, self.places[new as usize].depth) = (Some(id), depth);
        let node = self.node_mut(id);
        let at = depth - node.start;
        node.blocks[at] = new;
        node.own_locks = node.own_locks + new_locks - locks;
        self.add_locks(Parent::Node(id), i64::from(new_locks) - i64::from(locks));
    }

    pub fn contains(&self, block: BlockId) -> bool {
        self.places.get(block as usize).is_some_and(|place| place.node.is_some())
    }

    /// Takes out the evictable block that the policy names: the last one of a leaf.
    pub fn evict(&mut self) -> Option<BlockId> {
        let (_, _, id) = *self.leaves.first()?;
        let last = self.node(id).blocks.len() - 1;
        let block = self.node(id).blocks[last];
        self.shorten(id, last, &mut Vec::new());
        Some(block)
    }

    /// Takes out a block and all below it, locked or not, and appends them to `removed`, a block
    /// before what follows it. Locks on them stay their owners'.
    pub fn remove(&mut self, block: BlockId, removed: &mut Vec<BlockId>) {
        let Some(Place { node: Some(id), depth, .. }) = self.places.get(block as usize).copied() else {
            return;
        };
        self.shorten(id, depth - self.node(id).start, removed);
    }

    /// Blocks that [`RadixTree::evict`] would give, called until it gives none.
    pub fn evictable(&self) -> usize {
        self.blocks - self.protected
    }

    /// Blocks that are locked, or stand before a locked one.
    pub fn protected(&self) -> usize {
        self.protected
    }

    pub fn len(&self) -> usize {
        self.blocks
    }

    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Back to an empty tree. Locks are void.
    pub fn clear(&mut self) {
        *self = Self::new(self.block_size, self.policy);
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    fn place_mut(&mut self, block: BlockId) -> &mut Place {
        let at = block as usize;
        if at >= self.places.len() {
            self.places.resize(at + 1, Place::default());
        }
        &mut self.places[at]
    }

    fn whole_blocks<'t>(&self, tokens: &'t [u32], most_blocks: usize) -> &'t [u32] {
        &tokens[..(tokens.len() / self.block_size).min(most_blocks) * self.block_size]
    }

    /// The child of `at` that begins as `rest` does, for one block at least.
    fn child(&self, at: Parent, rest: &[u32]) -> Option<NodeId> {
        let children = match at {
            Parent::Namespace(namespace) => self.namespaces.get(&namespace)?,
            Parent::Node(id) => &self.node(id).children,
        };
        children.get(rest.get(..self.block_size)?).copied()
    }

    /// How many blocks of a node `rest` begins with.
    fn common(&self, id: NodeId, rest: &[u32]) -> usize {
        let pairs = self.node(id).tokens.chunks(self.block_size).zip(rest.chunks(self.block_size));
        pairs.take_while(|(a, b)| a == b).count()
    }

    /// The child of `at` that `rest` begins with, split so that it holds nothing else.
    fn descend(&mut self, at: Parent, rest: &[u32]) -> Option<NodeId> {
        let id = self.child(at, rest)?;
        let common = self.common(id, rest);
        Some(if common < self.node(id).blocks.len() { self.split(id, common) } else { id })
    }

    /// Moves the first `keep` blocks of a node to a new parent of it, which is given back.
    fn split(&mut self, id: NodeId, keep: usize) -> NodeId {
        let upper_locks = self.locks_on(&self.node(id).blocks[..keep]);
        let cut = keep * self.block_size;
        let lower = self.node_mut(id);
        let below = lower.tokens.split_off(cut);
        let tokens = std::mem::replace(&mut lower.tokens, below);
        let below = lower.blocks.split_off(keep);
        let blocks = std::mem::replace(&mut lower.blocks, below);
        let upper = Node {
            children: Children::new(),
            tokens,
            blocks,
            own_locks: upper_locks,
            locked: lower.locked.min(keep),
            rank: None,
            ..*lower
        };
        lower.start += keep;
        lower.lock_ref -= upper_locks;
        lower.own_locks -= upper_locks;
        lower.locked = lower.locked.saturating_sub(keep);
        let upper = self.add_node(upper);
        let key = self.first_tokens(id);
        self.node_mut(id).parent = Parent::Node(upper);
        self.node_mut(upper).children.insert(key, id);
        self.adopt(upper);
        self.settle(upper);
        upper
    }

    /// Stands new blocks behind `at`: in the leaf that ends there while it is still being written, or
    /// else in a new one.
    fn append(&mut self, at: Parent, tokens: &[u32], blocks: &[BlockId], priority: i32, now: u64) {
        debug_assert!(blocks.iter().all(|block| !self.contains(*block)), "a block holds one content");
        let id = match at {
            Parent::Node(leaf) if self.is_still_written(leaf, priority) => leaf,
            _ => self.add_leaf(at, &tokens[..self.block_size], priority, now),
        };
        let locks = self.locks_on(blocks);
        let node = self.node_mut(id);
        node.tokens.extend_from_slice(tokens);
        node.blocks.extend_from_slice(blocks);
        node.own_locks += locks;
        let depths = node.start + node.blocks.len() - blocks.len()..;
        for (block, depth) in blocks.iter().zip(depths) {
            let place = self.place_mut(*block);
            (place.node, place.depth) = (Some(id), depth);
        }
        self.blocks += blocks.len();
        self.add_locks(Parent::Node(id), i64::from(locks));
    }

    /// A leaf that nobody has hit grows in place, or every full block of an answer would be a node.
    fn is_still_written(&self, leaf: NodeId, priority: i32) -> bool {
        let node = self.node(leaf);
        node.children.is_empty() && node.hits == 0 && node.priority == priority
    }

    fn add_leaf(&mut self, parent: Parent, first_tokens: &[u32], priority: i32, now: u64) -> NodeId {
        let start = match parent {
            Parent::Namespace(_) => 0,
            Parent::Node(id) => self.node(id).start + self.node(id).blocks.len(),
        };
        let id = self.add_node(Node {
            parent,
            children: Children::new(),
            tokens: Vec::new(),
            blocks: Vec::new(),
            start,
            lock_ref: 0,
            own_locks: 0,
            locked: 0,
            priority,
            hits: 0,
            created: now,
            accessed: now,
            rank: None,
        });
        self.siblings(parent).insert(first_tokens.into(), id);
        id
    }

    fn add_node(&mut self, node: Node) -> NodeId {
        match self.vacant.pop() {
            Some(id) => {
                *self.node_mut(id) = node;
                id
            }
            None => {
                self.nodes.push(node);
                NodeId((self.nodes.len() - 1) as u32)
            }
        }
    }

    /// Tells its parent and its blocks about a node made by a split.
    fn adopt(&mut self, id: NodeId) {
        let key = self.first_tokens(id);
        let parent = self.node(id).parent;
        self.siblings(parent).insert(key, id);
        for i in 0..self.node(id).blocks.len() {
            let block = self.node(id).blocks[i];
            self.place_mut(block).node = Some(id);
        }
    }

    /// Cuts a node off after `keep` blocks, and with the rest all that is below.
    fn shorten(&mut self, id: NodeId, keep: usize, removed: &mut Vec<BlockId>) {
        let key = (keep == 0).then(|| self.first_tokens(id));
        let cut = keep * self.block_size;
        let own = removed.len();
        let node = self.node_mut(id);
        let parent = node.parent;
        let children = std::mem::take(&mut node.children);
        node.tokens.truncate(cut);
        removed.extend(node.blocks.drain(keep..));
        self.displace(&removed[own..]);
        let own_lost = self.locks_on(&removed[own..]);
        children.into_values().for_each(|child| self.drop_below(child, removed));

        let node = self.node_mut(id);
        let lost = node.lock_ref - node.own_locks + own_lost;
        node.own_locks -= own_lost;
        node.lock_ref = node.own_locks;
        self.settle(id);
        if let Some(key) = key {
            self.vacate(id);
            self.siblings(parent).remove(&key);
            if let Parent::Namespace(namespace) = parent
                && self.siblings(parent).is_empty()
            {
                self.namespaces.remove(&namespace);
            }
        }
        if lost > 0 {
            self.add_locks(parent, -i64::from(lost));
        } else if let Parent::Node(parent) = parent {
            self.settle(parent);
        }
    }

    fn drop_below(&mut self, id: NodeId, removed: &mut Vec<BlockId>) {
        let mut below = vec![id];
        while let Some(id) = below.pop() {
            let node = self.node_mut(id);
            (node.lock_ref, node.own_locks) = (0, 0);
            let blocks = std::mem::take(&mut node.blocks);
            below.extend(std::mem::take(&mut node.children).into_values());
            self.displace(&blocks);
            removed.extend(blocks);
            self.settle(id);
            self.vacate(id);
        }
    }

    fn displace(&mut self, blocks: &[BlockId]) {
        for block in blocks {
            self.places[*block as usize].node = None;
        }
        self.blocks -= blocks.len();
    }

    /// Of a node that holds nothing any more.
    fn vacate(&mut self, id: NodeId) {
        self.node_mut(id).tokens = Vec::new();
        self.vacant.push(id);
    }

    /// The lowest goes first.
    fn rank(&self, id: NodeId) -> Rank {
        let node = self.node(id);
        let (first, second) = match self.policy {
            EvictionPolicy::Lru => (0, node.accessed),
            EvictionPolicy::Lfu => (node.hits as i64, node.accessed),
            EvictionPolicy::Fifo => (0, node.created),
            EvictionPolicy::Mru => (0, u64::MAX - node.accessed),
            EvictionPolicy::Filo => (0, u64::MAX - node.created),
            EvictionPolicy::Slru => (i64::from(node.hits >= 2), node.accessed),
            EvictionPolicy::Priority => (i64::from(node.priority), node.accessed),
        };
        (first, second, id)
    }

    fn first_tokens(&self, id: NodeId) -> Box<[u32]> {
        self.node(id).tokens[..self.block_size].into()
    }

    fn siblings(&mut self, parent: Parent) -> &mut Children {
        match parent {
            Parent::Namespace(namespace) => self.namespaces.entry(namespace).or_default(),
            Parent::Node(id) => &mut self.node_mut(id).children,
        }
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
#[path = "radix_tests.rs"]
mod tests;
