use super::timeline::{Moment, Timeline};
use crate::protocol::{
    BlockView, Command, Event, Failure, FailureKind, FinishReason, KvView, ModelInfo, Outcome, ReplayCommand,
    RequestId, SamplingParams, SeqId, SequenceView, Snapshot, Timings, Usage, WhatIfAnswer,
};
use std::sync::Arc;
use std::time::Duration;

/// Steps and events of the cache in a snapshot, at most.
const STEPS: usize = 512;
const KV_EVENTS: usize = 256;

/// Where a replay is. Time is given to it, so that it can be asked what it would do at any time.
pub struct Playback {
    timeline: Timeline,
    /// Moments that have been.
    at: usize,
    blocks: Vec<BlockView>,
    speed: f32,
    paused: bool,
    /// A time, and where in the trace that was, in microseconds.
    since: (Duration, u64),
}

impl Playback {
    pub fn new(timeline: Timeline, speed: f32, paused: bool) -> Self {
        let blocks = vec![BlockView::default(); timeline.header.blocks];
        Self { timeline, at: 0, blocks, speed, paused, since: (Duration::ZERO, 0) }
    }

    /// What is said first, also after going back.
    pub fn opening(&self) -> Vec<Event> {
        let info = self
            .timeline
            .header
            .model
            .clone()
            .unwrap_or_else(|| ModelInfo { name: "unknown".into(), ..ModelInfo::default() });
        let notes = self.timeline.notes.iter().cloned().map(Event::Note);
        let opening = [Event::Ready(Box::new(info)), self.replaying(), Event::Paused(self.paused)];
        opening.into_iter().chain(notes).collect()
    }

    /// Plays everything that is due.
    pub fn tick(&mut self, now: Duration, events: &mut Vec<Event>) {
        if self.paused {
            return;
        }
        let reached = self.position(now);
        let due = self.timeline.moments[self.at..].iter().take_while(|moment| moment.at <= reached).count();
        self.forward(self.at + due, events);
        if self.is_over() {
            self.pause(true, now, events);
        }
    }

    /// How long until something is due; `None`: until a command.
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        if self.paused {
            return None;
        }
        // At the end there is one thing left to do: to pause.
        let Some(next) = self.timeline.moments.get(self.at) else { return Some(Duration::ZERO) };
        let left = next.at.saturating_sub(self.position(now));
        Some(Duration::try_from_secs_f64(left as f64 / 1e6 / f64::from(self.speed)).unwrap_or(Duration::MAX))
    }

    pub fn command(&mut self, command: Command, now: Duration, events: &mut Vec<Event>) {
        match command {
            Command::Pause => self.pause(true, now, events),
            Command::Resume if self.is_over() => {
                self.go_to(0, now, events);
                self.pause(false, now, events);
            }
            Command::Resume => self.pause(false, now, events),
            Command::Step(n) => {
                self.pause(true, now, events);
                let step = self.steps_done() + n as usize;
                self.go_to(self.end_of(step), now, events);
            }
            Command::Replay(ReplayCommand::Back(n)) => {
                self.pause(true, now, events);
                let step = self.steps_done().saturating_sub(n as usize);
                self.go_to(self.end_of(step), now, events);
            }
            Command::Replay(ReplayCommand::Seek(step)) => {
                let steps = self.timeline.steps.partition_point(|record| record.step <= step);
                self.go_to(self.end_of(steps), now, events);
            }
            Command::Replay(ReplayCommand::Speed(speed)) if speed > 0.0 => {
                self.since = (now, self.position(now));
                self.speed = speed;
                events.push(self.replaying());
            }
            Command::Replay(ReplayCommand::Speed(speed)) => {
                events.push(Event::Note(format!("a replay's speed is above 0, not {speed}")));
            }
            Command::Submit(request) => refuse(request.id, request.n, &request.params, events),
            Command::Fork(fork) => refuse(fork.id, 1, &fork.params, events),
            Command::Count(count) => {
                let why = Failure::new(FailureKind::BadRequest, "a replay has no tokenizer");
                events.push(Event::Counted { ticket: count.ticket, tokens: Err(why) });
            }
            Command::WhatIf(asked) => {
                let trace = Err("a replay has no logits".into());
                events.push(Event::WhatIf(Box::new(WhatIfAnswer { asked: *asked, trace })));
            }
            Command::MeasureLimits => {
                events.push(Event::Limits(Err("a replay has no device".into())));
            }
            Command::Focus(_) | Command::Inspect(_) | Command::Shutdown => {}
            Command::Abort(_)
            | Command::SetParams(..)
            | Command::Break(_)
            | Command::Clear(_)
            | Command::Configure(_)
            | Command::SetPriority(_)
            | Command::ResetPrefixCache => {
                events.push(Event::Note("this is a replay: what was recorded cannot be changed".into()));
            }
        }
    }

    /// The state of the engine at this point of its recording.
    pub fn snapshot(&self) -> Snapshot {
        let header = &self.timeline.header;
        let last = self.at.checked_sub(1).map(|last| &self.timeline.moments[last].after);
        let state = last.unwrap_or(&self.timeline.beginning);
        let [free, cached, owned] = state.counts;
        let steps = state.steps.saturating_sub(STEPS)..state.steps;
        let kv_events = state.kv_events.saturating_sub(KV_EVENTS)..state.kv_events;
        let sequence = |(known, params): &(Arc<super::mirror::Known>, Arc<SamplingParams>)| SequenceView {
            seq: known.seq,
            state: known.state,
            prompt_tokens: known.prompt,
            cached_tokens: known.cached,
            generated_tokens: known.generated,
            computed_tokens: known.computed,
            blocks: known.blocks.to_vec(),
            params: (**params).clone(),
            preemptions: known.preemptions,
            priority: 0,
        };
        Snapshot {
            step: state.step,
            paused: self.paused,
            sequences: state.sequences.iter().map(sequence).collect(),
            kv: KvView {
                block_size: header.block_size,
                bytes_per_block: header.bytes_per_block,
                blocks: self.blocks.clone(),
                free,
                cached,
                owned,
                tiers: state.tiers.to_vec(),
            },
            counters: state.counters,
            steps: self.timeline.steps[steps].to_vec(),
            sampling: state.sampling.clone(),
            beams: state.beams.clone(),
            scheduler: (*state.scheduler).clone(),
            breakpoints: state.breakpoints.to_vec(),
            kv_events: self.timeline.kv_events[kv_events].to_vec(),
            memory: header.memory,
        }
    }

    pub fn is_over(&self) -> bool {
        self.at == self.timeline.moments.len()
    }

    fn replaying(&self) -> Event {
        let number = |record: Option<&Arc<crate::protocol::StepRecord>>| record.map_or(0, |r| r.step);
        let steps = &self.timeline.steps;
        Event::Replaying { first: number(steps.first()), last: number(steps.last()), speed: self.speed }
    }

    /// In the trace, in microseconds.
    fn position(&self, now: Duration) -> u64 {
        let (since, from) = self.since;
        if self.paused {
            return from;
        }
        // As fast as it goes is a speed too; what is beyond the end stays there.
        if self.speed.is_infinite() {
            return u64::MAX;
        }
        from.saturating_add((now.saturating_sub(since).as_secs_f64() * 1e6 * f64::from(self.speed)) as u64)
    }

    fn pause(&mut self, pause: bool, now: Duration, events: &mut Vec<Event>) {
        if self.paused != pause {
            let played = self.at.checked_sub(1).map_or(0, |last| self.timeline.moments[last].at);
            let next = self.timeline.moments.get(self.at).map_or(played, |next| next.at);
            self.since = (now, self.position(now).clamp(played, next.max(played)));
            self.paused = pause;
            events.push(Event::Paused(pause));
        }
    }

    /// Steps whose events have all been; one half way through counts as well.
    fn steps_done(&self) -> usize {
        self.at.checked_sub(1).map_or(0, |last| self.timeline.moments[last].after.steps)
    }

    /// The moment after the `steps`-th step; everything after the last belongs to it.
    fn end_of(&self, steps: usize) -> usize {
        match steps {
            0 => 0,
            steps if steps >= self.timeline.steps.len() => self.timeline.moments.len(),
            steps => self.timeline.ends[steps - 1],
        }
    }

    fn go_to(&mut self, target: usize, now: Duration, events: &mut Vec<Event>) {
        if target < self.at {
            self.back(target);
            events.push(Event::Rewound);
            events.extend(self.opening());
            let past = self.timeline.moments[..target].iter().flat_map(|moment| &moment.events);
            events.extend(past.cloned());
        } else {
            self.forward(target, events);
        }
        let played = self.at.checked_sub(1).map_or(0, |last| self.timeline.moments[last].at);
        self.since = (now, played);
    }

    fn forward(&mut self, target: usize, events: &mut Vec<Event>) {
        for moment in &self.timeline.moments[self.at..target] {
            events.extend(moment.events.iter().cloned());
            for change in &moment.blocks {
                put(&mut self.blocks, change.block, change.after);
            }
        }
        self.at = target;
    }

    fn back(&mut self, target: usize) {
        let undone: &[Moment] = &self.timeline.moments[target..self.at];
        for change in undone.iter().rev().flat_map(|moment| moment.blocks.iter().rev()) {
            put(&mut self.blocks, change.block, change.before);
        }
        self.at = target;
    }
}

fn put(blocks: &mut Vec<BlockView>, block: u32, view: BlockView) {
    let at = block as usize;
    if at >= blocks.len() {
        blocks.resize(at + 1, BlockView::default());
    }
    blocks[at] = view;
}

/// Every choice ends, as that of any request that is refused.
fn refuse(request: RequestId, n: u32, params: &SamplingParams, events: &mut Vec<Event>) {
    let failure = Failure::new(FailureKind::BadRequest, "this is a replay: it shows what was recorded");
    for choice in 0..n {
        let outcome = Box::new(Outcome {
            reason: FinishReason::Error(failure.clone()),
            usage: Usage::default(),
            timings: Timings::default(),
            seed: params.seed.unwrap_or_default(),
            params: params.clone(),
            beam: None,
        });
        events.push(Event::Finished { seq: SeqId { request, choice }, outcome });
    }
}

#[cfg(test)]
#[path = "playback_tests.rs"]
mod tests;
