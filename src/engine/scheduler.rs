use super::plan::Plan;
use super::sequence::Sequence;
use crate::kv::{BlockManager, Hits, Prefix};
use crate::protocol::{Preemption, Reason, RequestId, SequenceState, Shortage, Waiting};
use std::collections::VecDeque;

/// First come, first served, as vLLM V1's scheduler: running sequences first, each given tokens
/// until it catches up or the budget is used; then the queue, head first. When blocks run out, the
/// youngest running sequence gives way and is computed again later.
#[derive(Debug)]
pub struct Scheduler {
    /// The head is the next to be admitted. Preempted sequences go back to the front.
    waiting: VecDeque<Sequence>,
    /// In order of arrival.
    running: Vec<Sequence>,
    bounds: Bounds,
    /// Steps planned.
    step: u64,
}

/// Of one step.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub tokens: usize,
    pub sequences: usize,
    pub outputs: usize,
}

impl Scheduler {
    pub fn new(bounds: Bounds) -> Self {
        Self { waiting: VecDeque::new(), running: Vec::new(), bounds, step: 0 }
    }

    pub fn schedule(&mut self, kv: &mut BlockManager, plan: &mut Plan) {
        self.step += 1;
        kv.begin_step(self.step);
        plan.clear(self.bounds.tokens, self.bounds.outputs);
        self.continue_running(kv, plan);
        let why = match plan.preempted.len() {
            0 => self.admit_waiting(kv, plan),
            // Admitting now would take the very blocks that were just given up.
            victims => Some(Reason::Preempting { victims }),
        };
        self.note_waiting(why, plan);
        plan.seal();
    }

    fn continue_running(&mut self, kv: &mut BlockManager, plan: &mut Plan) {
        let mut at = 0;
        while at < self.running.len() {
            let seq = &self.running[at];
            let share = seq.share(seq.num_computed, plan.tokens_left, plan.outputs_left);
            if share.tokens == 0 {
                plan.skipped.push(Waiting { seq: seq.id, reason: self.used_up(plan) });
            } else if self.make_room(at, share.tokens, kv, plan) {
                plan.push(at, &self.running[at], share);
            }
            at += 1;
        }
    }

    /// Blocks for the next `tokens` of a running sequence, at the price of younger ones; false when
    /// it had to give way itself.
    fn make_room(&mut self, at: usize, tokens: usize, kv: &mut BlockManager, plan: &mut Plan) -> bool {
        loop {
            let seq = &mut self.running[at];
            let len = seq.num_computed + tokens;
            match kv.grow(&mut seq.table, seq.num_computed, len, &mut plan.moves) {
                Ok(()) => {
                    let Sequence { table, tokens, chain, .. } = seq;
                    kv.offer(table, Prefix { tokens, chain, priority: 0 }, len);
                    return true;
                }
                Err(shortage) => self.preempt_last(at, shortage, kv, plan),
            }
            if at == self.running.len() {
                return false;
            }
        }
    }

    /// The last running sequence has no row in this step yet: rows are planned in order.
    fn preempt_last(&mut self, for_at: usize, shortage: Shortage, kv: &mut BlockManager, plan: &mut Plan) {
        let by = self.running[for_at].id;
        let mut victim = self.running.pop().expect("at least the one that needs blocks is running");
        let before = kv.pool().available();
        kv.release(&mut victim.table);
        let blocks_freed = kv.pool().available() - before;
        plan.preempted.push(Preemption { seq: victim.id, blocks_freed, swapped: false, by, shortage });
        // Whatever was noted of it in this step is overtaken.
        plan.skipped.retain(|skipped| skipped.seq != victim.id);
        victim.num_computed = 0;
        victim.preemptions += 1;
        victim.state = SequenceState::Preempted;
        self.waiting.push_front(victim);
    }

    /// Admits from the head of the queue; gives back why the new head must wait.
    fn admit_waiting(&mut self, kv: &mut BlockManager, plan: &mut Plan) -> Option<Reason> {
        while !self.waiting.is_empty() {
            if let Err(reason) = self.admit_head(kv, plan) {
                return Some(reason);
            }
        }
        None
    }

    fn admit_head(&mut self, kv: &mut BlockManager, plan: &mut Plan) -> Result<(), Reason> {
        let most = self.bounds.sequences;
        // A prompt that will fork holds a slot for each of its choices.
        let slots: usize = self.running.iter().map(|seq| seq.choices as usize).sum();
        if slots >= most {
            return Err(Reason::Slots { running: slots.min(most), most });
        }
        let seq = &self.waiting[0];
        let mut hits = Hits::default();
        if seq.reads_cache() {
            let prefix = Prefix { tokens: &seq.tokens, chain: &seq.chain, priority: 0 };
            kv.find_prefix(prefix, seq.tokens.len(), &mut hits);
        }
        let computed = hits.tokens();
        let share = seq.share(computed, plan.tokens_left, plan.outputs_left);
        if share.tokens == 0 {
            return Err(self.used_up(plan));
        }
        // The whole sequence must fit, and so must what running prompts have still to compute:
        // otherwise two half-computed prompts could each wait for the other's blocks.
        let (len, whole) = (computed + share.tokens, seq.tokens.len());
        let table = kv
            .admit(seq.id, &hits, len, whole, self.reserved(kv), &mut plan.moves)
            .map_err(Reason::Blocks)?;

        let mut seq = self.waiting.pop_front().expect("it was the head");
        if !seq.started {
            seq.cached_tokens = computed;
            plan.prefix_queries += if seq.reads_cache() { whole } else { 0 };
            plan.prefix_hits += computed;
        }
        (seq.num_computed, seq.table, seq.state) = (computed, table, SequenceState::Running);
        let Sequence { table, tokens, chain, .. } = &mut seq;
        kv.offer(table, Prefix { tokens, chain, priority: 0 }, len);
        plan.push(self.running.len(), &seq, share);
        self.running.push(seq);
        Ok(())
    }

    /// Blocks that running sequences still need for tokens they have.
    fn reserved(&self, kv: &BlockManager) -> usize {
        self.running.iter().map(|seq| kv.missing(&seq.table, seq.tokens.len())).sum()
    }

    fn used_up(&self, plan: &Plan) -> Reason {
        match plan.tokens_left {
            0 => Reason::Budget { tokens: self.bounds.tokens },
            _ => Reason::Outputs { outputs: self.bounds.outputs },
        }
    }

    fn note_waiting(&self, why: Option<Reason>, plan: &mut Plan) {
        for (ahead, seq) in self.waiting.iter().enumerate() {
            let reason = match (ahead, why) {
                (0, Some(reason)) => reason,
                (_, Some(Reason::Preempting { victims })) => Reason::Preempting { victims },
                _ => Reason::Behind { ahead },
            };
            plan.skipped.push(Waiting { seq: seq.id, reason });
        }
    }

    pub fn push(&mut self, seq: Sequence) {
        self.waiting.push_back(seq);
    }

    /// Takes out sequences that ended, and puts `born` behind their parents: each with the place
    /// of its parent. Those for which no slot is left wait at the front of the queue.
    pub fn settle(&mut self, born: Vec<(usize, Sequence)>, kv: &mut BlockManager) {
        let alive = |seq: &Sequence| !seq.ended;
        if born.is_empty() && self.running.iter().all(alive) {
            return;
        }
        let mut free = self.bounds.sequences.saturating_sub(self.running.iter().filter(|s| alive(s)).count());
        let mut born = born.into_iter().peekable();
        let mut overflow = Vec::new();
        for (at, mut seq) in std::mem::take(&mut self.running).into_iter().enumerate() {
            match alive(&seq) {
                true => self.running.push(seq),
                false => kv.release(&mut seq.table),
            }
            while let Some((_, mut child)) = born.next_if(|(parent, _)| *parent == at) {
                if child.ended {
                    kv.release(&mut child.table);
                } else if free > 0 && child.num_computed > 0 {
                    free -= 1;
                    self.running.push(child);
                } else {
                    kv.release(&mut child.table);
                    child.num_computed = 0;
                    child.state = SequenceState::Waiting;
                    overflow.push(child);
                }
            }
        }
        overflow.into_iter().rev().for_each(|seq| self.waiting.push_front(seq));
    }

    /// Takes every sequence of the request out, wherever it is; its blocks are free at once.
    pub fn remove(&mut self, request: RequestId, kv: &mut BlockManager) {
        let mut keep = |seq: &mut Sequence| {
            let other = seq.id.request != request;
            if !other {
                kv.release(&mut seq.table);
            }
            other
        };
        self.running.retain_mut(&mut keep);
        self.waiting.retain_mut(&mut keep);
    }

    /// Forgets all sequences; their tables are void.
    pub fn reset(&mut self) {
        self.waiting.clear();
        self.running.clear();
    }

    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    pub fn running(&self) -> &[Sequence] {
        &self.running
    }

    pub fn running_mut(&mut self) -> &mut [Sequence] {
        &mut self.running
    }

    /// Running, then waiting in the order of the queue.
    pub fn all(&self) -> impl Iterator<Item = &Sequence> {
        self.running.iter().chain(&self.waiting)
    }

    pub fn of_request(&mut self, request: RequestId) -> impl Iterator<Item = &mut Sequence> {
        self.running.iter_mut().chain(&mut self.waiting).filter(move |seq| seq.id.request == request)
    }
}
