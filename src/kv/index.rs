use super::{BlockId, CacheKey, CacheSpec, KvConfig, RadixTree};
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
    tree: Option<(usize, RadixTree)>,
    on: bool,
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
        Self { keys, tree, on }
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

    pub fn remove(&mut self, key: &CacheKey) {
        self.keys.remove(key);
    }

    pub fn len(&self) -> usize {
        self.keys.len() + self.tree().map_or(0, RadixTree::len)
    }
}
