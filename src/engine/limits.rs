//! What keeps a sequence from getting more, or anything: the long prompts' threshold, the interval of
//! prefills, places, static batches, blocks that are spoken for.

use super::plan::Plan;
use super::scheduler::Scheduler;
use super::sequences::Key;
use crate::kv::BlockManager;
use crate::protocol::{Batching, Reason, SchedulePolicy};

/// What running sequences hold while others are admitted beside them, counted once for a step.
#[derive(Debug, Default)]
pub struct Held {
    /// Places of the batch.
    pub places: usize,
    /// Blocks that they still need; counted when first asked for.
    pub blocks: Option<usize>,
}

impl Scheduler {
    /// While there are other sequences, a long prompt may not take the whole budget.
    pub(super) fn long_prefill_threshold(&self) -> usize {
        let s = &self.settings;
        let sequences = self.running.len() + self.waiting.len();
        match s.long_prefill_token_threshold {
            0 => usize::MAX,
            _ if sequences <= 1 => usize::MAX,
            threshold if s.long_prefill_token_threshold_adaptive => threshold.max(self.budget() / sequences),
            threshold => threshold,
        }
    }

    /// `prefill_schedule_interval`: prompts, running and waiting ones, sit out while something decodes.
    /// Not where the last step that took prompts left some behind: their turns are too few already.
    pub(super) fn defers_prefills(&self) -> Option<Reason> {
        let of = self.settings.prefill_schedule_interval;
        let steps = self.since_prefill;
        let decoding = || self.running.iter().any(|key| !self.sequences[*key].is_prefill());
        (of > 1 && steps + 1 < of && !self.prefill_capacity_bound && decoding())
            .then_some(Reason::Interval { steps, of })
    }

    /// Most sequences that may be running at a time.
    pub(super) fn most_active(&self) -> usize {
        let s = &self.settings;
        s.max_num_active_seqs.unwrap_or(s.max_num_seqs).min(s.max_num_seqs)
    }

    /// Whether one more may run beside those that take `places`.
    pub(super) fn has_place(&self, places: usize) -> Result<(), Reason> {
        if self.settings.batching == Batching::Static && self.forming == 0 {
            return Err(Reason::Batch { running: self.running.len() });
        }
        let (s, most) = (&self.settings, self.most_active());
        match places < most {
            true => Ok(()),
            false if s.schedule_policy == SchedulePolicy::RoundRobin => {
                Err(Reason::Turn { slice_ms: s.time_slice_ms, ahead: self.running.len() })
            }
            false => Err(Reason::Slots { running: places.min(most), most }),
        }
    }

    /// Static batching: a new batch is whoever waits when the last one has finished.
    pub(super) fn form_batch(&mut self) {
        if self.running.is_empty() {
            self.forming = self.waiting.len().min(self.most_active());
            self.batch_size = self.forming;
        }
    }

    pub(super) fn used_up(&self, plan: &Plan) -> Reason {
        match plan.tokens_left {
            0 => Reason::Budget { tokens: self.budget() },
            _ => Reason::Outputs { outputs: self.bounds.outputs },
        }
    }

    /// Blocks that running sequences still need for tokens they have, and those of the watermark.
    pub(super) fn reserved(&mut self, kv: &BlockManager) -> usize {
        if self.running.is_empty() {
            return 0;
        }
        let watermark = (self.settings.watermark * kv.pool().total() as f32).ceil() as usize;
        let count = || self.running.iter().map(|key| self.still_needed(*key, kv)).sum();
        let blocks = self.held.blocks.unwrap_or_else(count);
        self.held.blocks = Some(blocks);
        watermark + blocks
    }

    /// Blocks kept for a running sequence until it has computed all its tokens.
    fn still_needed(&self, key: Key, kv: &BlockManager) -> usize {
        let seq = &self.sequences[key];
        match self.settings.scheduler_reserve_full_isl {
            true => kv.still_needed(&seq.table, seq.num_tokens()),
            false => 0,
        }
    }

    /// Places that running sequences take.
    pub(super) fn places(&self) -> usize {
        self.running.iter().map(|key| self.sequences[*key].places()).sum()
    }

    /// One more is admitted.
    pub(super) fn hold(&mut self, key: Key, kv: &BlockManager) {
        self.held.places += self.sequences[key].places();
        if let Some(blocks) = self.held.blocks {
            self.held.blocks = Some(blocks + self.still_needed(key, kv));
        }
    }
}
