//! What one request gets: its text, why it ended, its tokens' places, its times.

use crate::harness::*;
use glassbox::base::Clock;
use glassbox::model::Scripted;
use glassbox::protocol::*;
use std::time::Duration;

fn saying(reply: &str) -> Bench {
    Bench::new(Scripted::saying(Scripted::limits(64, 4), reply))
}

#[test]
fn an_answer_streams_and_ends_at_the_end_token() {
    let mut bench = saying("héllo");
    let id = bench.ask("hi", greedy());
    bench.run();
    assert_eq!((bench.text(id).as_str(), bench.reason(id)), ("héllo", &FinishReason::Stop));
    let usage = bench.outcome(first(id)).usage;
    assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens), (2, 7, 0));
    let end = bench.infos(first(id))[6].clone();
    assert_eq!((end.id, end.channel), (Scripted::END, Channel::Marker));
    // Accepted, Started, then tokens and text in order, Finished last.
    let kinds: Vec<&str> = bench.events.iter().map(kind).collect();
    assert_eq!(kinds[..3], ["accepted", "started", "token"]);
    assert_eq!(kinds.last(), Some(&"finished"));
    assert_eq!(kinds.iter().filter(|kind| **kind == "started").count(), 1);
}

fn kind(event: &Event) -> &'static str {
    match event {
        Event::Accepted { .. } => "accepted",
        Event::Started { .. } => "started",
        Event::Token { .. } => "token",
        Event::Delta { .. } => "delta",
        Event::Finished { .. } => "finished",
        _ => "other",
    }
}

#[test]
fn thoughts_are_told_from_the_answer() {
    let mut bench = saying("<think>hm</think>yes");
    let id = bench.ask("hi", greedy());
    bench.run();
    assert_eq!((bench.thoughts(id).trim(), bench.text(id).trim()), ("hm", "yes"));
    assert_eq!(bench.outcome(first(id)).usage.reasoning_tokens, 2);
}

#[test]
fn max_tokens_ends_with_length() {
    let mut bench = saying("abcdef");
    let id = bench.ask("hi", SamplingParams { max_tokens: Some(3), ..greedy() });
    bench.run();
    assert_eq!((bench.text(id).as_str(), bench.reason(id)), ("abc", &FinishReason::Length));
}

/// K07: a full context ends the answer; nothing is shifted or forgotten.
#[test]
fn k07_without_max_tokens_the_answer_ends_when_the_context_is_full() {
    let settings = glassbox::config::EngineSettings { max_model_len: Some(40), ..settings() };
    let mut bench = Bench::with(settings, babbler());
    let params = SamplingParams { max_tokens: None, ..seeded(1, 1) };
    let id = bench.ask("0123456789", params);
    bench.run();
    assert_eq!(bench.reason(id), &FinishReason::Length);
    assert_eq!(bench.tokens(first(id)).len(), 30, "prompt and answer are 40 tokens");
}

#[test]
fn an_answer_may_grow_to_the_whole_pool_and_ends_there() {
    let mut bench = Bench::new(Scripted::babbling(Scripted::limits(5, 4)));
    let id = bench.ask("0123", SamplingParams { max_tokens: None, ..seeded(1, 1) });
    bench.run();
    assert_eq!(bench.reason(id), &FinishReason::Length);
    assert_eq!(bench.tokens(first(id)).len(), 16);
}

#[test]
fn stop_token_ids_end_it_unless_eos_is_ignored_for_the_end_token() {
    let mut bench = saying("abc");
    let id = bench.ask("hi", SamplingParams { stop_token_ids: vec![u32::from(b'b')], ..greedy() });
    bench.run();
    assert_eq!((bench.text(id).as_str(), bench.reason(id)), ("a", &FinishReason::Stop));
    let id = bench.ask("hi", SamplingParams { ignore_eos: true, max_tokens: Some(6), ..greedy() });
    bench.run();
    assert_eq!((bench.tokens(first(id)).len(), bench.reason(id)), (6, &FinishReason::Length));
}

#[test]
fn no_end_token_is_drawn_before_min_tokens() {
    let mut bench = saying("ab");
    let id = bench.ask("hi", SamplingParams { min_tokens: 5, ..greedy() });
    bench.run();
    let tokens = bench.tokens(first(id));
    assert_eq!((tokens.len(), tokens.iter().position(|t| *t == Scripted::END)), (6, Some(5)));
}

/// S01: a stop string that arrives in pieces leaks none of them.
#[test]
fn s01_a_stop_string_ends_the_answer_and_nothing_of_it_is_seen() {
    let mut bench = saying("ABCDEFGHIJKL");
    let id = bench.ask("hi", SamplingParams { stop: vec!["DEFGHIJ".into()], ..greedy() });
    bench.run();
    assert_eq!(bench.text(id), "ABC");
    assert_eq!(bench.reason(id), &FinishReason::StopString("DEFGHIJ".into()));
    let held: Vec<&str> = bench.infos(first(id)).iter().map(|token| token.held.as_str()).collect();
    assert_eq!(held[3..6], ["D", "DE", "DEF"]);
    let params = SamplingParams { stop: vec!["DEF".into()], include_stop_str_in_output: true, ..greedy() };
    let id = bench.ask("hi", params);
    bench.run();
    assert_eq!(bench.text(id), "ABCDEF");
}

#[test]
fn what_was_held_back_for_a_stop_string_is_shown_when_the_answer_ends_otherwise() {
    let stop = vec!["DEFGHIJ".to_owned()];
    for (reply, max_tokens) in [("ABCDE", None), ("ABCDEFG", Some(5))] {
        let mut bench = saying(reply);
        let id = bench.ask("hi", SamplingParams { stop: stop.clone(), max_tokens, ..greedy() });
        bench.run();
        assert_eq!(bench.text(id), "ABCDE");
    }
}

#[test]
fn logprobs_bring_the_alternatives_with_their_texts() {
    let mut bench = saying("ab");
    let id = bench.ask("hi", SamplingParams { logprobs: Some(3), ..greedy() });
    bench.run();
    let token = bench.infos(first(id))[0].clone();
    assert_eq!((token.text.as_str(), token.bytes.as_slice(), token.rank), ("a", &b"a"[..], 1));
    assert_eq!((token.top.len(), token.top[0].text.as_str(), token.top[0].logit), (3, "a", 20.0));
    assert!(token.top[0].logprob == token.logprob && token.logprob < 0.0 && token.entropy > 0.0);
    let id = bench.ask("hi", greedy());
    bench.run();
    assert!(bench.infos(first(id))[0].top.is_empty());
}

#[test]
fn prompt_logprobs_cover_every_position_whatever_the_chunks() {
    for (budget, outputs) in [(512, 256), (3, 256), (512, 2)] {
        let limits = glassbox::model::ModelLimits { max_outputs: outputs, ..Scripted::limits(64, 4) };
        let settings = settings().budget(budget);
        let mut bench = Bench::with(settings, Scripted::saying(limits, "ok"));
        // Twice, so that the second one could read the cache; it must not.
        for _ in 0..2 {
            let request = bench.request("a prompt", greedy());
            let id = bench.submit(Request { prompt_logprobs: Some(2), ..request });
            bench.run();
            let mut next = 0;
            for event in bench.events.drain(..) {
                match event {
                    Event::PromptLogprobs { id: of, first_position, rows, .. } => {
                        assert_eq!((of, first_position), (id, next));
                        next += rows.len();
                        assert!(rows.iter().all(|row| row.len() == 2 && !row[0].text.is_empty()));
                    }
                    Event::Finished { outcome, .. } => assert_eq!(outcome.usage.cached_tokens, 0),
                    _ => {}
                }
            }
            assert_eq!(next, 8, "budget {budget}, outputs {outputs}");
        }
    }
}

#[test]
fn times_are_those_of_the_clock() {
    let clock = Clock::virtual_time();
    let runner =
        Scripted::saying(Scripted::limits(64, 4), "abcd").taking(clock.clone(), Duration::from_millis(10));
    let mut bench = Bench::timed(settings(), runner, clock.clone());
    let id = bench.ask("hello", greedy());
    clock.advance(Duration::from_millis(5));
    bench.run();
    let timings = bench.outcome(first(id)).timings;
    assert_eq!((timings.queue_ms, timings.ttft_ms, timings.e2el_ms), (5.0, 15.0, 55.0));
    assert_eq!((timings.itl_ms_mean, timings.tpot_ms), (10.0, 10.0));
    assert_eq!((timings.tokens_per_second, timings.prompt_tokens_per_second), (100.0, 500.0));
    let record = bench.record();
    assert_eq!((record.phases.sample_ms, record.phases.total_ms()), (10.0, 10.0));
    assert_eq!(bench.engine.snapshot().counters.busy_ms, 50.0);
}

#[test]
fn a_request_without_a_seed_gets_one_that_repeats_it() {
    let mut bench = Bench::new(babbler());
    let id = bench.ask("hi", SamplingParams { seed: None, ..seeded(0, 20) });
    bench.run();
    let seed = bench.outcome(first(id)).seed;
    let again = bench.ask("hi", seeded(seed, 20));
    bench.run();
    assert_eq!(bench.tokens(first(id)), bench.tokens(first(again)));
    let other = bench.ask("hi", seeded(seed + 1, 20));
    bench.run();
    assert_ne!(bench.tokens(first(id)), bench.tokens(first(other)));
}
