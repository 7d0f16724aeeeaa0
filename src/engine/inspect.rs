//! A look inside the KV cache, between two steps.

use super::sequence::Sequence;
use super::step::Engine;
use crate::kv::{BlockId, CacheSpec, CachedRun};
use crate::protocol::{BlockDetail, CacheNode, CacheTree, Inspect, Inspected, SeqId, TokenId};
use std::ops::Range;

/// More nodes than this are no help.
const MOST_NODES: usize = 2_000;

impl Engine {
    pub(super) fn inspect(&self, what: Inspect) -> Inspected {
        match what {
            Inspect::Block(block) => Inspected::Block(Box::new(self.block_detail(block))),
            Inspect::Tree => Inspected::Tree(Box::new(self.cache_tree())),
        }
    }

    fn block_detail(&self, block: BlockId) -> BlockDetail {
        if block == 0 || block as usize > self.kv.pool().total() {
            return BlockDetail { block, ..BlockDetail::default() };
        }
        let view = self.kv.view(block);
        let places: Vec<(&Sequence, Place)> =
            self.scheduler.all().filter_map(|seq| Some((seq, self.place(seq, block)?))).collect();
        let owners: Vec<(SeqId, usize)> = places.iter().map(|(seq, place)| (seq.id, place.at)).collect();
        let held = match (self.kv.cached_tokens(block), places.first()) {
            (Some(cached), _) => cached,
            (None, Some((seq, place))) => self.computed(seq, place),
            (None, None) => &[],
        };
        // An owner knows also what is not cached any more.
        let chain = match places.first().filter(|_| view.cached) {
            Some((seq, place)) => {
                let hashes = seq.chain.hashes();
                hashes[..hashes.len().min(place.at + 1)].iter().map(|hash| hash.short()).collect()
            }
            None => self.kv.cached_chain(block),
        };
        let text = |id: &TokenId| (*id, self.text.piece_text(*id));
        BlockDetail {
            block,
            owners,
            tokens: held.iter().map(text).collect(),
            chain,
            used: view.used,
            references: view.references,
            cached: view.cached,
        }
    }

    /// Where a block stands in a sequence's table.
    fn place(&self, seq: &Sequence, block: BlockId) -> Option<Place> {
        let stride = seq.table.stride();
        let at = seq.table.blocks().iter().position(|id| *id == block)?;
        Some(Place { group: at / stride, at: at % stride })
    }

    /// The tokens of a block that the sequence has computed; a state holds no single tokens.
    fn computed<'s>(&self, seq: &'s Sequence, place: &Place) -> &'s [TokenId] {
        if self.runner.limits().groups[place.group] == CacheSpec::Recurrent {
            return &[];
        }
        let Range { start, end } = place.tokens(self.kv.block_size());
        let done = seq.num_computed.min(seq.tokens.len());
        seq.tokens.get(start..end.min(done)).unwrap_or_default()
    }

    fn cache_tree(&self) -> CacheTree {
        let (runs, left_out) = self.kv.cached_runs(MOST_NODES);
        let nodes = runs.into_iter().map(|run| self.node(run)).collect();
        CacheTree { index: self.kv.index_name().into(), nodes, left_out }
    }

    fn node(&self, run: CachedRun) -> CacheNode {
        let bytes: Vec<u8> = run.first.iter().flat_map(|id| self.text.piece(*id).into_owned()).collect();
        CacheNode {
            parent: run.parent,
            text: String::from_utf8_lossy(&bytes).into_owned(),
            tokens: run.tokens,
            blocks: run.blocks,
            references: run.references as usize,
            used: run.used,
        }
    }
}

struct Place {
    group: usize,
    /// Blocks of the group before it.
    at: usize,
}

impl Place {
    fn tokens(&self, block_size: usize) -> Range<usize> {
        self.at * block_size..(self.at + 1) * block_size
    }
}
