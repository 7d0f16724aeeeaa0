//! Who gives way when blocks run out, and what becomes of what it had computed.

use super::plan::Plan;
use super::scheduler::Scheduler;
use super::sequence::Share;
use super::sequences::Key;
use crate::kv::BlockManager;
use crate::protocol::{Preemption, PreemptionMode, RequestId, SchedulePolicy, SequenceState, Shortage};
use std::cmp::Reverse;

impl Scheduler {
    /// Blocks for a running sequence's next share, at the price of others; or it gives way itself.
    pub(super) fn make_room(&mut self, key: Key, share: Share, kv: &mut BlockManager, plan: &mut Plan) {
        loop {
            let seq = &mut self.sequences[key];
            let (computed, len) = (seq.num_computed, seq.num_computed + share.tokens);
            let shortage = match kv.grow(&mut seq.table, computed, len, &mut plan.moves) {
                Ok(()) => {
                    plan.charge(share);
                    self.shares.push((key, share));
                    return;
                }
                Err(shortage) => shortage,
            };
            // Who waits for a turn gives way before anyone who runs.
            if self.take_from_holder(key, shortage, kv, plan) {
                continue;
            }
            let victim = self.victim();
            self.preempt(victim, key, shortage, kv, plan);
            if victim == key {
                return;
            }
        }
    }

    /// fcfs: the last one admitted. priority: the lowest in rank. retract (SGLang): the shortest
    /// answer, of those the longest prompt: the least to lose, the most to gain.
    fn victim(&self) -> Key {
        let seq = |key: &Key| &self.sequences[*key];
        let victim = if self.settings.preemption_mode == PreemptionMode::Retract {
            self.running.iter().min_by_key(|key| (seq(key).num_generated(), Reverse(seq(key).prompt_len)))
        } else if self.by_priority() {
            self.running.iter().max_by_key(|key| (seq(key).priority, seq(key).arrival))
        } else {
            self.running.last()
        };
        *victim.expect("at least the one that needs blocks is running")
    }

    fn preempt(&mut self, victim: Key, by: Key, shortage: Shortage, kv: &mut BlockManager, plan: &mut Plan) {
        let by = self.sequences[by].id;
        self.running.retain(|key| *key != victim);
        let scheduled = self.take_back_share(victim, plan);
        let seq = &mut self.sequences[victim];
        let before = kv.pool().available();
        // What was planned for this step has not run: there is nothing whole to move.
        let swaps = self.settings.preemption_mode == PreemptionMode::Swap && !scheduled && !seq.held;
        let computed = seq.num_computed;
        if scheduled {
            kv.withdraw(&mut seq.table, computed);
        }
        seq.swapped = if swaps { kv.swap_out(&mut seq.table, computed, &mut plan.moves) } else { None };
        let swapped = seq.swapped.is_some();
        match swapped {
            true => seq.state = SequenceState::Preempted,
            false => seq.start_over(SequenceState::Preempted, kv),
        }
        let blocks_freed = kv.pool().available() - before;
        seq.preemptions += 1;
        plan.preempted.push(Preemption { seq: seq.id, blocks_freed, swapped, by, shortage });
        // Whatever was noted of it in this step is overtaken.
        let id = seq.id;
        plan.skipped.retain(|skipped| skipped.seq != id);
        self.requeue(victim);
        if self.settings.preemption_mode == PreemptionMode::Retract {
            let left = self.running.iter().map(|key| &self.sequences[*key]);
            self.estimate.retracted(left, self.context());
        }
    }

    /// A victim that had its share of this step already loses it, and the copies that went with it.
    fn take_back_share(&mut self, victim: Key, plan: &mut Plan) -> bool {
        let Some(at) = self.shares.iter().position(|(key, _)| *key == victim) else { return false };
        let (_, share) = self.shares.remove(at);
        plan.refund(share);
        let table = &self.sequences[victim].table;
        plan.moves.copies.retain(|(_, to)| !table.blocks().contains(to));
        true
    }

    /// Round robin: those that run do so in turns. Whose turn is over goes to the end of the queue and
    /// keeps its blocks while nobody needs them. Who lost them has to compute them again, and gets a
    /// turn twice as long: however small the pool, everyone gets done.
    pub(super) fn turn(&mut self) {
        if self.settings.schedule_policy != SchedulePolicy::RoundRobin || self.waiting.is_empty() {
            return;
        }
        let slice = self.settings.time_slice_ms;
        let mut over: Vec<Key> = Vec::new();
        let sequences = &self.sequences;
        let waiting = self.waiting.len();
        self.running.retain(|key| {
            let seq = &sequences[*key];
            // As many leave as can come.
            let leaves = seq.turn_ms >= slice * seq.turn_stretch() && !seq.held && over.len() < waiting;
            if leaves {
                over.push(*key);
            }
            !leaves
        });
        for key in over {
            let seq = &mut self.sequences[key];
            (seq.turn_ms, seq.state) = (0.0, SequenceState::Waiting);
            self.waiting.push_back(key);
        }
    }

    /// Frees the blocks of whoever waits longest for its next turn; false when nobody holds any.
    pub(super) fn take_from_holder(
        &mut self,
        for_key: Key,
        shortage: Shortage,
        kv: &mut BlockManager,
        plan: &mut Plan,
    ) -> bool {
        let holds = |key: &&Key| **key != for_key && !self.sequences[**key].table.is_empty();
        let Some(holder) = self.waiting.iter().rev().find(holds).copied() else { return false };
        let by = self.sequences[for_key].id;
        let before = kv.pool().available();
        let seq = &mut self.sequences[holder];
        seq.start_over(SequenceState::Preempted, kv);
        seq.preemptions += 1;
        let blocks_freed = kv.pool().available() - before;
        plan.preempted.push(Preemption { seq: seq.id, blocks_freed, swapped: false, by, shortage });
        true
    }

    /// Nothing could be planned: beams that have their candidates hold what others of their search need
    /// to get theirs. The last such beam gives its blocks and its place up; it loses nothing but the
    /// time to compute it again.
    pub fn yield_to_beams(&mut self, kv: &mut BlockManager) -> bool {
        let seq = |key: &Key| &self.sequences[*key];
        let wants = |key: &Key| seq(key).beam.is_some() && !seq(key).held;
        let wanting: Vec<RequestId> =
            self.waiting.iter().filter(|key| wants(key)).map(|key| seq(key).id.request).collect();
        let holds = |key: &&Key| seq(key).held && seq(key).beam.is_some() && seq(key).in_flight == 0;
        let of_one = |key: &&Key| wanting.contains(&seq(key).id.request);
        let Some(holder) = self.running.iter().rev().filter(holds).find(of_one).copied() else {
            return false;
        };
        self.running.retain(|key| *key != holder);
        let seq = &mut self.sequences[holder];
        seq.start_over(SequenceState::Preempted, kv);
        seq.preemptions += 1;
        self.waiting.push_back(holder);
        true
    }

    /// Step time that the running sequences used of their turns.
    pub fn spent(&mut self, plan: &Plan, ms: f32) {
        for row in &plan.rows {
            if let Some(seq) = self.sequences.get_mut(row.key) {
                seq.turn_ms += ms;
            }
        }
    }
}
