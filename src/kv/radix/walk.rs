//! The tree as it is, for whoever looks at it.

use super::RadixTree;
use super::node::{Parent, Place};
use crate::kv::BlockId;

/// A node of the tree.
pub struct Walked<'t> {
    /// Which of the nodes before it is its parent.
    pub parent: Option<usize>,
    pub tokens: &'t [u32],
    pub blocks: &'t [BlockId],
}

impl RadixTree {
    /// Every node, a parent before its children.
    pub fn walk(&self) -> Vec<Walked<'_>> {
        let mut namespaces: Vec<_> = self.namespaces.iter().collect();
        namespaces.sort_by_key(|(namespace, _)| **namespace);
        let mut walked = Vec::new();
        let mut left: Vec<_> = namespaces
            .iter()
            .rev()
            .flat_map(|(_, nodes)| nodes.values().rev().map(|id| (None, *id)))
            .collect();
        while let Some((parent, id)) = left.pop() {
            let node = self.node(id);
            let at = Some(walked.len());
            left.extend(node.children.values().rev().map(|child| (at, *child)));
            walked.push(Walked { parent, tokens: &node.tokens, blocks: &node.blocks });
        }
        walked
    }

    /// The tokens of a block that stands in the tree.
    pub fn tokens_of(&self, block: BlockId) -> Option<&[u32]> {
        let Place { node: Some(id), depth, .. } = *self.places.get(block as usize)? else { return None };
        let node = self.node(id);
        node.tokens.chunks(self.block_size).nth(depth - node.start)
    }

    /// The blocks from the root to this one, with it.
    pub fn path_to(&self, block: BlockId) -> Vec<BlockId> {
        let Some(Place { node: Some(id), depth, .. }) = self.places.get(block as usize).copied() else {
            return Vec::new();
        };
        let mut path = vec![0; depth + 1];
        let mut at = Parent::Node(id);
        while let Parent::Node(id) = at {
            let node = self.node(id);
            let end = path.len().min(node.start + node.blocks.len());
            path[node.start..end].copy_from_slice(&node.blocks[..end - node.start]);
            at = node.parent;
        }
        path
    }
}
