use crate::protocol::{Counters, Handle, RowKind, StepRecord};
use std::sync::Arc;

/// The step records of a run, as far as the snapshots show them.
pub struct Steps {
    before: u64,
    last: u64,
    counters: Counters,
}

impl Steps {
    pub fn from(handle: &Handle) -> Self {
        let snapshot = handle.snapshot.load();
        let before = snapshot.steps.last().map_or(0, |record| record.step);
        Self { before, last: before, counters: snapshot.counters }
    }

    /// Those that were not there before.
    pub fn arrived(&mut self, handle: &Handle) -> impl Iterator<Item = Arc<StepRecord>> + use<> {
        let snapshot = handle.snapshot.load();
        let first = snapshot.steps.partition_point(|record| record.step <= self.last);
        self.last = snapshot.steps.last().map_or(self.last, |record| record.step.max(self.last));
        let arrived: Vec<_> = snapshot.steps[first..].to_vec();
        arrived.into_iter()
    }

    /// What was counted before the first of them.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub fn count(&self) -> u64 {
        self.last - self.before
    }
}

/// The steps that a test times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timed {
    /// What was counted before the first of them.
    before: Counters,
    steps: Vec<Arc<StepRecord>>,
}

impl Timed {
    /// All steps of a run; `None` where a record is missing.
    pub fn prefill(before: Counters, steps: Vec<Arc<StepRecord>>) -> Option<Self> {
        Some(Self { before, steps }).filter(Self::is_whole)
    }

    /// The `n` steps of a run after the last that computed prompt tokens; `None` where a record of
    /// theirs is missing.
    pub fn decode(steps: &[Arc<StepRecord>], n: usize) -> Option<Self> {
        let prefills = |record: &Arc<StepRecord>| record.rows.iter().any(|row| row.kind == RowKind::Prefill);
        let last = steps.iter().rposition(prefills)?;
        let timed = steps[last + 1..].get(..n)?;
        Some(Self { before: steps[last].counters, steps: timed.to_vec() }).filter(Self::is_whole)
    }

    fn is_whole(&self) -> bool {
        !self.steps.is_empty() && self.steps.windows(2).all(|two| two[1].step == two[0].step + 1)
    }

    pub fn steps(&self) -> &[Arc<StepRecord>] {
        &self.steps
    }

    /// Bytes of weights and KV cache that were read.
    pub fn bytes_read(&self) -> u64 {
        self.after().bytes_read - self.before.bytes_read
    }

    /// A multiplication and an addition are two.
    pub fn flops(&self) -> u64 {
        self.after().flops - self.before.flops
    }

    /// From the start of the first step to the end of the last, on the engine's clock.
    pub fn total_ms(&self) -> f64 {
        let ends = self.steps.first().zip(self.steps.last());
        ends.map_or(0.0, |(first, last)| last.started_ms + last.phases.total_ms() - first.started_ms)
    }

    fn after(&self) -> Counters {
        self.steps.last().map_or(self.before, |record| record.counters)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::protocol::{Phases, RequestId, RowRecord, SeqId};

    /// A step of a millisecond that starts two after the one before; 100 bytes and 7 operations each.
    pub fn record(step: u64, kind: RowKind) -> Arc<StepRecord> {
        let seq = SeqId { request: RequestId(0), choice: 0 };
        let row = RowRecord { seq, kind, tokens: 1, computed: 0, sampled: None };
        Arc::new(StepRecord {
            step,
            started_ms: 2.0 * step as f64,
            phases: Phases { schedule_ms: 0.1, forward_ms: 0.6, sample_ms: 0.2, output_ms: 0.1 },
            rows: vec![row],
            counters: Counters { bytes_read: 100 * step, flops: 7 * step, ..Counters::default() },
            ..StepRecord::default()
        })
    }

    #[test]
    fn a_decode_counts_only_the_steps_after_the_prompt() {
        let kinds = [RowKind::Prefill, RowKind::Prefill, RowKind::Decode, RowKind::Decode, RowKind::Decode];
        let steps: Vec<_> = (11..).zip(kinds).map(|(step, kind)| record(step, kind)).collect();
        let timed = Timed::decode(&steps, 2).expect("they are there");
        assert_eq!((timed.steps()[0].step, timed.steps().len()), (13, 2));
        assert_eq!((timed.bytes_read(), timed.flops()), (200, 14));
        assert!((timed.total_ms() - 3.0).abs() < 1e-9);
        assert_eq!(Timed::decode(&steps, 4), None, "there are three");

        let before = Counters { bytes_read: 1000, ..Counters::default() };
        assert_eq!(Timed::prefill(before, steps.clone()).map(|timed| timed.bytes_read()), Some(500));
        let gap = vec![steps[0].clone(), steps[2].clone()];
        assert_eq!(Timed::prefill(before, gap), None);
        assert_eq!(Timed::prefill(before, Vec::new()), None);
    }
}
