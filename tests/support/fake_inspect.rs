//! The fake engine looked into: of any size, with priorities, and asked about blocks and its cache.

use super::{BLOCK, FakeEngine, Sequence};
use glassbox::protocol::*;

/// What the tokens of a prompt say; one of them is hostile.
const WORDS: [&str; 8] = ["Why", " is", " the", " sky", " blue", "?", "\n", "\u{1b}[31m"];

impl FakeEngine {
    /// With so many blocks.
    pub fn of_blocks(blocks: usize) -> Self {
        let blocks = vec![BlockView::default(); blocks];
        Self { blocks_before: blocks.clone(), blocks, ..Self::default() }
    }

    pub(super) fn set_priority(&mut self, wanted: Reprioritise) -> Vec<Event> {
        let of_request = self.sequences.iter_mut().filter(|s| s.seq.request == wanted.id);
        of_request.for_each(|s| s.priority = wanted.priority);
        Vec::new()
    }

    pub(super) fn inspect(&self, what: Inspect) -> Vec<Event> {
        let answer = match what {
            Inspect::Block(block) => Inspected::Block(Box::new(self.block(block))),
            Inspect::Tree => {
                Inspected::Tree(Box::new(self.tree.clone().unwrap_or_else(|| self.grown_tree())))
            }
        };
        vec![Event::Inspected(answer)]
    }

    fn block(&self, block: u32) -> BlockDetail {
        let known = self.blocks.get(block as usize).copied().unwrap_or_default();
        let place = |s: &Sequence| Some((s.seq, s.blocks.iter().position(|b| *b == block)?));
        let owners: Vec<(SeqId, usize)> = self.sequences.iter().filter_map(place).collect();
        let first =
            owners.first().and_then(|(seq, at)| Some((self.sequences.iter().find(|s| s.seq == *seq)?, *at)));
        let chain = |(s, at): (&Sequence, usize)| s.blocks[..=at].iter().map(|b| hash(*b)).collect();
        BlockDetail {
            block,
            tokens: first.map_or_else(Vec::new, |(s, at)| tokens(s, at)),
            chain: first.filter(|_| known.cached).map_or_else(Vec::new, chain),
            owners,
            used: known.used,
            references: known.references,
            cached: known.cached,
        }
    }

    /// What siblings share is the parent of what each has for itself.
    fn grown_tree(&self) -> CacheTree {
        let mut nodes: Vec<CacheNode> = Vec::new();
        for s in &self.sequences {
            let full = s.computed.min(s.ids.len()) / BLOCK;
            let blocks: Vec<u32> = s.blocks.iter().copied().take(full).collect();
            let shared = blocks.iter().take_while(|b| self.blocks[**b as usize].references > 1).count();
            let (prompt, own) = blocks.split_at(shared);
            let known = nodes.iter().position(|n| !prompt.is_empty() && n.blocks == prompt);
            let parent = known.or_else(|| {
                (!prompt.is_empty()).then(|| {
                    nodes.push(self.node(None, s, 0, prompt));
                    nodes.len() - 1
                })
            });
            if !own.is_empty() {
                nodes.push(self.node(parent, s, shared, own));
            }
        }
        CacheTree { index: "hash".into(), nodes, left_out: 0 }
    }

    fn node(&self, parent: Option<usize>, s: &Sequence, from: usize, blocks: &[u32]) -> CacheNode {
        let text: String = tokens(s, from).into_iter().map(|(_, text)| text).collect();
        let last = blocks.last().map_or(0, |b| self.blocks[*b as usize].references.into());
        let used = blocks.iter().map(|b| self.blocks[*b as usize].used).max().unwrap_or(0);
        let tokens = blocks.len() * BLOCK;
        CacheNode { parent, text, tokens, blocks: blocks.to_vec(), references: last, used }
    }
}

/// As the fake engine stores them.
fn hash(block: u32) -> KvHash {
    0xa1b2_c3d4_0000_0000 + u64::from(block)
}

fn tokens(s: &Sequence, at: usize) -> Vec<(TokenId, String)> {
    let text = |i: usize| match i.checked_sub(s.prompt).and_then(|i| s.told.get(i)) {
        Some((_, text)) => text.clone(),
        None => WORDS[i % WORDS.len()].to_owned(),
    };
    (at * BLOCK..(at + 1) * BLOCK).filter_map(|i| Some((*s.ids.get(i)?, text(i)))).collect()
}
