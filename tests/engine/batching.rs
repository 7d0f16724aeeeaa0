//! Many requests in one batch: none of them can tell.

use crate::harness::*;
use glassbox::config::EngineSettings;
use glassbox::model::{ModelLimits, Scripted};
use glassbox::protocol::*;

fn budget(tokens: usize) -> EngineSettings {
    settings().budget(tokens)
}

/// The glossary's example: a budget of 10 tokens, prompts of 3, 5 and 12.
#[test]
fn the_glossarys_token_budget() {
    let mut bench = Bench::with(budget(10), babbler());
    for prompt in ["aaa", "bbbbb", "cccccccccccc"] {
        bench.ask(prompt, seeded(1, 20));
    }
    for step in [vec![3, 5, 2], vec![1, 1, 8], vec![1, 1, 2], vec![1, 1, 1], vec![1, 1, 1]] {
        bench.step();
        assert_eq!(bench.row_tokens(), step);
    }
    let record = bench.record();
    assert_eq!((record.tokens, record.token_budget), (3, 10));
    assert!(record.rows.iter().all(|row| row.kind == RowKind::Decode && row.sampled.is_some()));
}

#[test]
fn every_chunk_size_gives_the_tokens_of_the_whole() {
    let prompt = "a prompt of some length, longer than most chunks";
    let whole = solo(babbler, prompt, &seeded(3, 24));
    for chunk in [1, 2, 3, 4, 5, 7, 16, 47, 48, 49] {
        let mut bench = Bench::with(budget(chunk), babbler());
        let id = bench.ask(prompt, seeded(3, 24));
        bench.run();
        assert_eq!(bench.tokens(first(id)), whole, "chunks of {chunk}");
    }
}

/// M05: a seeded request is the same beside neighbours with and without seeds, with other
/// parameters, joining and leaving at any time.
#[test]
fn m05_batched_is_solo() {
    let prompts: Vec<String> = (0..8).map(|i| format!("prompt {i} {}", "x".repeat(i * 3))).collect();
    let params: Vec<SamplingParams> = (0..8)
        .map(|i| SamplingParams {
            temperature: 0.4 * i as f32,
            top_k: i * 5,
            frequency_penalty: 0.1 * i as f32,
            ..seeded(u64::from(i), 10 + 7 * i)
        })
        .collect();
    let mut bench = Bench::with(budget(16), babbler());
    let mut ids = Vec::new();
    for (prompt, params) in prompts.iter().zip(&params) {
        ids.push(bench.ask(prompt, params.clone()));
        bench.ask("noise", SamplingParams { seed: None, ..seeded(0, 9) });
        bench.step();
        bench.step();
    }
    bench.run();
    for ((id, prompt), params) in ids.into_iter().zip(&prompts).zip(&params) {
        assert_eq!(bench.tokens(first(id)), solo(babbler, prompt, params), "{prompt}");
    }
}

/// K17: twelve requests, each with a word of its own; no reply holds another's.
#[test]
fn k17_every_reply_holds_its_own_word_only() {
    let words: Vec<String> = (0..12).map(|i| format!("canary{i:02}")).collect();
    let replies: Vec<(&str, &str)> = words.iter().map(|word| (word.as_str(), word.as_str())).collect();
    let mut bench = Bench::with(budget(20), Scripted::replying(Scripted::limits(256, 4), &replies));
    let ids: Vec<RequestId> = words.iter().map(|word| bench.ask(format!("say {word}"), greedy())).collect();
    bench.run();
    for (id, word) in ids.into_iter().zip(&words) {
        assert_eq!(&bench.text(id), word);
    }
}

/// K18: rows of a batch end at different times; those that go on are untouched.
#[test]
fn k18_rows_that_end_early_leave_the_others_alone() {
    let mut bench = Bench::new(babbler());
    let lengths = [1, 2, 4, 8, 16, 32, 64, 128];
    let ids: Vec<RequestId> =
        lengths.iter().map(|n| bench.ask(format!("count to {n}"), seeded(9, *n))).collect();
    bench.run();
    for (id, n) in ids.into_iter().zip(lengths) {
        let tokens = bench.tokens(first(id));
        assert_eq!(tokens.len(), n as usize);
        assert_eq!(tokens, solo(babbler, &format!("count to {n}"), &seeded(9, n)));
    }
}

#[test]
fn a_full_house_makes_the_next_request_wait_with_a_reason() {
    let settings = settings().seqs(2);
    let mut bench = Bench::with(settings, babbler());
    let ids: Vec<RequestId> = (0..4).map(|i| bench.ask("hello", seeded(i, 5))).collect();
    bench.step();
    let reasons: Vec<String> = bench.record().waiting.iter().map(|w| w.reason.to_string()).collect();
    assert_eq!(reasons, ["2 of 2 sequences are running", "behind 1 in the queue"]);
    let states: Vec<_> = bench.engine.snapshot().sequences.iter().map(|s| s.state).collect();
    assert_eq!(states[1..3], [SequenceState::Running, SequenceState::Waiting]);
    bench.run();
    let order = bench.started();
    assert_eq!(order, ids.into_iter().map(first).collect::<Vec<_>>(), "first come, first served");
}

#[test]
fn a_used_up_budget_is_a_reason_too() {
    let mut bench = Bench::with(budget(2), babbler());
    for i in 0..3 {
        bench.ask("ab", seeded(i, 4));
    }
    bench.step();
    bench.step();
    let waiting: Vec<String> = bench.record().waiting.iter().map(|w| w.reason.to_string()).collect();
    assert_eq!(bench.row_tokens(), [1, 1]);
    assert_eq!(waiting, ["the step's budget of 2 tokens is used up"]);
    bench.run();
}

#[test]
fn few_output_rows_only_slow_things_down() {
    let limits = ModelLimits { max_outputs: 2, ..Scripted::limits(512, 4) };
    let mut bench = Bench::new(Scripted::babbling(limits));
    let ids: Vec<RequestId> = (0..5).map(|i| bench.ask("hello there", seeded(i, 6))).collect();
    bench.run();
    for (seed, id) in (0..).zip(ids) {
        assert_eq!(bench.tokens(first(id)), solo(babbler, "hello there", &seeded(seed, 6)));
    }
}
