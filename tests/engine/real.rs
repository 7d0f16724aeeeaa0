//! The same promises on the real CPU runner with tiny checkpoints: full attention, and gemma3 with
//! its sliding window. Keys and values are real here, so are copies of blocks.

use crate::cpu::cpu;
use crate::harness::*;
use glassbox::model::{LoadOptions, Runner, load};
use glassbox::protocol::*;
use glassbox::weights::Checkpoint;
use std::path::Path;

pub const MODELS: [&str; 2] = ["llama", "gemma3_text_std"];

/// A pool of so many blocks of 16 tokens for each cache group; `None` is ample.
pub fn runner(model: &str, blocks: Option<usize>) -> Box<dyn Runner> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/gguf/{model}.gguf"));
    let file = Checkpoint::open(&path).unwrap();
    let open = |kv_cache_bytes| {
        let options = LoadOptions { kv_cache_bytes, max_batched_tokens: 64, ..LoadOptions::default() };
        load(&file, cpu(1), &options, &|_, _| ()).unwrap().runner
    };
    let ample = open(None);
    match blocks {
        None => ample,
        Some(blocks) => {
            let limits = ample.limits();
            open(Some(blocks * limits.groups.len() * limits.bytes_per_block))
        }
    }
}

struct Question {
    prompt: Vec<TokenId>,
    params: SamplingParams,
    n: u32,
}

/// Prompts that share beginnings of all lengths; greedy and seeded, with one and more choices.
fn questions() -> Vec<Question> {
    let common: Vec<TokenId> = (0..40).map(|i| (i * 37 + 11) % 250).collect();
    (0..12u32)
        .map(|i| {
            let own = (0..5 + i).map(|j| (i * 17 + j * 29) % 250);
            let prompt = common[..(i as usize * 7) % 33].iter().copied().chain(own).collect();
            let params = seeded(u64::from(i), 12 + i % 5);
            let temperature = if i % 3 == 0 { 0.0 } else { 1.0 };
            Question { prompt, params: SamplingParams { temperature, ..params }, n: 1 + i % 3 }
        })
        .collect()
}

fn submit(bench: &mut Bench, question: &Question) -> Vec<SeqId> {
    let request = bench.request("", question.params.clone());
    let prompt = Prompt::Tokens(question.prompt.clone());
    let id = bench.submit(Request { prompt, n: question.n, ..request });
    (0..question.n).map(|choice| SeqId { request: id, choice }).collect()
}

/// Each question alone, uncached, in one chunk, with room for everything.
fn alone(model: &str) -> Vec<Vec<Vec<TokenId>>> {
    let settings = settings().caching(false);
    let mut bench = Bench::with(settings, runner(model, None));
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

#[test]
fn batched_chunked_cached_forked_and_preempted_is_solo_to_the_token() {
    for model in MODELS {
        let right = alone(model);
        // Blocks in the pool, token budget, caching.
        for (pool, budget, caching) in
            [(None, 64, true), (None, 64, false), (None, 7, true), (Some(7), 16, true), (Some(6), 33, false)]
        {
            let settings = settings().budget(budget).caching(caching).seqs(6);
            let mut bench = Bench::with(settings, runner(model, pool));
            let mut asked = Vec::new();
            for question in questions() {
                asked.push(submit(&mut bench, &question));
                bench.step();
            }
            bench.run();
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
