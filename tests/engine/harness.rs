use glassbox::base::Clock;
use glassbox::config::EngineSettings;
use glassbox::engine::{Engine, Intake};
use glassbox::model::{Runner, Scripted};
use glassbox::protocol::*;
use glassbox::text::TextModel;
use std::sync::Arc;

/// An engine driven by hand, and all it said.
pub struct Bench {
    pub engine: Engine,
    intake: Intake,
    pub events: Vec<Event>,
    next: u64,
}

/// Scripted, or whatever a test opened.
pub struct AnyRunner(Box<dyn Runner>);

impl From<Scripted> for AnyRunner {
    fn from(runner: Scripted) -> Self {
        Self(Box::new(runner))
    }
}

impl From<Box<dyn Runner>> for AnyRunner {
    fn from(runner: Box<dyn Runner>) -> Self {
        Self(runner)
    }
}

pub fn settings() -> EngineSettings {
    EngineSettings::default()
}

/// The settings that tests turn.
pub trait Tune {
    /// `max_num_batched_tokens`
    fn budget(self, tokens: usize) -> Self;
    /// `max_num_seqs`
    fn seqs(self, most: usize) -> Self;
    /// The hash cache, or none.
    fn caching(self, on: bool) -> Self;
    fn tuned(self, change: impl FnOnce(&mut SchedulerSettings)) -> Self;
}

impl Tune for EngineSettings {
    fn budget(self, tokens: usize) -> Self {
        self.tuned(|s| s.max_num_batched_tokens = tokens)
    }

    fn seqs(self, most: usize) -> Self {
        self.tuned(|s| s.max_num_seqs = most)
    }

    fn caching(self, on: bool) -> Self {
        Self { prefix_cache: if on { PrefixCache::Hash } else { PrefixCache::Off }, ..self }
    }

    fn tuned(mut self, change: impl FnOnce(&mut SchedulerSettings)) -> Self {
        change(&mut self.scheduler);
        self
    }
}

/// The likeliest token always, no end but the script's.
pub fn greedy() -> SamplingParams {
    SamplingParams { temperature: 0.0, ..Default::default() }
}

/// The model's own distribution, drawn with this seed, for so many tokens.
pub fn seeded(seed: u64, max_tokens: u32) -> SamplingParams {
    SamplingParams {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        seed: Some(seed),
        max_tokens: Some(max_tokens),
        ignore_eos: true,
        ..Default::default()
    }
}

pub fn first(request: RequestId) -> SeqId {
    SeqId { request, choice: 0 }
}

impl Bench {
    pub fn new(runner: Scripted) -> Self {
        Self::with(settings(), runner)
    }

    pub fn with(settings: EngineSettings, runner: impl Into<AnyRunner>) -> Self {
        Self::timed(settings, runner, Clock::virtual_time())
    }

    pub fn timed(settings: EngineSettings, runner: impl Into<AnyRunner>, clock: Clock) -> Self {
        Self::over(TextModel::bytes(), settings, runner, clock)
    }

    /// With another vocabulary than the bytes.
    pub fn over(
        text: TextModel,
        settings: EngineSettings,
        runner: impl Into<AnyRunner>,
        clock: Clock,
    ) -> Self {
        let text = Arc::new(text);
        let engine = Engine::new(&settings, runner.into().0, text, clock);
        let intake = engine.intake();
        Self { engine, intake, events: Vec::new(), next: 0 }
    }

    pub fn send(&mut self, command: Command) {
        let work = self.intake.take(command);
        self.engine.apply(work, &mut self.events);
        self.check();
    }

    pub fn request(&mut self, prompt: impl Into<String>, params: SamplingParams) -> Request {
        self.next += 1;
        Request::new(RequestId(self.next), Prompt::Text(prompt.into()), params)
    }

    pub fn submit(&mut self, request: Request) -> RequestId {
        let id = request.id;
        self.send(Command::Submit(Box::new(request)));
        id
    }

    pub fn ask(&mut self, prompt: impl Into<String>, params: SamplingParams) -> RequestId {
        let request = self.request(prompt, params);
        self.submit(request)
    }

    /// One step; afterwards every block must be accounted for.
    pub fn step(&mut self) {
        self.engine.tick(&mut self.events);
        self.check();
    }

    fn check(&self) {
        self.engine.self_check().unwrap();
        if self.engine.is_idle() {
            assert_eq!(self.engine.snapshot().kv.owned, 0, "idle, and blocks are owned");
        }
    }

    /// Steps until nothing is left to do; gives back how many steps it took.
    pub fn run(&mut self) -> usize {
        for steps in 0..200_000 {
            if !self.engine.can_step() {
                return steps;
            }
            self.step();
        }
        panic!("no end in sight: {:?}", self.engine.snapshot().steps.last());
    }

    /// The text of an answer, thoughts left out.
    pub fn text(&self, request: RequestId) -> String {
        self.choice_text(first(request))
    }

    /// The thoughts of an answer.
    pub fn thoughts(&self, request: RequestId) -> String {
        let parts = self.events.iter().filter_map(|event| match event {
            Event::Delta { seq, part: Part::Reasoning(text) } if *seq == first(request) => {
                Some(text.as_str())
            }
            _ => None,
        });
        parts.collect()
    }

    pub fn choice_text(&self, choice: SeqId) -> String {
        let parts = self.events.iter().filter_map(|event| match event {
            Event::Delta { seq, part: Part::Text(text) } if *seq == choice => Some(text.as_str()),
            _ => None,
        });
        parts.collect()
    }

    pub fn tokens(&self, choice: SeqId) -> Vec<TokenId> {
        self.infos(choice).iter().map(|token| token.id).collect()
    }

    pub fn infos(&self, choice: SeqId) -> Vec<&TokenInfo> {
        let tokens = self.events.iter().filter_map(|event| match event {
            Event::Token { seq, token } if *seq == choice => Some(&**token),
            _ => None,
        });
        tokens.collect()
    }

    /// How a choice ended, which it did exactly once.
    pub fn outcome(&self, choice: SeqId) -> &Outcome {
        let ends = self.events.iter().filter_map(|event| match event {
            Event::Finished { seq, outcome } if *seq == choice => Some(&**outcome),
            _ => None,
        });
        let ends: Vec<&Outcome> = ends.collect();
        assert_eq!(ends.len(), 1, "choice {choice} ended {} times", ends.len());
        ends[0]
    }

    pub fn reason(&self, request: RequestId) -> &FinishReason {
        &self.outcome(first(request)).reason
    }

    /// The message a request was refused or ended with.
    pub fn failure(&self, request: RequestId) -> &Failure {
        match self.reason(request) {
            FinishReason::Error(failure) => failure,
            other => panic!("request {} ended with {other:?}", request.0),
        }
    }

    /// Sequences in the order in which they were first scheduled.
    pub fn started(&self) -> Vec<SeqId> {
        let started = |event: &Event| match event {
            Event::Started { seq, .. } => Some(*seq),
            _ => None,
        };
        self.events.iter().filter_map(started).collect()
    }

    pub fn record(&self) -> StepRecord {
        StepRecord::clone(self.engine.snapshot().steps.last().unwrap())
    }

    /// Tokens of each row of the newest step.
    pub fn row_tokens(&self) -> Vec<usize> {
        self.record().rows.iter().map(|row| row.tokens).collect()
    }

    pub fn kv(&self) -> KvView {
        self.engine.snapshot().kv
    }

    pub fn notes(&self) -> Vec<&str> {
        let notes = self.events.iter().filter_map(|event| match event {
            Event::Note(note) => Some(note.as_str()),
            _ => None,
        });
        notes.collect()
    }
}

/// A request alone in a fresh engine with room for everything: what it must give in any company.
pub fn solo(script: impl Fn() -> Scripted, prompt: &str, params: &SamplingParams) -> Vec<TokenId> {
    let mut bench = Bench::new(script());
    let id = bench.ask(prompt, params.clone());
    bench.run();
    bench.tokens(first(id))
}

/// A pool in which nothing is ever short.
pub fn babbler() -> Scripted {
    Scripted::babbling(Scripted::limits(512, 4))
}
