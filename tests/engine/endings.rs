//! Every choice ends exactly once, with a reason, whatever happens.

use crate::harness::*;
use glassbox::config::EngineSettings;
use glassbox::model::{Fault, Scripted};
use glassbox::protocol::*;

fn refused(bench: &mut Bench, request: Request) -> Failure {
    let id = bench.submit(request);
    assert!(bench.engine.is_idle(), "a refused request never reaches the queue");
    bench.failure(id).clone()
}

/// K10: the message has the numbers, and the engine goes on.
#[test]
fn k10_a_prompt_beyond_the_context_is_refused_with_the_numbers() {
    let settings = EngineSettings { max_model_len: Some(48), ..settings() };
    let mut bench = Bench::with(settings, babbler());
    let request = bench.request("x".repeat(59), greedy());
    let failure = refused(&mut bench, request);
    assert_eq!(failure.kind, FailureKind::TooLong);
    assert!(failure.message.starts_with("the prompt has 59 tokens; the context holds 48"), "{failure}");
    assert!(failure.message.contains("shorten the prompt or start a new chat"));
    let request = bench.request("x".repeat(48), greedy());
    assert_eq!(refused(&mut bench, request).kind, FailureKind::TooLong, "no room for an answer");
    let id = bench.ask("x".repeat(47), seeded(1, 9));
    bench.run();
    assert_eq!((bench.tokens(first(id)).len(), bench.reason(id)), (1, &FinishReason::Length));
}

#[test]
fn a_prompt_that_can_never_fit_the_pool_is_refused_and_blocks_nobody() {
    let mut bench = Bench::new(Scripted::babbling(Scripted::limits(5, 4)));
    let request = bench.request("x".repeat(20), greedy());
    let failure = refused(&mut bench, request);
    assert_eq!(failure.kind, FailureKind::TooLong);
    assert!(failure.message.starts_with("the prompt has 20 tokens; the KV cache holds 20 in all"));
    let id = bench.ask("x".repeat(19), seeded(1, 1));
    bench.run();
    assert_eq!(bench.reason(id), &FinishReason::Length);
}

/// K09, M10, M12: numbers out of range, at every end, are the request's own error.
#[test]
fn k09_m10_m12_values_out_of_range_are_refused_and_named() {
    let mut bench = Bench::new(babbler());
    let g = greedy;
    let params = [
        (SamplingParams { temperature: -1.0, ..g() }, "temperature"),
        (SamplingParams { temperature: f32::NAN, ..g() }, "temperature"),
        (SamplingParams { temperature: f32::INFINITY, ..g() }, "temperature"),
        (SamplingParams { top_p: 2.0, ..g() }, "top_p"),
        (SamplingParams { top_p: 0.0, ..g() }, "top_p"),
        (SamplingParams { min_p: -0.1, ..g() }, "min_p"),
        (SamplingParams { max_tokens: Some(0), ..g() }, "max_tokens"),
        (SamplingParams { logprobs: Some(u32::MAX), ..g() }, "logprobs"),
        (SamplingParams { stop: vec![String::new()], ..g() }, "stop"),
        (SamplingParams { stop_token_ids: vec![259], ..g() }, "stop_token_ids: token 259"),
        (SamplingParams { stop_token_ids: vec![u32::MAX], ..g() }, "stop_token_ids"),
    ];
    for (params, named) in params {
        let request = bench.request("hello", params);
        let failure = refused(&mut bench, request);
        assert_eq!(failure.kind, FailureKind::BadRequest);
        assert!(failure.message.contains(named), "{failure} should name {named}");
    }
    for n in [0, 65, u32::MAX] {
        let request = Request { n, ..bench.request("hello", greedy()) };
        assert!(refused(&mut bench, request).message.contains("n must be a whole number from 1 to 64"));
    }
    let request = Request { prompt_logprobs: Some(u32::MAX), ..bench.request("hello", greedy()) };
    assert!(refused(&mut bench, request).message.contains("prompt_logprobs"));
    for id in [259, u32::MAX] {
        let request = Request { prompt: Prompt::Tokens(vec![1, id]), ..bench.request("", greedy()) };
        assert!(refused(&mut bench, request).message.contains("is not among the 259 of the vocabulary"));
    }
    let most = SamplingParams {
        top_k: u32::MAX,
        max_tokens: Some(u32::MAX),
        min_tokens: 0,
        temperature: 100.0,
        ..seeded(u64::MAX, 1)
    };
    let settings = EngineSettings { max_model_len: Some(30), ..settings() };
    let mut bench = Bench::with(settings, babbler());
    let request = Request { n: 2, ..bench.request("hello", most) };
    let id = bench.submit(request);
    bench.run();
    assert_eq!(bench.reason(id), &FinishReason::Length);
    assert_eq!(bench.outcome(SeqId { request: id, choice: 1 }).seed, 0, "seeds wrap");
}

#[test]
fn an_empty_prompt_is_refused() {
    let mut bench = Bench::new(babbler());
    let request = Request { prompt: Prompt::Tokens(Vec::new()), ..bench.request("", greedy()) };
    assert_eq!(refused(&mut bench, request).message, "the prompt is empty");
}

#[test]
fn a_refused_request_ends_in_each_of_its_choices() {
    let mut bench = Bench::new(babbler());
    let bad = SamplingParams { temperature: -1.0, ..greedy() };
    let request = Request { n: 3, ..bench.request("hello", bad) };
    let id = bench.submit(request);
    for choice in 0..3 {
        bench.outcome(SeqId { request: id, choice });
    }
}

/// K14: abort and end, in both orders, in the same step: once, and every block is back.
#[test]
fn k14_abort_races_with_the_end() {
    for steps in 0..8 {
        let mut bench = Bench::new(babbler());
        let id = bench.ask("hello", seeded(1, 5));
        (0..steps).for_each(|_| bench.step());
        bench.send(Command::Abort(id));
        bench.send(Command::Abort(id));
        bench.run();
        let right = if steps < 5 { &FinishReason::Abort } else { &FinishReason::Length };
        assert_eq!((bench.reason(id), bench.kv().owned), (right, 0), "after {steps} steps");
    }
}

#[test]
fn an_abort_during_a_long_prefill_acts_before_the_next_step() {
    let settings = settings().budget(8);
    let mut bench = Bench::with(settings, babbler());
    let id = bench.ask("x".repeat(1000), seeded(1, 5));
    (0..3).for_each(|_| bench.step());
    assert_eq!(bench.kv().owned, 6);
    bench.send(Command::Abort(id));
    assert_eq!((bench.kv().owned, bench.reason(id)), (0, &FinishReason::Abort));
}

#[test]
fn an_abort_ends_every_choice_running_waiting_or_not_yet_forked() {
    for steps in 0..6 {
        let settings = settings().seqs(2).budget(4);
        let mut bench = Bench::with(settings, babbler());
        let request = Request { n: 5, ..bench.request("hello there", seeded(1, 50)) };
        let id = bench.submit(request);
        (0..steps).for_each(|_| bench.step());
        bench.send(Command::Abort(id));
        bench.send(Command::Abort(RequestId(77)));
        bench.run();
        for choice in 0..5 {
            assert_eq!(bench.outcome(SeqId { request: id, choice }).reason, FinishReason::Abort);
        }
        assert!(bench.engine.is_idle());
    }
}

#[test]
fn an_aborted_answer_keeps_what_was_said() {
    let mut bench = Bench::new(Scripted::saying(Scripted::limits(64, 4), "abcdef"));
    let id = bench.ask("hi", SamplingParams { stop: vec!["bcx".into()], ..greedy() });
    (0..3).for_each(|_| bench.step());
    bench.send(Command::Abort(id));
    assert_eq!(bench.text(id), "abc", "also what was held back");
}

/// M14: one of four rows is NaN: that request ends with an error, the others do not notice, and
/// nobody finds its blocks in the cache.
#[test]
fn m14_rows_that_are_no_numbers_end_their_own_request_only() {
    let ill = RequestId(3);
    let runner =
        babbler().poisoning(move |row| row.seq.request == ill && row.tokens.len() > row.prompt_len + 1);
    let mut bench = Bench::new(runner);
    let prompts = ["prompt one", "prompt two", "prompt three", "prompt four"];
    let ids: Vec<RequestId> = prompts.iter().map(|prompt| bench.ask(*prompt, seeded(4, 8))).collect();
    bench.run();
    assert_eq!(bench.failure(ill).message, "the model's logits are not numbers (NaN) at position 14");
    for (id, prompt) in ids.iter().zip(prompts).filter(|(id, _)| **id != ill) {
        assert_eq!(bench.tokens(first(*id)), solo(babbler, prompt, &seeded(4, 8)));
    }
    let again = bench.ask(prompts[2], seeded(4, 8));
    bench.run();
    assert_eq!(bench.outcome(first(again)).usage.cached_tokens, 0, "its blocks are not trusted");
}

#[test]
fn a_dead_device_ends_all_requests_with_a_reason_and_the_engine_lives() {
    for fault in [Fault::Device, Fault::Panic] {
        for at in [1, 2, 5] {
            let mut bench = Bench::new(babbler().failing_at(at, fault));
            let request = Request { n: 3, ..bench.request("one", seeded(1, 10)) };
            let many = bench.submit(request);
            let two = bench.ask("two", seeded(2, 10));
            bench.run();
            let choices = (0..3).map(|choice| SeqId { request: many, choice });
            for seq in choices.chain([first(two)]) {
                let FinishReason::Error(failure) = &bench.outcome(seq).reason else { panic!("{seq}") };
                assert!(failure.message.contains("told to"), "{failure}");
                assert_eq!(failure.kind, FailureKind::Internal);
            }
            let id = bench.ask("after", seeded(3, 6));
            bench.run();
            assert_eq!(bench.tokens(first(id)), solo(babbler, "after", &seeded(3, 6)));
        }
    }
}

#[test]
fn a_shutdown_ends_what_runs_and_what_waits() {
    let settings = settings().seqs(1);
    let mut bench = Bench::with(settings, babbler());
    let ids = [bench.ask("one", seeded(1, 50)), bench.ask("two", seeded(1, 50))];
    bench.step();
    bench.send(Command::Shutdown);
    for id in ids {
        assert_eq!(bench.reason(id), &FinishReason::Abort);
    }
}

#[test]
fn counters_add_up() {
    let mut bench = Bench::new(babbler());
    let ids: Vec<RequestId> = (0..5).map(|i| bench.ask(format!("number {i}"), seeded(i, 4))).collect();
    let bad = bench.request("hello", SamplingParams { temperature: -1.0, ..greedy() });
    bench.submit(bad);
    bench.run();
    let counters = bench.engine.snapshot().counters;
    assert_eq!((counters.requests_finished, counters.generated_tokens, counters.prompt_tokens), (6, 20, 40));
    assert_eq!(bench.engine.snapshot().step, 4);
    assert_eq!(ids.len(), 5);
}
