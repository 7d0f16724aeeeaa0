//! Plan step N+1 while step N runs (`async_scheduling`).
//!
//! The plan of N+1 counts on a token from every row of N without knowing which: it stands in the batch
//! as a placeholder until N is read. What N then ends (an end token, a stop string) has a row too
//! many in N+1; its result finds nobody and is dropped. A row that forks or scores a prompt is waited
//! for, because what follows depends on it.

use super::account::Drawn;
use super::plan::Plan;
use super::stats::Stopwatch;
use super::step::{Engine, Pace};
use crate::model::{DeviceError, Launched, Threaded};
use crate::protocol::{Event, Phases};
use std::time::Duration;

/// A launched step whose result is not read yet.
pub struct Flight {
    plan: Plan,
    launched: Launched,
    started: Duration,
    phases: Phases,
}

impl Engine {
    /// Whoever steps or waits for a breakpoint sees every step finished before the next is planned.
    pub(super) fn overlaps(&self) -> bool {
        self.scheduler.settings().async_scheduling && self.pace == Pace::Running && !self.is_watched()
    }

    /// Forward passes get a thread of their own, once somebody wants to plan while they run; not while
    /// one does.
    pub fn run_ahead(&mut self) {
        let wanted = self.scheduler.settings().async_scheduling && self.flight.is_none();
        if wanted && !std::mem::replace(&mut self.runs_ahead, true) {
            Threaded::take_over(&mut self.runner);
        }
    }

    /// Plans the next step, if there is to be one; reads the one in flight; launches; accounts.
    pub(super) fn overlapped_step(&mut self, events: &mut Vec<Event>) -> Result<(), DeviceError> {
        let mut watch = Stopwatch::start(&self.clock);
        let started = watch.started();
        let mut next = match self.overlaps() {
            true => self.make_plan(events),
            false => self.no_plan(),
        };
        let schedule_ms = watch.lap();
        let mut landed = match self.flight.take() {
            Some(flight) => Some((
                self.sample(&flight.plan, flight.launched)?,
                flight.plan,
                flight.started,
                flight.phases,
            )),
            None => None,
        };
        let sample_ms = watch.lap();

        if let Some((sampled, ..)) = &landed {
            fill_placeholders(&mut next, sampled);
        }
        if next.is_empty() {
            // Nobody runs, and yet somebody may have given way: what was swapped out is saved, and the
            // step that landed tells of it.
            self.offload.transfer(&next.moves, &mut *self.runner)?;
            match &mut landed {
                Some((_, plan, ..)) => plan.preempted.append(&mut next.preempted),
                None => self.end_stuck_head(&next, events),
            }
            self.plan = next;
        } else {
            let launched = self.launch(&next)?;
            let phases = Phases { schedule_ms, forward_ms: watch.lap(), ..Phases::default() };
            self.flight = Some(Flight { plan: next, launched, started, phases });
        }

        if let Some((sampled, mut plan, started, phases)) = landed {
            watch.lap();
            self.account(&mut plan, sampled, events)?;
            let output_ms = watch.lap();
            self.close_step(plan, started, Phases { sample_ms, output_ms, ..phases }, events);
        }
        Ok(())
    }

    fn no_plan(&mut self) -> Plan {
        let mut plan = std::mem::take(&mut self.plan);
        plan.clear(0, 0);
        plan
    }
}

/// A row that failed ends its sequence; its placeholder may be anything.
fn fill_placeholders(plan: &mut Plan, sampled: &[Drawn]) {
    for placeholder in &plan.placeholders {
        let drawn = sampled[placeholder.output].as_ref();
        plan.batch.tokens[placeholder.token] = drawn.map_or(0, |sampled| sampled.token);
    }
}
