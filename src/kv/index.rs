use super::{BlockHash, BlockId, CacheKey, CacheSpec, KvConfig, RadixTree};
use crate::protocol::PrefixCache;
use std::collections::HashMap;

/// Which block holds which content.
///
/// With the radix tree, the tree finds the blocks of full attention, where a prefix is cached from
/// its first block on. A group that keeps only the end of a prefix (a window, a state) is always
/// found by key.
#[derive(Debug)]
pub struct Index {
    keys: HashMap<CacheKey, BlockId>,
    contents: Contents,
    tree: Option<(usize, RadixTree)>,
    on: bool,
}

/// What the blocks that are found by key hold, for whoever looks at them: nothing is decided by it. Of a
/// block that is not known, what it held once; of a state, nothing.
#[derive(Debug, Default)]
struct Contents {
    block_size: usize,
    tokens: Vec<u32>,                // [num_blocks, block_size]
    parents: Vec<Option<BlockHash>>, // [num_blocks]
}

impl Index {
    pub fn new(config: &KvConfig) -> Self {
        let full = config.groups.iter().position(|spec| *spec == CacheSpec::Full);
        let tree = full
            .filter(|_| config.prefix_cache == PrefixCache::Radix)
            .map(|group| (group, RadixTree::new(config.block_size, config.eviction)));
        let on = config.prefix_cache != PrefixCache::Off;
        // As large as it ever gets: a growing sequence must not wait for a table to be rebuilt.
        let keys = HashMap::with_capacity(if on { config.num_blocks } else { 0 });
        let in_tree = |group| tree.as_ref().is_some_and(|(of, _)| *of == group);
        let by_key = config.groups.iter().enumerate().any(|(group, _)| !in_tree(group));
        let contents = Contents::new(if on && by_key { config.num_blocks } else { 0 }, config.block_size);
        Self { keys, contents, tree, on }
    }

    pub fn is_on(&self) -> bool {
        self.on
    }

    /// The group whose blocks stand in the tree.
    pub fn tree_group(&self) -> Option<usize> {
        self.tree.as_ref().map(|(group, _)| *group)
    }

    pub fn is_in_tree(&self, key: &CacheKey) -> bool {
        self.tree_group() == Some(key.group())
    }

    pub fn tree(&self) -> Option<&RadixTree> {
        self.tree.as_ref().map(|(_, tree)| tree)
    }

    pub fn tree_mut(&mut self) -> Option<&mut RadixTree> {
        self.tree.as_mut().map(|(_, tree)| tree)
    }

    /// Of the groups that are found by key.
    pub fn find(&self, key: &CacheKey) -> Option<BlockId> {
        self.keys.get(key).copied()
    }

    /// False where another block holds that content already: it stays the known one.
    pub fn insert(&mut self, key: CacheKey, id: BlockId) -> bool {
        let mut new = false;
        self.keys.entry(key).or_insert_with(|| {
            new = true;
            id
        });
        new
    }

    /// What a block holds that was just inserted, and the hash of the block before it.
    pub fn note(&mut self, id: BlockId, parent: Option<BlockHash>, tokens: &[u32]) {
        let range = self.contents.range(id);
        self.contents.tokens[range].copy_from_slice(tokens);
        self.contents.parents[id as usize] = parent;
    }

    /// Of a known block of a group that is no state and not in the tree.
    pub fn tokens(&self, id: BlockId) -> &[u32] {
        &self.contents.tokens[self.contents.range(id)]
    }

    /// Of the same blocks; `None` for the first of a sequence.
    pub fn parent(&self, id: BlockId) -> Option<BlockHash> {
        self.contents.parents[id as usize]
    }

    pub fn remove(&mut self, key: &CacheKey) {
        self.keys.remove(key);
    }

    pub fn len(&self) -> usize {
        self.keys.len() + self.tree().map_or(0, RadixTree::len)
    }
}

impl Contents {
    /// As large as it ever gets.
    fn new(num_blocks: usize, block_size: usize) -> Self {
        Self { block_size, tokens: vec![0; num_blocks * block_size], parents: vec![None; num_blocks] }
    }

    fn range(&self, id: BlockId) -> std::ops::Range<usize> {
        let first = id as usize * self.block_size;
        first..first + self.block_size
    }
}
