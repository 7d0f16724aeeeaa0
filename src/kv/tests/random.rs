//! Whatever is asked for in whatever order: no block is lost, and nothing wrong is ever read.

use super::*;
use crate::protocol::{KvEvent, KvHash, Medium};
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

#[derive(Clone, Debug)]
enum Act {
    Submit {
        tokens: Vec<u32>,
        salted: bool,
        priority: i32,
    },
    /// Rows of so many tokens for those that run, then admissions with chunks of so many.
    Step {
        chunk: usize,
        pushed: u32,
    },
    Fork(usize, usize),
    Finish(usize),
    Abort(usize),
    Forget(usize),
    ResetPrefixCache,
    Reset,
    /// Disk has everything that this one wants.
    Fetch(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let tokens = prop::collection::vec(0u32..2, 1..40);
    prop_oneof![
        6 => (tokens, prop::bool::weighted(0.1), 0..3)
            .prop_map(|(tokens, salted, priority)| Act::Submit { tokens, salted, priority }),
        12 => (1usize..12, 0u32..2).prop_map(|(chunk, pushed)| Act::Step { chunk, pushed }),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(i, keep)| Act::Fork(i, keep)),
        3 => any::<usize>().prop_map(Act::Finish),
        1 => any::<usize>().prop_map(Act::Abort),
        1 => any::<usize>().prop_map(Act::Forget),
        1 => Just(Act::ResetPrefixCache),
        1 => prop::bool::weighted(0.2).prop_map(|all| if all { Act::Reset } else { Act::ResetPrefixCache }),
        2 => any::<usize>().prop_map(Act::Fetch),
    ]
}

/// A scheduler of the plainest kind: in order of arrival, the last that runs gives way.
struct Plain {
    world: World,
    running: Vec<Seq>,
    waiting: VecDeque<Seq>,
    swaps: bool,
    /// Whoever gives way is the first and has its row already: the worst case.
    first_gives_way: bool,
    listener: Listener,
}

/// Who knows the cache from its events alone.
#[derive(Default)]
struct Listener {
    known: BTreeSet<(&'static str, usize, KvHash)>,
}

impl Listener {
    fn listen(&mut self, events: Vec<KvEvent>) -> Result<(), String> {
        for event in events {
            let right = match &event {
                KvEvent::BlockStored { block_hashes, medium, group_idx, .. } => {
                    block_hashes.iter().all(|hash| self.known.insert((medium.name(), *group_idx, *hash)))
                }
                KvEvent::BlockRemoved { block_hashes, medium, group_idx } => {
                    block_hashes.iter().all(|hash| self.known.remove(&(medium.name(), *group_idx, *hash)))
                }
                KvEvent::AllBlocksCleared => {
                    self.known.clear();
                    true
                }
            };
            if !right {
                return Err(format!("{event:?} tells what was known"));
            }
        }
        Ok(())
    }

    fn count(&self, of: Medium) -> usize {
        self.known.iter().filter(|(medium, ..)| *medium == of.name()).count()
    }
}

impl Plain {
    fn act(&mut self, act: &Act) {
        match act {
            Act::Submit { tokens, salted, priority } => {
                let salt = salted.then(|| "salt".to_owned());
                let mut seq =
                    self.world.seq_with(tokens, ExtraKeys { cache_salt: salt, ..ExtraKeys::default() });
                seq.priority = *priority;
                self.waiting.push_back(seq);
            }
            Act::Step { chunk, pushed } => self.step(*chunk, *pushed),
            Act::Fork(i, keep) => self.fork(*i, *keep),
            Act::Finish(i) if !self.running.is_empty() => {
                let mut seq = self.running.remove(i % self.running.len());
                self.world.release(&mut seq);
            }
            Act::Abort(i) if !self.waiting.is_empty() => {
                let seq = self.waiting.remove(i % self.waiting.len());
                if let Some(swapped) = seq.and_then(|seq| seq.swapped) {
                    self.world.kv.drop_swapped(swapped);
                }
            }
            Act::Forget(i) if !self.running.is_empty() => {
                let i = i % self.running.len();
                self.world.kv.forget(&self.running[i].table);
            }
            Act::ResetPrefixCache => self.world.kv.reset_prefix_cache(),
            Act::Reset => {
                self.running.clear();
                self.world.kv.reset();
                for swapped in self.waiting.drain(..).filter_map(|seq| seq.swapped) {
                    self.world.kv.drop_swapped(swapped);
                }
            }
            Act::Fetch(i) if !self.waiting.is_empty() => {
                let seq = &self.waiting[i % self.waiting.len()];
                let world = &mut self.world;
                let wanted = world.kv.disk_wanted(seq.prefix(), seq.tokens.len(), &|_| true);
                for key in wanted {
                    let at = seq.chain.hashes().iter().position(|hash| *hash == key.hash()).unwrap();
                    let Some(slot) = world.kv.host_slot_for(key) else { continue };
                    match at % 5 {
                        4 => world.kv.host_failed(slot),
                        _ => world.arrive(slot, key.group(), seq, at),
                    }
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, chunk: usize, pushed: u32) {
        self.world.begin();
        let (mut at, mut preempted) = (0, false);
        while at < self.running.len() {
            if self.running[at].computed == self.running[at].tokens.len() {
                self.running[at].push(&[pushed]);
            }
            match self.world.grow(&mut self.running[at], chunk) {
                Ok(()) => at += 1,
                Err(_) => {
                    preempted = true;
                    let victim = if self.first_gives_way { 0 } else { self.running.len() - 1 };
                    at -= usize::from(victim < at);
                    self.preempt(victim);
                }
            }
        }
        while !preempted && let Some(mut seq) = self.waiting.pop_front() {
            let admitted = match seq.swapped {
                Some(_) => self.world.swap_in(&mut seq),
                None => self.world.admit(&mut seq, chunk),
            };
            if admitted.is_err() {
                self.waiting.push_front(seq);
                break;
            }
            self.running.push(seq);
        }
        self.world.run();
    }

    fn preempt(&mut self, victim: usize) {
        let mut seq = self.running.remove(victim);
        self.world.unplan(&mut seq);
        self.world.kv.withdraw(&mut seq.table, seq.computed);
        if self.swaps {
            seq.swapped = self.world.kv.swap_out(&mut seq.table, seq.computed, &mut self.world.moves);
        }
        if seq.swapped.is_none() {
            self.world.release(&mut seq);
        }
        self.waiting.push_front(seq);
    }

    fn fork(&mut self, i: usize, keep: usize) {
        if self.running.is_empty() {
            return;
        }
        let parent = &self.running[i % self.running.len()];
        let keep = if keep.is_multiple_of(2) { parent.computed } else { keep % parent.computed.max(1) };
        if keep > 0 && self.world.kv.can_fork(&parent.table, parent.computed, keep) {
            let child = self.world.fork(parent, keep);
            self.running.push(child);
        }
    }

    fn check(&mut self) -> Result<(), String> {
        self.listener.listen(self.world.kv.take_events())?;
        let told = (self.listener.count(Medium::Device), self.listener.count(Medium::Host));
        let known = (self.world.kv.pool().known(), self.world.kv.host.known());
        if told != known {
            return Err(format!("{known:?} blocks are known, events tell of {told:?}"));
        }
        self.world.kv.check(self.running.iter().map(|seq| &seq.table))?;
        let private: usize =
            self.waiting.iter().filter_map(|seq| seq.swapped.as_ref()).map(|s| s.len()).sum();
        match self.world.kv.private_host_blocks() {
            found if found == private => Ok(()),
            found => Err(format!("{found} private host blocks for {private} swapped ones")),
        }
    }
}

fn groups() -> impl Strategy<Value = Vec<CacheSpec>> {
    prop_oneof![
        3 => Just(vec![FULL]),
        2 => Just(vec![FULL, sliding(6)]),
        2 => Just(vec![FULL, sliding(6), STATE]),
        1 => Just(vec![STATE, sliding(9)]),
    ]
}

fn caches() -> impl Strategy<Value = PrefixCache> {
    prop_oneof![4 => Just(PrefixCache::Hash), 4 => Just(PrefixCache::Radix), 1 => Just(PrefixCache::Off)]
}

fn evictions() -> impl Strategy<Value = EvictionPolicy> {
    use EvictionPolicy::*;
    prop::sample::select(vec![Lru, Lfu, Fifo, Mru, Filo, Slru, Priority])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn no_block_is_lost_and_nothing_wrong_is_read(
        acts in prop::collection::vec(act(), 1..80),
        groups in groups(),
        (prefix_cache, eviction) in (caches(), evictions()),
        num_blocks in 14usize..50,
        host_blocks in prop::sample::select(vec![0usize, 0, 7, 40]),
        (swaps, first_gives_way) in any::<(bool, bool)>(),
    ) {
        let config = KvConfig {
            groups, prefix_cache, eviction, host_blocks, events: true, ..KvConfig::new(num_blocks, 4)
        };
        let world = World::of(config);
        let mut plain = Plain { world, running: vec![], waiting: VecDeque::new(), swaps, first_gives_way, listener: Listener::default() };
        for act in &acts {
            plain.act(act);
            let checked = plain.check();
            prop_assert!(checked.is_ok(), "{:?} after {:?}", checked, act);
        }
        let kv = &mut plain.world.kv;
        plain.running.iter_mut().for_each(|seq| kv.release(&mut seq.table));
        prop_assert_eq!(kv.pool().available(), kv.pool().total(), "everything comes back");
    }
}
