//! What the KV panel remembers: how its blocks are coloured, and what the engine told about them.

use crate::protocol::{BlockDetail, CacheNode, CacheTree, Inspect, Inspected};
use std::collections::BTreeSet;
use std::time::Duration;

/// What a block's shape and colour in the map say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockColours {
    #[default]
    Owner,
    Shares,
    State,
    Age,
    Tier,
}

impl BlockColours {
    const ALL: [BlockColours; 5] = [
        BlockColours::Owner,
        BlockColours::Shares,
        BlockColours::State,
        BlockColours::Age,
        BlockColours::Tier,
    ];

    pub fn name(self) -> &'static str {
        match self {
            BlockColours::Owner => "owner",
            BlockColours::Shares => "share count",
            BlockColours::State => "state",
            BlockColours::Age => "age",
            BlockColours::Tier => "tier",
        }
    }

    pub fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }
}

#[derive(Default)]
pub struct KvPanel {
    /// The selected block.
    pub block: usize,
    pub colours: BlockColours,
    /// Two blocks a cell, one over the other: by colour alone.
    pub dense: bool,
    /// The prefix cache is shown as a tree, in the map's place.
    pub tree: bool,
    /// The selected row of the tree.
    pub row: usize,
    /// Nodes whose children are not shown, by their first block.
    pub folded: BTreeSet<u32>,
    /// Blocks of the node that was selected when the tree was left.
    pub marked: BTreeSet<u32>,
    pub asked: Option<Asked>,
    /// The newest answers.
    pub block_told: Option<Told<BlockDetail>>,
    pub tree_told: Option<Told<CacheTree>>,
}

/// A question on its way.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub what: Inspect,
    pub at: Duration,
}

/// An answer, when it came, and of which step it is.
pub struct Told<T> {
    pub what: Box<T>,
    pub at: Duration,
    pub step: u64,
}

impl KvPanel {
    /// What is known of the block, if the engine told of that one last.
    pub fn detail(&self, block: usize) -> Option<&BlockDetail> {
        self.block_told.as_ref().map(|told| &*told.what).filter(|detail| detail.block as usize == block)
    }

    /// When an answer to this came last, and of which step.
    pub fn told(&self, what: Inspect) -> Option<(Duration, u64)> {
        match what {
            Inspect::Tree => self.tree_told.as_ref().map(|told| (told.at, told.step)),
            Inspect::Block(block) => {
                let told = self.block_told.as_ref().filter(|told| told.what.block == block);
                told.map(|told| (told.at, told.step))
            }
        }
    }

    /// Takes an answer. The row that was selected in the tree stays selected where it is still there.
    pub fn take(&mut self, answer: Inspected, at: Duration, step: u64) {
        self.asked = None;
        match answer {
            Inspected::Block(what) => self.block_told = Some(Told { what, at, step }),
            Inspected::Tree(what) => {
                let selected = self.selected_node().and_then(key);
                self.tree_told = Some(Told { what, at, step });
                let rows = self.rows();
                let found = rows.iter().position(|row| selected.is_some() && key(self.node(row)) == selected);
                self.row = found.unwrap_or(self.row).min(rows.len().saturating_sub(1));
            }
        }
    }

    /// Of another engine nothing is known.
    pub fn forget(&mut self) {
        *self = Self { colours: self.colours, dense: self.dense, tree: self.tree, ..Self::default() };
    }

    pub fn selected_node(&self) -> Option<&CacheNode> {
        let told = self.tree_told.as_ref()?;
        self.rows().get(self.row).and_then(|row| told.what.nodes.get(row.node))
    }

    /// Opens or closes the selected node.
    pub fn fold(&mut self) {
        let Some(key) = self.selected_node().and_then(key) else { return };
        if !self.folded.remove(&key) {
            self.folded.insert(key);
        }
    }

    /// The rows of the tree, those under folded nodes left out.
    pub fn rows(&self) -> Vec<TreeRow> {
        self.tree_told.as_ref().map_or_else(Vec::new, |told| tree_rows(&told.what, &self.folded))
    }

    fn node(&self, row: &TreeRow) -> &CacheNode {
        let told = self.tree_told.as_ref().expect("rows are those of a tree");
        &told.what.nodes[row.node]
    }
}

/// A node where it stands in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeRow {
    /// Index in the list.
    pub node: usize,
    /// For each ancestor below the first level, then for itself: nothing follows under the same parent.
    pub last: Vec<bool>,
    /// So many are hidden under it.
    pub hidden: usize,
    pub has_children: bool,
}

/// Depth first, in the order of the list.
pub fn tree_rows(tree: &CacheTree, folded: &BTreeSet<u32>) -> Vec<TreeRow> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); tree.nodes.len() + 1];
    for (i, node) in tree.nodes.iter().enumerate() {
        // A parent stands before its children; what says otherwise is taken for a root.
        let parent = node.parent.filter(|parent| *parent < i).map_or(0, |parent| parent + 1);
        children[parent].push(i);
    }
    let mut rows = Vec::new();
    let mut open: Vec<(usize, Vec<bool>)> = Vec::new();
    let push = |open: &mut Vec<(usize, Vec<bool>)>, parent: usize, last: &[bool]| {
        let of = &children[parent];
        for (nth, child) in of.iter().enumerate().rev() {
            open.push((*child, [last, &[nth + 1 == of.len()]].concat()));
        }
    };
    push(&mut open, 0, &[]);
    while let Some((node, last)) = open.pop() {
        let is_folded = key(&tree.nodes[node]).is_some_and(|key| folded.contains(&key));
        let has_children = !children[node + 1].is_empty();
        let hidden = if is_folded { below(&children, node) } else { 0 };
        if !is_folded {
            push(&mut open, node + 1, &last);
        }
        rows.push(TreeRow { node, last, hidden, has_children });
    }
    rows
}

fn below(children: &[Vec<usize>], node: usize) -> usize {
    let mut open = vec![node];
    let mut count = 0;
    while let Some(node) = open.pop() {
        count += children[node + 1].len();
        open.extend(&children[node + 1]);
    }
    count
}

/// What a node is known by, from one answer to the next.
fn key(node: &CacheNode) -> Option<u32> {
    node.blocks.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(parent: Option<usize>, block: u32) -> CacheNode {
        CacheNode { parent, blocks: vec![block], ..CacheNode::default() }
    }

    fn tree(nodes: Vec<CacheNode>) -> Box<CacheTree> {
        Box::new(CacheTree { nodes, ..CacheTree::default() })
    }

    #[test]
    fn the_tree_is_depth_first_and_folded_nodes_count_what_they_hide() {
        let nodes = vec![node(None, 1), node(None, 2), node(Some(0), 3), node(Some(2), 4), node(Some(0), 5)];
        let mut panel = KvPanel::default();
        panel.take(Inspected::Tree(tree(nodes)), Duration::ZERO, 1);
        let order = |panel: &KvPanel| panel.rows().iter().map(|row| row.node).collect::<Vec<_>>();
        assert_eq!(order(&panel), [0, 2, 3, 4, 1]);
        assert_eq!(panel.rows()[2].last, [false, false, true]);
        panel.fold();
        assert_eq!((order(&panel), panel.rows()[0].hidden), (vec![0, 1], 3));
        panel.fold();
        assert_eq!(order(&panel).len(), 5);
    }

    #[test]
    fn the_selected_node_stays_selected_in_the_next_answer() {
        let mut panel = KvPanel::default();
        panel.take(Inspected::Tree(tree(vec![node(None, 1), node(None, 2)])), Duration::ZERO, 1);
        panel.row = 1;
        let more = vec![node(None, 7), node(None, 1), node(Some(1), 9), node(None, 2)];
        panel.take(Inspected::Tree(tree(more)), Duration::ZERO, 2);
        assert_eq!(panel.row, 3);
        panel.take(Inspected::Tree(tree(vec![node(None, 1)])), Duration::ZERO, 3);
        assert_eq!(panel.row, 0);
    }
}
