//! An engine over the device: what it says is what it says over the CPU, whatever the scheduler does.

use crate::bench::*;
use crate::harness::{Device, device, on_gpu};
use crate::models::on_device;
use crate::support::{fixture, isa, load_with};
use cuda_emulator::Fault;
use glassbox::base::Clock;
use glassbox::compute::cuda::{self, Cuda};
use glassbox::engine::{Opened, spawn};
use glassbox::model::{self, LoadOptions, Runner};
use glassbox::protocol::*;
use glassbox::text::TextModel;
use glassbox::weights::Checkpoint;
use std::sync::Arc;

const MODELS: [&str; 2] = ["llama", "gemma3_text_std"];

fn file(model: &str) -> Checkpoint {
    Checkpoint::open(&fixture(&format!("gguf/{model}.gguf"))).unwrap()
}

/// A pool of so many blocks of 16 tokens for each cache group; `None` is ample.
fn options(model: &str, blocks: Option<usize>) -> LoadOptions {
    let ample = LoadOptions { max_batched_tokens: 64, ..LoadOptions::default() };
    let Some(blocks) = blocks else { return ample };
    let runner = load_with(&file(model), 1, isa(), &ample);
    let limits = runner.limits();
    LoadOptions { kv_cache_bytes: Some(blocks * limits.groups.len() * limits.bytes_per_block), ..ample }
}

fn there(device: &Device, model: &str, blocks: Option<usize>) -> Box<dyn Runner> {
    on_device(device, &file(model), &options(model, blocks)).0
}

fn here(model: &str) -> Box<dyn Runner> {
    load_with(&file(model), 1, isa(), &options(model, None))
}

struct Question {
    prompt: Vec<TokenId>,
    params: SamplingParams,
    n: u32,
}

/// Prompts that share beginnings of all lengths; greedy, and drawn with what a device knows of; with one
/// and more choices.
fn questions() -> Vec<Question> {
    let common: Vec<TokenId> = (0..40).map(|i| (i * 37 + 11) % 250).collect();
    (0..10u32)
        .map(|i| {
            let own = (0..5 + i).map(|j| (i * 17 + j * 29) % 250);
            let prompt = common[..(i as usize * 7) % 33].iter().copied().chain(own).collect();
            let plain = seeded(u64::from(i), 10 + i % 5);
            let params = match i % 5 {
                0 => SamplingParams { temperature: 0.0, ..plain },
                1 => SamplingParams { temperature: 0.7, top_k: 20, top_p: 0.9, ..plain },
                2 => SamplingParams { temperature: 0.0, repetition_penalty: 1.3, ..plain },
                3 => SamplingParams { min_p: 0.02, frequency_penalty: 0.4, presence_penalty: 0.2, ..plain },
                _ => plain,
            };
            Question { prompt, params, n: 1 + i % 3 }
        })
        .collect()
}

fn submit(bench: &mut Bench, question: &Question) -> Vec<SeqId> {
    let request = bench.request("", question.params.clone());
    let prompt = Prompt::Tokens(question.prompt.clone());
    let id = bench.submit(Request { prompt, n: question.n, ..request });
    (0..question.n).map(|choice| SeqId { request: id, choice }).collect()
}

/// Each question alone on the CPU, uncached, in one chunk, with room for everything.
fn alone(model: &str) -> Vec<Vec<Vec<TokenId>>> {
    let mut bench = Bench::with(settings().caching(false), here(model));
    let mut answers = Vec::new();
    for question in questions() {
        let choices = (0..question.n).map(|choice| {
            let seed = question.params.seed.map(|seed| seed + u64::from(choice));
            let params = SamplingParams { seed, ..question.params.clone() };
            let one = Question { params, n: 1, prompt: question.prompt.clone() };
            let seq = submit(&mut bench, &one)[0];
            bench.run();
            bench.tokens(seq)
        });
        answers.push(choices.collect());
    }
    answers
}

/// Chunks of prompts, prefixes found again, forks with their copies, preemption: all through graphs.
#[test]
fn batched_chunked_cached_forked_and_preempted_is_solo_on_the_cpu_to_the_token() {
    let Some(device) = device() else { return };
    for model in MODELS {
        let right = alone(model);
        // Blocks in the pool, token budget, caching; the last one plans ahead, on another thread.
        for (pool, budget, caching, ahead) in [
            (None, 64, true, false),
            (None, 7, true, false),
            (Some(7), 16, true, false),
            (Some(6), 33, false, false),
            (None, 64, true, true),
        ] {
            let settings = settings().budget(budget).caching(caching).seqs(6);
            let settings = settings.tuned(|s| s.async_scheduling = ahead);
            let mut bench = Bench::with(settings, there(&device, model, pool));
            bench.engine.run_ahead();
            let mut asked = Vec::new();
            for question in questions() {
                asked.push(submit(&mut bench, &question));
                bench.step();
            }
            bench.run();
            let failed = bench.events.iter().find_map(|event| match event {
                Event::Finished { outcome, .. } => match &outcome.reason {
                    FinishReason::Error(failure) => Some(failure.message.clone()),
                    _ => None,
                },
                _ => None,
            });
            assert_eq!(failed, None, "{model}, pool {pool:?}, budget {budget}, ahead {ahead}");
            for (choices, right) in asked.iter().zip(&right) {
                for (seq, right) in choices.iter().zip(right) {
                    assert_eq!(&bench.tokens(*seq), right, "{model}, {seq}, pool {pool:?}, budget {budget}");
                }
            }
            let counters = bench.engine.snapshot().counters;
            assert_eq!(counters.prefix_hits > 0, caching);
            assert_eq!(counters.preemptions > 0, pool.is_some(), "{counters:?}");
            assert!(counters.copies_on_write > 0);
        }
    }
}

/// An engine with threads of its own, which opens the device itself, and again when it is lost.
struct House {
    handle: Handle,
    next: u64,
    notes: Vec<String>,
}

impl House {
    fn new() -> Self {
        let open = |_: &dyn Fn(LoadStage, u64, u64)| {
            let failed = |why: String| Failure::new(FailureKind::Internal, why);
            let cuda = cuda::open(0).and_then(Cuda::new).map_err(|e| failed(e.to_string()))?;
            let options = options("llama", None);
            let loaded = model::load(&file("llama"), cuda, &options, &|_, _| ());
            let loaded = loaded.map_err(|e| failed(e.to_string()))?;
            let text = Arc::new(TextModel::bytes());
            let info = ModelInfo { kv_blocks: loaded.kv.blocks - 1, ..ModelInfo::default() };
            Ok(Opened { runner: loaded.runner, text, info, memory: loaded.memory })
        };
        Self { handle: spawn(settings(), Clock::wall(), open), next: 0, notes: Vec::new() }
    }

    /// Until its threads have let go of the device.
    fn close(mut self) {
        self.handle.commands.send(Command::Shutdown).unwrap();
        while self.handle.events.blocking_recv().is_some() {}
    }

    /// The text of a greedy answer, or why there is none.
    fn ask(&mut self) -> Result<String, String> {
        self.next += 1;
        let id = RequestId(self.next);
        let params = SamplingParams { max_tokens: Some(12), ignore_eos: true, ..greedy() };
        let prompt = Prompt::Tokens((0..30).map(|i| (i * 37 + 11) % 250).collect());
        self.handle.commands.send(Command::Submit(Box::new(Request::new(id, prompt, params)))).unwrap();
        let mut text = String::new();
        loop {
            for event in self.handle.events.blocking_recv().unwrap() {
                match event {
                    Event::Delta { seq, part: Part::Text(part) } if seq.request == id => text += &part,
                    Event::Finished { seq, outcome } if seq.request == id => {
                        return match outcome.reason {
                            FinishReason::Error(failure) => Err(failure.message),
                            _ => Ok(text),
                        };
                    }
                    Event::Note(note) => self.notes.push(note),
                    _ => {}
                }
            }
        }
    }
}

/// A request ends with the reason, and the next is answered as if nothing had been.
#[test]
fn what_fails_in_a_step_ends_its_requests_and_no_other() {
    let Some(_device) = device() else { return };
    if on_gpu() {
        return;
    }
    let mut house = House::new();
    let right = house.ask().unwrap();
    house.close();
    assert!(!right.is_empty());
    // Kernels die in the prompt's pass, in the first graph, and later; captures and launches are refused.
    let faults = [
        (Fault::Kernel(20), "illegal", true),
        (Fault::Kernel(250), "illegal", true),
        (Fault::Launch(15), "launching", false),
        (Fault::Capture(1), "recording a graph", false),
    ];
    for (fault, said, lost) in faults {
        let mut house = House::new();
        // Passes are recorded in the first answer, and never again.
        if !matches!(fault, Fault::Capture(_)) {
            assert_eq!(house.ask(), Ok(right.clone()));
        }
        cuda_emulator::fault(fault);
        let why = house.ask().unwrap_err();
        assert!(why.contains(said), "{fault:?}: {why}");
        assert_eq!(house.ask(), Ok(right.clone()), "{fault:?}");
        assert_eq!(house.notes.iter().any(|note| note.contains("opened again")), lost, "{:?}", house.notes);
        house.close();
        cuda_emulator::reset();
    }
}

/// Too little memory is said with what was asked for, what was free, and what would help.
#[test]
fn a_model_that_does_not_fit_says_what_would() {
    let Some(_device) = device() else { return };
    if on_gpu() {
        return;
    }
    cuda_emulator::fault(Fault::Memory(40 << 20));
    let refused = || {
        let mut house = House::new();
        let why = house.ask().unwrap_err();
        house.close();
        cuda_emulator::reset();
        why
    };
    let why = refused();
    assert!(why.contains("MiB") && why.contains("available"), "{why}");
    for n in [1, 3, 9, 14, 20] {
        cuda_emulator::fault(Fault::Allocation(n));
        let why = refused();
        assert!(why.contains("no memory") || why.contains("memory of the host"), "{n}: {why}");
    }
}
