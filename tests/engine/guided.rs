//! Guided decoding: the grammar holds in every mode, waits without being in the way, and ends what is
//! wrong with it alone.

use crate::harness::*;
use glassbox::config::EngineSettings;
use glassbox::model::Scripted;
use glassbox::protocol::*;

const PERSON: &str = r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 6},
    "age": {"type": "integer", "minimum": 0, "maximum": 150}, "likes": {"enum": ["tea", "coffee"]}},
    "required": ["name", "age", "likes"], "additionalProperties": false}"#;

fn person() -> Grammar {
    Grammar::JsonSchema(PERSON.into())
}

fn braces() -> Grammar {
    Grammar::Ebnf("root ::= \"{\" \"}\"".into())
}

fn yes_or_no() -> Grammar {
    Grammar::Choice(vec!["yes".into(), "no".into()])
}

/// Without thoughts: a babbler would begin some.
fn guided(bench: &mut Bench, prompt: &str, grammar: Grammar, params: SamplingParams) -> RequestId {
    let request = bench.request(prompt, params);
    let guided = Some(Guided { grammar, in_reasoning: false });
    bench.submit(Request { guided, parse_reasoning: false, ..request })
}

fn with_thoughts(
    bench: &mut Bench,
    grammar: Grammar,
    in_reasoning: bool,
    params: SamplingParams,
) -> RequestId {
    let request = bench.request("x", params);
    bench.submit(Request { guided: Some(Guided { grammar, in_reasoning }), ..request })
}

fn slow(settings: EngineSettings) -> EngineSettings {
    EngineSettings { fast_forward: false, ..settings }
}

/// The text of a guided answer alone in a roomy engine that asks the model for every token.
fn alone(prompt: &str, grammar: Grammar, params: &SamplingParams) -> String {
    let mut bench = Bench::with(slow(settings()), babbler());
    let id = guided(&mut bench, prompt, grammar, params.clone());
    bench.run();
    bench.text(id)
}

fn is_person(text: &str) -> bool {
    let value: serde_json::Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
    let age = value["age"].as_u64().is_some_and(|age| age <= 150);
    age && value["name"].is_string() && (value["likes"] == "tea" || value["likes"] == "coffee")
}

// BUGLOG G05.
#[test]
fn a_finished_grammar_ends_the_answer_also_where_end_tokens_are_ignored() {
    for ignore_eos in [false, true] {
        let mut bench = Bench::new(babbler());
        let params = SamplingParams { ignore_eos, min_tokens: 9, ..seeded(3, 50) };
        let id = guided(&mut bench, "x", braces(), params);
        bench.run();
        assert_eq!((bench.text(id).as_str(), bench.reason(id)), ("{}", &FinishReason::Stop));
    }
    // Where it may go on, the model's end token is the end.
    let mut bench = Bench::new(Scripted::saying(Scripted::limits(64, 4), "aaa"));
    let id = guided(&mut bench, "x", Grammar::Regex("a+".into()), greedy());
    bench.run();
    assert_eq!((bench.text(id).as_str(), bench.reason(id)), ("aaa", &FinishReason::Stop));
}

// BUGLOG G11, G12.
#[test]
fn a_wrong_grammar_ends_its_request_and_no_other() {
    let mut bench = Bench::new(babbler());
    let other = bench.ask("other", seeded(1, 20));
    bench.step();
    let wrong = [
        (Grammar::Regex("(".into()), "regular expression: "),
        (Grammar::JsonSchema(r#"{"type": "nonsense"}"#.into()), "JSON schema: at #: Invalid type: nonsense"),
        (Grammar::JsonSchema(String::new()), "the JSON schema is empty"),
        (Grammar::Choice(Vec::new()), "the list of choices is empty"),
    ];
    let wrong = wrong.map(|(grammar, why)| (guided(&mut bench, "x", grammar, seeded(2, 20)), why));
    bench.run();
    for (id, why) in wrong {
        let failure = bench.failure(id);
        assert_eq!(failure.kind, FailureKind::Grammar);
        assert!(failure.message.starts_with(why), "{}", failure.message);
    }
    assert_eq!(bench.tokens(first(other)), solo(babbler, "other", &seeded(1, 20)));
    let next = guided(&mut bench, "y", yes_or_no(), seeded(3, 20));
    bench.run();
    assert!(["yes", "no"].contains(&bench.text(next).as_str()));
}

#[test]
fn who_waits_for_a_grammar_lets_others_pass_and_can_be_aborted() {
    // Compiling so many texts takes far longer than the steps below.
    let texts: Vec<String> = (0..20_000).map(|i| format!("answer {i:05}")).collect();
    let slow = || Grammar::Choice(texts.clone());
    let said = |bench: &Bench, id| texts.contains(&bench.text(id));
    let mut bench = Bench::new(babbler());
    let waiting = guided(&mut bench, "waits", slow(), seeded(1, 90));
    let aborted = guided(&mut bench, "leaves", slow(), seeded(1, 90));
    let state = |bench: &Bench, at: usize| bench.engine.snapshot().sequences[at].state;
    assert_eq!(state(&bench, 0), SequenceState::Compiling);
    let other = bench.ask("other", seeded(1, 20));
    bench.step();
    let reasons: Vec<Reason> = bench.record().waiting.iter().map(|waiting| waiting.reason).collect();
    assert_eq!(reasons, [Reason::Grammar; 2]);
    assert_eq!(Reason::Grammar.to_string(), "grammar compiling");
    assert_eq!(bench.record().rows.len(), 1, "who came later runs");
    bench.send(Command::Abort(aborted));
    assert_eq!(bench.reason(aborted), &FinishReason::Abort);
    bench.run();
    assert!(said(&bench, waiting));
    assert_eq!(bench.tokens(first(other)), solo(babbler, "other", &seeded(1, 20)));
    // Compiled once: an equal grammar is there at once.
    let again = guided(&mut bench, "again", slow(), seeded(1, 90));
    assert_eq!(state(&bench, 0), SequenceState::Waiting);
    bench.run();
    assert!(said(&bench, again));
}

#[test]
fn guided_answers_are_the_same_in_every_mode() {
    let prompts = ["first prompt", "second one", "third", "the fourth of them", "5"];
    let grammar = |at: usize| if at.is_multiple_of(2) { person() } else { Grammar::Json };
    let params = |at: usize| seeded(at as u64, 120);
    let right: Vec<String> =
        prompts.iter().enumerate().map(|(at, prompt)| alone(prompt, grammar(at), &params(at))).collect();
    assert!(right.iter().step_by(2).all(|text| is_person(text)), "{right:?}");

    let host = |settings: EngineSettings| EngineSettings { host_kv_bytes: 1 << 20, ..settings };
    let mode = |mode| host(settings().tuned(|s| s.preemption_mode = mode));
    let modes = [
        settings(),
        settings().tuned(|s| s.async_scheduling = true),
        settings().tuned(|s| s.num_scheduler_steps = 4),
        settings().budget(7),
        settings().seqs(2),
        settings().caching(false),
        mode(PreemptionMode::Recompute),
        mode(PreemptionMode::Swap),
        mode(PreemptionMode::Retract),
        mode(PreemptionMode::Recompute).tuned(|s| s.async_scheduling = true),
        mode(PreemptionMode::Swap).tuned(|s| s.async_scheduling = true),
    ];
    for settings in modes {
        for (settings, blocks) in [(settings.clone(), 512), (settings.clone(), 40), (slow(settings), 40)] {
            let about = format!("{blocks} blocks, {settings:?}");
            let mut bench = Bench::with(settings, Scripted::babbling(Scripted::limits(blocks, 4)));
            let ids: Vec<RequestId> = (0..prompts.len())
                .map(|at| guided(&mut bench, prompts[at], grammar(at), params(at)))
                .collect();
            let plain = bench.ask("no grammar", seeded(7, 30));
            bench.run();
            for (id, right) in ids.iter().zip(&right) {
                assert_eq!(bench.text(*id), *right, "{about}");
            }
            assert_eq!(bench.tokens(first(plain)), solo(babbler, "no grammar", &seeded(7, 30)), "{about}");
        }
    }
}

#[test]
fn forced_tokens_skip_the_model_and_say_the_same() {
    let run = |settings: EngineSettings, params: SamplingParams| {
        let mut bench = Bench::with(settings, babbler());
        let id = guided(&mut bench, "hello", person(), params);
        bench.run();
        let usage = bench.outcome(first(id)).usage;
        let forced = bench.infos(first(id)).iter().filter(|token| token.forced).count();
        assert_eq!(usage.forced_tokens, forced);
        assert_eq!(bench.engine.snapshot().counters.forced_tokens, forced as u64);
        let steps = bench.engine.snapshot().step;
        (bench.text(id), usage.completion_tokens, forced, steps)
    };
    for params in [greedy(), seeded(5, 90)] {
        let (text, tokens, forced, steps) = run(settings(), params.clone());
        let (slow_text, slow_tokens, none, slow_steps) = run(slow(settings()), params.clone());
        assert_eq!((&text, tokens, none), (&slow_text, slow_tokens, 0));
        assert!(is_person(&text));
        assert!(forced > 15, "{forced} of {tokens}");
        assert_eq!(steps + forced as u64, slow_steps, "each forced token saves a step");
        // Log-probabilities are the model's: it is asked for each.
        let (with_logprobs, _, none, _) = run(settings(), SamplingParams { logprobs: Some(1), ..params });
        assert_eq!((with_logprobs, none), (text, 0));
    }
}

#[test]
fn forced_tokens_end_where_the_answer_must() {
    for most in 1..30 {
        let mut bench = Bench::new(babbler());
        let id = guided(&mut bench, "hello", person(), seeded(5, most));
        bench.run();
        assert_eq!(bench.tokens(first(id)).len(), most as usize);
        assert_eq!(bench.reason(id), &FinishReason::Length);
    }
    let stop = SamplingParams { stop: vec!["ame".into()], ..seeded(5, 90) };
    let mut bench = Bench::new(babbler());
    let id = guided(&mut bench, "hello", person(), stop);
    bench.run();
    assert!(bench.text(id).ends_with("\"n"), "{}", bench.text(id));
}

#[test]
fn every_choice_has_a_guide_of_its_own() {
    for settings in [settings(), settings().tuned(|s| s.async_scheduling = true), settings().budget(5)] {
        let mut bench = Bench::with(settings, babbler());
        let request = bench.request("hello", seeded(5, 90));
        let guided = Some(Guided { grammar: person(), in_reasoning: false });
        let id = bench.submit(Request { n: 4, guided, parse_reasoning: false, ..request });
        bench.run();
        for choice in 0..4 {
            let right = alone("hello", person(), &seeded(5 + u64::from(choice), 90));
            assert_eq!(bench.choice_text(SeqId { request: id, choice }), right);
        }
    }
}

#[test]
fn a_branch_goes_on_inside_the_grammar() {
    for (live, then) in [(true, ""), (false, ""), (true, "{\""), (false, "{\"")] {
        let mut bench = Bench::new(babbler());
        let parent = first(guided(&mut bench, "hello", person(), seeded(5, 90)));
        // Its grammar compiles first.
        while bench.tokens(parent).len() < 2 {
            bench.step();
        }
        if !live {
            bench.run();
        }
        let keep = 5 + if then.is_empty() { 2 } else { 0 };
        let fork = ForkRequest {
            id: RequestId(99),
            parent,
            keep,
            then: Scripted::encode(then),
            params: seeded(8, 90),
        };
        bench.send(Command::Fork(Box::new(fork)));
        bench.run();
        assert!(is_person(&bench.text(RequestId(99))), "{}", bench.text(RequestId(99)));
        assert!(is_person(&bench.choice_text(parent)));
    }
    let mut bench = Bench::new(babbler());
    let parent = first(guided(&mut bench, "hello", person(), seeded(5, 90)));
    bench.run();
    let then = Scripted::encode("[");
    let fork = ForkRequest { id: RequestId(99), parent, keep: 5, then, params: seeded(8, 90) };
    bench.send(Command::Fork(Box::new(fork)));
    bench.run();
    assert_eq!(bench.failure(RequestId(99)).kind, FailureKind::Grammar);
}

#[test]
fn the_grammar_begins_where_thoughts_end() {
    let thinks = || Scripted::saying(Scripted::limits(64, 4), "<think>hm, [no] JSON</think>\n\nyes, yes");
    for settings in [settings(), settings().tuned(|s| s.async_scheduling = true), slow(settings())] {
        let mut bench = Bench::with(settings, thinks());
        let id = with_thoughts(&mut bench, yes_or_no(), false, greedy());
        bench.run();
        assert_eq!((bench.thoughts(id).as_str(), bench.reason(id)), ("hm, [no] JSON", &FinishReason::Stop));
        assert!(["yes", "no"].contains(&bench.text(id).as_str()), "{}", bench.text(id));
    }
    // Thoughts obey where that is asked for: there are none then.
    let mut bench = Bench::new(thinks());
    let id = with_thoughts(&mut bench, yes_or_no(), true, greedy());
    bench.run();
    assert!(["yes", "no"].contains(&bench.text(id).as_str()));
    assert_eq!(bench.outcome(first(id)).usage.reasoning_tokens, 0);
}

#[test]
fn thoughts_without_an_answer_do_not_end_a_guided_one() {
    // It thinks, and would rather say nothing.
    let mut bench = Bench::new(Scripted::saying(Scripted::limits(64, 4), "<think>hm"));
    let params = SamplingParams { max_tokens: Some(30), ..greedy() };
    let id = with_thoughts(&mut bench, yes_or_no(), false, params);
    bench.run();
    assert_eq!(bench.reason(id), &FinishReason::Length);
    assert!(bench.tokens(first(id)).iter().all(|token| *token != Scripted::END));
}
