use super::intake::{Intake, Lengths, panic_message};
use super::output::Output;
use super::plan::Plan;
use super::scheduler::{Bounds, Scheduler};
use super::stats::{Stats, Stopwatch};
use crate::base::Clock;
use crate::config::EngineSettings;
use crate::kv::{BlockManager, KvConfig};
use crate::model::{DeviceError, Outputs, Runner};
use crate::protocol::{Event, Failure, FailureKind, FinishReason, Phases, SamplingTrace, SeqId, Waiting};
use crate::sample::SampleRow;
use crate::text::TextModel;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The engine without its threads: the host drives it, and so do tests, a step at a time.
pub struct Engine {
    pub(super) scheduler: Scheduler,
    pub(super) kv: BlockManager,
    pub(super) runner: Box<dyn Runner>,
    pub(super) output: Output,
    pub(super) stats: Stats,
    pub(super) plan: Plan,
    pub(super) text: Arc<TextModel>,
    pub(super) clock: Clock,
    pub(super) lengths: Lengths,
    pub(super) pace: Pace,
    pub(super) focus: Focus,
    /// Of the focused sequence's newest token.
    pub(super) trace: Option<Arc<SamplingTrace>>,
}

/// How far the engine may go on by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    Running,
    /// This many more steps.
    Steps(u32),
}

/// Whose sampling is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Focus {
    /// 0 while nobody looks.
    pub candidates: usize,
    /// `None`: whoever is first in the batch.
    pub seq: Option<SeqId>,
}

impl Engine {
    pub fn new(
        settings: &EngineSettings,
        runner: Box<dyn Runner>,
        text: Arc<TextModel>,
        clock: Clock,
    ) -> Self {
        let limits = runner.limits();
        let context = settings.max_model_len.unwrap_or(usize::MAX).min(limits.max_model_len);
        let lengths = Lengths::of(limits, context);
        let bounds = Bounds {
            tokens: settings.scheduler.max_num_batched_tokens.min(limits.max_batched_tokens).max(1),
            sequences: settings.scheduler.max_num_seqs.max(1),
            outputs: limits.max_outputs.max(1),
        };
        let kv_config = KvConfig {
            groups: limits.groups.clone(),
            prefix_cache: settings.prefix_cache,
            eviction: settings.radix_eviction_policy,
            host_blocks: settings.host_kv_bytes / limits.bytes_per_block.max(1),
            events: true,
            ..KvConfig::new(limits.num_blocks, limits.block_size)
        };
        Self {
            scheduler: Scheduler::new(bounds),
            kv: BlockManager::new(kv_config),
            output: Output::new(text.clone(), clock.clone(), lengths.longest()),
            stats: Stats::new(bounds.tokens),
            plan: Plan::default(),
            pace: Pace::Running,
            focus: Focus { candidates: settings.trace_candidates, seq: None },
            trace: None,
            runner,
            text,
            clock,
            lengths,
        }
    }

    /// One step: schedule, launch, sample, account.
    fn step(&mut self, events: &mut Vec<Event>) -> Result<(), DeviceError> {
        let mut watch = Stopwatch::start(&self.clock);
        self.scheduler.schedule(&mut self.kv, &mut self.plan);
        if self.plan.is_empty() {
            self.end_stuck_head(events);
            return Ok(());
        }
        self.announce(events);
        let schedule_ms = watch.lap();

        let launched = self.runner.launch(&self.plan.batch)?;
        let forward_ms = watch.lap();

        let rows = sample_rows(&self.plan, &self.scheduler, self.text.end_tokens(), self.focus);
        let sampled = self.runner.sample(launched, &rows)?;
        if sampled.len() != rows.len() {
            return Err(DeviceError(format!("{} results for {} rows of logits", sampled.len(), rows.len())));
        }
        let sample_ms = watch.lap();

        self.account(sampled, events);
        let output_ms = watch.lap();

        let phases = Phases { schedule_ms, forward_ms, sample_ms, output_ms };
        self.stats.record(&self.plan, watch.started(), phases, &self.kv, self.runner.usage());
        Ok(())
    }

    /// One guarded step, if the pace allows one. A device error or a panic ends every request with
    /// a reason; the next request finds an empty engine.
    pub fn tick(&mut self, events: &mut Vec<Event>) {
        if !self.can_step() {
            return;
        }
        let stepped = catch_unwind(AssertUnwindSafe(|| self.step(events)));
        let why = match stepped {
            Ok(Ok(())) => return self.pace_after_step(),
            Ok(Err(error)) => format!("the device failed: {error}"),
            Err(panic) => format!("the engine failed: {}", panic_message(&*panic)),
        };
        let failure = Failure::new(FailureKind::Internal, why);
        self.output.close_all(&FinishReason::Error(failure), events);
        self.scheduler.reset();
        self.kv.reset();
        self.trace = None;
        self.pace_after_step();
    }

    /// There is work, and no pause holds it up.
    pub fn can_step(&self) -> bool {
        !self.scheduler.is_idle() && self.pace != Pace::Steps(0)
    }

    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle()
    }

    /// The intake that goes with this engine; it lives on its own thread.
    pub fn intake(&self) -> Intake {
        Intake::new(self.text.clone(), self.clock.clone(), self.lengths, self.kv.block_size())
    }

    /// Recounts every block against every table: free + cached + owned = total. For idle moments
    /// and tests; says what is wrong.
    pub fn self_check(&self) -> Result<(), String> {
        self.kv.check(self.scheduler.all().map(|seq| &seq.table))
    }

    /// Tells the world of first rows and of preemptions.
    fn announce(&mut self, events: &mut Vec<Event>) {
        for preempted in &self.plan.preempted {
            self.output.preempted(preempted.seq);
        }
        for row in &self.plan.rows {
            let seq = &mut self.scheduler.running_mut()[row.at];
            if !std::mem::replace(&mut seq.started, true) {
                self.output.start(seq, events);
            }
        }
    }

    /// Nothing runs and the head of the queue cannot: it never will. Intake refuses such requests;
    /// should one slip through, it must end rather than block those behind it.
    fn end_stuck_head(&mut self, events: &mut Vec<Event>) {
        let nothing_changed = self.scheduler.running().is_empty() && self.plan.preempted.is_empty();
        let Some(Waiting { seq, reason }) = self.plan.skipped.first().filter(|_| nothing_changed) else {
            return;
        };
        let failure = Failure::new(FailureKind::TooLong, format!("it cannot be scheduled: {reason}"));
        self.output.close_request(seq.request, &FinishReason::Error(failure), events);
        self.scheduler.remove(seq.request, &mut self.kv);
    }
}

/// One row for each output of the batch, in order.
fn sample_rows<'a>(
    plan: &Plan,
    scheduler: &'a Scheduler,
    end_tokens: &'a [u32],
    focus: Focus,
) -> Vec<SampleRow<'a>> {
    let running = scheduler.running();
    let focused = focus.seq.filter(|focused| running.iter().any(|seq| seq.id == *focused));
    let mut rows = Vec::new();
    let mut traced = false;
    for (row, planned) in plan.batch.rows.iter().zip(&plan.rows) {
        let seq = &running[planned.at];
        let draw = row.outputs != Outputs::All;
        for (choice, token) in (0..).zip(row.output_tokens()) {
            let id = if draw { SeqId { choice: seq.id.choice + choice, ..seq.id } } else { seq.id };
            let trace = draw && !traced && focused.is_none_or(|focused| focused == id);
            traced |= trace;
            let scoring = seq.scoring.filter(|scoring| scoring.done < seq.prompt_len);
            let logprobs = if draw { seq.params.logprobs.unwrap_or(0) as usize } else { 0 };
            rows.push(SampleRow {
                seq: id,
                params: &seq.params,
                seed: seq.seed.wrapping_add(u64::from(id.choice - seq.id.choice)),
                tokens: &seq.tokens[..row.start + token - row.tokens.start + 1],
                prompt_len: seq.prompt_len,
                end_tokens: if seq.params.ignore_eos { &[] } else { end_tokens },
                mask: None,
                draw,
                top: scoring.map_or(0, |scoring| scoring.top).max(logprobs),
                trace: if trace { focus.candidates } else { 0 },
            });
        }
    }
    rows
}
