//! The tree against a plain model of it, under random acts.

#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The same cache as a list of prefixes: one entry for each block, no nodes.
#[derive(Default)]
struct Naive {
    entries: BTreeMap<(u64, Vec<u32>), Entry>,
    locks: BTreeMap<BlockId, u32>,
    clock: u64,
}

#[derive(Clone)]
struct Entry {
    block: BlockId,
    hits: u64,
    priority: i32,
    created: u64,
    accessed: u64,
}

impl Naive {
    fn keys(namespace: u64, tokens: &[u32], size: usize, most: usize) -> Vec<(u64, Vec<u32>)> {
        (1..=(tokens.len() / size).min(most)).map(|n| (namespace, tokens[..n * size].to_vec())).collect()
    }

    fn match_prefix(&mut self, keys: &[(u64, Vec<u32>)]) -> Vec<BlockId> {
        self.clock += 1;
        let mut found = Vec::new();
        for key in keys {
            let Some(entry) = self.entries.get_mut(key) else { break };
            entry.hits += 1;
            entry.accessed = self.clock;
            found.push(entry.block);
        }
        found
    }

    fn insert(&mut self, keys: &[(u64, Vec<u32>)], blocks: &[BlockId], priority: i32) -> usize {
        self.clock += 1;
        let had = keys.iter().take_while(|key| self.entries.contains_key(*key)).count();
        for key in &keys[..had] {
            let entry = self.entries.get_mut(key).unwrap();
            entry.priority = entry.priority.max(priority);
            entry.accessed = self.clock;
        }
        // What grows in place is as old as its beginning.
        let grown = had.checked_sub(1).map(|last| &keys[last]).filter(|key| !self.has_child(key));
        let grown = grown.map(|key| &self.entries[key]).filter(|e| e.hits == 0 && e.priority == priority);
        let created = grown.map_or(self.clock, |entry| entry.created);
        for (key, block) in keys.iter().zip(blocks).skip(had) {
            let entry = Entry { block: *block, hits: 0, priority, created, accessed: self.clock };
            self.entries.insert(key.clone(), entry);
        }
        had
    }

    fn below<'a>(&'a self, key: &'a (u64, Vec<u32>)) -> impl Iterator<Item = &'a (u64, Vec<u32>)> {
        self.entries.keys().filter(|other| other.0 == key.0 && other.1.starts_with(&key.1))
    }

    fn has_child(&self, key: &(u64, Vec<u32>)) -> bool {
        self.below(key).count() > 1
    }

    fn is_protected(&self, key: &(u64, Vec<u32>)) -> bool {
        self.below(key).any(|below| self.locks.get(&self.entries[below].block).is_some_and(|n| *n > 0))
    }

    fn evict(&mut self, policy: EvictionPolicy) -> Option<BlockId> {
        let rank = |entry: &Entry| match policy {
            EvictionPolicy::Lru => (0, entry.accessed),
            EvictionPolicy::Lfu => (entry.hits as i64, entry.accessed),
            EvictionPolicy::Fifo => (0, entry.created),
            EvictionPolicy::Mru => (0, u64::MAX - entry.accessed),
            EvictionPolicy::Filo => (0, u64::MAX - entry.created),
            EvictionPolicy::Slru => (i64::from(entry.hits >= 2), entry.accessed),
            EvictionPolicy::Priority => (i64::from(entry.priority), entry.accessed),
        };
        let free = self.entries.iter().filter(|(key, _)| !self.has_child(key) && !self.is_protected(key));
        let (key, _) = free.min_by_key(|(_, entry)| rank(entry))?;
        let key = key.clone();
        self.entries.remove(&key).map(|entry| entry.block)
    }

    fn remove(&mut self, block: BlockId) -> Vec<BlockId> {
        let Some((key, _)) = self.entries.iter().find(|(_, entry)| entry.block == block) else {
            return Vec::new();
        };
        let key = key.clone();
        let below: Vec<_> = self.below(&key).cloned().collect();
        below.iter().map(|key| self.entries.remove(key).unwrap().block).collect()
    }
}

#[derive(Clone, Debug)]
enum Act {
    Match {
        namespace: u64,
        tokens: Vec<u32>,
        most: usize,
    },
    Insert {
        namespace: u64,
        tokens: Vec<u32>,
        priority: i32,
    },
    /// The block at this share of all there are.
    Lock(prop::sample::Index),
    Unlock(prop::sample::Index),
    Remove(prop::sample::Index),
    Evict,
}

fn any_act() -> impl Strategy<Value = Act> {
    let tokens = || prop::collection::vec(0..2u32, 0..14);
    let index = any::<prop::sample::Index>;
    prop_oneof![
        3 => (0..2u64, tokens(), 0..9usize)
            .prop_map(|(namespace, tokens, most)| Act::Match { namespace, tokens, most }),
        6 => (0..2u64, tokens(), 0..3i32)
            .prop_map(|(namespace, tokens, priority)| Act::Insert { namespace, tokens, priority }),
        3 => index().prop_map(Act::Lock),
        3 => index().prop_map(Act::Unlock),
        1 => index().prop_map(Act::Remove),
        4 => Just(Act::Evict),
    ]
}

fn any_policy() -> impl Strategy<Value = EvictionPolicy> {
    prop::sample::select(EvictionPolicy::ALL)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is done, it gives what a plain list of prefixes gives, the victims included.
    #[test]
    fn the_tree_does_what_a_list_of_prefixes_does(
        policy in any_policy(),
        size in 1..4usize,
        acts in prop::collection::vec(any_act(), 1..60),
    ) {
        let mut tree = RadixTree::new(size, policy);
        let mut naive = Naive::default();
        let mut fresh = 1;
        for act in acts {
            match act {
                Act::Match { namespace, tokens, most } => {
                    let keys = Naive::keys(namespace, &tokens, size, most);
                    let peeked = tree.peek(namespace, &tokens, most);
                    let mut found = Vec::new();
                    tree.match_prefix(namespace, &tokens, most, &mut found);
                    prop_assert_eq!(peeked, found.len());
                    prop_assert_eq!(found, naive.match_prefix(&keys));
                }
                Act::Insert { namespace, tokens, priority } => {
                    let keys = Naive::keys(namespace, &tokens, size, usize::MAX);
                    // One block more than is full, as the table of a running sequence has.
                    let blocks: Vec<BlockId> = (fresh..).take(keys.len() + 1).collect();
                    fresh += blocks.len() as BlockId;
                    let had = tree.insert(namespace, &tokens, &blocks, priority);
                    prop_assert_eq!(had, naive.insert(&keys, &blocks, priority));
                }
                Act::Lock(at) if !naive.entries.is_empty() => {
                    let block = at.get(&naive.entries.values().collect::<Vec<_>>()).block;
                    tree.lock(block);
                    *naive.locks.entry(block).or_default() += 1;
                }
                Act::Unlock(at) if !naive.locks.is_empty() => {
                    let block = *at.get(&naive.locks.keys().copied().collect::<Vec<_>>());
                    tree.unlock(block);
                    let left = naive.locks.get_mut(&block).unwrap();
                    *left -= 1;
                    if *left == 0 {
                        naive.locks.remove(&block);
                    }
                }
                Act::Remove(at) if !naive.entries.is_empty() => {
                    let block = at.get(&naive.entries.values().collect::<Vec<_>>()).block;
                    let mut removed = Vec::new();
                    tree.remove(block, &mut removed);
                    let mut expected = naive.remove(block);
                    prop_assert_eq!(removed.first(), Some(&block));
                    removed.sort();
                    expected.sort();
                    prop_assert_eq!(removed, expected);
                }
                Act::Evict => prop_assert_eq!(tree.evict(), naive.evict(policy)),
                Act::Lock(_) | Act::Unlock(_) | Act::Remove(_) => {}
            }
            prop_assert_eq!(tree.check(), Ok(()));
            let protected = naive.entries.keys().filter(|key| naive.is_protected(key)).count();
            prop_assert_eq!((tree.len(), tree.protected()), (naive.entries.len(), protected));
            prop_assert!(naive.entries.values().all(|entry| tree.contains(entry.block)));
        }
        let mut left = tree.evictable();
        while let Some(block) = tree.evict() {
            prop_assert!(!tree.contains(block));
            left -= 1;
        }
        prop_assert_eq!((left, tree.evictable()), (0, 0));
    }
}
