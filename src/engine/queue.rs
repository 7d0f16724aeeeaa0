//! In which order waiting sequences are looked at.

use super::scheduler::Scheduler;
use super::sequence::Sequence;
use super::sequences::Key;
use crate::base::mix;
use crate::kv::BlockHash;
use crate::kv::BlockManager;
use crate::protocol::{RequestId, SchedulePolicy as Policy};
use std::collections::HashMap;

/// Beyond this many waiting, looking all of them up in the cache costs more than it gains (SGLang).
const MOST_LOOKED_UP: usize = 128;

/// A waiting sequence of which the cache has no more than this many tokens lets another with as many
/// tokens in common go first (SGLang: IN_BATCH_PREFIX_CACHING).
const IN_BATCH_TOKENS: usize = 32;

impl Scheduler {
    /// Behind all that rank as high.
    pub(super) fn enqueue(&mut self, key: Key) {
        match self.by_priority() {
            true => self.insert_ranked(key),
            false => self.waiting.push_back(key),
        }
    }

    /// Back into the queue, in front of those that never ran.
    pub(super) fn requeue(&mut self, key: Key) {
        match self.by_priority() {
            true => self.insert_ranked(key),
            false => self.waiting.push_front(key),
        }
    }

    fn insert_ranked(&mut self, key: Key) {
        let rank = |key: &Key| (self.sequences[*key].priority, self.sequences[*key].arrival);
        let at = self.waiting.partition_point(|other| rank(other) <= rank(&key));
        self.waiting.insert(at, key);
    }

    /// Another rank for all sequences of a request, those that run too. False where there are none.
    pub fn set_priority(&mut self, request: RequestId, priority: i32) -> bool {
        let mut any = false;
        for seq in self.of_request(request) {
            (seq.priority, any) = (priority, true);
        }
        if any && self.by_priority() {
            self.restore_order();
        }
        any
    }

    /// The order of arrival, or of priority and arrival: after the policy changed.
    pub(super) fn restore_order(&mut self) {
        let by_priority = self.by_priority();
        let sequences = &self.sequences;
        self.waiting.make_contiguous().sort_by_key(|key| {
            let seq = &sequences[*key];
            (if by_priority { seq.priority } else { 0 }, seq.arrival)
        });
    }

    /// Sorts the queue as `schedule_policy` says; priority, where it is on, comes first.
    pub(super) fn order_waiting(&mut self, kv: &mut BlockManager) {
        self.in_batch.clear();
        let policy = match self.settings.schedule_policy {
            // Round robin has turned it; first come, first served needs nothing.
            Policy::Fcfs | Policy::RoundRobin => return,
            _ if self.waiting.len() < 2 => return,
            Policy::Lpm | Policy::DfsWeight if self.waiting.len() > MOST_LOOKED_UP => {
                return self.restore_order();
            }
            policy => policy,
        };
        let ranks = match policy {
            Policy::Lpm => self.by_match(kv),
            Policy::DfsWeight => self.depth_first(),
            Policy::Lof => self.rank(|seq| -(seq.left_to_draw().min(1 << 30) as f64)),
            Policy::Random => {
                let steps = self.steps;
                self.rank(|seq| mix(steps.rotate_left(32), seq.arrival) as f64)
            }
            Policy::Hrrn => self.by_response_ratio(kv),
            Policy::ShortestPrefillFirst => self.by_uncached(kv, |_, uncached| uncached as f64),
            Policy::Fcfs | Policy::RoundRobin => return,
        };
        let by_priority = self.by_priority();
        let sequences = &self.sequences;
        self.waiting.make_contiguous().sort_by(|a, b| {
            let (one, two) = (&sequences[*a], &sequences[*b]);
            let priority =
                if by_priority { one.priority.cmp(&two.priority) } else { std::cmp::Ordering::Equal };
            priority.then(ranks[a].total_cmp(&ranks[b])).then(one.arrival.cmp(&two.arrival))
        });
    }

    fn rank(&self, rank: impl Fn(&Sequence) -> f64) -> HashMap<Key, f64> {
        self.waiting.iter().map(|key| (*key, rank(&self.sequences[*key]))).collect()
    }

    /// Longest match first; of sequences that wait for the same prefix only the first stays in front.
    fn by_match(&mut self, kv: &mut BlockManager) -> HashMap<Key, f64> {
        let mut first_with: HashMap<BlockHash, Key> = HashMap::new();
        let mut ranks = HashMap::new();
        for at in 0..self.waiting.len() {
            let key = self.waiting[at];
            let matched = self.look_up(key, kv);
            let mut rank = -(matched as f64);
            if matched <= IN_BATCH_TOKENS
                && let Some(prefix) = self.common_prefix(key, kv.block_size())
                && let first = *first_with.entry(prefix).or_insert(key)
                && first != key
            {
                self.in_batch.insert(key, first);
                rank = f64::MAX;
            }
            ranks.insert(key, rank);
        }
        ranks
    }

    /// Names the first blocks of a sequence that hold at least [`IN_BATCH_TOKENS`] tokens.
    fn common_prefix(&self, key: Key, block_size: usize) -> Option<BlockHash> {
        let last = IN_BATCH_TOKENS.div_ceil(block_size) - 1;
        self.sequences[key].chain.hashes().get(last).copied()
    }

    /// Depth first through the tree that the waiting sequences' prefixes make, the subtree with the
    /// most sequences first: neighbours in the queue share the most.
    fn depth_first(&self) -> HashMap<Key, f64> {
        let mut weight: HashMap<BlockHash, usize> = HashMap::new();
        let path = |key: &Key| self.sequences[*key].chain.hashes();
        for hash in self.waiting.iter().flat_map(path) {
            *weight.entry(*hash).or_default() += 1;
        }
        let mut order: Vec<Key> = self.waiting.iter().copied().collect();
        order.sort_by(|a, b| {
            let parts = path(a).iter().zip(path(b)).find(|(one, two)| one != two);
            match parts {
                // Heavier first; of equal weight any fixed order keeps a subtree together.
                Some((one, two)) => weight[two].cmp(&weight[one]).then(one.cmp(two)),
                None => path(a).len().cmp(&path(b).len()),
            }
        });
        order.into_iter().enumerate().map(|(at, key)| (key, at as f64)).collect()
    }

    /// 1 + waited / uncached: the longer it waits and the less it costs, the sooner.
    fn by_response_ratio(&mut self, kv: &mut BlockManager) -> HashMap<Key, f64> {
        let now = self.tokens_done;
        self.by_uncached(kv, |seq, uncached| {
            let waited = now - seq.arrived_at_tokens;
            -(1.0 + waited as f64 / uncached.max(1) as f64)
        })
    }

    fn by_uncached(
        &mut self,
        kv: &mut BlockManager,
        rank: impl Fn(&Sequence, usize) -> f64,
    ) -> HashMap<Key, f64> {
        let mut ranks = HashMap::new();
        for at in 0..self.waiting.len() {
            let key = self.waiting[at];
            let matched = self.look_up(key, kv);
            let seq = &self.sequences[key];
            ranks.insert(key, rank(seq, seq.num_tokens() - matched));
        }
        ranks
    }
}
