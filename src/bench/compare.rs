use super::load::Load;
use super::measure::{engine_gone, hold, internal, send};
use super::steps::Steps;
use crate::base::{Clock, Summary};
use crate::protocol::{
    Command, Event, Failure, FinishReason, Handle, ModelInfo, Outcome, SchedulerSettings, Slots,
};
use serde::Serialize;
use std::time::Duration;

/// Of the load that runs once before anything is timed.
const WARM_UP: usize = 4;

/// What one run of a load gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// Until the last answer was complete.
    pub wall_s: f64,
    /// Answer tokens per second, of all sequences together.
    pub tokens_per_second: f64,
    /// From the start of the load: what was waited for a place is in it.
    pub ttft_mean_ms: f64,
    pub ttft_p99_ms: f64,
    pub steps: f64,
    /// Places of the batch that got tokens, and that were kept for sequences which had finished; means
    /// over the steps.
    pub slots_used: f64,
    pub slots_idle: f64,
    pub preemptions: f64,
}

impl Sample {
    /// Of each figure by itself.
    pub fn median(samples: &[Sample]) -> Sample {
        let of = |figure: fn(&Sample) -> f64| Summary::of(samples.iter().map(figure)).p50;
        Sample {
            wall_s: of(|s| s.wall_s),
            tokens_per_second: of(|s| s.tokens_per_second),
            ttft_mean_ms: of(|s| s.ttft_mean_ms),
            ttft_p99_ms: of(|s| s.ttft_p99_ms),
            steps: of(|s| s.steps),
            slots_used: of(|s| s.slots_used),
            slots_idle: of(|s| s.slots_idle),
            preemptions: of(|s| s.preemptions),
        }
    }
}

/// Runs the load under two settings of the same engine, one after the other, `repetitions` times;
/// each goes first every other time, so that a machine which slows down slows both. `done` hears of
/// each pair.
pub fn compare(
    handle: &mut Handle,
    info: &ModelInfo,
    load: &Load,
    sides: [&SchedulerSettings; 2],
    repetitions: u32,
    mut done: impl FnMut(u32),
) -> Result<[Vec<Sample>; 2], Failure> {
    let mut course = Course { handle, info, clock: Clock::wall() };
    for settings in sides {
        course.run(&load.first(WARM_UP), settings)?;
    }
    let mut samples = [Vec::new(), Vec::new()];
    for i in 1..=repetitions {
        let order = if i % 2 == 1 { [0, 1] } else { [1, 0] };
        for side in order {
            samples[side].push(course.run(load, sides[side])?);
        }
        done(i);
    }
    Ok(samples)
}

struct Course<'a> {
    handle: &'a mut Handle,
    info: &'a ModelInfo,
    clock: Clock,
}

impl Course<'_> {
    fn run(&mut self, load: &Load, settings: &SchedulerSettings) -> Result<Sample, Failure> {
        self.configure(settings)?;
        // Nothing is left of the run before.
        send(self.handle, Command::ResetPrefixCache)?;
        let mut outcomes = hold(self.handle, load.requests(self.info))?;
        let mut steps = Steps::from(self.handle);
        let mut slots: Vec<Slots> = Vec::new();
        let mut first: Vec<Option<Duration>> = vec![None; load.len()];
        let start = self.clock.now();
        send(self.handle, Command::Resume)?;
        while outcomes.len() < load.len() {
            let events = self.handle.events.blocking_recv().ok_or_else(engine_gone)?;
            let now = self.clock.now() - start;
            for event in events {
                match event {
                    Event::Token { seq, .. } => _ = first[seq.request.0 as usize].get_or_insert(now),
                    Event::Finished { outcome, .. } => outcomes.push(*outcome),
                    _ => {}
                }
            }
            slots.extend(steps.arrived(self.handle).map(|record| record.slots));
        }
        let wall = (self.clock.now() - start).as_secs_f64();
        self.pause()?;
        slots.extend(steps.arrived(self.handle).map(|record| record.slots));
        summed_up(wall, &first, &outcomes, &slots, steps.count())
    }

    fn configure(&mut self, settings: &SchedulerSettings) -> Result<(), Failure> {
        send(self.handle, Command::Configure(Box::new(settings.clone())))?;
        self.wait(|event| match event {
            Event::Configured(_) => Some(Ok(())),
            Event::Note(why) if why.contains("settings stay") => Some(Err(internal(why))),
            _ => None,
        })
    }

    /// A paused engine has published what it did.
    fn pause(&mut self) -> Result<(), Failure> {
        send(self.handle, Command::Pause)?;
        self.wait(|event| matches!(event, Event::Paused(true)).then_some(Ok(())))
    }

    fn wait(&mut self, wanted: impl Fn(Event) -> Option<Result<(), Failure>>) -> Result<(), Failure> {
        loop {
            let events = self.handle.events.blocking_recv().ok_or_else(engine_gone)?;
            if let Some(answer) = events.into_iter().find_map(&wanted) {
                return answer;
            }
        }
    }
}

fn summed_up(
    wall_s: f64,
    first: &[Option<Duration>],
    outcomes: &[Outcome],
    slots: &[Slots],
    steps: u64,
) -> Result<Sample, Failure> {
    for outcome in outcomes {
        if let FinishReason::Error(failure) = &outcome.reason {
            return Err(failure.clone());
        }
    }
    if wall_s <= 0.0 {
        return Err(internal("no time passed on the clock".into()));
    }
    let mean = |of: fn(&Slots) -> usize| Summary::of(slots.iter().map(|slots| of(slots) as f64)).mean;
    let ttft = Summary::of(first.iter().flatten().map(|time| time.as_secs_f64() * 1e3));
    let tokens: usize = outcomes.iter().map(|outcome| outcome.usage.completion_tokens).sum();
    let preemptions: u32 = outcomes.iter().map(|outcome| outcome.timings.preemptions).sum();
    Ok(Sample {
        wall_s,
        tokens_per_second: tokens as f64 / wall_s,
        ttft_mean_ms: ttft.mean,
        ttft_p99_ms: ttft.p99,
        steps: steps as f64,
        slots_used: mean(|slots| slots.used),
        slots_idle: mean(|slots| slots.idle),
        preemptions: f64::from(preemptions),
    })
}
