//! Models with layers that keep one state for the whole past, on the real CPU runner: Mamba-2, which has
//! nothing else, and two hybrids. Whatever the engine does with their states, the tokens are those of a
//! sequence alone.

use crate::cpu::cpu;
use crate::harness::*;
use glassbox::config::EngineSettings;
use glassbox::model::{LoadOptions, Runner, load};
use glassbox::protocol::*;
use glassbox::weights::Checkpoint;
use std::path::Path;

const MAMBA: &str = "gguf/mamba2.gguf";
const HYBRIDS: [&str; 2] = ["gguf/lfm2.gguf", "checkpoints/qwen3_5_text"];
const MODELS: [&str; 3] = [MAMBA, HYBRIDS[0], HYBRIDS[1]];

const BLOCK: usize = 8;

/// A pool of so many blocks; `None` is ample.
fn runner(model: &str, blocks: Option<usize>) -> Box<dyn Runner> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(model);
    let file = Checkpoint::open(&path).unwrap();
    let open = |kv_cache_bytes| {
        let options = LoadOptions {
            kv_cache_bytes,
            block_size: BLOCK,
            max_batched_tokens: 64,
            max_model_len: kv_cache_bytes.is_none().then_some(256),
            ..LoadOptions::default()
        };
        load(&file, cpu(1), &options, &|_, _| ()).unwrap().runner
    };
    let ample = open(None);
    let bytes = ample.limits().bytes_per_block;
    blocks.map_or(ample, |blocks| open(Some(blocks * bytes)))
}

fn ids(count: u32, seed: u32) -> Vec<TokenId> {
    (0..count).map(|i| (i * 37 + seed * 101 + i * i * seed) % 250).collect()
}

#[derive(Clone)]
struct Question {
    prompt: Vec<TokenId>,
    params: SamplingParams,
    n: u32,
}

impl Question {
    fn new(prompt: Vec<TokenId>, tokens: u32) -> Self {
        Self { prompt, params: SamplingParams { temperature: 0.0, ..seeded(1, tokens) }, n: 1 }
    }
}

fn submit(bench: &mut Bench, question: &Question) -> Vec<SeqId> {
    let request = bench.request("", question.params.clone());
    let prompt = Prompt::Tokens(question.prompt.clone());
    let id = bench.submit(Request { prompt, n: question.n, ..request });
    (0..question.n).map(|choice| SeqId { request: id, choice }).collect()
}

/// Asked of an engine that is idle: what it says, and how much of the prompt was found.
fn ask(bench: &mut Bench, question: &Question) -> (Vec<TokenId>, usize) {
    let seq = submit(bench, question)[0];
    bench.run();
    assert_eq!(bench.outcome(seq).reason, FinishReason::Length);
    (bench.tokens(seq), bench.outcome(seq).usage.cached_tokens)
}

/// Alone, uncached, in one chunk, with room for everything.
fn alone(model: &str, question: &Question) -> Vec<Vec<TokenId>> {
    let mut bench = Bench::with(settings().caching(false), runner(model, None));
    let choice = |choice: u32| {
        let seed = question.params.seed.map(|seed| seed + u64::from(choice));
        let params = SamplingParams { seed, ..question.params.clone() };
        ask(&mut bench, &Question { params, n: 1, ..question.clone() }).0
    };
    (0..question.n).map(choice).collect()
}

/// Prompts that share beginnings of all lengths; greedy and seeded, with one and more choices.
fn questions() -> Vec<Question> {
    let common = ids(40, 3);
    let question = |i: u32| {
        let own = (0..5 + i).map(|j| (i * 17 + j * 29) % 250);
        let prompt = common[..(i as usize * 8) % 33].iter().copied().chain(own).collect();
        let params = seeded(u64::from(i), 12 + i % 5);
        let temperature = if i.is_multiple_of(3) { 0.0 } else { 1.0 };
        Question { prompt, params: SamplingParams { temperature, ..params }, n: 1 + i % 3 }
    };
    (0..10).map(question).collect()
}

/// All questions, one more in every step; the engine when all are answered.
fn together(
    model: &str,
    settings: EngineSettings,
    pool: Option<usize>,
    right: &[Vec<Vec<TokenId>>],
) -> Bench {
    let what = format!("{model}, pool {pool:?}, {:?}", settings.scheduler.preemption_mode);
    let mut bench = Bench::with(settings.seqs(6), runner(model, pool));
    let mut asked = Vec::new();
    for question in questions() {
        asked.push(submit(&mut bench, &question));
        bench.step();
    }
    bench.run();
    for (choices, right) in asked.iter().zip(right) {
        for (seq, right) in choices.iter().zip(right) {
            let reason = &bench.outcome(*seq).reason;
            assert_eq!(&bench.tokens(*seq), right, "{what}, {seq}: {reason:?}");
        }
    }
    bench
}

fn all_alone(model: &str) -> Vec<Vec<Vec<TokenId>>> {
    questions().iter().map(|question| alone(model, question)).collect()
}

#[test]
fn batched_chunked_cached_and_forked_is_solo_to_the_token() {
    for model in MODELS {
        let right = all_alone(model);
        for (budget, caching) in [(64, true), (64, false), (7, true), (16, true), (3, false)] {
            let bench = together(model, settings().budget(budget).caching(caching), None, &right);
            let counters = bench.engine.snapshot().counters;
            assert_eq!(counters.prefix_hits > 0, caching, "{model}, {budget}");
            assert!(counters.copies_on_write > 0, "{model}, {budget}");
        }
    }
}

#[test]
fn preempted_by_any_means_is_not_preempted() {
    for model in HYBRIDS {
        let right = all_alone(model);
        for (mode, caching) in PreemptionMode::ALL.iter().flat_map(|mode| [(*mode, true), (*mode, false)]) {
            let tuned = settings().budget(24).caching(caching).tuned(|s| {
                s.preemption_mode = mode;
                s.schedule_conservativeness = 0.01;
            });
            let host_kv_bytes = 64 * runner(model, None).limits().bytes_per_block;
            let bench = together(model, EngineSettings { host_kv_bytes, ..tuned }, Some(26), &right);
            let counters = bench.engine.snapshot().counters;
            assert!(counters.preemptions > 0, "{model}, {mode:?}");
            assert_eq!(counters.swaps > 0, mode == PreemptionMode::Swap, "{model}");
        }
    }
}

/// Of a model without attention, a sequence takes one block, and as many wait as there are none for.
#[test]
fn a_pool_of_few_states_serves_many_sequences() {
    let right = all_alone(MAMBA);
    for pool in [3, 4, 6] {
        let bench = together(MAMBA, settings().budget(24), Some(pool), &right);
        assert!(bench.engine.snapshot().steps.iter().all(|step| step.rows.len() <= pool));
    }
}

/// A prompt leaves its state at the last end of a block before its own, and an answer at every one.
#[test]
fn a_later_prompt_starts_where_a_state_was_left() {
    for model in MODELS {
        let mut bench = Bench::with(settings(), runner(model, None));
        let begun = ids(40, 5);
        let question = Question::new(begun.clone(), 20);
        let (answer, cached) = ask(&mut bench, &question);
        assert_eq!((&answer, cached), (&alone(model, &question)[0], 0));
        // The same again, another end, and more of it.
        let another = [&begun[..33], &ids(9, 6)].concat();
        let more = [&begun[..], &ids(26, 7)].concat();
        for (prompt, hit) in [(begun, 32), (another, 32), (more, 40)] {
            let question = Question::new(prompt, 12);
            let (said, cached) = ask(&mut bench, &question);
            assert_eq!((&said, cached), (&alone(model, &question)[0], hit), "{model}");
        }
    }
}

#[test]
fn a_branch_says_what_its_parent_says_after() {
    for model in MODELS {
        let question = Question::new(ids(21, 2), 24);
        let right = &alone(model, &question)[0];
        let mut bench = Bench::with(settings(), runner(model, None));
        let parent = submit(&mut bench, &question)[0];
        (0..16).for_each(|_| bench.step());
        for (id, said) in [(1001, 14), (1002, 9), (1003, 3), (1004, 1)] {
            let fork = ForkRequest {
                id: RequestId(id),
                parent,
                keep: 21 + said,
                then: Vec::new(),
                params: question.params.clone(),
            };
            bench.send(Command::Fork(Box::new(fork)));
        }
        bench.run();
        assert_eq!(&bench.tokens(parent), right, "{model}");
        for (id, said) in [(1001, 14), (1002, 9), (1003, 3), (1004, 1)] {
            assert_eq!(bench.tokens(first(RequestId(id))), right[said..], "{model}, after {said}");
        }
    }
}

/// What the pool had no room for comes back from host memory, states as well as keys and values.
#[test]
fn a_prefix_comes_back_from_host_memory() {
    for model in MODELS {
        let few = if model == MAMBA { 3 } else { 24 };
        let host_kv_bytes = 200 * runner(model, None).limits().bytes_per_block;
        let settings = EngineSettings { host_kv_bytes, ..settings() };
        let mut bench = Bench::with(settings, runner(model, Some(few)));
        let question = Question::new(ids(40, 1), 6);
        let right = &alone(model, &question)[0];
        assert_eq!(ask(&mut bench, &question), (right.clone(), 0), "{model}");
        for other in 8..14 {
            ask(&mut bench, &Question::new(ids(40, other), 6));
        }
        assert_eq!(ask(&mut bench, &question), (right.clone(), 32), "{model}");
        let loaded: usize = bench.engine.snapshot().steps.iter().map(|step| step.blocks_loaded).sum();
        assert!(loaded > 0, "{model}: nothing came back");
    }
}
