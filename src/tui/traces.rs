//! The waterfalls of the newest tokens that were traced: those of the sequence in focus.

use crate::protocol::{SamplingTrace, SeqId, Snapshot};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// So many are kept; the oldest goes first.
const KEPT: usize = 4_096;

#[derive(Default)]
pub struct Traces {
    known: HashMap<(SeqId, usize), Arc<SamplingTrace>>,
    order: VecDeque<(SeqId, usize)>,
}

impl Traces {
    pub fn observe(&mut self, snapshot: &Snapshot) {
        for trace in snapshot.steps.iter().filter_map(|step| step.sampling.as_ref()) {
            self.keep(trace);
        }
    }

    /// Of the how-manieth generated token of the sequence, from 0.
    pub fn get(&self, seq: SeqId, index: usize) -> Option<&Arc<SamplingTrace>> {
        self.known.get(&(seq, index))
    }

    /// The first and the last token of a sequence that are known; none where none is.
    pub fn of(&self, seq: SeqId) -> Option<(usize, usize)> {
        let indices = || self.order.iter().filter(|(of, _)| *of == seq).map(|(_, index)| *index);
        indices().min().zip(indices().max())
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn keep(&mut self, trace: &Arc<SamplingTrace>) {
        let key = (trace.seq, trace.index);
        if self.known.insert(key, trace.clone()).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}
