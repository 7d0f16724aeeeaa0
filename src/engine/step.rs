use super::beam::{Beams, Search};
use super::breakpoints::Breakpoints;
use super::debug::Watched;
use super::grammars::Grammars;
use super::intake::{Intake, Lengths, panic_message};
use super::kept::KeptLogits;
use super::offload::Offload;
use super::output::Output;
use super::overlap::Flight;
use super::plan::Plan;
use super::scheduler::{Bounds, Scheduler};
use super::sequence::Sequence;
use super::stats::{Stats, Stopwatch};
use crate::base::{Clock, Ring};
use crate::config::EngineSettings;
use crate::kv::{BlockManager, KvConfig};
use crate::model::{DeviceError, Launched, Meter, ModelLimits, Outputs, Runner};
use crate::protocol::{
    Event, Failure, FailureKind, FinishReason, KvEvent, MemoryPlan, Phases, SamplingParams, SamplingTrace,
    SeqId, Waiting,
};
use crate::sample::{Phrases, RowError, SampleRow, Sampled, SamplerState};
use crate::text::TextModel;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The engine without its threads: the host drives it, and so do tests, a step at a time.
pub struct Engine {
    pub(super) scheduler: Scheduler,
    pub(super) kv: BlockManager,
    pub(super) runner: Box<dyn Runner>,
    pub(super) output: Output,
    pub(super) stats: Stats,
    /// Memory of the next plan.
    pub(super) plan: Plan,
    /// A step whose result is not read yet (`async_scheduling`).
    pub(super) flight: Option<Flight>,
    /// The runner is on a thread of its own.
    pub(super) runs_ahead: bool,
    /// Steps left of a round (`num_scheduler_steps`).
    pub(super) round: u32,
    pub(super) offload: Offload,
    pub(super) beams: Beams,
    pub(super) grammars: Grammars,
    /// Take tokens that a grammar forces without asking the model.
    pub(super) fast_forward: bool,
    pub(super) text: Arc<TextModel>,
    pub(super) clock: Clock,
    pub(super) lengths: Lengths,
    pub(super) pace: Pace,
    pub(super) focus: Focus,
    /// Of the focused sequence's newest token.
    pub(super) trace: Option<Arc<SamplingTrace>>,
    /// The same, until the step's record has it.
    pub(super) new_trace: Option<Arc<SamplingTrace>>,
    /// What those tokens were drawn from.
    pub(super) kept: KeptLogits,
    /// Sequences that ended, without their blocks: branches may still start from them.
    pub(super) finished: Ring<Sequence>,
    pub(super) breakpoints: Breakpoints,
    pub(super) watched: Watched,
    pub(super) kv_events: Ring<KvEvent>,
    /// Whether a front end wants them as events.
    pub(super) publishes_kv: bool,
    pub(super) memory: MemoryPlan,
    /// Why the runner's device is lost, until the host is told.
    pub(super) lost: Option<String>,
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

/// Branches can start from this many of the newest sequences that ended.
const FINISHED_KEPT: usize = 64;
const KV_EVENTS_KEPT: usize = 64;

impl Engine {
    pub fn new(
        settings: &EngineSettings,
        runner: Box<dyn Runner>,
        text: Arc<TextModel>,
        clock: Clock,
    ) -> Self {
        let limits = runner.limits();
        let lengths = lengths(settings, limits);
        let offload = Offload::new(settings, limits);
        let kv = cache(settings, limits, &offload);
        let bounds = bounds(limits, lengths);
        Self {
            scheduler: Scheduler::new(settings.scheduler.clone(), bounds)
                .with_border(kv.state_border())
                .with_rope(limits.rope_lengths),
            kv,
            output: Output::new(text.clone(), clock.clone(), lengths.longest()),
            stats: Stats::new(),
            plan: Plan::default(),
            flight: None,
            runs_ahead: false,
            round: 0,
            offload,
            beams: Beams::default(),
            grammars: Grammars::new(text.clone()),
            fast_forward: settings.fast_forward,
            pace: Pace::Running,
            focus: Focus { candidates: settings.trace_candidates, seq: None },
            trace: None,
            new_trace: None,
            kept: KeptLogits::default(),
            finished: Ring::new(FINISHED_KEPT),
            breakpoints: Breakpoints::default(),
            watched: Watched::default(),
            kv_events: Ring::new(KV_EVENTS_KEPT),
            publishes_kv: settings.kv_events,
            memory: MemoryPlan::default(),
            lost: None,
            runner,
            text,
            clock,
            lengths,
        }
    }

    /// One step: schedule, launch, sample, account.
    fn step(&mut self, events: &mut Vec<Event>) -> Result<(), DeviceError> {
        let mut watch = Stopwatch::start(&self.clock);
        let mut plan = self.make_plan(events);
        if plan.is_empty() {
            self.offload.transfer(&plan.moves, &mut *self.runner)?;
            self.end_stuck_head(&plan, events);
            self.plan = plan;
            return Ok(());
        }
        let schedule_ms = watch.lap();

        let launched = self.launch(&plan)?;
        let forward_ms = watch.lap();

        let sampled = self.sample(&plan, launched)?;
        let sample_ms = watch.lap();

        self.account(&mut plan, sampled, events)?;
        let output_ms = watch.lap();

        let phases = Phases { schedule_ms, forward_ms, sample_ms, output_ms };
        self.close_step(plan, watch.started(), phases, events);
        Ok(())
    }

    pub(super) fn make_plan(&mut self, events: &mut Vec<Event>) -> Plan {
        let mut plan = std::mem::take(&mut self.plan);
        let round = if self.is_watched() { 0 } else { self.round };
        self.round = match self.scheduler.schedule(round, &mut self.kv, &mut plan) {
            true => round - 1,
            false => self.scheduler.settings().num_scheduler_steps - 1,
        };
        self.announce(&plan, events);
        plan
    }

    /// Blocks move first, then the batch runs.
    pub(super) fn launch(&mut self, plan: &Plan) -> Result<Launched, DeviceError> {
        self.offload.transfer(&plan.moves, &mut *self.runner)?;
        self.runner.launch(&plan.batch)
    }

    pub(super) fn sample(
        &mut self,
        plan: &Plan,
        launched: Launched,
    ) -> Result<Vec<Result<Sampled, RowError>>, DeviceError> {
        if self.has_guides(plan) {
            // Masks are made while the device works.
            self.runner.start()?;
            self.make_masks(plan);
        }
        let keep = self.kept.next();
        let rows = sample_rows(plan, &self.scheduler, self.text.end_tokens(), self.focus, keep);
        let sampled = self.runner.sample(launched, &rows)?;
        match sampled.len() == rows.len() {
            true => Ok(sampled),
            false => Err(DeviceError(format!("{} results for {} rows of logits", sampled.len(), rows.len()))),
        }
    }

    /// One guarded step, if the pace allows one. A device error or a panic ends every request with
    /// a reason; the next request finds an empty engine.
    pub fn tick(&mut self, events: &mut Vec<Event>) {
        if !self.can_step() {
            return;
        }
        self.offload.poll(&mut self.kv, &mut self.scheduler, events);
        self.poll_grammars(events);
        let overlaps = self.flight.is_some() || self.overlaps();
        let stepped = catch_unwind(AssertUnwindSafe(|| match overlaps {
            true => self.overlapped_step(events),
            false => self.step(events),
        }));
        let failed = match stepped {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(("device", error.to_string())),
            Err(panic) => Some(("engine", panic_message(&*panic).to_owned())),
        };
        if let Some((what, why)) = failed {
            let failure = Failure::new(FailureKind::Internal, format!("the {what} failed: {why}"));
            self.lost = self.runner.is_lost().then_some(why);
            self.output.close_all(&FinishReason::Error(failure), events);
            self.start_over();
            self.trace = None;
        }
        self.tell_kv(events);
        self.pace_after_step();
    }

    /// There is work, and no pause holds it up. What is in flight lands even while paused.
    pub fn can_step(&self) -> bool {
        self.flight.is_some() || (!self.scheduler.is_idle() && self.pace != Pace::Steps(0))
    }

    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle() && self.flight.is_none()
    }

    pub(super) fn meter(&self) -> Option<Meter> {
        self.runner.meter()
    }

    /// The intake that goes with this engine; it lives on its own thread.
    pub fn intake(&self) -> Intake {
        Intake::new(self.text.clone(), self.clock.clone(), self.lengths, self.kv.block_size())
            .with_rope(self.scheduler.rope)
    }

    /// Recounts every block against every table: free + cached + owned = total. For idle moments
    /// and tests; says what is wrong. And every sequence stands in one queue.
    pub fn self_check(&self) -> Result<(), String> {
        self.scheduler.check()?;
        self.kv.check(self.scheduler.all().map(|seq| &seq.table))
    }

    /// Forgets all sequences and every block.
    pub(super) fn start_over(&mut self) {
        self.flight = None;
        self.round = 0;
        self.scheduler.reset();
        self.kv.reset();
        self.offload.reset();
        self.beams.clear();
        self.grammars.reset();
        self.kept.clear();
    }

    /// Tells the world of first rows and of preemptions.
    fn announce(&mut self, plan: &Plan, events: &mut Vec<Event>) {
        for preempted in &plan.preempted {
            self.output.preempted(preempted.seq);
        }
        for row in &plan.rows {
            let seq = &mut self.scheduler.sequences[row.key];
            if !std::mem::replace(&mut seq.started, true) {
                self.output.start(seq, events);
            }
        }
    }

    /// Nothing runs and the head of the queue cannot: it never will. Intake refuses such requests;
    /// should one slip through, it must end rather than block those behind it.
    pub(super) fn end_stuck_head(&mut self, plan: &Plan, events: &mut Vec<Event>) {
        if self.scheduler.all().any(|seq| seq.loading > 0) {
            return self.offload.wait();
        }
        if self.scheduler.yield_to_beams(&mut self.kv) {
            return;
        }
        if self.scheduler.all().any(Sequence::is_compiling) {
            return self.grammars.wait();
        }
        let nothing_changed = !self.scheduler.is_running() && plan.preempted.is_empty();
        let Some(Waiting { seq, reason }) = plan.skipped.first().filter(|_| nothing_changed) else { return };
        let failure = Failure::new(FailureKind::TooLong, format!("it cannot be scheduled: {reason}"));
        self.output.close_request(seq.request, &FinishReason::Error(failure), events);
        self.take_out(seq.request, events);
    }
}

/// How long sequences may be.
pub(super) fn lengths(settings: &EngineSettings, limits: &ModelLimits) -> Lengths {
    let context = settings.max_model_len.unwrap_or(usize::MAX).min(limits.max_model_len);
    Lengths::of(limits, context)
}

pub(super) fn bounds(limits: &ModelLimits, lengths: Lengths) -> Bounds {
    Bounds {
        tokens: limits.max_batched_tokens.max(1),
        outputs: limits.max_outputs.max(1),
        context: lengths.longest(),
    }
}

/// An empty cache.
pub(super) fn cache(settings: &EngineSettings, limits: &ModelLimits, offload: &Offload) -> BlockManager {
    BlockManager::new(KvConfig {
        groups: limits.groups.clone(),
        prefix_cache: settings.prefix_cache,
        eviction: settings.radix_eviction_policy,
        host_blocks: offload.host_blocks(),
        chunk: limits.max_batched_tokens,
        events: true,
        ..KvConfig::new(limits.num_blocks, limits.block_size)
    })
}

/// One row for each output of the batch, in order.
fn sample_rows<'a>(
    plan: &Plan,
    scheduler: &'a Scheduler,
    end_tokens: &'a [u32],
    focus: Focus,
    keep: &'a Cell<Vec<f32>>,
) -> Vec<SampleRow<'a>> {
    let sequence = |row: usize| scheduler.sequences.get(plan.rows[row].key);
    let focused = focus.seq.filter(|focused| plan.batch.rows.iter().any(|row| row.seq == *focused));
    let mut rows = Vec::with_capacity(plan.outputs);
    let mut traced = false;
    for (at, row) in plan.batch.rows.iter().enumerate() {
        let Some(seq) = sequence(at).filter(|seq| !seq.is_past(row)) else {
            rows.extend(row.output_tokens().map(|_| unwanted(row.seq)));
            continue;
        };
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
                phrases: &seq.phrases,
                state: seq.sampler,
                mask: seq.mask.as_ref().filter(|_| draw),
                draw,
                target: seq.tokens.get(row.start + token - row.tokens.start + 1).copied(),
                top: scoring.map_or(0, |scoring| scoring.top).max(logprobs),
                beams: seq.beam.map_or(0, |width| Search::candidates(width as usize, end_tokens.len())),
                trace: if trace { focus.candidates } else { 0 },
                keep: (trace && focus.candidates > 0).then_some(keep),
            });
        }
    }
    rows
}

/// Of a sequence that has ended since: nothing is drawn.
fn unwanted(seq: SeqId) -> SampleRow<'static> {
    static PARAMS: std::sync::LazyLock<SamplingParams> = std::sync::LazyLock::new(SamplingParams::default);
    static PHRASES: Phrases = Phrases { bad_words: Vec::new(), breakers: BTreeMap::new() };
    SampleRow {
        seq,
        params: &PARAMS,
        seed: 0,
        tokens: &[],
        prompt_len: 0,
        end_tokens: &[],
        mask: None,
        phrases: &PHRASES,
        state: SamplerState::default(),
        draw: false,
        target: None,
        top: 0,
        beams: 0,
        trace: 0,
        keep: None,
    }
}
