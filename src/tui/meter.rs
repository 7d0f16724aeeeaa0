//! What the snapshots say over time: each holds only the newest steps, the panels want history.

use crate::base::{Ring, Summary};
use crate::protocol::{DeviceLimits, Outcome, SeqId, Snapshot, StepRecord};
use std::collections::HashMap;
use std::sync::Arc;

/// Rates are over this span of engine time.
const RATE_WINDOW_MS: f64 = 1_000.0;
/// Times the median, beyond which a gap stands out.
pub const OUTLIER: f64 = 3.0;

pub struct Meter {
    /// Every step seen, oldest first.
    pub steps: Ring<Arc<StepRecord>>,
    /// Gaps between consecutive tokens of one sequence, in milliseconds.
    pub gaps_ms: Ring<f64>,
    /// Of finished choices.
    pub ttft_ms: Ring<f64>,
    /// (E2EL - TTFT) / (tokens - 1), and the mean of the gaps.
    pub tpot_ms: Ring<f64>,
    pub mean_gap_ms: Ring<f64>,
    pub queue_ms: Ring<f64>,
    pub e2el_ms: Ring<f64>,
    pub last: Option<Outcome>,
    pub limits: Limits,
    /// How many steps the newest snapshot brought.
    pub newest: usize,
    last_step: Option<u64>,
    last_token_ms: HashMap<SeqId, f64>,
}

/// What the device can do at most.
#[derive(Debug, Default)]
pub enum Limits {
    #[default]
    Unknown,
    /// They are being measured.
    Asked,
    Known(Box<DeviceLimits>),
    Failed(String),
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            steps: Ring::new(512),
            gaps_ms: Ring::new(512),
            ttft_ms: Ring::new(256),
            tpot_ms: Ring::new(256),
            mean_gap_ms: Ring::new(256),
            queue_ms: Ring::new(256),
            e2el_ms: Ring::new(256),
            last: None,
            limits: Limits::default(),
            newest: 0,
            last_step: None,
            last_token_ms: HashMap::new(),
        }
    }
}

impl Meter {
    /// Takes the steps that are new in this snapshot.
    pub fn observe(&mut self, snapshot: &Snapshot) {
        self.newest = 0;
        let newest = snapshot.steps.last().map_or(0, |record| record.step);
        let back = self.last_step.is_some_and(|last| newest < last);
        if back {
            // A replay went back: what it has not reached yet is forgotten.
            self.forget_steps();
        }
        for record in &snapshot.steps {
            if self.last_step.is_none_or(|last| record.step > last) {
                self.last_step = Some(record.step);
                self.newest += 1;
                self.take(record);
            }
        }
        if back {
            // All of them are old but the one it stands at.
            self.newest = self.newest.min(1);
        }
        self.last_token_ms.retain(|seq, _| snapshot.sequences.iter().any(|s| s.seq == *seq));
    }

    pub fn forget_answers(&mut self) {
        self.ttft_ms.clear();
        self.tpot_ms.clear();
        self.mean_gap_ms.clear();
        self.queue_ms.clear();
        self.e2el_ms.clear();
        self.last = None;
    }

    fn forget_steps(&mut self) {
        self.steps.clear();
        self.gaps_ms.clear();
        self.last_token_ms.clear();
        self.last_step = None;
    }

    pub fn finished(&mut self, outcome: &Outcome) {
        if outcome.usage.completion_tokens > 0 {
            self.ttft_ms.push(outcome.timings.ttft_ms);
            self.queue_ms.push(outcome.timings.queue_ms);
            self.e2el_ms.push(outcome.timings.e2el_ms);
        }
        if outcome.usage.completion_tokens > 1 {
            self.tpot_ms.push(outcome.timings.tpot_ms);
            self.mean_gap_ms.push(outcome.timings.itl_ms_mean);
        }
        self.last = Some(outcome.clone());
    }

    /// Tokens generated per second of engine time, all sequences together, `back` steps ago.
    pub fn tokens_per_second(&self, back: usize) -> Option<f64> {
        let recent = self.recent(back);
        let span = end_ms(recent.first()?) - end_ms(recent.last()?);
        let tokens: usize = recent.iter().take(recent.len() - 1).map(|s| sampled(s)).sum();
        (span > 0.0 && tokens > 0).then(|| tokens as f64 / span * 1e3)
    }

    /// The same of each sequence that drew a token in that time, in the order of the newest step's rows.
    pub fn rates(&self, back: usize) -> Vec<(SeqId, f64)> {
        let recent = self.recent(back);
        let Some((newest, before)) = recent.split_first() else { return Vec::new() };
        let Some(oldest) = before.last() else { return Vec::new() };
        let span = end_ms(newest) - end_ms(oldest);
        let drew = |record: &StepRecord, seq| record.rows.iter().any(|r| r.seq == seq && r.sampled.is_some());
        let of = |seq| recent[..recent.len() - 1].iter().filter(|record| drew(record, seq)).count();
        let seqs = newest.rows.iter().map(|row| row.seq);
        seqs.map(|seq| (seq, of(seq) as f64 / span * 1e3)).filter(|(_, rate)| rate.is_finite()).collect()
    }

    /// Bytes read and operations done a second, while steps were computed, over the same time.
    pub fn work(&self, back: usize) -> Option<(f64, f64)> {
        let recent = self.recent(back);
        let (newest, oldest) = (recent.first()?.counters, recent.last()?.counters);
        let seconds = (newest.busy_ms - oldest.busy_ms) / 1e3;
        let over = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let rates = (over(newest.bytes_read, oldest.bytes_read), over(newest.flops, oldest.flops));
        (seconds > 0.0).then_some(rates)
    }

    /// The steps of the last second before the `back`-th newest, newest first.
    fn recent(&self, back: usize) -> Vec<&Arc<StepRecord>> {
        let mut steps = self.steps.iter().rev().skip(back).peekable();
        let Some(end) = steps.peek().map(|step| end_ms(step)) else { return Vec::new() };
        steps.take_while(|step| end - end_ms(step) <= RATE_WINDOW_MS).collect()
    }

    /// Gaps longer than this stand out: three times the median, once there are enough to know it.
    pub fn outlier_ms(&self) -> Option<f64> {
        const ENOUGH: usize = 5;
        let gaps = self.gaps();
        (gaps.count >= ENOUGH && gaps.p50 > 0.0).then_some(OUTLIER * gaps.p50)
    }

    pub fn gaps(&self) -> Summary {
        Summary::of(self.gaps_ms.iter().copied())
    }

    fn take(&mut self, record: &Arc<StepRecord>) {
        let end = end_ms(record);
        for row in record.rows.iter().filter(|row| row.sampled.is_some()) {
            if let Some(before) = self.last_token_ms.insert(row.seq, end) {
                self.gaps_ms.push(end - before);
            }
        }
        self.steps.push(record.clone());
    }
}

fn end_ms(record: &StepRecord) -> f64 {
    record.started_ms + record.phases.total_ms()
}

/// Tokens drawn in a step.
pub fn sampled(record: &StepRecord) -> usize {
    record.rows.iter().filter(|row| row.sampled.is_some()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Phases, RequestId, RowKind, RowRecord, SequenceState, SequenceView};

    fn step(number: u64, started_ms: f64, seqs: &[SeqId]) -> Arc<StepRecord> {
        let rows = seqs.iter().map(|&seq| RowRecord {
            seq,
            kind: RowKind::Decode,
            tokens: 1,
            computed: 0,
            sampled: Some(1),
        });
        let phases = Phases { forward_ms: 5.0, ..Phases::default() };
        Arc::new(StepRecord { step: number, started_ms, phases, rows: rows.collect(), ..Default::default() })
    }

    #[test]
    fn overlapping_snapshots_count_each_step_once() {
        let seqs = [0, 1].map(|choice| SeqId { request: RequestId(1), choice });
        let steps: Vec<_> = (0..6).map(|i| step(i, i as f64 * 10.0, &seqs)).collect();
        let view = |seq| SequenceView {
            seq,
            state: SequenceState::Running,
            prompt_tokens: 1,
            cached_tokens: 0,
            generated_tokens: 1,
            computed_tokens: 1,
            blocks: vec![],
            params: Default::default(),
            preemptions: 0,
            priority: 0,
        };
        let snapshot = |range: std::ops::Range<usize>| Snapshot {
            steps: steps[range].to_vec(),
            sequences: seqs.map(view).to_vec(),
            ..Snapshot::default()
        };
        let mut meter = Meter::default();
        meter.observe(&snapshot(0..4));
        meter.observe(&snapshot(2..6));
        assert_eq!(meter.newest, 2);
        assert_eq!(meter.steps.len(), 6);
        assert_eq!((meter.gaps().count, meter.gaps().p50), (10, 10.0));
        assert_eq!(meter.tokens_per_second(0), Some(200.0));
        assert_eq!(meter.tokens_per_second(5), None);
        assert_eq!(meter.rates(0), seqs.map(|seq| (seq, 100.0)));
        meter.observe(&Snapshot::default());
        assert!(meter.last_token_ms.is_empty());
    }

    #[test]
    fn a_gap_stands_out_against_the_usual_one_once_there_is_one() {
        let mut meter = Meter::default();
        [10.0, 90.0, 10.0, 10.0].into_iter().for_each(|gap| meter.gaps_ms.push(gap));
        assert_eq!(meter.outlier_ms(), None);
        meter.gaps_ms.push(10.0);
        assert_eq!(meter.outlier_ms(), Some(30.0));
    }

    #[test]
    fn work_is_what_the_newest_steps_did_by_the_time_they_took() {
        let mut meter = Meter::default();
        for i in 0..4u64 {
            let counters = crate::protocol::Counters {
                busy_ms: i as f64 * 5.0,
                bytes_read: i * 100,
                flops: i * 1_000,
                ..Default::default()
            };
            let record = StepRecord { counters, ..(*step(i, i as f64 * 10.0, &[])).clone() };
            meter.steps.push(Arc::new(record));
        }
        assert_eq!(meter.work(0), Some((20_000.0, 200_000.0)));
        assert_eq!(meter.work(3), None, "one step alone says nothing");
    }
}
