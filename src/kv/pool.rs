use super::queue::Queue;
use super::table::NULL;
use super::{BlockId, CacheKey, Index, KvConfig};
use crate::protocol::{BlockChange, BlockView, RequestId, SeqId};

/// All blocks of one device: who is free, how many own each of the others, and which content is
/// still known.
///
/// A block without owner is *free* when its content is unknown and *cached* when a prefix can
/// still hit it; both are available. What was freed last without content is used first, as it may
/// still lie in a processor's cache. Only when none is left is a cached block evicted: the least
/// recently used one, or the one that the radix tree names.
#[derive(Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    /// Unknown content, no owner.
    free: Queue,
    /// Known content, no owner, found by key; the least recently used in front. Those in the radix
    /// tree are the tree's to order.
    cached: Queue,
    index: Index,
    evictions: u64,
    /// Sum of all reference counts.
    references: usize,
    tainted: usize,
    /// Of the step being planned.
    step: u64,
    /// What blocks looked like when they were first changed since the last `take_changes`.
    changed: Vec<(BlockId, BlockView)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    references: u32,
    /// Reasons to keep it though nobody owns it.
    holds: u32,
    key: Option<CacheKey>,
    /// The sum of its owners' tags, modulo 2^128. With one owner it *is* that owner's tag: names of
    /// owners come and go in any order without a list of them.
    owners: u128,
    used: u64,
    /// Its content is wrong: it must never become known.
    tainted: bool,
    /// Recorded in `changed`.
    touched: bool,
}

impl BlockPool {
    pub fn new(config: &KvConfig) -> Self {
        let blocks = config.num_blocks.max(1);
        let mut free = Queue::new(blocks);
        (1..blocks as BlockId).for_each(|id| free.push_back(id));
        Self {
            blocks: vec![Block::default(); blocks],
            free,
            cached: Queue::new(blocks),
            index: Index::new(config),
            evictions: 0,
            references: 0,
            tainted: 0,
            step: 0,
            changed: Vec::with_capacity(blocks),
        }
    }

    /// Blocks that can be owned: all but the null block.
    pub fn total(&self) -> usize {
        self.blocks.len() - 1
    }

    /// Blocks nobody owns, with known content or without.
    pub fn available(&self) -> usize {
        self.free.len() + self.cached()
    }

    /// Of the available ones, those that a prefix could still hit.
    pub fn cached(&self) -> usize {
        self.cached.len() + self.index.tree().map_or(0, |tree| tree.evictable())
    }

    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    pub fn references(&self, id: BlockId) -> u32 {
        self.blocks[id as usize].references
    }

    /// Of all tables together.
    pub fn all_references(&self) -> usize {
        self.references
    }

    pub fn is_known(&self, id: BlockId) -> bool {
        self.key(id).is_some()
    }

    pub fn key(&self, id: BlockId) -> Option<CacheKey> {
        self.blocks[id as usize].key
    }

    /// Blocks of known content, owned or not.
    pub fn known(&self) -> usize {
        self.index.len()
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    pub fn index_mut(&mut self) -> &mut Index {
        &mut self.index
    }

    /// Nothing is owned or known any more.
    pub fn reset(&mut self, config: &KvConfig) {
        (0..self.blocks.len() as BlockId).for_each(|id| self.touch(id));
        let new = BlockPool::new(config);
        let (changed, evictions, step) = (std::mem::take(&mut self.changed), self.evictions, self.step);
        *self = BlockPool { changed, evictions, step, ..new };
        self.blocks.iter_mut().for_each(|block| block.touched = true);
    }

    pub fn set_step(&mut self, step: u64) {
        self.step = step;
    }

    /// An available block, for one owner; and what it held until now, where that was known.
    pub fn take(&mut self, owner: SeqId) -> Option<(BlockId, Option<CacheKey>)> {
        let (id, evicted) = match self.free.pop_front() {
            Some(id) => (id, None),
            None => self.evict()?,
        };
        self.touch(id);
        let used = self.step;
        let touched = true;
        let was = std::mem::replace(
            &mut self.blocks[id as usize],
            Block { references: 1, owners: tag(owner), used, touched, ..Block::default() },
        );
        debug_assert_eq!((was.references, was.holds), (0, 0), "block {id} is somebody's");
        self.tainted -= usize::from(was.tainted);
        self.references += 1;
        self.lock(id);
        Some((id, evicted))
    }

    fn evict(&mut self) -> Option<(BlockId, Option<CacheKey>)> {
        let in_tree = self.index.tree().map_or(0, |tree| tree.evictable());
        // Two orders that cannot be compared: the larger part gives.
        let from_tree = if in_tree > self.cached.len() { self.index.tree_mut() } else { None };
        let id = match from_tree {
            Some(tree) => tree.evict(),
            None => self.cached.pop_front(),
        }?;
        self.touch(id);
        let key = self.blocks[id as usize].key.take().expect("cached blocks are known");
        if !self.index.is_in_tree(&key) {
            self.index.remove(&key);
        }
        self.evictions += 1;
        Some((id, Some(key)))
    }

    /// One more owner.
    pub fn share(&mut self, id: BlockId, owner: SeqId) {
        debug_assert_ne!(id, NULL);
        self.touch(id);
        self.keep(id);
        let block = &mut self.blocks[id as usize];
        block.references += 1;
        block.owners = block.owners.wrapping_add(tag(owner));
        block.used = self.step;
        self.references += 1;
    }

    /// One owner less. Gives back whether it was the last.
    pub fn release(&mut self, id: BlockId, owner: SeqId) -> bool {
        self.touch(id);
        let block = &mut self.blocks[id as usize];
        block.references = block.references.checked_sub(1).expect("only owners release");
        block.owners = block.owners.wrapping_sub(tag(owner));
        block.used = self.step;
        self.references -= 1;
        self.let_go(id);
        self.references(id) == 0
    }

    /// Keeps the block and its content though its last owner goes, until the hold is dropped.
    pub fn hold(&mut self, id: BlockId) {
        self.keep(id);
        self.blocks[id as usize].holds += 1;
    }

    pub fn drop_hold(&mut self, id: BlockId) {
        self.blocks[id as usize].holds -= 1;
        self.let_go(id);
    }

    /// How many available blocks are lost when these become owned; `deepest` is the last of them in
    /// the tree.
    pub fn cost_of(&mut self, hits: impl Iterator<Item = BlockId>, deepest: Option<BlockId>) -> usize {
        let by_key = hits.filter(|id| self.cached.contains(*id)).count();
        let (Some(tree), Some(deepest)) = (self.index.tree_mut(), deepest) else { return by_key };
        let before = tree.evictable();
        tree.lock(deepest);
        let lost = before - tree.evictable();
        tree.unlock(deepest);
        by_key + lost
    }

    /// Makes the content of an owned block known under `key`. Where another block holds the same
    /// content already, that one stays the known one; false then.
    pub fn know(&mut self, id: BlockId, key: CacheKey) -> bool {
        debug_assert!(self.references(id) > 0 && !self.index.is_in_tree(&key));
        if self.is_known(id) || !self.index.insert(key, id) {
            return false;
        }
        self.touch(id);
        self.blocks[id as usize].key = Some(key);
        true
    }

    /// Names a block that was just inserted into the tree.
    pub fn know_in_tree(&mut self, id: BlockId, key: CacheKey) {
        debug_assert!(self.references(id) > 0 && !self.is_known(id));
        self.touch(id);
        self.blocks[id as usize].key = Some(key);
    }

    /// `new` holds what `old` holds in the tree, and takes its place there.
    pub fn replace_in_tree(&mut self, old: BlockId, new: BlockId) {
        debug_assert!(self.references(new) > 0 && !self.is_known(new));
        self.touch(old);
        self.touch(new);
        self.index.tree_mut().into_iter().for_each(|tree| tree.replace(old, new));
        self.blocks[new as usize].key = self.blocks[old as usize].key.take();
        self.settle(old);
    }

    /// Nobody will find the content of this block any more, nor, in the tree, what comes after it.
    pub fn forget(&mut self, id: BlockId, forgotten: &mut Vec<(BlockId, CacheKey)>) {
        let Some(key) = self.key(id) else { return };
        let mut lost = Vec::new();
        if self.index.is_in_tree(&key) {
            self.index.tree_mut().into_iter().for_each(|tree| tree.remove(id, &mut lost));
        } else {
            self.index.remove(&key);
            lost.push(id);
        }
        for id in lost {
            self.touch(id);
            let key = self.blocks[id as usize].key.take().expect("known blocks have a key");
            forgotten.push((id, key));
            self.cached.remove(id);
            self.settle(id);
        }
    }

    /// Forgets the content of every block that nobody owns.
    pub fn forget_cached(&mut self, forgotten: &mut Vec<(BlockId, CacheKey)>) {
        while let Some(id) = self.cached.front() {
            self.forget(id, forgotten);
        }
        while let Some(id) = self.index.tree_mut().and_then(|tree| tree.evict()) {
            self.touch(id);
            forgotten.extend(self.blocks[id as usize].key.take().map(|key| (id, key)));
            self.settle(id);
        }
    }

    pub fn taint(&mut self, id: BlockId) {
        let block = &mut self.blocks[id as usize];
        self.tainted += usize::from(!std::mem::replace(&mut block.tainted, true));
    }

    pub fn is_tainted(&self, id: BlockId) -> bool {
        self.blocks[id as usize].tainted
    }

    pub fn any_tainted(&self) -> bool {
        self.tainted > 0
    }

    pub fn view(&self, id: BlockId) -> BlockView {
        let block = &self.blocks[id as usize];
        BlockView {
            references: u16::try_from(block.references).unwrap_or(u16::MAX),
            cached: block.key.is_some(),
            owner: (block.references == 1).then(|| untag(block.owners)),
            used: block.used,
        }
    }

    /// Appends the blocks that look different from when this was last called.
    pub fn take_changes(&mut self, into: &mut Vec<BlockChange>) {
        let mut changed = std::mem::take(&mut self.changed);
        for (block, before) in changed.drain(..) {
            self.blocks[block as usize].touched = false;
            let after = self.view(block);
            into.extend((before != after).then_some(BlockChange { block, before, after }));
        }
        self.changed = changed;
    }

    fn touch(&mut self, id: BlockId) {
        if !self.blocks[id as usize].touched {
            self.changed.push((id, self.view(id)));
            self.blocks[id as usize].touched = true;
        }
    }

    /// Somebody is about to keep the block.
    fn keep(&mut self, id: BlockId) {
        if !self.is_kept(id) {
            self.cached.remove(id);
            self.lock(id);
        }
    }

    fn let_go(&mut self, id: BlockId) {
        if !self.is_kept(id) {
            self.index.tree_mut().into_iter().for_each(|tree| tree.unlock(id));
            self.settle(id);
        }
    }

    /// Every block that is kept is locked in the tree, once, whether it stands there yet or not:
    /// so it and all before it stay, whoever inserts it or takes a part of the tree away.
    fn lock(&mut self, id: BlockId) {
        self.index.tree_mut().into_iter().for_each(|tree| tree.lock(id));
    }

    pub fn is_kept(&self, id: BlockId) -> bool {
        let block = &self.blocks[id as usize];
        block.references > 0 || block.holds > 0
    }

    /// Puts a block that nobody keeps any more where it is found again.
    fn settle(&mut self, id: BlockId) {
        if self.is_kept(id) || self.free.contains(id) || self.cached.contains(id) {
            return;
        }
        match self.key(id) {
            None => self.free.push_front(id),
            Some(key) if self.index.is_in_tree(&key) => {}
            Some(_) => self.cached.push_back(id),
        }
    }

    /// Recounts everything from scratch; `owners[id]` says who names the block, with the sum of
    /// their tags, and `holds[id]` how often it is held.
    pub fn check(&self, owners: &[(u32, u128)], holds: &[u32]) -> Result<(), String> {
        let say = |right: bool, what: String| if right { Ok(()) } else { Err(what) };
        let (mut owned, mut known, mut tainted, mut in_tree) = (0, 0, 0, 0);
        for (id, block) in (0..).zip(&self.blocks) {
            let (count, tags) = owners[id as usize];
            say(
                (block.references, block.holds) == (count, holds[id as usize]),
                format!("block {id} counts {} owners, tables name it {count} times", block.references),
            )?;
            say(block.owners == tags, format!("block {id} has lost the name of an owner"))?;
            let kept = block.references > 0 || block.holds > 0;
            let tree = self.index.tree().is_some_and(|tree| tree.contains(id));
            let safe = self.index.tree().is_some_and(|tree| tree.is_protected(id));
            say(!(kept && tree) || safe, format!("block {id} is owned, and the tree may evict it"))?;
            let found = match block.key {
                Some(key) if self.index.is_in_tree(&key) => tree,
                Some(key) => self.index.find(&key) == Some(id) && !tree,
                None => !tree,
            };
            say(found, format!("block {id} is known but cannot be found, or found but not known"))?;
            let place = match (kept, block.key) {
                _ if id == NULL => (false, false),
                (true, _) => (false, false),
                (false, None) => (true, false),
                (false, Some(_)) => (false, !tree),
            };
            say(
                place == (self.free.contains(id), self.cached.contains(id)),
                format!("block {id} is in the wrong list"),
            )?;
            owned += usize::from(kept);
            in_tree += usize::from(kept && tree);
            known += usize::from(block.key.is_some());
            tainted += usize::from(block.tainted);
        }
        say(known == self.index.len(), format!("{} contents for {known} known blocks", self.index.len()))?;
        say(tainted == self.tainted, format!("{tainted} tainted blocks, counted {}", self.tainted))?;
        let references: u32 = self.blocks.iter().map(|block| block.references).sum();
        say(references as usize == self.references, format!("{references} references in all"))?;
        // Of a tree's protected blocks some have no owner: they stand before one that has.
        let protected = self.index.tree().map_or(0, |tree| tree.protected());
        say(in_tree <= protected, format!("{in_tree} owned blocks in the tree, {protected} protected"))?;
        let owned = owned + protected - in_tree;
        say(
            self.free.len() + self.cached() + owned == self.total(),
            format!(
                "{} free + {} cached + {owned} owned is not the total of {}",
                self.free.len(),
                self.cached(),
                self.total()
            ),
        )?;
        self.index.tree().map_or(Ok(()), |tree| tree.check())
    }

    #[cfg(test)]
    pub fn free_order(&self) -> Vec<BlockId> {
        self.free.iter().chain(self.cached.iter()).collect()
    }
}

/// A sequence as one number; different for different sequences.
pub(super) fn tag(seq: SeqId) -> u128 {
    (u128::from(seq.request.0) << 32) | u128::from(seq.choice)
}

fn untag(tag: u128) -> SeqId {
    SeqId { request: RequestId((tag >> 32) as u64), choice: tag as u32 }
}
