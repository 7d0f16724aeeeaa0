//! BUGLOG A04: models whose rotary factors change with the length of a sequence. Whoever crosses the border goes on
//! as if everything had been asked anew, and blocks of one kind are never found by the other.

use crate::cpu::cpu;
use crate::harness::*;
use glassbox::model::{LoadOptions, Runner, load};
use glassbox::protocol::*;
use glassbox::weights::{Checkpoint, GgufWriter};
use std::path::Path;

/// Longest sequence with the short factors, in tokens; no multiple of a block.
const BORDER: usize = 40;

/// The tiny llama with other factors beyond the border: LongRoPE's, or dynamic NTK's.
fn runner(kind: &'static str) -> Box<dyn Runner> {
    with_border(kind, BORDER)
}

fn with_border(kind: &'static str, border: usize) -> Box<dyn Runner> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf/llama.gguf");
    let file = Checkpoint::open(&path).unwrap();
    let mut writer = GgufWriter::new("llama");
    for key in ["block_count", "embedding_length", "feed_forward_length", "context_length"] {
        let key = format!("llama.{key}");
        writer = writer.put(&key, file.u64(&key).unwrap().unwrap() as u32);
    }
    writer = writer
        .put("llama.attention.head_count", 4u32)
        .put("llama.attention.head_count_kv", 2u32)
        .put("llama.attention.layer_norm_rms_epsilon", 1e-3f32)
        .put("llama.rope.scaling.type", kind)
        .put("llama.rope.scaling.factor", 4.0f32)
        .put("llama.rope.scaling.original_context_length", border as u32)
        .put("llama.rope.scaling.short_factor", vec![1.0f32; 8])
        .put("llama.rope.scaling.long_factor", (1..9).map(|i| i as f32).collect::<Vec<f32>>());
    for info in file.tensors().filter(|info| info.name != "rope_freqs.weight") {
        let data = file.tensor(&info.name).unwrap().data.to_vec();
        writer = writer.tensor(&info.name, &info.dims, info.format, data);
    }
    let file = Checkpoint::from_bytes(Path::new("rope.gguf"), writer.to_bytes()).unwrap();
    let options = LoadOptions { max_batched_tokens: 32, ..LoadOptions::default() };
    load(&file, cpu(1), &options, &|_, _| ()).unwrap().runner
}

fn tokens(len: usize) -> Vec<TokenId> {
    (0..len as u32).map(|i| (i * 37 + 11) % 250).collect()
}

/// Greedy, among the bytes, and no token over and over again.
fn params(tokens: usize) -> SamplingParams {
    SamplingParams {
        max_tokens: Some(tokens as u32),
        ignore_eos: true,
        allowed_token_ids: (0..250).collect(),
        repetition_penalty: 1.5,
        ..greedy()
    }
}

fn submit(bench: &mut Bench, prompt: &[TokenId], tokens: usize) -> SeqId {
    let request = bench.request("", params(tokens));
    first(bench.submit(Request { prompt: Prompt::Tokens(prompt.to_vec()), ..request }))
}

fn answer(bench: &mut Bench, prompt: &[TokenId], tokens: usize) -> Vec<TokenId> {
    let seq = submit(bench, prompt, tokens);
    bench.run();
    bench.tokens(seq)
}

/// One token at a time from an engine that has never seen anything: what each must be.
fn fresh(kind: &'static str, prompt: &[TokenId], tokens: usize) -> Vec<TokenId> {
    let mut all = prompt.to_vec();
    while all.len() < prompt.len() + tokens {
        all.push(answer(&mut Bench::with(settings(), runner(kind)), &all, 1)[0]);
    }
    all.split_off(prompt.len())
}

#[test]
fn who_crosses_the_border_goes_on_as_if_asked_anew() {
    for (overlap, steps) in [(false, 1), (true, 1), (false, 4)] {
        let tuned = settings().tuned(|s| (s.async_scheduling, s.num_scheduler_steps) = (overlap, steps));
        let mut bench = Bench::with(tuned, runner("longrope"));
        for len in [BORDER - 3, BORDER, BORDER + 1] {
            let prompt = tokens(len);
            let right = fresh("longrope", &prompt, 6);
            assert_eq!(answer(&mut bench, &prompt, 6), right, "{len} tokens, overlap {overlap}");
            // And it matters.
            let one_kind = answer(&mut Bench::with(settings(), with_border("longrope", 200)), &prompt, 6);
            assert_ne!(one_kind, right);
        }
    }
}

#[test]
fn crossing_beside_others_changes_nobody() {
    let mut bench = Bench::with(settings().budget(16), runner("longrope"));
    let prompts = [BORDER - 5, BORDER - 1, 9, BORDER + 8].map(tokens);
    let seqs = prompts.each_ref().map(|prompt| submit(&mut bench, prompt, 8));
    bench.run();
    for (prompt, seq) in prompts.iter().zip(seqs) {
        assert_eq!(bench.tokens(seq), fresh("longrope", prompt, 8), "{} tokens", prompt.len());
    }
}

#[test]
fn blocks_of_the_other_kind_are_not_found() {
    let mut bench = Bench::with(settings(), runner("longrope"));
    let cached = |bench: &Bench| bench.engine.snapshot().counters.prefix_hits;
    answer(&mut bench, &tokens(BORDER), 1);
    answer(&mut bench, &tokens(BORDER + 9), 1);
    assert_eq!(cached(&bench), 0);
    answer(&mut bench, &tokens(BORDER - 2), 1);
    assert_eq!(cached(&bench), 32);
    answer(&mut bench, &tokens(BORDER + 20), 1);
    assert_eq!(cached(&bench), 32 + 48);
}

/// Each length has factors of its own, and room for a quarter more.
#[test]
fn dynamic_ntk_begins_anew_when_it_has_grown_by_a_quarter() {
    let mut bench = Bench::with(settings(), runner("dynamic"));
    let prompt = tokens(BORDER - 2);
    let begun = answer(&mut bench, &prompt, 20);
    // Up to the border as ever, then with the factors of the first length beyond, until 51.
    let until = |len: usize| len - prompt.len();
    let fresh = |len: usize, tokens: usize| {
        let all = [&prompt[..], &begun[..until(len)]].concat();
        answer(&mut Bench::with(settings(), runner("dynamic")), &all, tokens)
    };
    assert_eq!(begun[..3], fresh(BORDER - 2, 3));
    assert_eq!(begun[until(41)..until(52)], fresh(41, 11));
    assert_eq!(begun[until(52)..], fresh(52, until(BORDER + 18) - until(52)));
}

/// A branch that keeps less than its parent is another sequence: its keys are turned as for its own length.
#[test]
fn a_branch_turns_as_its_own_length_asks() {
    let mut bench = Bench::with(settings(), runner("longrope"));
    let parent = submit(&mut bench, &tokens(BORDER + 9), 20);
    (0..5).for_each(|_| bench.step());
    let params = params(4);
    let request = bench.request("", params.clone());
    let fork = ForkRequest { id: request.id, parent, keep: 20, then: Vec::new(), params };
    bench.send(Command::Fork(Box::new(fork)));
    bench.run();
    assert_eq!(bench.tokens(first(request.id)), fresh("longrope", &tokens(20), 4));
}
