use super::plan::Plan;
use crate::base::{Clock, Ring};
use crate::kv::{BlockManager, KvCounts};
use crate::model::Usage;
use crate::protocol::{Counters, Phases, RowRecord, StepRecord};
use std::sync::Arc;
use std::time::Duration;

/// Steps that can be looked back at.
const REMEMBERED: usize = 512;

/// What the engine did: the newest steps in full, everything in sums.
pub struct Stats {
    steps: Ring<Arc<StepRecord>>,
    counters: Counters,
    step: u64,
    /// As of the last record.
    kv: KvCounts,
}

impl Stats {
    pub fn new() -> Self {
        Self { steps: Ring::new(REMEMBERED), counters: Counters::default(), step: 0, kv: KvCounts::default() }
    }

    pub fn accepted(&mut self, prompt_tokens: usize) {
        self.counters.prompt_tokens += prompt_tokens as u64;
    }

    pub fn generated(&mut self, forced: bool) {
        self.counters.generated_tokens += 1;
        self.counters.forced_tokens += u64::from(forced);
    }

    /// Closes a step. Blocks are counted since the last record: what an abort freed between two
    /// steps belongs to the later one.
    pub fn record(
        &mut self,
        plan: &Plan,
        token_budget: usize,
        started: Duration,
        phases: Phases,
        kv: &mut BlockManager,
        usage: Usage,
    ) -> StepRecord {
        self.step += 1;
        let counters = &mut self.counters;
        counters.prefix_queries += plan.prefix_queries as u64;
        counters.prefix_hits += plan.prefix_hits as u64;
        counters.preemptions += plan.preempted.len() as u64;
        counters.swaps += plan.preempted.iter().filter(|p| p.swapped).count() as u64;
        counters.busy_ms += phases.total_ms();
        (counters.bytes_read, counters.flops) = (usage.bytes_read, usage.flops);
        let (now, before) = (kv.counts(), std::mem::replace(&mut self.kv, kv.counts()));
        let since = |now: u64, before: u64| (now - before) as usize;
        let mut blocks = Vec::new();
        kv.take_changes(&mut blocks);
        StepRecord {
            step: self.step,
            started_ms: started.as_secs_f64() * 1e3,
            phases,
            tokens: plan.batch.tokens.len(),
            token_budget,
            rows: rows(plan),
            slots: plan.slots,
            waiting: plan.skipped.clone(),
            preempted: plan.preempted.clone(),
            blocks_taken: since(now.taken, before.taken),
            blocks_freed: since(now.freed, before.freed),
            blocks_hit: since(now.hit, before.hit),
            blocks_evicted: since(now.evicted, before.evicted),
            blocks_copied: since(now.copied, before.copied),
            blocks_saved: since(now.saved, before.saved),
            blocks_loaded: since(now.loaded, before.loaded),
            blocks_free: kv.pool().available(),
            blocks,
            counters: Counters::default(),
            sampling: None,
            beams: None,
            operations: Vec::new(),
        }
    }

    pub fn push(&mut self, record: StepRecord) {
        self.steps.push(Arc::new(record));
    }

    pub fn step(&self) -> u64 {
        self.step
    }

    pub fn steps(&self) -> Vec<Arc<StepRecord>> {
        self.steps.iter().cloned().collect()
    }

    pub fn counters(&self, kv: &BlockManager, requests_finished: u64) -> Counters {
        let KvCounts { evicted, copied, hit, forked, .. } = kv.counts();
        let blocks_shared = hit + forked;
        Counters {
            evictions: evicted,
            copies_on_write: copied,
            blocks_shared,
            requests_finished,
            ..self.counters
        }
    }
}

fn rows(plan: &Plan) -> Vec<RowRecord> {
    let rows = plan.batch.rows.iter().zip(&plan.rows);
    rows.map(|(row, planned)| RowRecord {
        seq: row.seq,
        kind: planned.kind,
        tokens: row.tokens.len(),
        computed: row.start,
        sampled: planned.drawn,
    })
    .collect()
}

/// Splits a step into its phases.
pub struct Stopwatch {
    clock: Clock,
    started: Duration,
    lap: Duration,
}

impl Stopwatch {
    pub fn start(clock: &Clock) -> Self {
        let now = clock.now();
        Self { clock: clock.clone(), started: now, lap: now }
    }

    /// Milliseconds since the last lap.
    pub fn lap(&mut self) -> f64 {
        let now = self.clock.now();
        (now - std::mem::replace(&mut self.lap, now)).as_secs_f64() * 1e3
    }

    pub fn started(&self) -> Duration {
        self.started
    }
}
