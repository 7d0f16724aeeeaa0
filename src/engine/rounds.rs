//! Several steps for one plan (`num_scheduler_steps`): while all rows decode, nothing is decided anew.

use super::plan::Plan;
use super::scheduler::Scheduler;
use super::sequence::Sequence;
use crate::kv::BlockManager;
use crate::protocol::{Reason, RowKind};

impl Scheduler {
    /// The same rows again, each for its next token, when there is nothing to decide: all of them
    /// decode and have their blocks (`num_scheduler_steps`). False, and nothing planned, otherwise.
    pub(super) fn repeat(&mut self, left: u32, kv: &mut BlockManager, plan: &mut Plan) -> bool {
        let decodes = |seq: &Sequence| {
            !seq.held && !seq.is_prefill() && !seq.is_saturated(self.context()) && !seq.outgrew(self.rope)
        };
        if self.running.is_empty()
            || self.running.len() > plan.tokens_left.min(plan.outputs_left)
            || self.running.len() > self.settings.max_num_seqs
            || !self.running.iter().all(|key| decodes(&self.sequences[*key]))
        {
            return false;
        }
        for key in &self.running {
            let seq = &mut self.sequences[*key];
            let (computed, len) = (seq.num_computed, seq.num_computed + 1);
            if kv.grow(&mut seq.table, computed, len, &mut plan.moves).is_err() {
                // What grew stays: the plan that is made instead goes on from there.
                return false;
            }
        }
        for at in 0..self.running.len() {
            let seq = &self.sequences[self.running[at]];
            let share = seq.share(seq.num_computed, 1, 1);
            plan.charge(share);
            self.shares.push((self.running[at], share));
        }
        self.make_rows(kv, plan);
        self.note_waiting(Some(Reason::Round { left }), plan.skipped.len(), plan);
        self.close(plan);
        true
    }

    /// Blocks for the tokens of a whole round, where they are free.
    pub(super) fn look_ahead(&mut self, kv: &mut BlockManager, plan: &mut Plan) {
        let ahead = self.settings.num_scheduler_steps as usize - 1;
        if ahead == 0 || plan.rows.iter().any(|row| row.kind == RowKind::Prefill) {
            return;
        }
        let context = self.context();
        for row in &plan.rows {
            let seq = &mut self.sequences[row.key];
            let most = context.min(seq.num_computed + ahead.min(seq.left_to_draw()));
            // A shortage only ends the round early.
            let _ = kv.reserve(&mut seq.table, most, &mut plan.moves);
        }
    }
}
