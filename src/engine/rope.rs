//! Sequences whose rotary factors depend on their length (`RopeLengths`). All keys of a sequence are made with the
//! factors for the length at which it was begun; one that outgrows them is begun anew, as a preempted one is:
//! stale keys never meet new queries, and nothing is shared with sequences that turn otherwise.

use super::scheduler::Scheduler;
use super::sequence::Sequence;
use super::sequences::Key;
use crate::kv::BlockManager;
use crate::model::RopeLengths;
use crate::protocol::SequenceState;

impl Sequence {
    /// Its first token is to be computed: all are, with the factors for its length.
    pub(super) fn begin(&mut self, lengths: RopeLengths) {
        self.rope_len = self.num_tokens();
        self.chain.turn(lengths.kind(self.rope_len), &self.tokens);
    }

    /// Its next token needs other factors than it began with.
    pub(super) fn outgrew(&self, lengths: RopeLengths) -> bool {
        self.num_tokens() > lengths.reach(self.rope_len)
    }
}

impl Scheduler {
    pub fn with_rope(mut self, lengths: RopeLengths) -> Self {
        self.rope = lengths;
        self
    }

    /// Leaves its place for the head of the queue, and all that it has computed.
    pub(super) fn begin_anew(&mut self, key: Key, kv: &mut BlockManager) {
        self.running.retain(|running| *running != key);
        self.sequences[key].start_over(SequenceState::Preempted, kv);
        self.requeue(key);
    }

    /// Before a waiting sequence is looked up: whether it has computed anything that is of use to it.
    pub(super) fn fit_rope(&mut self, key: Key, kv: &mut BlockManager) {
        let lengths = self.rope;
        if lengths == RopeLengths::Same {
            return;
        }
        let seq = &mut self.sequences[key];
        if seq.outgrew(lengths) {
            let state = seq.state;
            seq.start_over(state, kv);
            if let Some(swapped) = seq.swapped.take() {
                kv.drop_swapped(swapped);
            }
        }
        if seq.table.is_empty() && seq.swapped.is_none() {
            seq.begin(lengths);
        }
    }
}
