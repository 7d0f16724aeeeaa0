use super::host::HostPool;
use super::{BlockId, BlockManager, BlockPool, CacheKey, CacheSpec, HashChain, HostSlot};
use std::cell::Cell;

/// What a sequence is found by, and offered under.
#[derive(Clone, Copy, Debug)]
pub struct Prefix<'a> {
    /// All of the sequence's tokens.
    pub tokens: &'a [u32],
    pub chain: &'a HashChain,
    pub priority: i32,
}

/// A cached prefix: whole blocks that hold the first tokens of a sequence. Its memory is used again.
///
/// Good until the manager is next asked to change anything but by admitting it.
#[derive(Debug, Default)]
pub struct Hits {
    /// `[groups, blocks]`; nothing where the group does not need that block to go on.
    found: Vec<Option<Hit>>,
    /// Full blocks of the prefix.
    blocks: usize,
    tokens: usize,
    /// Blocks looked for in host memory because the device did not have them.
    pub(super) host_queries: u64,
    /// The path in the radix tree, while a search goes on.
    path: Vec<BlockId>,
}

/// Where a block of a cached prefix lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hit {
    Device(BlockId),
    Host(HostSlot),
    Disk,
}

impl Hits {
    /// How many tokens of the sequence are found.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    pub fn clear(&mut self) {
        self.found.clear();
        self.path.clear();
        (self.blocks, self.tokens, self.host_queries) = (0, 0, 0);
    }

    /// Found blocks that lie in host memory and will be loaded.
    pub fn host_blocks(&self) -> usize {
        self.found.iter().filter(|hit| matches!(hit, Some(Hit::Host(_)))).count()
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Group, place and where it lies.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, usize, Hit)> + '_ {
        let places = self.found.iter().enumerate();
        places.filter_map(|(i, hit)| Some((i / self.blocks, i % self.blocks, (*hit)?)))
    }

    pub(super) fn device(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.found.iter().filter_map(|hit| match hit {
            Some(Hit::Device(id)) => Some(*id),
            _ => None,
        })
    }
}

impl BlockManager {
    /// The longest cached prefix of the first `len` tokens of a sequence. At most `len - 1` of them:
    /// the last one must run, or there would be no logits to go on with.
    pub fn find_prefix(&mut self, prefix: Prefix, len: usize, hits: &mut Hits) {
        self.search(prefix, len, None, hits);
    }

    /// What [`find_prefix`](Self::find_prefix) does, with one more tier where it is given.
    pub(super) fn search(
        &mut self,
        prefix: Prefix,
        len: usize,
        disk: Option<&dyn Fn(&CacheKey) -> bool>,
        hits: &mut Hits,
    ) {
        hits.clear();
        let block_size = self.config.block_size;
        let longest = (len.saturating_sub(1) / block_size).min(prefix.chain.hashes().len());
        if !self.pool.index().is_on() || longest == 0 {
            return;
        }
        if let Some(tree) = self.pool.index_mut().tree_mut() {
            tree.match_prefix(prefix.chain.namespace(), prefix.tokens, longest, &mut hits.path);
        }
        let search = Search {
            pool: &self.pool,
            host: &self.host,
            disk,
            groups: &self.config.groups,
            block_size,
            chain: prefix.chain,
            path: &hits.path,
            host_queries: Cell::new(0),
        };
        let blocks = search.longest(longest);
        hits.host_queries = search.host_queries.get();
        let places = (0..self.config.groups.len()).flat_map(|group| (0..blocks).map(move |at| (group, at)));
        hits.found.extend(places.map(|(group, at)| search.needed(group, at, blocks)));
        (hits.blocks, hits.tokens) = (blocks, blocks * block_size);
    }
}

struct Search<'a> {
    pool: &'a BlockPool,
    host: &'a HostPool,
    disk: Option<&'a dyn Fn(&CacheKey) -> bool>,
    groups: &'a [CacheSpec],
    block_size: usize,
    chain: &'a HashChain,
    path: &'a [BlockId],
    host_queries: Cell<u64>,
}

impl Search<'_> {
    /// How many blocks all groups can start after. Every group may only shorten what the others
    /// found, so going round until nobody does ends with the longest prefix that suits all.
    fn longest(&self, most: usize) -> usize {
        let mut blocks = most;
        // What starts with a cached prefix starts with a shorter one too: one look is enough.
        for group in self.groups_of(|spec| spec == CacheSpec::Full) {
            blocks = (0..blocks).find(|at| self.find(group, *at).is_none()).unwrap_or(blocks);
        }
        loop {
            let before = blocks;
            for group in self.groups_of(|spec| spec != CacheSpec::Full) {
                blocks = self.shorten(group, blocks);
            }
            if blocks == before {
                return blocks;
            }
        }
    }

    fn groups_of(&self, kind: impl Fn(CacheSpec) -> bool) -> impl Iterator<Item = usize> {
        (0..self.groups.len()).filter(move |group| kind(self.groups[*group]))
    }

    /// The last place at or before `blocks` that has everything the group needs before it.
    fn shorten(&self, group: usize, blocks: usize) -> usize {
        let (mut end, mut at) = (blocks, blocks);
        while at > self.groups[group].needed_before(end, self.block_size).start {
            at -= 1;
            if self.find(group, at).is_none() {
                end = at;
            }
        }
        end
    }

    fn needed(&self, group: usize, at: usize, blocks: usize) -> Option<Hit> {
        let needed = self.groups[group].needed_before(blocks, self.block_size).contains(&at);
        if needed { self.find(group, at) } else { None }
    }

    fn find(&self, group: usize, at: usize) -> Option<Hit> {
        let key = CacheKey::new(&self.chain.hashes()[at], group);
        let device = match self.pool.index().is_in_tree(&key) {
            true => self.path.get(at).copied(),
            false => self.pool.index().find(&key),
        };
        if let Some(id) = device {
            return Some(Hit::Device(id));
        }
        if self.host.is_on() {
            self.host_queries.set(self.host_queries.get() + 1);
            if let Some(slot) = self.host.find(&key) {
                return Some(Hit::Host(slot));
            }
        }
        self.disk.is_some_and(|has| has(&key)).then_some(Hit::Disk)
    }
}
