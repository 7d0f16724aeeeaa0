//! Who uses a part of the tree keeps it from being evicted.

use super::RadixTree;
use super::node::{Node, NodeId, Parent, Place};
use crate::kv::BlockId;

impl RadixTree {
    /// Whether a lock keeps the block from being evicted.
    pub fn is_protected(&self, block: BlockId) -> bool {
        let Some(Place { node: Some(id), depth, .. }) = self.places.get(block as usize) else { return false };
        let node = self.node(*id);
        depth - node.start < node.locked
    }

    /// Protects the block and all before it, in the tree or once it is inserted, until it is
    /// unlocked as often as it was locked.
    pub fn lock(&mut self, block: BlockId) {
        self.place_mut(block).locks += 1;
        if let Some(id) = self.places[block as usize].node {
            self.node_mut(id).own_locks += 1;
            self.add_locks(Parent::Node(id), 1);
        }
    }

    pub fn unlock(&mut self, block: BlockId) {
        let place = self.place_mut(block);
        place.locks = place.locks.checked_sub(1).expect("only who locked a block unlocks it");
        if let Some(id) = place.node {
            self.node_mut(id).own_locks -= 1;
            self.add_locks(Parent::Node(id), -1);
        }
    }

    /// Changes the locks of `at` and of every node above it.
    pub(super) fn add_locks(&mut self, mut at: Parent, locks: i64) {
        while let Parent::Node(id) = at {
            let node = self.node_mut(id);
            node.lock_ref = u32::try_from(i64::from(node.lock_ref) + locks).expect("locks are counted");
            at = node.parent;
            self.settle(id);
        }
    }

    /// Brings what follows from a node's locks, blocks and children up to date: how much of it is
    /// protected, and its place among the leaves.
    pub(super) fn settle(&mut self, id: NodeId) {
        let node = self.node(id);
        let (before, old) = (node.locked, node.rank);
        let locked = self.locked_blocks(node);
        let rank = (node.children.is_empty() && locked < node.blocks.len()).then(|| self.rank(id));
        self.protected = self.protected + locked - before;
        let node = self.node_mut(id);
        (node.locked, node.rank) = (locked, rank);
        if rank != old {
            old.map(|old| self.leaves.remove(&old));
            self.leaves.extend(rank);
        }
    }

    /// A lock below protects all of a node, a lock inside it all up to the locked block.
    fn locked_blocks(&self, node: &Node) -> usize {
        match (node.lock_ref - node.own_locks, node.own_locks) {
            (0, 0) => 0,
            (0, _) => {
                let last = node.blocks.iter().rposition(|block| self.places[*block as usize].locks > 0);
                last.map_or(0, |last| last + 1)
            }
            _ => node.blocks.len(),
        }
    }

    pub(super) fn locks_on(&self, blocks: &[BlockId]) -> u32 {
        blocks.iter().filter_map(|block| self.places.get(*block as usize)).map(|place| place.locks).sum()
    }
}
