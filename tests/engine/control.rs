//! Commands between steps: pause and step, new parameters, focus.

use crate::harness::*;
use glassbox::model::Scripted;
use glassbox::protocol::*;

#[test]
fn a_paused_engine_steps_only_when_told() {
    let mut bench = Bench::new(babbler());
    bench.send(Command::Pause);
    let id = bench.ask("hello", seeded(1, 10));
    bench.run();
    assert!(bench.tokens(first(id)).is_empty(), "requests queue while paused");
    assert!(bench.engine.snapshot().paused);
    for (n, generated) in [(1, 1), (3, 4), (0, 4)] {
        bench.send(Command::Step(n));
        bench.run();
        assert_eq!(bench.tokens(first(id)).len(), generated);
    }
    bench.send(Command::Resume);
    bench.run();
    assert_eq!(bench.tokens(first(id)), solo(babbler, "hello", &seeded(1, 10)));
    let paused: Vec<&Event> = bench.events.iter().filter(|e| matches!(e, Event::Paused(_))).collect();
    assert_eq!(paused, [&Event::Paused(true), &Event::Paused(false)]);
}

#[test]
fn steps_that_find_nothing_to_do_are_not_saved_up() {
    let mut bench = Bench::new(babbler());
    bench.send(Command::Pause);
    let one = bench.ask("hello", seeded(1, 2));
    bench.send(Command::Step(50));
    bench.run();
    assert_eq!(bench.tokens(first(one)).len(), 2);
    let two = bench.ask("hello", seeded(1, 2));
    bench.run();
    assert!(bench.tokens(first(two)).is_empty());
}

#[test]
fn commands_are_served_while_paused() {
    let mut bench = Bench::new(babbler());
    let id = bench.ask("hello", seeded(1, 100));
    bench.step();
    bench.send(Command::Pause);
    bench.send(Command::Abort(id));
    assert_eq!((bench.reason(id), bench.kv().owned), (&FinishReason::Abort, 0));
}

#[test]
fn new_parameters_act_on_the_next_token_and_say_from_where() {
    let mut bench = Bench::new(babbler());
    let id = bench.ask("hello", seeded(1, 12));
    (0..5).for_each(|_| bench.step());
    let cold = SamplingParams { temperature: 0.0, ..seeded(1, 12) };
    bench.send(Command::SetParams(id, Box::new(cold.clone())));
    bench.run();
    let applied = bench.events.iter().find_map(|event| match event {
        Event::ParamsApplied { seq, at, params } => Some((*seq, *at, params.temperature)),
        _ => None,
    });
    assert_eq!(applied, Some((first(id), 5, 0.0)));
    assert_eq!(bench.outcome(first(id)).params, cold);
    // The same as a request that starts from those five tokens and was cold all along.
    let tokens = bench.tokens(first(id));
    let mut prompt: Vec<TokenId> = "hello".bytes().map(u32::from).collect();
    prompt.extend(&tokens[..5]);
    let mut other = Bench::new(babbler());
    let request = other.request("", SamplingParams { max_tokens: Some(7), ..cold });
    let again = other.submit(Request { prompt: Prompt::Tokens(prompt), ..request });
    other.run();
    assert_eq!(tokens[5..], other.tokens(first(again)));
}

#[test]
fn parameters_out_of_range_change_nothing_and_are_named() {
    let mut bench = Bench::new(babbler());
    let id = bench.ask("hello", seeded(1, 12));
    bench.step();
    bench.send(Command::SetParams(id, Box::new(SamplingParams { temperature: -1.0, ..seeded(1, 12) })));
    bench.send(Command::SetParams(RequestId(99), Box::new(seeded(1, 1))));
    bench.run();
    assert_eq!(bench.tokens(first(id)), solo(babbler, "hello", &seeded(1, 12)));
    assert_eq!(bench.notes().len(), 1);
    assert!(bench.notes()[0].contains("temperature must be a number from 0 to 100, not -1"));
}

#[test]
fn stop_strings_are_fixed_once_an_answer_runs() {
    let mut bench = Bench::new(Scripted::saying(Scripted::limits(64, 4), "abcdef"));
    let id = bench.ask("hello", SamplingParams { stop: vec!["e".into()], ..greedy() });
    bench.step();
    bench.send(Command::SetParams(id, Box::new(SamplingParams { stop: vec!["c".into()], ..greedy() })));
    bench.run();
    assert_eq!(bench.text(id), "abcd");
    assert!(bench.notes()[0].contains("stop strings stay"));
}

#[test]
fn a_new_limit_below_what_is_generated_ends_at_the_next_token() {
    let mut bench = Bench::new(babbler());
    let id = bench.ask("hello", seeded(1, 100));
    (0..10).for_each(|_| bench.step());
    bench.send(Command::SetParams(id, Box::new(seeded(1, 3))));
    bench.run();
    assert_eq!((bench.tokens(first(id)).len(), bench.reason(id)), (11, &FinishReason::Length));
}

#[test]
fn every_choice_hears_of_new_parameters_also_before_the_fork() {
    let mut bench = Bench::new(babbler());
    let request = bench.request("hello", seeded(1, 6));
    let id = bench.submit(Request { n: 3, ..request });
    bench.send(Command::SetParams(id, Box::new(seeded(40, 6))));
    bench.run();
    for choice in 0..3 {
        let seq = SeqId { request: id, choice };
        assert_eq!(bench.tokens(seq), solo(babbler, "hello", &seeded(40 + u64::from(choice), 6)));
        assert_eq!(bench.outcome(seq).seed, 40 + u64::from(choice));
    }
    let applied = bench.events.iter().filter(|e| matches!(e, Event::ParamsApplied { at: 0, .. })).count();
    assert_eq!(applied, 3);
}

#[test]
fn sampling_is_traced_for_whom_somebody_looks_at() {
    let mut bench = Bench::new(Scripted::saying(Scripted::limits(64, 4), "abcdef"));
    let one = bench.ask("one", greedy());
    let two = bench.ask("two", greedy());
    bench.step();
    assert!(bench.engine.snapshot().sampling.is_none(), "nobody looks");
    bench.send(Command::Focus(None));
    bench.step();
    let trace = bench.engine.snapshot().sampling.unwrap();
    assert_eq!((trace.seq, trace.index, trace.drawn), (first(one), 1, u32::from(b'b')));
    assert_eq!((trace.candidates[0].text.as_str(), trace.candidates[0].probability), ("b", 1.0));
    assert!(trace.candidates.len() >= 20);
    bench.send(Command::Focus(Some(first(two))));
    bench.step();
    let trace = bench.engine.snapshot().sampling.unwrap();
    assert_eq!((trace.seq, trace.index), (first(two), 2));
    bench.run();
}

#[test]
fn the_second_request_of_one_id_is_ignored_and_the_first_ends_once() {
    let mut bench = Bench::new(babbler());
    let request = bench.request("hello", seeded(1, 5));
    bench.submit(request.clone());
    bench.step();
    let id = bench.submit(request.clone());
    bench.run();
    assert_eq!(bench.tokens(first(id)), solo(babbler, "hello", &seeded(1, 5)));
    assert!(bench.notes()[0].contains("running already"));
}
