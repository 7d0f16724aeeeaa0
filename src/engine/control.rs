use super::intake::Work;
use super::step::{Engine, Pace};
use crate::protocol::{
    Command, Event, Failure, FailureKind, FinishReason, Reprioritise, RequestId, SamplingParams,
};
use crate::sample::Phrases;
use std::sync::Arc;

/// Traced where a front end asked for a focus and no setting says how many.
const TRACED_CANDIDATES: usize = 24;

/// Whether the engine goes on after a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    GoOn,
    Stop,
}

impl Engine {
    /// Takes one piece of work, between steps.
    pub fn apply(&mut self, work: Work, events: &mut Vec<Event>) -> Next {
        match work {
            Work::Add(accepted, _) | Work::Refuse(accepted, _)
                if self.output.is_open(accepted.request.id) =>
            {
                let id = accepted.request.id.0;
                events
                    .push(Event::Note(format!("request {id} is running already; the second one is ignored")));
            }
            Work::Add(accepted, sequence) => {
                self.output.open(&accepted);
                self.beams.begin(&accepted, || self.output.parser(&accepted, 0));
                self.stats.accepted(accepted.prompt_tokens);
                let (id, prompt_tokens) = (accepted.request.id, accepted.prompt_tokens);
                events.push(Event::Accepted { id, prompt_tokens, rendered: accepted.rendered });
                let key = self.scheduler.push(*sequence);
                self.offload.begin(key, &mut self.scheduler, &mut self.kv);
                self.begin_grammar(key, events);
                self.round = 0;
            }
            Work::Refuse(accepted, why) => self.output.refuse(&accepted, &why, events),
            Work::Note(note) => events.push(Event::Note(note)),
            Work::Control(Command::Submit(request)) => {
                // Intake turns every one into `Add` or `Refuse`.
                let why = Failure::new(FailureKind::Internal, "the request did not pass intake");
                let accepted = super::Accepted::new(*request, self.clock.now());
                self.output.refuse(&accepted, &why, events);
            }
            Work::Control(Command::Abort(id)) => self.abort(id, events),
            Work::SetParams(id, params, phrases) => self.set_params(id, params, &phrases, events),
            Work::Control(Command::Pause) => self.set_pace(Pace::Steps(0), events),
            Work::Control(Command::Resume) => self.set_pace(Pace::Running, events),
            Work::Control(Command::Step(n)) => self.set_pace(Pace::Steps(n), events),
            Work::Control(Command::Focus(seq)) => {
                self.focus.seq = seq;
                self.focus.candidates = self.focus.candidates.max(TRACED_CANDIDATES);
            }
            Work::Fork(fork, phrases) => self.fork(fork, phrases, events),
            // Intake turns these into work of their own.
            Work::Control(
                Command::SetParams(..) | Command::Fork(_) | Command::WhatIf(_) | Command::Count(_),
            ) => {}
            Work::WhatIf(asked, phrases) => {
                let answer = self.answer_what_if(*asked, &phrases);
                events.push(Event::WhatIf(Box::new(answer)));
            }
            Work::Say(event) => events.push(event),
            Work::Control(Command::SetPriority(to)) => self.set_priority(to, events),
            Work::Control(Command::Inspect(what)) => events.push(Event::Inspected(self.inspect(what))),
            Work::Control(Command::Break(on)) => {
                if self.breakpoints.is_empty() {
                    self.watch_from_here();
                }
                self.breakpoints.add(on);
            }
            Work::Control(Command::Clear(id)) => {
                self.breakpoints.clear(id);
            }
            Work::Control(Command::Configure(settings)) => match self.scheduler.configure(*settings) {
                Ok(()) => {
                    self.round = 0;
                    self.run_ahead();
                    let settings = Box::new(self.scheduler.settings().clone());
                    events.push(Event::Configured(settings));
                }
                Err(why) => {
                    events.push(Event::Note(format!("the scheduler's settings stay as they were: {why}")));
                }
            },
            // The host's, which has threads for it.
            Work::Control(Command::MeasureLimits) => {}
            Work::Control(Command::Replay(_)) => {
                events.push(Event::Note("only a replay can be moved: glassbox replay FILE".into()));
            }
            Work::Control(Command::ResetPrefixCache) => {
                self.kv.reset_prefix_cache();
                self.tell_kv(events);
            }
            Work::Control(Command::Shutdown) => {
                self.shut_down(events);
                return Next::Stop;
            }
        }
        Next::GoOn
    }

    /// Forgets every block. Only for an engine that has no sequences.
    pub(super) fn empty_cache(&mut self) {
        self.start_over();
    }

    /// Ends everything that is open, so that nobody waits for an engine that is gone.
    pub fn shut_down(&mut self, events: &mut Vec<Event>) {
        self.output.close_all(&FinishReason::Abort, events);
        self.scheduler.end_all();
        self.keep_aborted(events);
        self.start_over();
        self.offload.flush();
    }

    fn abort(&mut self, id: RequestId, events: &mut Vec<Event>) {
        self.take_out(id, events);
        self.round = 0;
        self.output.close_request(id, &FinishReason::Abort, events);
    }

    fn set_params(
        &mut self,
        id: RequestId,
        params: SamplingParams,
        phrases: &Arc<Phrases>,
        events: &mut Vec<Event>,
    ) {
        let Some((stop, include)) = self.output.stops(id) else { return };
        let (stop, include_stop_str_in_output) = (stop.to_vec(), include);
        if params.stop != stop || params.include_stop_str_in_output != include {
            events.push(Event::Note("stop strings stay as they were when the answer began".into()));
        }
        let params = SamplingParams { stop, include_stop_str_in_output, ..params };
        for seq in self.scheduler.of_request(id) {
            seq.params = params.clone();
            seq.phrases = phrases.clone();
            if let Some(seed) = params.seed {
                seq.seed = seed.wrapping_add(u64::from(seq.id.choice));
            }
        }
        self.output.set_params(id, &params, events);
    }

    fn set_priority(&mut self, to: Reprioritise, events: &mut Vec<Event>) {
        if !self.scheduler.set_priority(to.id, to.priority) {
            return;
        }
        self.round = 0;
        if !self.scheduler.by_priority() {
            let policy = self.scheduler.settings().scheduling_policy.name();
            events.push(Event::Note(format!(
                "priorities act only under scheduling_policy = priority; it is {policy}"
            )));
        }
    }

    pub(super) fn set_pace(&mut self, pace: Pace, events: &mut Vec<Event>) {
        let was_paused = self.is_paused();
        self.pace = pace;
        if was_paused != self.is_paused() {
            events.push(Event::Paused(self.is_paused()));
        }
    }

    /// A counted step was taken. Steps that find nothing to do are not kept for later.
    pub(super) fn pace_after_step(&mut self) {
        if let Pace::Steps(n) = self.pace {
            self.pace = Pace::Steps(if self.is_idle() { 0 } else { n.saturating_sub(1) });
        }
    }

    /// Somebody waits for something to happen: every step is looked at before the next is planned.
    pub(super) fn is_watched(&self) -> bool {
        !self.breakpoints.is_empty()
    }

    pub fn is_paused(&self) -> bool {
        matches!(self.pace, Pace::Steps(_))
    }
}
