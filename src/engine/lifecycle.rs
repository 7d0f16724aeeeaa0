//! Between steps: sequences come, branch and leave; settings change.

use super::estimate::Estimate;
use super::scheduler::Scheduler;
use super::sequence::Sequence;
use super::sequences::{Key, Sequences};
use crate::kv::BlockManager;
use crate::protocol::{Batching, RequestId, SchedulerSettings, SequenceState};
use std::collections::HashSet;

impl Scheduler {
    /// New settings, from the next step on; where one of them cannot be, all stay as they were.
    pub fn configure(&mut self, settings: SchedulerSettings) -> Result<(), String> {
        settings.check()?;
        let most = self.bounds.tokens;
        if settings.max_num_batched_tokens > most {
            return Err(format!(
                "max_num_batched_tokens can be at most {most}, for which the model's memory was planned"
            ));
        }
        if settings.schedule_conservativeness != self.settings.schedule_conservativeness {
            self.estimate = Estimate::new(settings.schedule_conservativeness);
        }
        self.settings = settings;
        self.forming = self.forming.min(self.most_active());
        self.restore_order();
        Ok(())
    }

    /// A new sequence, behind all that rank as high.
    pub fn push(&mut self, seq: Sequence) -> Key {
        let key = self.arrive(seq);
        self.enqueue(key);
        key
    }

    fn arrive(&mut self, mut seq: Sequence) -> Key {
        (seq.arrival, seq.arrived_at_tokens) = (self.arrivals, self.tokens_done);
        self.arrivals += 1;
        self.sequences.insert(seq)
    }

    /// A sequence that has computed something and may go on at once, if there is a place.
    pub fn push_running(&mut self, mut seq: Sequence, kv: &mut BlockManager) -> Key {
        if self.settings.batching == Batching::Continuous && self.has_place(self.places()).is_ok() {
            seq.state = SequenceState::Running;
            let key = self.arrive(seq);
            self.running.push(key);
            return key;
        }
        seq.start_over(SequenceState::Waiting, kv);
        self.push(seq)
    }

    /// Takes out sequences that ended, and puts `born` behind their parents. Those for which no
    /// place is left wait at the front of the queue.
    pub fn settle(&mut self, born: &mut Vec<(Key, Sequence)>, kv: &mut BlockManager) {
        let most = self.most_active();
        let Self { running, waiting, sequences, .. } = self;
        let ended = |sequences: &Sequences, key: &Key| sequences[*key].ended;
        let any = running.iter().chain(&*waiting).any(|key| ended(sequences, key));
        if born.is_empty() && !any {
            return;
        }
        let alive = running.iter().filter(|key| !ended(sequences, key)).count();
        let mut free = most.saturating_sub(alive);
        let mut overflow = Vec::new();
        let mut newest = None;
        for (parent, mut child) in born.drain(..) {
            // Behind its older siblings. A parent may have lost its place while its last step ran.
            let before = newest.filter(|(of, _)| *of == parent).map_or(parent, |(_, sibling)| sibling);
            let behind = running.iter().position(|key| *key == before);
            match behind {
                _ if child.ended => kv.release(&mut child.table),
                Some(at) if free > 0 && child.num_computed > 0 => {
                    free -= 1;
                    child.state = SequenceState::Running;
                    let key = sequences.insert(child);
                    running.insert(at + 1, key);
                    newest = Some((parent, key));
                }
                _ => {
                    child.start_over(SequenceState::Waiting, kv);
                    overflow.push(sequences.insert(child));
                }
            }
        }
        let mut stays = |key: &mut Key| {
            let stays = !ended(sequences, key);
            if !stays {
                drop_sequence(sequences, *key, kv);
            }
            stays
        };
        running.retain_mut(&mut stays);
        waiting.retain_mut(&mut stays);
        overflow.into_iter().rev().for_each(|key| self.requeue(key));
    }

    /// What is left of the request is over; [`settle`](Self::settle) takes it out.
    pub fn end(&mut self, request: RequestId) {
        self.of_request(request).for_each(|seq| seq.ended = true);
    }

    /// Everything is over.
    pub fn end_all(&mut self) {
        self.sequences.iter_mut().for_each(|seq| seq.ended = true);
    }

    /// Forgets all sequences; their tables are void.
    pub fn reset(&mut self) {
        self.waiting.clear();
        self.running.clear();
        self.shares.clear();
        self.sequences.clear();
    }

    /// Every living sequence stands in exactly one queue, and in the right one.
    pub fn check(&self) -> Result<(), String> {
        let queued = self.running.len() + self.waiting.len();
        if queued != self.sequences.len() {
            return Err(format!("{queued} places in queues for {} sequences", self.sequences.len()));
        }
        let mut seen = HashSet::with_capacity(queued);
        let running = self.running.iter().map(|key| (key, true));
        for (key, runs) in running.chain(self.waiting.iter().map(|key| (key, false))) {
            let Some(seq) = self.sequences.get(*key) else {
                return Err("a queue holds a sequence that is gone".into());
            };
            if !seen.insert(*key) || runs != (seq.state == SequenceState::Running) {
                return Err(format!("sequence {} is {:?} and stands in a wrong queue", seq.id, seq.state));
            }
        }
        Ok(())
    }
}

fn drop_sequence(sequences: &mut Sequences, key: Key, kv: &mut BlockManager) {
    let Some(mut seq) = sequences.remove(key) else { return };
    kv.release(&mut seq.table);
    if let Some(swapped) = seq.swapped {
        kv.drop_swapped(swapped);
    }
}
