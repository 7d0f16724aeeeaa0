use super::{BlockHash, BlockId};
use std::collections::HashMap;

/// The null block doubles as both ends of the free list: its `next` is the first free block, its
/// `previous` the last.
const NULL: BlockId = 0;

/// All blocks of one device: who is free, how many own each of the others, and which content is
/// still known.
///
/// Free blocks stand in one doubly linked list threaded through the blocks themselves, so that any
/// block can leave it at once when a prefix hit revives it. New blocks are taken from the front.
/// What is freed without a known content goes to the front, to be used first; known content goes
/// to the back: the list is also the LRU order of eviction.
#[derive(Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    known: HashMap<BlockHash, BlockId>,
    free: usize,
    /// Free blocks whose content is known: evictable.
    cached: usize,
    evictions: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    references: u32,
    hash: Option<BlockHash>,
    previous: BlockId,
    next: BlockId,
}

impl BlockPool {
    /// `num_blocks` includes the null block.
    pub fn new(num_blocks: usize) -> Self {
        let last = num_blocks.saturating_sub(1) as BlockId;
        let blocks = (0..=last)
            .map(|id| Block {
                references: 0,
                hash: None,
                previous: if id == NULL { last } else { id - 1 },
                next: if id == last { NULL } else { id + 1 },
            })
            .collect();
        Self { blocks, known: HashMap::new(), free: last as usize, cached: 0, evictions: 0 }
    }

    /// Blocks that can be owned: all but the null block.
    pub fn total(&self) -> usize {
        self.blocks.len() - 1
    }

    /// Blocks nobody owns, with known content or without.
    pub fn available(&self) -> usize {
        self.free
    }

    /// Of the available ones, those that a prefix could still hit.
    pub fn cached(&self) -> usize {
        self.cached
    }

    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    pub fn references(&self, id: BlockId) -> u32 {
        self.blocks[id as usize].references
    }

    pub fn is_known(&self, id: BlockId) -> bool {
        self.blocks[id as usize].hash.is_some()
    }

    pub fn find(&self, hash: &BlockHash) -> Option<BlockId> {
        self.known.get(hash).copied()
    }

    /// The free block that was unused the longest, with one owner; its old content is forgotten.
    pub fn take(&mut self) -> Option<BlockId> {
        let id = self.blocks[NULL as usize].next;
        if id == NULL {
            return None;
        }
        self.unlink(id);
        if self.forget(id) {
            self.evictions += 1;
        }
        self.blocks[id as usize].references = 1;
        Some(id)
    }

    /// One more owner.
    pub fn share(&mut self, id: BlockId) {
        debug_assert_ne!(id, NULL);
        if self.blocks[id as usize].references == 0 {
            self.unlink(id);
        }
        self.blocks[id as usize].references += 1;
    }

    /// One owner less. Gives back whether the block is free now.
    pub fn release(&mut self, id: BlockId) -> bool {
        let block = &mut self.blocks[id as usize];
        block.references = block.references.checked_sub(1).expect("only owners release");
        if block.references > 0 {
            return false;
        }
        match block.hash {
            Some(_) => self.link_between(id, self.blocks[NULL as usize].previous, NULL),
            None => self.link_between(id, NULL, self.blocks[NULL as usize].next),
        }
        true
    }

    /// Makes the content of an owned block known under `hash`. Where another block holds the same
    /// content already, that one stays the known one.
    pub fn make_known(&mut self, id: BlockId, hash: BlockHash) {
        debug_assert!(self.references(id) > 0);
        if let std::collections::hash_map::Entry::Vacant(entry) = self.known.entry(hash) {
            entry.insert(id);
            self.blocks[id as usize].hash = Some(hash);
        }
    }

    /// Nobody will find the content of this block any more. Gives back whether it was known.
    pub fn forget(&mut self, id: BlockId) -> bool {
        let block = &mut self.blocks[id as usize];
        let Some(hash) = block.hash.take() else { return false };
        if block.references == 0 && block.next != id {
            self.cached -= 1;
        }
        self.known.remove(&hash);
        true
    }

    /// Forgets the content of every block that nobody owns.
    pub fn forget_free(&mut self) {
        for id in 0..self.blocks.len() as BlockId {
            if self.references(id) == 0 {
                self.forget(id);
            }
        }
    }

    fn unlink(&mut self, id: BlockId) {
        let Block { previous, next, hash, .. } = self.blocks[id as usize];
        self.blocks[previous as usize].next = next;
        self.blocks[next as usize].previous = previous;
        // Linked to itself: in no list.
        (self.blocks[id as usize].previous, self.blocks[id as usize].next) = (id, id);
        self.free -= 1;
        self.cached -= usize::from(hash.is_some());
    }

    fn link_between(&mut self, id: BlockId, previous: BlockId, next: BlockId) {
        (self.blocks[id as usize].previous, self.blocks[id as usize].next) = (previous, next);
        self.blocks[previous as usize].next = id;
        self.blocks[next as usize].previous = id;
        self.free += 1;
        self.cached += usize::from(self.is_known(id));
    }

    /// Recounts everything from scratch; `owners[id]` is how often tables name a block.
    pub fn check(&self, owners: &[u32]) -> Result<(), String> {
        let free: Vec<BlockId> = self.free_list().collect();
        let cached = free.iter().filter(|id| self.is_known(**id)).count();
        let owned = self.blocks.iter().skip(1).filter(|block| block.references > 0).count();
        let say = |wrong: bool, what: String| if wrong { Err(what) } else { Ok(()) };
        for (id, block) in self.blocks.iter().enumerate() {
            say(
                block.references != owners[id],
                format!("block {id} counts {} owners, tables name it {} times", block.references, owners[id]),
            )?;
            let lost = block.hash.is_some_and(|hash| self.known.get(&hash) != Some(&(id as BlockId)));
            say(lost, format!("block {id} is known but cannot be found"))?;
        }
        let known = self.blocks.iter().filter(|block| block.hash.is_some()).count();
        say(known != self.known.len(), format!("{} contents for {known} known blocks", self.known.len()))?;
        say(
            (free.len(), cached) != (self.free, self.cached),
            format!("{} free and {cached} cached, counted {} and {}", free.len(), self.free, self.cached),
        )?;
        say(
            free.len() + owned != self.total(),
            format!("{} available + {owned} owned is not the total of {}", free.len(), self.total()),
        )
    }

    fn free_list(&self) -> impl Iterator<Item = BlockId> + '_ {
        let next = |id: &BlockId| Some(self.blocks[*id as usize].next);
        std::iter::successors(next(&NULL), next).take_while(|id| *id != NULL)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn hash(n: u32) -> BlockHash {
        BlockHash::of(None, &[n], b"")
    }

    #[test]
    fn the_null_block_is_never_handed_out() {
        let mut pool = BlockPool::new(4);
        assert_eq!([pool.take(), pool.take(), pool.take(), pool.take()], [Some(1), Some(2), Some(3), None]);
        assert!(BlockPool::new(1).take().is_none() && BlockPool::new(0).take().is_none());
    }

    #[test]
    fn unknown_blocks_are_used_again_first_and_known_ones_in_the_order_they_were_freed() {
        let mut pool = BlockPool::new(6);
        let taken: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken, [1, 2, 3, 4, 5]);
        pool.make_known(2, hash(2));
        pool.make_known(4, hash(4));
        for id in [4, 1, 2, 3, 5] {
            pool.release(id);
        }
        assert_eq!(pool.free_list().collect::<Vec<_>>(), [5, 3, 1, 4, 2]);
        assert_eq!((pool.available(), pool.cached()), (5, 2));
        let again: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(again, [5, 3, 1, 4, 2]);
        assert_eq!((pool.evictions(), pool.find(&hash(4))), (2, None));
    }

    #[test]
    fn a_hit_takes_its_block_out_of_the_middle_of_the_list() {
        let mut pool = BlockPool::new(5);
        while pool.take().is_some() {}
        for id in 1..=3 {
            pool.make_known(id, hash(id));
            pool.release(id);
        }
        pool.share(pool.find(&hash(2)).unwrap());
        assert_eq!(pool.free_list().collect::<Vec<_>>(), [1, 3]);
        assert_eq!((pool.available(), pool.cached(), pool.references(2)), (2, 2, 1));
        pool.check(&[0, 0, 1, 0, 1]).unwrap();
        assert!(pool.check(&[0, 0, 2, 0, 1]).unwrap_err().contains("block 2"));
    }

    /// K02: the count of a block never passes below zero, and a recycled block loses its old hash.
    #[test]
    fn k02_a_recycled_block_has_lost_its_old_content() {
        let mut pool = BlockPool::new(2);
        let id = pool.take().unwrap();
        pool.make_known(id, hash(7));
        assert!(pool.release(id));
        assert_eq!(pool.find(&hash(7)), Some(id));
        assert_eq!(pool.take(), Some(id));
        assert_eq!((pool.find(&hash(7)), pool.references(id)), (None, 1));
        assert!(std::panic::catch_unwind(move || pool.release(id) && pool.release(id)).is_err());
    }

    #[test]
    fn the_first_of_two_equal_blocks_is_the_one_that_is_found() {
        let mut pool = BlockPool::new(3);
        let (a, b) = (pool.take().unwrap(), pool.take().unwrap());
        pool.make_known(a, hash(1));
        pool.make_known(b, hash(1));
        assert_eq!((pool.find(&hash(1)), pool.is_known(b)), (Some(a), false));
    }
}
