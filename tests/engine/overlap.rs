//! Asynchronous scheduling and multi-step: other orders of work, the same tokens.

use crate::harness::*;
use glassbox::config::EngineSettings;
use glassbox::model::{Fault, ModelLimits, Scripted};
use glassbox::protocol::*;
use proptest::prelude::*;

fn overlapped() -> EngineSettings {
    settings().tuned(|s| s.async_scheduling = true)
}

fn rounds(steps: u32) -> EngineSettings {
    settings().tuned(|s| s.num_scheduler_steps = steps)
}

#[test]
fn an_overlapped_answer_is_the_plain_one() {
    let mut bench = Bench::with(overlapped(), babbler());
    let id = bench.ask("hello", seeded(1, 20));
    bench.run();
    assert_eq!(bench.tokens(first(id)), solo(babbler, "hello", &seeded(1, 20)));
}

#[test]
fn the_next_step_is_launched_before_the_result_of_the_last_is_told() {
    let (recorder, batches) = std::sync::mpsc::channel();
    let mut bench = Bench::with(overlapped(), babbler().recording(recorder));
    let id = bench.ask("hello", seeded(1, 20));
    bench.step();
    assert_eq!((batches.try_iter().count(), bench.tokens(first(id)).len()), (1, 0));
    bench.step();
    assert_eq!((batches.try_iter().count(), bench.tokens(first(id)).len()), (1, 1));
    bench.run();
    assert_eq!(bench.tokens(first(id)).len(), 20);
    assert_eq!(batches.try_iter().count(), 18, "max_tokens is known beforehand: no row too many");
}

#[test]
fn what_ends_by_surprise_has_a_row_too_many_that_nobody_hears_of() {
    let (recorder, batches) = std::sync::mpsc::channel();
    let script = Scripted::saying(Scripted::limits(64, 4), "abc").recording(recorder);
    let mut bench = Bench::with(overlapped(), script);
    let id = bench.ask("x", greedy());
    let stopped = bench.ask("y", SamplingParams { stop: vec!["b".into()], ..greedy() });
    bench.run();
    assert_eq!((bench.text(id).as_str(), bench.reason(id)), ("abc", &FinishReason::Stop));
    assert_eq!(bench.text(stopped), "a");
    assert_eq!(bench.tokens(first(stopped)).len(), 2);
    assert_eq!(batches.try_iter().count(), 5);
    assert_eq!(bench.kv().owned, 0);
}

#[test]
fn choices_and_scored_prompts_are_waited_for() {
    let mut bench = Bench::with(overlapped().budget(9), babbler());
    let request = bench.request("a prompt that forks", seeded(3, 9));
    let id = bench.submit(Request { n: 3, ..request });
    let request = bench.request("a prompt that is scored", seeded(4, 9));
    let scored = bench.submit(Request { prompt_logprobs: Some(1), ..request });
    bench.run();
    for choice in 0..3 {
        let right = solo(babbler, "a prompt that forks", &seeded(3 + u64::from(choice), 9));
        assert_eq!(bench.tokens(SeqId { request: id, choice }), right);
    }
    assert_eq!(bench.tokens(first(scored)), solo(babbler, "a prompt that is scored", &seeded(4, 9)));
}

/// vLLM: kv_pressure_preemption_with_inflight_output. A victim's last token is still being drawn; it
/// arrives, once, and the sequence goes on from it.
#[test]
fn a_preempted_sequence_keeps_the_token_that_was_on_its_way() {
    for mode in PreemptionMode::ALL {
        let limits = Scripted::limits(12, 4);
        let tuned = overlapped().tuned(|s| s.preemption_mode = *mode);
        let settings = EngineSettings { host_kv_bytes: 32 * limits.bytes_per_block, ..tuned };
        let mut bench = Bench::with(settings, Scripted::babbling(limits));
        let ids = ["first prompt", "second one"].map(|prompt| bench.ask(prompt, seeded(1, 24)));
        bench.run();
        assert!(bench.engine.snapshot().counters.preemptions > 0 || *mode == PreemptionMode::Retract);
        for (prompt, id) in ["first prompt", "second one"].into_iter().zip(ids) {
            assert_eq!(bench.tokens(first(id)), solo(babbler, prompt, &seeded(1, 24)), "{mode}");
        }
    }
}

/// All blocks are owned; the older sequence waits for its last token, the younger needs one more block
/// and gives way to nobody but itself. The step has no rows, and yet blocks to save.
#[test]
fn who_is_swapped_out_in_a_step_without_rows_comes_back_whole() {
    let limits = Scripted::limits(4, 4);
    let tuned = overlapped().tuned(|s| s.preemption_mode = PreemptionMode::Swap);
    let settings = EngineSettings { host_kv_bytes: 8 * limits.bytes_per_block, ..tuned }.caching(false);
    let mut bench = Bench::with(settings, Scripted::babbling(limits));
    bench.ask("four", seeded(1, 5));
    let id = bench.ask("more", seeded(2, 12));
    bench.run();
    let counters = bench.engine.snapshot().counters;
    assert_eq!((counters.preemptions, counters.swaps), (1, 1));
    assert_eq!(bench.tokens(first(id)), solo(babbler, "more", &seeded(2, 12)));
}

#[test]
fn an_abort_while_a_step_runs_frees_at_once_and_ends_once() {
    let mut bench = Bench::with(overlapped(), babbler());
    let ids = ["one", "two"].map(|prompt| bench.ask(prompt, seeded(1, 20)));
    (0..4).for_each(|_| bench.step());
    bench.send(Command::Abort(ids[0]));
    let owned = bench.kv().owned;
    bench.run();
    assert!(owned > 0, "the other one runs on");
    assert_eq!(bench.reason(ids[0]), &FinishReason::Abort);
    assert_eq!(bench.tokens(first(ids[1])), solo(babbler, "two", &seeded(1, 20)));
}

#[test]
fn a_pause_lets_what_is_in_flight_land_and_steps_are_plain() {
    let mut bench = Bench::with(overlapped(), babbler());
    let id = bench.ask("hello", seeded(1, 12));
    (0..4).for_each(|_| bench.step());
    let before = bench.tokens(first(id)).len();
    bench.send(Command::Pause);
    bench.run();
    assert_eq!(bench.tokens(first(id)).len(), before + 1);
    bench.send(Command::Step(2));
    bench.run();
    assert_eq!(bench.tokens(first(id)).len(), before + 3);
    bench.send(Command::Resume);
    bench.run();
    assert_eq!(bench.tokens(first(id)), solo(babbler, "hello", &seeded(1, 12)));
}

#[test]
fn a_failed_step_in_flight_ends_everyone_and_the_next_request_is_served() {
    for fault in [Fault::Device, Fault::Panic] {
        let mut bench = Bench::with(overlapped(), babbler().failing_at(3, fault));
        let ids = ["one", "two"].map(|prompt| bench.ask(prompt, seeded(1, 20)));
        bench.run();
        for id in ids {
            assert_eq!(bench.failure(id).kind, FailureKind::Internal);
        }
        let next = bench.ask("three", seeded(1, 5));
        bench.run();
        assert_eq!(bench.tokens(first(next)), solo(babbler, "three", &seeded(1, 5)));
    }
}

#[test]
fn a_poisoned_row_in_flight_ends_alone() {
    let script = babbler().poisoning(|row| row.seq.request.0 == 1 && row.tokens.len() > 8);
    let mut bench = Bench::with(overlapped(), script);
    let ids = ["one", "two"].map(|prompt| bench.ask(prompt, seeded(1, 20)));
    bench.run();
    assert_eq!(bench.failure(ids[0]).kind, FailureKind::Internal);
    assert_eq!(bench.tokens(first(ids[1])), solo(babbler, "two", &seeded(1, 20)));
}

/// The next token obeys, and that is the one in flight: it has not been drawn yet.
#[test]
fn parameters_set_while_a_step_runs_act_from_the_token_they_name() {
    let mut bench = Bench::with(overlapped(), babbler());
    let id = bench.ask("hello", seeded(1, 20));
    (0..6).for_each(|_| bench.step());
    let before = bench.tokens(first(id)).len();
    let params = SamplingParams { temperature: 0.0, ..seeded(1, 20) };
    bench.send(Command::SetParams(id, Box::new(params.clone())));
    let at = bench.events.iter().find_map(|event| match event {
        Event::ParamsApplied { at, .. } => Some(*at),
        _ => None,
    });
    assert_eq!(at, Some(before));
    bench.run();
    let mut plain = Bench::new(babbler());
    let same = plain.ask("hello", seeded(1, 20));
    (0..before).for_each(|_| plain.step());
    plain.send(Command::SetParams(same, Box::new(params)));
    plain.run();
    assert_eq!(bench.tokens(first(id)), plain.tokens(first(same)));
}

/// Each command between launch and reading: nobody's tokens change, no block is lost.
#[test]
fn commands_while_a_step_runs_change_nobodys_tokens() {
    let configured = |change: fn(&mut SchedulerSettings)| {
        Command::Configure(Box::new(overlapped().tuned(change).scheduler))
    };
    let commands = [
        Command::ResetPrefixCache,
        Command::Focus(Some(first(RequestId(1)))),
        Command::Abort(RequestId(2)),
        Command::Pause,
        Command::Step(3),
        Command::Break(Breakpoint::Preemption),
        configured(|s| s.async_scheduling = false),
        configured(|s| s.num_scheduler_steps = 3),
        configured(|s| s.max_num_seqs = 1),
        configured(|s| s.batching = Batching::Static),
        configured(|s| s.scheduling_policy = SchedulingPolicy::Priority),
        configured(|s| s.schedule_policy = SchedulePolicy::RoundRobin),
        configured(|s| s.preemption_mode = PreemptionMode::Retract),
    ];
    for command in commands {
        for steps in 1..5 {
            let mut bench = Bench::with(overlapped(), Scripted::babbling(Scripted::limits(16, 4)));
            let ids = ["one of three", "two", "three"].map(|prompt| bench.ask(prompt, seeded(1, 14)));
            (0..steps).for_each(|_| bench.step());
            bench.send(command.clone());
            bench.run();
            bench.send(Command::Clear(None));
            bench.send(Command::Resume);
            bench.run();
            for (prompt, id) in [("one of three", ids[0]), ("three", ids[2])] {
                let right = solo(babbler, prompt, &seeded(1, 14));
                assert_eq!(bench.tokens(first(id)), right, "{command:?} after {steps} steps");
            }
        }
    }
}

#[test]
fn a_branch_made_while_a_step_runs_is_the_plain_one() {
    for keep in [3, 6, 9] {
        let mut bench = Bench::with(overlapped(), babbler());
        let parent = first(bench.ask("hello", seeded(1, 14)));
        (0..7).for_each(|_| bench.step());
        let id = RequestId(1000);
        let fork = ForkRequest { id, parent, keep, then: vec![7], params: seeded(3, 14) };
        bench.send(Command::Fork(Box::new(fork.clone())));
        bench.run();
        let mut plain = Bench::new(babbler());
        plain.ask("hello", seeded(1, 14));
        (0..7).for_each(|_| plain.step());
        plain.send(Command::Fork(Box::new(fork)));
        plain.run();
        assert_eq!(bench.tokens(first(id)), plain.tokens(first(id)));
        assert_eq!(bench.tokens(parent), plain.tokens(parent));
    }
}

/// vLLM's async prefix_caching_for_{prefill_dedup, multi_turn}.
#[test]
fn prefixes_are_shared_as_in_the_plain_loop() {
    let cached = |settings: EngineSettings| {
        let mut bench = Bench::with(settings.seqs(1), babbler());
        let prompts = ["the same long prompt", "the same long prompt", "the same long prompt, and more"];
        let ids = prompts.map(|prompt| bench.ask(prompt, seeded(1, 6)));
        bench.run();
        let mut turn = Scripted::encode(prompts[0]);
        turn.extend(bench.tokens(first(ids[0])));
        turn.extend(Scripted::encode(" next"));
        let request = bench.request("", seeded(1, 6));
        let next = bench.submit(Request { prompt: Prompt::Tokens(turn), ..request });
        bench.run();
        [ids[0], ids[1], ids[2], next].map(|id| bench.outcome(first(id)).usage.cached_tokens)
    };
    assert_eq!(cached(overlapped()), [0, 16, 20, 24]);
    assert_eq!(cached(overlapped()), cached(settings()));
}

// ---- several steps for one plan ----

#[test]
fn one_plan_serves_several_steps() {
    let mut bench = Bench::with(rounds(4), babbler());
    bench.ask("hello", seeded(1, 20));
    let late = "a late one";
    (0..3).for_each(|_| bench.step());
    let id = bench.ask(late, seeded(2, 5));
    bench.run();
    assert_eq!(bench.tokens(first(id)), solo(babbler, late, &seeded(2, 5)));
    let waits: Vec<String> = bench
        .engine
        .snapshot()
        .steps
        .iter()
        .flat_map(|step| &step.waiting)
        .map(|waiting| waiting.reason.to_string())
        .collect();
    assert!(waits.is_empty(), "an arrival ends the round: {waits:?}");
}

#[test]
fn a_round_in_a_full_house_makes_the_queue_wait_for_its_end() {
    let mut bench = Bench::with(rounds(4).seqs(1), babbler());
    for prompt in ["one", "two"] {
        bench.ask(prompt, seeded(1, 12));
    }
    (0..2).for_each(|_| bench.step());
    assert_eq!(bench.record().waiting[0].reason.to_string(), "the next plan is made in 3 steps");
    bench.run();
}

#[test]
fn an_abort_and_a_branch_end_a_round() {
    let mut bench = Bench::with(rounds(8), babbler());
    let ids = ["one", "two"].map(|prompt| bench.ask(prompt, seeded(1, 20)));
    (0..4).for_each(|_| bench.step());
    bench.send(Command::Abort(ids[0]));
    let fork = ForkRequest {
        id: RequestId(1000),
        parent: first(ids[1]),
        keep: 5,
        then: Vec::new(),
        params: seeded(1, 20),
    };
    bench.send(Command::Fork(Box::new(fork)));
    bench.step();
    assert_eq!(bench.record().rows.len(), 2, "the branch runs at once");
    bench.run();
    assert_eq!(bench.tokens(first(ids[1])), solo(babbler, "two", &seeded(1, 20)));
    assert_eq!(bench.tokens(first(RequestId(1000))), bench.tokens(first(ids[1]))[2..]);
}

#[test]
fn a_round_ends_with_the_context() {
    for steps in 2..9 {
        let limits = ModelLimits { max_model_len: 14, ..Scripted::limits(64, 4) };
        let mut bench = Bench::with(rounds(steps), Scripted::babbling(limits));
        let ids = ["abcd", "a"]
            .map(|prompt| bench.ask(prompt, SamplingParams { max_tokens: None, ..seeded(1, 1) }));
        bench.run();
        assert_eq!(ids.map(|id| bench.tokens(first(id)).len()), [10, 13]);
        ids.iter().for_each(|id| assert_eq!(bench.reason(*id), &FinishReason::Length));
    }
}

#[derive(Clone, Debug)]
struct Case {
    requests: Vec<(usize, u32, u32, usize)>,
    blocks: usize,
    seqs: usize,
    budget: usize,
    outputs: usize,
    steps: u32,
    overlap: bool,
    mode: PreemptionMode,
    policy: SchedulePolicy,
    stop: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let requests = prop::collection::vec((1usize..12, 1u32..14, 1u32..4, 0usize..4), 1..16);
    let mode = prop::sample::select(PreemptionMode::ALL);
    let policy = prop::sample::select(SchedulePolicy::ALL);
    (
        requests,
        10usize..24,
        1usize..6,
        2usize..30,
        1usize..9,
        1u32..6,
        any::<bool>(),
        mode,
        policy,
        any::<bool>(),
    )
        .prop_map(|(requests, blocks, seqs, budget, outputs, steps, overlap, mode, policy, stop)| Case {
            requests,
            blocks,
            seqs,
            budget,
            outputs,
            steps,
            overlap,
            mode,
            policy,
            stop,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Whatever the order of work: every choice says what it says alone.
    #[test]
    fn every_loop_gives_the_plain_tokens(case in case()) {
        let limits = ModelLimits { max_outputs: case.outputs, ..Scripted::limits(case.blocks, 4) };
        let tuned = settings().seqs(case.seqs).budget(case.budget).tuned(|s| {
            s.async_scheduling = case.overlap;
            s.num_scheduler_steps = case.steps;
            s.preemption_mode = case.mode;
            s.schedule_policy = case.policy;
            s.time_slice_ms = 0.01;
        });
        let tuned = EngineSettings { host_kv_bytes: 24 * limits.bytes_per_block, ..tuned };
        let mut bench = Bench::with(tuned, Scripted::babbling(limits));
        let mut asked = Vec::new();
        for (i, (length, tokens, n, steps)) in case.requests.iter().enumerate() {
            let prompt: String = format!("{:02}abcdefghij", i % 5)[..*length].to_owned();
            let params = SamplingParams {
                stop: if case.stop { vec!["e".into(), "9".into()] } else { Vec::new() },
                ..seeded(i as u64 * 7, *tokens)
            };
            let request = bench.request(prompt.clone(), params.clone());
            let id = bench.submit(Request { n: *n, ..request });
            asked.push((id, prompt, params, *n));
            (0..*steps).for_each(|_| bench.step());
        }
        bench.run();
        for (id, prompt, params, n) in asked {
            for choice in 0..n {
                let seed = params.seed.map(|seed| seed + u64::from(choice));
                let right = solo(babbler, &prompt, &SamplingParams { seed, ..params.clone() });
                let seq = SeqId { request: id, choice };
                prop_assert_eq!(bench.tokens(seq), right, "{} ended by {:?}", seq, bench.outcome(seq).reason);
            }
        }
    }
}
