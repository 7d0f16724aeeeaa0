use super::plan::Plan;
use super::sequence::Sequence;
use super::step::Engine;
use crate::kv::BlockId;
use crate::protocol::{Counters, Event, KvView, Phases, SequenceView, Snapshot};
use std::time::Duration;

impl Engine {
    /// Closes a step: its record, and whether it met a breakpoint.
    pub(super) fn close_step(
        &mut self,
        plan: Plan,
        started: Duration,
        phases: Phases,
        events: &mut Vec<Event>,
    ) {
        let (budget, usage) = (self.scheduler.budget(), self.runner.usage());
        let mut record = self.stats.record(&plan, budget, started, phases, &mut self.kv, usage);
        record.counters = self.counters();
        record.sampling = self.new_trace.take();
        record.beams = self.beams.take_new();
        record.operations = self.runner.take_profile();
        self.break_after(&record, events);
        self.stats.push(record);
        self.scheduler.spent(&plan, phases.total_ms() as f32);
        self.plan = plan;
    }

    /// What became of the cache's content, in steps and between them.
    pub(super) fn tell_kv(&mut self, events: &mut Vec<Event>) {
        let content = self.kv.take_events();
        content.iter().for_each(|event| self.kv_events.push(event.clone()));
        if self.publishes_kv && !content.is_empty() {
            events.push(Event::Kv(content));
        }
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            step: self.stats.step(),
            paused: self.is_paused(),
            sequences: self.scheduler.all().map(sequence).collect(),
            kv: self.kv_view(),
            counters: self.counters(),
            steps: self.stats.steps(),
            sampling: self.trace.clone(),
            beams: self.beams.view(),
            scheduler: self.scheduler.settings().clone(),
            breakpoints: self.breakpoints.list().to_vec(),
            kv_events: self.kv_events.iter().cloned().collect(),
            memory: self.memory,
        }
    }

    fn counters(&self) -> Counters {
        let grammar = self.grammars.spent() + self.output.grammar_time();
        let counters = self.stats.counters(&self.kv, self.output.finished());
        Counters { grammar_ms: grammar.as_secs_f64() * 1e3, ..counters }
    }

    fn kv_view(&self) -> KvView {
        let pool = self.kv.pool();
        let blocks = (0..=pool.total() as BlockId).map(|id| self.kv.view(id)).collect();
        let (available, cached) = (pool.available(), pool.cached());
        KvView {
            block_size: self.kv.block_size(),
            bytes_per_block: self.runner.limits().bytes_per_block,
            blocks,
            free: available - cached,
            cached,
            owned: pool.total() - available,
            tiers: self.offload.tiers(&self.kv),
        }
    }
}

fn sequence(seq: &Sequence) -> SequenceView {
    SequenceView {
        seq: seq.id,
        state: seq.state,
        prompt_tokens: seq.prompt_len,
        cached_tokens: seq.cached_tokens,
        generated_tokens: seq.num_generated(),
        computed_tokens: seq.num_computed,
        blocks: seq.table.blocks().to_vec(),
        params: seq.params.clone(),
        preemptions: seq.preemptions,
        priority: seq.priority,
    }
}
