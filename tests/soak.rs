//! The scheduler under traffic, by simulation: hundred thousand random traces, a million requests.
//! Deterministic: a trace that fails names its number, and `TRACE=n` runs it alone.

#![allow(clippy::unwrap_used)]

use glassbox::base::{Clock, SplitMix};
use glassbox::config::EngineSettings;
use glassbox::engine::{Engine, Intake};
use glassbox::kv::CacheSpec;
use glassbox::model::{ModelLimits, RopeLengths};
use glassbox::protocol::*;
use glassbox::simulate::{Costs, Simulated};
use glassbox::text::TextModel;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Ids of forks are above this.
const FORKS: u64 = 1 << 40;

/// An engine over [`Simulated`], and the account of who was promised what.
struct House {
    engine: Engine,
    intake: Intake,
    clock: Clock,
    events: Vec<Event>,
    /// Choices that are still owed their end.
    open: BTreeMap<SeqId, u32>,
    started: Vec<RequestId>,
    finished: u64,
}

const COSTS: Costs = Costs {
    step: Duration::from_micros(500),
    token: Duration::from_micros(20),
    context_token: Duration::from_nanos(100),
};

impl House {
    fn new(settings: &EngineSettings, limits: ModelLimits) -> Self {
        let clock = Clock::virtual_time();
        let runner = Box::new(Simulated::new(limits, COSTS, clock.clone()));
        let engine = Engine::new(settings, runner, Arc::new(TextModel::bytes()), clock.clone());
        let intake = engine.intake();
        let (events, open, started) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { engine, intake, clock, events, open, started, finished: 0 }
    }

    fn send(&mut self, command: Command) {
        let work = self.intake.take(command);
        self.engine.apply(work, &mut self.events);
        self.read();
    }

    fn submit(&mut self, request: Request) {
        for choice in 0..request.n {
            self.open.insert(SeqId { request: request.id, choice }, 0);
        }
        self.send(Command::Submit(Box::new(request)));
    }

    fn step(&mut self) {
        self.engine.tick(&mut self.events);
        self.read();
    }

    /// Every end is one that was owed, and is owed no longer.
    fn read(&mut self) {
        for event in self.events.drain(..) {
            match event {
                Event::Started { seq, .. } if seq.choice == 0 => self.started.push(seq.request),
                Event::Token { seq, .. } => *self.open.get_mut(&seq).expect("a token after the end") += 1,
                Event::Finished { seq, outcome } => {
                    let tokens = self.open.remove(&seq).unwrap_or_else(|| panic!("{seq} ended twice"));
                    // A fork counts what it took over, and draws the rest.
                    let (drawn, all) = (tokens as usize, outcome.usage.completion_tokens);
                    assert!(
                        drawn == all || (seq.request.0 > FORKS && drawn < all),
                        "{seq}: {drawn} of {all}"
                    );
                    if let FinishReason::Error(failure) = &outcome.reason {
                        panic!("{seq}: {failure}");
                    }
                    self.finished += 1;
                }
                Event::Note(note) => panic!("{note}"),
                _ => {}
            }
        }
    }

    fn run(&mut self, checked: bool) {
        let mut steps = 0;
        while self.engine.can_step() {
            self.step();
            if checked {
                self.engine.self_check().unwrap();
            }
            steps += 1;
            assert!(steps < 100_000, "no end in sight: {:?}", self.engine.snapshot().steps.last());
        }
        assert!(self.engine.is_idle() && self.open.is_empty(), "{:?} never ended", self.open);
        let kv = self.engine.snapshot().kv;
        assert_eq!((kv.owned, kv.free + kv.cached), (0, kv.blocks.len() - 1));
    }
}

fn limits(blocks: usize, block_size: usize, groups: Vec<CacheSpec>) -> ModelLimits {
    ModelLimits {
        vocab_size: 259,
        max_model_len: 4096,
        max_batched_tokens: 8192,
        max_outputs: 1024,
        block_size,
        num_blocks: blocks + 1,
        bytes_per_block: 1,
        groups,
        cache_identity: "simulated".into(),
        rope_lengths: RopeLengths::Same,
    }
}

fn params(max_tokens: usize, seed: u64) -> SamplingParams {
    SamplingParams {
        max_tokens: Some(max_tokens as u32),
        seed: Some(seed),
        ignore_eos: true,
        ..Default::default()
    }
}

fn settings(random: &mut SplitMix) -> EngineSettings {
    let yes = |random: &mut SplitMix| random.one_in(2);
    let scheduler = SchedulerSettings {
        max_num_batched_tokens: random.between(1, 40),
        max_num_seqs: random.between(1, 8),
        max_num_active_seqs: random.one_in(4).then(|| random.between(1, 4)),
        enable_chunked_prefill: !random.one_in(4),
        long_prefill_token_threshold: if yes(random) { 0 } else { random.between(1, 10) },
        long_prefill_token_threshold_adaptive: yes(random),
        scheduler_reserve_full_isl: !random.one_in(4),
        watermark: if random.one_in(4) { 0.2 } else { 0.0 },
        prefill_schedule_interval: if random.one_in(4) { random.between(2, 4) as u32 } else { 1 },
        scheduling_policy: random.pick(SchedulingPolicy::ALL),
        schedule_policy: random.pick(SchedulePolicy::ALL),
        time_slice_ms: 1.0,
        preemption_mode: random.pick(PreemptionMode::ALL),
        schedule_conservativeness: random.pick(&[0.05, 0.5, 1.0]),
        batching: if random.one_in(6) { Batching::Static } else { Batching::Continuous },
        async_scheduling: yes(random),
        num_scheduler_steps: if random.one_in(3) { random.between(2, 5) as u32 } else { 1 },
    };
    EngineSettings {
        scheduler,
        prefix_cache: random.pick(PrefixCache::ALL),
        radix_eviction_policy: random.pick(EvictionPolicy::ALL),
        host_kv_bytes: if yes(random) { random.between(1, 30) } else { 0 },
        ..EngineSettings::default()
    }
}

/// One random trace: settings, a small pool, arrivals, aborts, forks, pauses, changes of settings.
fn trace(number: u64) {
    let mut random = SplitMix(number);
    let settings = settings(&mut random);
    let groups = match random.below(6) {
        0 => vec![CacheSpec::Full, CacheSpec::Sliding { window: random.between(1, 9) }],
        1 => vec![CacheSpec::Sliding { window: random.between(1, 9) }],
        2 => vec![CacheSpec::Full, CacheSpec::Recurrent],
        _ => vec![CacheSpec::Full],
    };
    let block_size = random.between(1, 6);
    let per_sequence = 44usize.div_ceil(block_size) + 1;
    let blocks = groups.len() * (per_sequence + random.below(2 * per_sequence));
    let mut house = House::new(&settings, limits(blocks, block_size, groups));
    let fcfs = settings.scheduler.scheduling_policy == SchedulingPolicy::Fcfs
        && matches!(settings.scheduler.schedule_policy, SchedulePolicy::Fcfs | SchedulePolicy::RoundRobin);
    let (mut arrivals, mut disturbed) = (Vec::new(), false);
    for id in 1..=random.between(1, 14) as u64 {
        let common = random.below(20) as u32;
        let own = random.between(1, 12) as u32;
        let tokens = (0..common).chain((0..own).map(|i| 100 + (i * 7 + id as u32) % 100)).collect();
        let request = Request::new(RequestId(id), Prompt::Tokens(tokens), params(random.between(1, 12), id));
        let n = if random.one_in(5) { random.between(2, 4) as u32 } else { 1 };
        let prompt_logprobs = random.one_in(12).then_some(1);
        house.submit(Request { priority: random.below(4) as i32, n, prompt_logprobs, ..request });
        arrivals.push(RequestId(id));
        for _ in 0..random.below(5) {
            house.step();
            house.engine.self_check().unwrap();
        }
        match random.below(24) {
            0 => {
                house.send(Command::Abort(RequestId(random.between(1, id as usize) as u64)));
                disturbed = true;
            }
            1 => {
                house.send(Command::Pause);
                house.step();
                house.send(Command::Step(2));
                (0..3).for_each(|_| house.step());
                house.send(Command::Resume);
            }
            2 => house.send(Command::ResetPrefixCache),
            3 => {
                let scheduler = self::settings(&mut random).scheduler;
                house.send(Command::Configure(Box::new(scheduler)));
                disturbed = true;
            }
            4 => {
                let parent = SeqId { request: RequestId(random.between(1, id as usize) as u64), choice: 0 };
                let id = RequestId(FORKS + id);
                let keep = random.between(1, 8);
                house.open.insert(SeqId { request: id, choice: 0 }, 0);
                let fork = ForkRequest { id, parent, keep, then: vec![3], params: params(40, id.0) };
                house.fork(fork);
                disturbed = true;
            }
            _ => {}
        }
        house.engine.self_check().unwrap();
    }
    house.run(true);
    if fcfs && !disturbed {
        assert_eq!(house.started, arrivals, "first come, first served");
    }
}

impl House {
    /// A fork may be refused (its parent is too short); it ends all the same.
    fn fork(&mut self, fork: ForkRequest) {
        let work = self.intake.take(Command::Fork(Box::new(fork)));
        self.engine.apply(work, &mut self.events);
        self.events.retain(|event| match event {
            Event::Finished { seq, outcome } if matches!(outcome.reason, FinishReason::Error(_)) => {
                self.open.remove(seq).unwrap();
                false
            }
            _ => true,
        });
        self.read();
    }
}

/// The full count in release builds; in debug builds, which are some fifteen times slower, a part.
fn count(full: u64) -> u64 {
    if cfg!(debug_assertions) { full / 40 } else { full }
}

/// In two halves, for two cores.
#[test]
fn a_hundred_thousand_random_traces_even() {
    traces(0);
}

#[test]
fn a_hundred_thousand_random_traces_odd() {
    traces(1);
}

fn traces(half: u64) {
    if let Some(number) = std::env::var("TRACE").ok().and_then(|n| n.parse().ok()) {
        return if number % 2 == half {
            trace(number)
        };
    }
    for number in (half..count(100_000)).step_by(2) {
        std::panic::catch_unwind(|| trace(number)).unwrap_or_else(|_| panic!("trace {number} failed"));
    }
}

/// A million requests, in virtual time: a queue that is never empty, a pool that is always short.
/// Nobody starves: everyone starts in the order of arrival.
#[test]
fn a_million_requests() {
    let total = count(1_000_000);
    let scheduler =
        SchedulerSettings { max_num_seqs: 64, max_num_batched_tokens: 512, ..SchedulerSettings::default() };
    let settings = EngineSettings { scheduler, ..EngineSettings::default() };
    let mut house = House::new(&settings, limits(100, 16, vec![CacheSpec::Full]));
    let mut random = SplitMix(7);
    let (mut id, mut steps, mut waits) = (0, 0u64, 0u64);
    while id < total {
        while id < total && house.open.len() < 160 {
            id += 1;
            let (family, own) = (random.below(40) as u32, random.between(1, 30) as u32);
            let tokens = (0..random.below(60) as u32).map(|i| (i + family) % 250).chain(0..own).collect();
            let max_tokens = random.between(1, 12);
            let request = Request::new(RequestId(id), Prompt::Tokens(tokens), params(max_tokens, id));
            house.submit(request);
            if random.one_in(200) {
                house.send(Command::Abort(RequestId(id)));
            }
        }
        house.step();
        steps += 1;
        waits += house.open.len() as u64;
        if steps % 1000 == 0 {
            house.engine.self_check().unwrap();
        }
    }
    house.run(false);
    assert_eq!(house.finished, total);
    assert!(house.started.is_sorted(), "first come, first served");
    let counters = house.engine.snapshot().counters;
    let busy = counters.preemptions > 0 && counters.evictions > 0 && counters.prefix_hits > 0;
    assert!(busy, "{counters:?}");
    println!(
        "{total} requests in {steps} steps, {} virtual seconds; {} open on average; {} preemptions, {} evictions, {:.1} % of prompt tokens hit",
        house.clock.now().as_secs(),
        waits / steps,
        counters.preemptions,
        counters.evictions,
        100.0 * counters.prefix_hits as f64 / counters.prefix_queries as f64,
    );
}
