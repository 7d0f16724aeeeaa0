//! What a request's parameters do to its tokens, whatever runs beside it.

use crate::harness::*;
use glassbox::config::EngineSettings;
use glassbox::model::Scripted;
use glassbox::protocol::*;

/// Stages that remember: Mirostat, adaptive-p, DRY and the penalties.
fn remembering() -> [SamplingParams; 3] {
    let plain = seeded(5, 40);
    [
        SamplingParams { mirostat: 2, mirostat_tau: 1.5, mirostat_eta: 0.4, ..plain.clone() },
        SamplingParams { adaptive_target: Some(0.2), adaptive_decay: 0.7, ..plain.clone() },
        SamplingParams { dry_multiplier: 2.0, dry_allowed_length: 1, frequency_penalty: 0.5, ..plain },
    ]
}

/// BUGLOG M05: tokens are the request's own under preemption, with planning ahead, in rounds, and in
/// company; what the sampler remembers goes with the sequence.
#[test]
fn m05_what_the_sampler_remembers_belongs_to_the_sequence() {
    let ahead = || settings().tuned(|s| s.async_scheduling = true);
    let rounds = || settings().tuned(|s| s.num_scheduler_steps = 4);
    let swap = || settings().tuned(|s| s.preemption_mode = PreemptionMode::Swap);
    let cases: [(EngineSettings, usize); 6] =
        [(settings(), 512), (ahead(), 512), (rounds(), 512), (settings(), 24), (ahead(), 24), (swap(), 24)];
    for params in remembering() {
        let right = |prompt| solo(babbler, prompt, &params);
        assert_ne!(right("one prompt"), solo(babbler, "one prompt", &seeded(5, 40)), "it does something");
        for (settings, blocks) in &cases {
            let mut bench = Bench::with(settings.clone(), Scripted::babbling(Scripted::limits(*blocks, 4)));
            let prompts = ["one prompt", "another", "a third one"];
            let ids = prompts.map(|prompt| bench.ask(prompt, params.clone()));
            let other = bench.ask("no seed", SamplingParams { seed: None, ..seeded(0, 30) });
            bench.run();
            assert!(*blocks > 24 || bench.engine.snapshot().counters.preemptions > 0);
            for (id, prompt) in ids.into_iter().zip(prompts) {
                assert_eq!(bench.tokens(first(id)), right(prompt), "{prompt} in {blocks} blocks");
            }
            assert_eq!(bench.tokens(first(other)).len(), 30);
        }
    }
}

#[test]
fn a_fork_goes_on_with_what_its_parent_remembered() {
    let [params, ..] = remembering();
    let mut bench = Bench::new(babbler());
    let parent = bench.ask("one prompt", params.clone());
    bench.run();
    let said = bench.tokens(first(parent));
    let short = SamplingParams { max_tokens: Some(20), ..params.clone() };
    let half = bench.ask("one prompt", short);
    bench.run();
    let id = RequestId(99);
    let keep = "one prompt".len() + 20;
    let fork = ForkRequest { id, parent: first(half), keep, then: Vec::new(), params };
    bench.send(Command::Fork(Box::new(fork)));
    bench.run();
    assert_eq!(bench.tokens(first(id)), said[20..], "as if it had never stopped");
}

#[test]
fn new_parameters_act_on_the_next_token() {
    let mut bench = Bench::new(Scripted::saying(Scripted::limits(64, 4), "aaaaaaaaaa"));
    let id = bench.ask("hi", greedy());
    (0..3).for_each(|_| bench.step());
    let params = SamplingParams { bad_words: vec!["a".into()], max_tokens: Some(5), ..greedy() };
    bench.send(Command::SetParams(id, Box::new(params)));
    bench.run();
    let text: Vec<u32> = bench.tokens(first(id));
    assert_eq!(text[..3], [97, 97, 97]);
    assert!(!text[3..].contains(&97) && text.len() == 5);
}

#[test]
fn biased_banned_and_allowed_ids_rule_the_answer() {
    let b = u32::from(b'b');
    for params in [
        SamplingParams { logit_bias: [(b, 100.0)].into(), ..greedy() },
        SamplingParams { allowed_token_ids: vec![b], ..greedy() },
    ] {
        let mut bench = Bench::new(Scripted::saying(Scripted::limits(64, 4), "aaaa"));
        let id = bench.ask("hi", SamplingParams { max_tokens: Some(4), ..params });
        bench.run();
        assert_eq!(bench.text(id), "bbbb");
    }
    let mut bench = Bench::new(Scripted::saying(Scripted::limits(64, 4), "ab ab"));
    let params = SamplingParams { bad_words: vec!["ab".into()], max_tokens: Some(5), ..greedy() };
    let id = bench.ask("hi", params);
    bench.run();
    assert!(bench.text(id).starts_with('a') && !bench.text(id).contains("ab"), "{}", bench.text(id));
}

/// BUGLOG M10: ids beyond the vocabulary are refused at intake, by name, and nobody else notices.
#[test]
fn m10_ids_beyond_the_vocabulary_are_refused() {
    let mut bench = Bench::new(babbler());
    let other = bench.ask("other", seeded(1, 9));
    for id in [Scripted::VOCAB as u32, Scripted::VOCAB as u32 + 1, u32::MAX] {
        for (params, named) in [
            (SamplingParams { logit_bias: [(id, 1.0)].into(), ..greedy() }, "logit_bias"),
            (SamplingParams { banned_token_ids: vec![1, id], ..greedy() }, "banned_token_ids"),
            (SamplingParams { allowed_token_ids: vec![id], ..greedy() }, "allowed_token_ids"),
        ] {
            let refused = bench.ask("hello", params);
            let failure = bench.failure(refused);
            assert_eq!(failure.kind, FailureKind::BadRequest);
            assert!(failure.message.starts_with(&format!("{named}: token {id} is not among the 259")));
        }
    }
    bench.run();
    assert_eq!(bench.tokens(first(other)), solo(babbler, "other", &seeded(1, 9)));
}

/// BUGLOG M14: a row with nothing left to draw ends its own request, with the reason.
#[test]
fn m14_a_row_that_is_all_masked_ends_its_own_request() {
    let mut bench = Bench::new(babbler());
    let nothing = SamplingParams { allowed_token_ids: vec![5], banned_token_ids: vec![5], ..seeded(1, 9) };
    let ids = [bench.ask("one", seeded(1, 9)), bench.ask("two", nothing), bench.ask("three", seeded(1, 9))];
    bench.run();
    assert_eq!(bench.failure(ids[1]).message, "every token is masked at position 3");
    for (id, prompt) in [(ids[0], "one"), (ids[2], "three")] {
        assert_eq!(bench.tokens(first(id)), solo(babbler, prompt, &seeded(1, 9)));
    }
}

fn mean(infos: &[&TokenInfo]) -> f64 {
    infos.iter().map(|token| f64::from(token.logprob)).sum::<f64>() / infos.len() as f64
}

#[test]
fn the_best_of_many_come_back_best_first_and_nothing_before() {
    let choice = |request, choice| SeqId { request, choice };
    let mut bench = Bench::new(babbler());
    let many = Request { n: 6, ..bench.request("hello", seeded(3, 12)) };
    let all = bench.submit(many);
    bench.run();
    let mut right: Vec<u32> = (0..6).collect();
    right.sort_by(|a, b| mean(&bench.infos(choice(all, *b))).total_cmp(&mean(&bench.infos(choice(all, *a)))));
    let best = Request { n: 2, best_of: Some(6), ..bench.request("hello", seeded(3, 12)) };
    let best = bench.submit(best);
    for _ in 0..6 {
        bench.step();
        assert!(bench.infos(choice(best, 0)).is_empty(), "told before the end");
    }
    bench.run();
    for told in 0..2 {
        let original = right[told as usize];
        assert_eq!(bench.tokens(choice(best, told)), bench.tokens(choice(all, original)));
        assert_eq!(bench.choice_text(choice(best, told)), bench.choice_text(choice(all, original)));
        assert_eq!(bench.outcome(choice(best, told)).seed, 3 + u64::from(original));
    }
    assert!(bench.infos(choice(best, 2)).is_empty());
}

#[test]
fn a_best_of_that_is_aborted_or_out_of_range_ends_in_each_choice_told() {
    let mut bench = Bench::new(babbler());
    let request = Request { n: 2, best_of: Some(4), ..bench.request("hello", seeded(3, 50)) };
    let id = bench.submit(request);
    (0..5).for_each(|_| bench.step());
    bench.send(Command::Abort(id));
    for choice in 0..2 {
        assert_eq!(bench.outcome(SeqId { request: id, choice }).reason, FinishReason::Abort);
    }
    for best_of in [1, 65] {
        let request = Request { n: 2, best_of: Some(best_of), ..bench.request("hello", greedy()) };
        let id = bench.submit(request);
        assert!(bench.failure(id).message.starts_with("best_of must be from n (2) to 64"));
        bench.outcome(SeqId { request: id, choice: 1 });
    }
}

#[test]
fn an_answer_that_goes_round_in_circles_ends() {
    let said = || Scripted::saying(Scripted::limits(64, 4), "say: abcabcabcabcabcabc");
    let mut bench = Bench::new(said());
    let params = SamplingParams { repetition_max_pattern: 4, repetition_min_count: 3, ..greedy() };
    let id = bench.ask("hi", params.clone());
    let later = bench.ask("hi", SamplingParams { min_tokens: 16, ..params.clone() });
    let longer = bench.ask("hi", SamplingParams { repetition_min_pattern: 4, ..params });
    bench.run();
    assert_eq!((bench.text(id).as_str(), bench.reason(id)), ("say: abcabcabc", &FinishReason::Repetition));
    assert_eq!(bench.reason(id).name(), "repetition");
    assert_eq!(bench.text(later), "say: abcabcabcab");
    assert_eq!(bench.reason(longer), &FinishReason::Stop);
}

#[test]
fn a_scored_prompt_says_how_its_own_tokens_were_expected() {
    for (budget, outputs) in [(512, 256), (3, 256), (512, 2)] {
        let limits = glassbox::model::ModelLimits { max_outputs: outputs, ..Scripted::limits(64, 4) };
        let mut bench = Bench::with(settings().budget(budget), Scripted::babbling(limits));
        let request = Request { prompt_logprobs: Some(259), ..bench.request("a prompt", seeded(1, 3)) };
        bench.submit(request);
        bench.run();
        let (mut tops, mut nexts) = (Vec::new(), Vec::new());
        for event in &bench.events {
            if let Event::PromptLogprobs { rows, next, .. } = event {
                tops.extend(rows.clone());
                nexts.extend(next.clone());
            }
        }
        assert_eq!((tops.len(), nexts.len()), (8, 7));
        for ((next, top), byte) in nexts.iter().zip(tops).zip("a prompt".bytes().skip(1)) {
            assert_eq!(next.id, u32::from(byte));
            let rank = top.iter().position(|token| token.id == next.id).unwrap();
            assert_eq!((next.rank as usize, next.logprob), (rank + 1, top[rank].logprob));
        }
    }
}
