//! What a person sees who looks inside: what a block holds, and the cached prefixes as a tree. Nothing
//! here is on a step's way.

use super::{BlockHash, BlockId, BlockManager, CacheKey, CacheSpec, RadixTree};
use crate::protocol::{KvHash, TokenId};
use std::collections::HashMap;

/// Blocks that follow each other in every cached prefix that has one of them.
#[derive(Clone, Debug, PartialEq)]
pub struct CachedRun {
    /// Index of its parent among the runs.
    pub parent: Option<usize>,
    pub blocks: Vec<BlockId>,
    /// How many it holds, and the first of them.
    pub tokens: usize,
    pub first: Vec<TokenId>,
    /// Owners of its last block.
    pub references: u32,
    /// The newest step in which one of its blocks was used.
    pub used: u64,
}

/// Tokens that are enough to see what a prefix begins with.
const FIRST_TOKENS: usize = 48;

impl BlockManager {
    /// The kind of index in use.
    pub fn index_name(&self) -> &'static str {
        self.config.prefix_cache.name()
    }

    /// What a cached block holds.
    pub fn cached_tokens(&self, id: BlockId) -> Option<&[TokenId]> {
        let key = self.pool.key(id)?;
        let index = self.pool.index();
        match index.is_in_tree(&key) {
            true => index.tree()?.tokens_of(id),
            false => (!self.is_state(key.group())).then(|| index.tokens(id)),
        }
    }

    /// Hashes of a cached block and of those before it, the first block's first; as far back as they
    /// are still cached.
    pub fn cached_chain(&self, id: BlockId) -> Vec<KvHash> {
        let Some(key) = self.pool.key(id) else { return Vec::new() };
        let index = self.pool.index();
        if let Some(tree) = index.tree().filter(|_| index.is_in_tree(&key)) {
            let keys = tree.path_to(id).into_iter().filter_map(|id| self.pool.key(id));
            return keys.map(|key| key.hash().short()).collect();
        }
        if self.is_state(key.group()) {
            return vec![key.hash().short()];
        }
        let before = |hash: &BlockHash| index.parent(index.find(&CacheKey::new(hash, key.group()))?);
        let mut chain: Vec<KvHash> =
            std::iter::successors(Some(key.hash()), before).map(|hash| hash.short()).collect();
        chain.reverse();
        chain
    }

    /// Every cached prefix of the group that keeps the most, a parent before its children; the `most`
    /// most recently used runs, and how many were left out.
    pub fn cached_runs(&self, most: usize) -> (Vec<CachedRun>, usize) {
        let groups = &self.config.groups;
        let group = groups.iter().position(|spec| *spec == CacheSpec::Full);
        let group = group.or_else(|| groups.iter().position(|spec| *spec != CacheSpec::Recurrent));
        let runs = match (self.pool.index().tree(), group) {
            (Some(tree), _) => self.runs_of_tree(tree),
            (None, Some(group)) => self.runs_of_keys(group),
            (None, None) => Vec::new(),
        };
        newest(runs, most)
    }

    fn runs_of_tree(&self, tree: &RadixTree) -> Vec<CachedRun> {
        let runs = tree.walk().into_iter();
        runs.map(|node| self.run(node.parent, node.blocks.to_vec(), node.tokens)).collect()
    }

    fn runs_of_keys(&self, group: usize) -> Vec<CachedRun> {
        let index = self.pool.index();
        let cached = (0..=self.pool.total() as BlockId)
            .filter(|id| self.pool.key(*id).is_some_and(|key| key.group() == group));
        let mut below: HashMap<Option<BlockId>, Vec<BlockId>> = HashMap::new();
        for id in cached {
            let parent = index.parent(id).and_then(|hash| index.find(&CacheKey::new(&hash, group)));
            below.entry(parent).or_default().push(id);
        }
        let mut children = |of: Option<BlockId>| below.remove(&of).unwrap_or_default();
        let mut runs = Vec::new();
        let mut left: Vec<_> = children(None).into_iter().rev().map(|id| (None, id)).collect();
        while let Some((parent, first)) = left.pop() {
            let mut blocks = vec![first];
            let mut next = children(Some(first));
            while let [only] = next[..] {
                blocks.push(only);
                next = children(Some(only));
            }
            left.extend(next.into_iter().rev().map(|id| (Some(runs.len()), id)));
            let tokens: Vec<TokenId> =
                blocks.iter().flat_map(|id| index.tokens(*id)).copied().take(FIRST_TOKENS).collect();
            runs.push(self.run(parent, blocks, &tokens));
        }
        runs
    }

    fn run(&self, parent: Option<usize>, blocks: Vec<BlockId>, tokens: &[TokenId]) -> CachedRun {
        CachedRun {
            parent,
            tokens: blocks.len() * self.config.block_size,
            first: tokens[..tokens.len().min(FIRST_TOKENS)].to_vec(),
            references: blocks.last().map_or(0, |last| self.pool.references(*last)),
            used: blocks.iter().map(|id| self.pool.view(*id).used).max().unwrap_or(0),
            blocks,
        }
    }
}

/// A parent counts as used when one below it was, so that nobody loses theirs.
fn newest(mut runs: Vec<CachedRun>, most: usize) -> (Vec<CachedRun>, usize) {
    let left_out = runs.len().saturating_sub(most);
    if left_out == 0 {
        return (runs, 0);
    }
    let mut used: Vec<u64> = runs.iter().map(|run| run.used).collect();
    for (at, run) in runs.iter().enumerate().rev() {
        if let Some(parent) = run.parent {
            used[parent] = used[parent].max(used[at]);
        }
    }
    let mut kept: Vec<usize> = (0..runs.len()).collect();
    kept.sort_by_key(|at| (std::cmp::Reverse(used[*at]), *at));
    kept.truncate(most);
    kept.sort_unstable();
    let mut place = vec![None; runs.len()];
    kept.iter().enumerate().for_each(|(new, old)| place[*old] = Some(new));
    let mut at = 0;
    runs.retain_mut(|run| {
        run.parent = run.parent.and_then(|parent| place[parent]);
        at += 1;
        place[at - 1].is_some()
    });
    (runs, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_the_newest_stay_and_each_has_its_parent() {
        let run = |parent, used| CachedRun {
            parent,
            blocks: vec![1],
            tokens: 4,
            first: Vec::new(),
            references: 0,
            used,
        };
        let runs = vec![run(None, 1), run(Some(0), 2), run(Some(1), 9), run(None, 5), run(Some(3), 4)];
        assert_eq!(newest(runs.clone(), 5), (runs.clone(), 0));
        let (kept, left_out) = newest(runs.clone(), 4);
        assert_eq!((kept.len(), left_out), (4, 1));
        assert_eq!(kept[2].parent, Some(1));
        let (kept, left_out) = newest(runs, 3);
        assert_eq!(
            kept.iter().map(|run| (run.parent, run.used)).collect::<Vec<_>>(),
            [(None, 1), (Some(0), 2), (Some(1), 9)]
        );
        assert_eq!(left_out, 2);
    }
}
