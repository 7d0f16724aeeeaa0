use super::plan::{Kind, Test};
use super::steps::{Steps, Timed};
use super::timeline::Timeline;
use crate::base::{Clock, SplitMix};
use crate::protocol::{
    Command, Counters, Event, Failure, FailureKind, FinishReason, Handle, ModelInfo, Outcome, Prompt,
    Request, RequestId, SamplingParams, StepRecord, TokenId,
};
use std::sync::Arc;

/// Waits for the model; `loading` hears of bytes done and in all.
pub fn wait_until_ready(
    handle: &mut Handle,
    mut loading: impl FnMut(u64, u64),
) -> Result<ModelInfo, Failure> {
    loop {
        for event in handle.events.blocking_recv().ok_or_else(engine_gone)? {
            match event {
                Event::Loading { done, total, .. } => loading(done, total),
                Event::Ready(info) => return Ok(*info),
                Event::LoadFailed(failure) => return Err(failure),
                _ => {}
            }
        }
    }
}

/// What one repetition of a test gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Tokens per second.
    pub rate: f64,
    /// Bytes read and operations per second, as the engine counts them.
    pub usage: Option<PerSecond>,
    /// Of what the machine could do a moment later, where that was measured.
    pub share_of_limit: Option<f64>,
    /// From the start until every sequence had its first token: of a prefill.
    pub ttft_ms: Option<f64>,
    /// The steps that were timed; `None` if not all of their records were seen.
    pub timed: Option<Timed>,
}

/// Of weights and KV cache; a multiplication and an addition are two operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerSecond {
    pub bytes: f64,
    pub operations: f64,
}

impl Measured {
    /// `tokens` were counted for the rate.
    fn new(rate: f64, tokens: usize, timed: Option<Timed>) -> Self {
        let per_second = |count: u64| count as f64 / tokens as f64 * rate;
        let counted = timed.as_ref().filter(|timed| timed.flops() > 0);
        let usage = counted.map(|timed| PerSecond {
            bytes: per_second(timed.bytes_read()),
            operations: per_second(timed.flops()),
        });
        Self { rate, usage, share_of_limit: None, ttft_ms: None, timed }
    }
}

impl PerSecond {
    /// What a test of this kind is held up by: a decode reads the weights for each token, a prefill
    /// multiplies with them.
    fn decisive(self, kind: Kind) -> f64 {
        match kind {
            Kind::Decode => self.bytes,
            Kind::Prefill => self.operations,
        }
    }
}

/// Measures now what the machine can do at most of what a test of this kind needs, per second.
pub type Limit<'a> = &'a dyn Fn(Kind) -> f64;

/// Runs tests on an engine, one repetition after the other.
pub struct Bench<'a> {
    handle: &'a mut Handle,
    info: &'a ModelInfo,
    step_tokens: usize,
    limit: Option<Limit<'a>>,
    clock: Clock,
    random: SplitMix,
}

impl<'a> Bench<'a> {
    /// `step_tokens` is the engine's token budget of one step. Where there is a limit, it is measured
    /// beside each repetition: a machine has faster and slower moments.
    pub fn new(
        handle: &'a mut Handle,
        info: &'a ModelInfo,
        step_tokens: usize,
        limit: Option<Limit<'a>>,
    ) -> Self {
        Self { handle, info, step_tokens, limit, clock: Clock::wall(), random: SplitMix(1) }
    }

    /// Every repetition of a test; one more before them warms caches and clocks and is dropped. `done`
    /// hears of each.
    ///
    /// # Errors
    /// The test does not fit the engine, was disturbed, or the engine is gone.
    pub fn measure(
        &mut self,
        test: &Test,
        repetitions: u32,
        mut done: impl FnMut(u32),
    ) -> Result<Vec<Measured>, Failure> {
        self.warm_up(test)?;
        (1..=repetitions).map(|i| self.repetition(test).inspect(|_| done(i))).collect()
    }

    pub(super) fn repetition(&mut self, test: &Test) -> Result<Measured, Failure> {
        let measured = self.once(test)?;
        let used = measured.usage.map(|usage| usage.decisive(test.kind));
        let share_of_limit = self.limit.zip(used).map(|(limit, used)| used / limit(test.kind));
        Ok(Measured { share_of_limit, ..measured })
    }

    /// What comes before the timed part, and as much of that as warms what it uses.
    pub(super) fn warm_up(&mut self, test: &Test) -> Result<(), Failure> {
        let tokens = if test.kind == Kind::Decode { 1 } else { test.tokens };
        self.once(&Test { tokens, ..*test }).map(|_| ())
    }

    fn once(&mut self, test: &Test) -> Result<Measured, Failure> {
        self.send(Command::ResetPrefixCache)?;
        let vocabulary = self.info.vocab_size.max(1) as u64;
        let prompts: Vec<Vec<TokenId>> = (0..test.batch)
            .map(|_| {
                (0..test.prompt_tokens()).map(|_| (self.random.draw() % vocabulary) as TokenId).collect()
            })
            .collect();
        match test.kind {
            Kind::Prefill => self.prefill(test, &prompts),
            Kind::Decode => self.decode(test, &prompts),
        }
    }

    /// Computed prompt tokens over the time until every sequence has its first token.
    fn prefill(&mut self, test: &Test, prompts: &[Vec<TokenId>]) -> Result<Measured, Failure> {
        let depth = test.depth as usize;
        if depth > 0 {
            let starts: Vec<Vec<TokenId>> = prompts.iter().map(|prompt| prompt[..depth].to_vec()).collect();
            self.run(&starts, 1, |_| false)?;
        }
        let Run { timeline, outcomes, before, steps } = self.run(prompts, 1, |_| false)?;
        let computed: usize =
            outcomes.iter().map(|o| o.usage.prompt_tokens.saturating_sub(o.usage.cached_tokens)).sum();
        // A last block that is not full is computed again, and counted as such.
        let most = prompts.len() * (test.tokens as usize + self.info.block_size.max(1));
        if computed > most {
            return Err(internal(format!(
                "{}: {computed} tokens were computed, not {}: the prefix cache did not keep the depth",
                test.name(),
                prompts.len() * test.tokens as usize
            )));
        }
        let seconds = timeline.all_started().map_or(0.0, |t| t.as_secs_f64());
        if seconds <= 0.0 {
            return Err(no_time(test));
        }
        let timed = Timed::prefill(before, steps);
        let measured = Measured::new(computed as f64 / seconds, computed, timed);
        Ok(Measured { ttft_ms: Some(seconds * 1e3), ..measured })
    }

    fn decode(&mut self, test: &Test, prompts: &[Vec<TokenId>]) -> Result<Measured, Failure> {
        let n = test.tokens as usize;
        let Run { timeline, steps, .. } =
            self.run(prompts, test.max_tokens(self.step_tokens), |t| t.is_covered(n))?;
        let rate = timeline.decode_rate(n).ok_or_else(|| match timeline.is_covered(n) {
            true => no_time(test),
            false => Failure::new(
                FailureKind::TooLong,
                format!(
                    "{}: the sequences ended before {n} tokens were timed; a context holds {}",
                    test.name(),
                    self.info.context_length
                ),
            ),
        })?;
        Ok(Measured::new(rate, n * prompts.len(), Timed::decode(&steps, n)))
    }

    /// Submits all prompts at once and follows them to their end, or until `enough`.
    fn run(
        &mut self,
        prompts: &[Vec<TokenId>],
        max_tokens: usize,
        enough: impl Fn(&Timeline) -> bool,
    ) -> Result<Run, Failure> {
        let params = SamplingParams {
            temperature: 0.0,
            max_tokens: Some(max_tokens as u32),
            ignore_eos: true,
            ..SamplingParams::default()
        };
        let mut timeline = Timeline::new(prompts.len());
        let mut aborted = false;
        let requests = prompts.iter().enumerate().map(|(i, prompt)| {
            Request::new(RequestId(i as u64), Prompt::Tokens(prompt.clone()), params.clone())
        });
        let mut outcomes = hold(self.handle, requests)?;
        let mut shown = Steps::from(self.handle);
        let mut steps = Vec::new();
        let start = self.clock.now();
        self.send(Command::Resume)?;
        while outcomes.len() < prompts.len() {
            let events = self.handle.events.blocking_recv().ok_or_else(engine_gone)?;
            let now = self.clock.now() - start;
            for event in events {
                match event {
                    Event::Token { seq, .. } => timeline.push(seq.request.0 as usize, now),
                    Event::Finished { outcome, .. } => outcomes.push(*outcome),
                    Event::LoadFailed(failure) => return Err(failure),
                    _ => {}
                }
            }
            steps.extend(shown.arrived(self.handle));
            if !aborted && enough(&timeline) {
                aborted = true;
                (0..prompts.len()).try_for_each(|i| self.send(Command::Abort(RequestId(i as u64))))?;
            }
        }
        undisturbed(&outcomes)?;
        Ok(Run { timeline, outcomes, before: shown.counters(), steps })
    }

    fn send(&self, command: Command) -> Result<(), Failure> {
        send(self.handle, command)
    }
}

/// What became of a set of prompts.
struct Run {
    timeline: Timeline,
    outcomes: Vec<Outcome>,
    /// What was counted before the first step.
    before: Counters,
    steps: Vec<Arc<StepRecord>>,
}

/// Pauses the engine and hands it the requests, so that all start in one step: on a fast model the
/// first would end before the last has arrived. Gives back what became of those that were refused.
pub(super) fn hold(
    handle: &mut Handle,
    requests: impl Iterator<Item = Request>,
) -> Result<Vec<Outcome>, Failure> {
    send(handle, Command::Pause)?;
    let mut on_their_way = 0;
    for request in requests {
        send(handle, Command::Submit(Box::new(request)))?;
        on_their_way += 1;
    }
    let mut refused = Vec::new();
    while on_their_way > 0 {
        for event in handle.events.blocking_recv().ok_or_else(engine_gone)? {
            match event {
                Event::Accepted { .. } => on_their_way -= 1,
                Event::Finished { outcome, .. } => {
                    on_their_way -= 1;
                    refused.push(*outcome);
                }
                Event::LoadFailed(failure) => return Err(failure),
                _ => {}
            }
        }
    }
    Ok(refused)
}

pub(super) fn send(handle: &Handle, command: Command) -> Result<(), Failure> {
    handle.commands.send(command).map_err(|_| engine_gone())
}

fn undisturbed(outcomes: &[Outcome]) -> Result<(), Failure> {
    for outcome in outcomes {
        if let FinishReason::Error(failure) = &outcome.reason {
            return Err(failure.clone());
        }
        if outcome.timings.preemptions > 0 {
            let message = format!(
                "the KV cache was too small for {} sequences and one was preempted: raise --kv-memory",
                outcomes.len()
            );
            return Err(Failure::new(FailureKind::Busy, message));
        }
    }
    Ok(())
}

pub(super) fn internal(message: String) -> Failure {
    Failure::new(FailureKind::Internal, message)
}

pub(super) fn engine_gone() -> Failure {
    internal("the engine ended before the measurement did".into())
}

fn no_time(test: &Test) -> Failure {
    internal(format!("{}: no time passed on the clock", test.name()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::protocol::*;
    use std::sync::mpsc::channel;
    use std::thread::{JoinHandle, spawn};

    /// How the engine of a test misbehaves.
    #[derive(Clone, Copy, Default)]
    struct Faults {
        preempts: bool,
        refuses: bool,
        forgets: bool,
        stops_after: Option<u32>,
    }

    /// Gives each submission its tokens once it is resumed, and remembers what it was asked.
    fn engine(faults: Faults) -> (Handle, JoinHandle<Vec<Request>>) {
        let (commands, received) = channel();
        let (sender, events) = EventReceiver::channel();
        let handle = Handle { commands, events, snapshot: SnapshotCell::default() };
        let thread = spawn(move || {
            let mut asked: Vec<Request> = Vec::new();
            let mut held = Vec::new();
            let accepted = |id| Event::Accepted { id, prompt_tokens: 0, rendered: String::new() };
            let started = received.into_iter().flat_map(|command| match command {
                Command::Submit(request) => {
                    sender.send(vec![accepted(request.id)]);
                    held.push(request);
                    Vec::new()
                }
                Command::Resume => std::mem::take(&mut held),
                _ => Vec::new(),
            });
            for request in started {
                let seq = SeqId { request: request.id, choice: 0 };
                let tokens =
                    |r: &Request| if let Prompt::Tokens(t) = &r.prompt { t.clone() } else { panic!() };
                let prompt = tokens(&request);
                let known = asked.iter().map(tokens).filter(|t| prompt.starts_with(t)).map(|t| t.len()).max();
                let cached = if faults.forgets { 0 } else { known.unwrap_or(0) / 16 * 16 };
                let n = request.params.max_tokens.unwrap().min(faults.stops_after.unwrap_or(u32::MAX));
                for _ in 0..n {
                    sender.send(vec![Event::Token { seq, token: Box::new(token()) }]);
                }
                let reason = match faults.refuses {
                    true => FinishReason::Error(Failure::new(FailureKind::TooLong, "too long")),
                    false => FinishReason::Length,
                };
                let usage = Usage { prompt_tokens: prompt.len(), cached_tokens: cached, ..Usage::default() };
                let timings = Timings { preemptions: u32::from(faults.preempts), ..Timings::default() };
                let outcome =
                    Outcome { reason, usage, timings, seed: 0, params: request.params.clone(), beam: None };
                sender.send(vec![Event::Finished { seq, outcome: Box::new(outcome) }]);
                asked.push(*request);
            }
            asked
        });
        (handle, thread)
    }

    fn token() -> TokenInfo {
        TokenInfo {
            id: 1,
            text: "x".into(),
            bytes: b"x".to_vec(),
            logprob: 0.0,
            rank: 1,
            entropy: 0.0,
            top: Vec::new(),
            forced: false,
            channel: Channel::Content,
            held: String::new(),
            why: None,
        }
    }

    fn run(test: Test, faults: Faults) -> (Result<Vec<Measured>, Failure>, Vec<Request>) {
        let (mut handle, thread) = engine(faults);
        let info = ModelInfo { vocab_size: 100, block_size: 16, context_length: 512, ..ModelInfo::default() };
        let result = Bench::new(&mut handle, &info, 512, None).measure(&test, 3, |_| {});
        drop(handle);
        (result, thread.join().unwrap())
    }

    const PREFILL: Test = Test { kind: Kind::Prefill, tokens: 64, depth: 0, batch: 2 };
    const DECODE: Test = Test { kind: Kind::Decode, tokens: 8, depth: 0, batch: 1 };

    #[test]
    fn every_repetition_is_a_rate_and_the_warm_up_is_none() {
        let (rates, asked) = run(PREFILL, Faults::default());
        let rates = rates.unwrap();
        assert!(rates.len() == 3 && rates.iter().all(|measured| measured.rate > 0.0), "{rates:?}");
        assert_eq!(asked.len(), 4 * 2, "a warm-up and three repetitions of two prompts");
        let all: std::collections::BTreeSet<String> =
            asked.iter().map(|r| format!("{:?}", r.prompt)).collect();
        assert_eq!(all.len(), asked.len(), "no prompt is asked twice");
        assert!(asked.iter().all(|r| r.params.ignore_eos && r.params.temperature == 0.0));
        let Prompt::Tokens(tokens) = &asked[0].prompt else { panic!() };
        assert!(tokens.len() == 64 && tokens.iter().all(|t| *t < 100));
    }

    #[test]
    fn a_prefill_at_depth_times_only_what_is_new() {
        let (rates, asked) = run(Test { depth: 32, batch: 1, ..PREFILL }, Faults::default());
        assert_eq!(rates.unwrap().len(), 3);
        let lengths: Vec<usize> =
            asked.iter().map(|r| if let Prompt::Tokens(t) = &r.prompt { t.len() } else { 0 }).collect();
        assert_eq!(lengths, [32, 96, 32, 96, 32, 96, 32, 96]);
        let (rates, _) =
            run(Test { depth: 32, batch: 1, ..PREFILL }, Faults { forgets: true, ..Faults::default() });
        assert!(rates.unwrap_err().message.contains("did not keep the depth"));
    }

    #[test]
    fn a_decode_asks_for_one_token_more_than_it_times() {
        let (rates, asked) = run(DECODE, Faults::default());
        assert_eq!(rates.unwrap().len(), 3);
        let asked: Vec<_> = asked.iter().map(|r| r.params.max_tokens.unwrap()).collect();
        assert_eq!(asked, [2, 9, 9, 9]);
    }

    #[test]
    fn a_disturbed_measurement_is_an_error_and_no_figure() {
        let kind = |test, faults| run(test, faults).0.unwrap_err().kind;
        assert_eq!(kind(DECODE, Faults { preempts: true, ..Faults::default() }), FailureKind::Busy);
        assert_eq!(kind(PREFILL, Faults { refuses: true, ..Faults::default() }), FailureKind::TooLong);
        assert_eq!(kind(DECODE, Faults { stops_after: Some(4), ..Faults::default() }), FailureKind::TooLong);
    }
}
