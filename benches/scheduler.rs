//! What a plan costs: `schedule()` alone, with so many sequences running and as many waiting, every
//! one of them decoding a token a step; all of them admitted in one step; and a whole step around a
//! model that takes no time. `cargo bench --bench scheduler`

#[path = "../tests/support/busy.rs"]
mod busy;

use busy::Busy;
use divan::{AllocProfiler, Bencher};
use glassbox::base::Clock;
use glassbox::config::EngineSettings;
use glassbox::engine::Engine;
use glassbox::kv::CacheSpec;
use glassbox::model::{ModelLimits, RopeLengths};
use glassbox::protocol::{Command, Prompt, Request, RequestId, SamplingParams, SchedulerSettings};
use glassbox::simulate::{Costs, Simulated};
use glassbox::text::TextModel;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

#[divan::bench(args = [8, 32, 128, 512, 1024, 4096], sample_size = 1, sample_count = 300)]
fn running(bencher: Bencher, running: usize) {
    planned(bencher, running, 0);
}

#[divan::bench(args = [8, 32, 128, 512, 1024, 4096], sample_size = 1, sample_count = 300)]
fn running_and_as_many_waiting(bencher: Bencher, running: usize) {
    planned(bencher, running, running);
}

fn planned(bencher: Bencher, running: usize, waiting: usize) {
    let busy = RefCell::new(Busy::new(running, waiting));
    // Only the plan is timed, not what the tokens mean for the sequences.
    bencher.with_inputs(|| busy.borrow_mut().account()).bench_local_values(|()| busy.borrow_mut().schedule());
}

/// Their prompts and all.
#[divan::bench(args = [8, 32, 128, 512, 1024], sample_size = 1, sample_count = 15)]
fn admitted_in_one_step(bencher: Bencher, waiting: usize) {
    bencher.with_inputs(|| Busy::arriving(waiting, 0)).bench_local_refs(|busy| busy.schedule());
}

/// Plan, batch, draws without a model, text, events and the step's record; every sequence decodes.
#[divan::bench(args = [8, 32, 128, 512, 1024, 4096], sample_size = 1, sample_count = 300)]
fn whole_step(bencher: Bencher, running: usize) {
    stepped(bencher, running, 0);
}

#[divan::bench(args = [8, 32, 128, 512, 1024, 4096], sample_size = 1, sample_count = 300)]
fn whole_step_and_as_many_waiting(bencher: Bencher, running: usize) {
    stepped(bencher, running, running);
}

fn stepped(bencher: Bencher, running: usize, waiting: usize) {
    const PROMPT: usize = 200;
    let clock = Clock::virtual_time();
    let limits = ModelLimits {
        vocab_size: 256,
        rope_lengths: RopeLengths::Same,
        max_model_len: 4096,
        max_batched_tokens: running * PROMPT + 64,
        max_outputs: running,
        block_size: 16,
        num_blocks: running * 80 + 2,
        bytes_per_block: 1,
        groups: vec![CacheSpec::Full],
        cache_identity: "simulated".into(),
    };
    let scheduler = SchedulerSettings {
        max_num_seqs: running,
        max_num_batched_tokens: limits.max_batched_tokens,
        ..SchedulerSettings::default()
    };
    let nothing = Duration::ZERO;
    let costs = Costs { step: nothing, token: nothing, context_token: nothing };
    let runner = Box::new(Simulated::new(limits, costs, clock.clone()));
    let settings = EngineSettings { scheduler, ..EngineSettings::default() };
    let mut engine = Engine::new(&settings, runner, Arc::new(TextModel::bytes()), clock);
    let intake = engine.intake();
    let mut events = Vec::new();
    let params = SamplingParams { ignore_eos: true, ..SamplingParams::default() };
    for id in 0..(running + waiting) as u64 {
        let tokens = (0..PROMPT as u32).map(|i| (i * 7 + id as u32) % 251).collect();
        let request = Request::new(RequestId(id), Prompt::Tokens(tokens), params.clone());
        engine.apply(intake.take(Command::Submit(Box::new(request))), &mut events);
    }
    (0..40).for_each(|_| engine.tick(&mut events));
    let engine = RefCell::new(engine);
    // The events leave with the step, as they do from a host.
    bencher.bench_local(|| {
        let mut events = Vec::new();
        engine.borrow_mut().tick(&mut events);
        events
    });
}
