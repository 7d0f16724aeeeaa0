//! SGLang's orders of the queue, its admission estimate and retraction; round robin; swapping.

use crate::harness::*;
use glassbox::base::Clock;
use glassbox::config::EngineSettings;
use glassbox::model::Scripted;
use glassbox::protocol::*;
use std::time::Duration;

fn one_at_a_time(policy: SchedulePolicy) -> Bench {
    let tuned = settings().seqs(1).tuned(|s| s.schedule_policy = policy);
    Bench::with(tuned, Scripted::babbling(Scripted::limits(256, 4)))
}

fn starts(bench: &Bench) -> Vec<u64> {
    bench.started().iter().map(|seq| seq.request.0).collect()
}

#[test]
fn lpm_serves_the_longest_cached_prefix_first() {
    let mut bench = one_at_a_time(SchedulePolicy::Lpm);
    bench.ask("a prompt of sixty-four tokens that everything else builds upon..", seeded(1, 2));
    bench.run();
    bench.ask("nothing in common", seeded(1, 2));
    bench.ask("a prompt of sixteen or so", seeded(1, 2));
    bench.ask("a prompt of sixty-four tokens and more", seeded(1, 2));
    bench.run();
    assert_eq!(starts(&bench), [1, 4, 3, 2]);
}

/// Of several that wait for the same uncached prefix, one goes first and fills the cache.
#[test]
fn lpm_lets_one_of_a_family_fill_the_cache_first() {
    let mut bench = one_at_a_time(SchedulePolicy::Lpm);
    bench.ask("something that runs while the others arrive", seeded(1, 3));
    bench.step();
    let family = "thirty-two tokens in common, all!";
    bench.ask(format!("{family} one"), seeded(1, 2));
    bench.ask(format!("{family} two"), seeded(1, 2));
    bench.ask("a stranger", seeded(1, 2));
    bench.run();
    assert_eq!(starts(&bench), [1, 2, 3, 4], "once the first has run, the second has the longest match");
    let cached = |id: u64| bench.outcome(first(RequestId(id))).usage.cached_tokens;
    assert_eq!((cached(2), cached(3)), (0, 32));
}

#[test]
fn lpm_falls_back_to_fcfs_when_too_many_wait() {
    let mut bench = one_at_a_time(SchedulePolicy::Lpm);
    bench.ask("a prompt everyone knows by now, it is in the cache", seeded(1, 2));
    bench.run();
    (0..129).for_each(|i| _ = bench.ask(format!("{i} no match"), seeded(1, 1)));
    bench.ask("a prompt everyone knows by now", seeded(1, 1));
    bench.step();
    assert_eq!(starts(&bench)[1], 2, "129 wait before it");
    bench.run();
}

#[test]
fn dfs_weight_keeps_families_together_the_largest_first() {
    let tuned = settings().tuned(|s| s.schedule_policy = SchedulePolicy::DfsWeight);
    let mut bench = Bench::with(tuned, babbler());
    for prompt in ["xxxxxxxx1", "yyyyyyyy1", "yyyyyyyy2", "xxxxxxxx2", "yyyyyyyy3"] {
        bench.ask(prompt, seeded(1, 1));
    }
    bench.run();
    let order: Vec<&str> =
        starts(&bench).iter().map(|id| ["", "x1", "y1", "y2", "x2", "y3"][*id as usize]).collect();
    assert_eq!(order, ["y1", "y2", "y3", "x1", "x2"]);
}

#[test]
fn lof_serves_the_longest_answer_first() {
    let mut bench = one_at_a_time(SchedulePolicy::Lof);
    for tokens in [2, 9, 5] {
        bench.ask("hello", seeded(1, tokens));
    }
    bench.run();
    assert_eq!(starts(&bench), [2, 3, 1]);
}

#[test]
fn shortest_prefill_first_counts_what_is_not_cached() {
    let mut bench = one_at_a_time(SchedulePolicy::ShortestPrefillFirst);
    bench.ask("a long prompt that is going to be cached in whole", seeded(1, 2));
    bench.run();
    bench.ask("twelve chars", seeded(1, 1));
    bench.ask("a long prompt that is going to be cached in whole, or nearly", seeded(1, 1));
    bench.ask("six ch", seeded(1, 1));
    bench.run();
    assert_eq!(starts(&bench), [1, 4, 2, 3]);
}

/// A long prompt would wait for ever behind short ones; its ratio grows while it waits.
#[test]
fn hrrn_lets_nobody_starve() {
    let serve = |policy| {
        let mut bench = one_at_a_time(policy);
        let long = bench.ask("x".repeat(60), seeded(0, 1));
        for i in 0..80u64 {
            bench.ask(format!("{i:04}"), seeded(i, 1));
            if i > 4 {
                bench.step();
            }
        }
        bench.run();
        bench.started().iter().position(|seq| *seq == first(long)).unwrap()
    };
    let (shortest, hrrn) = (serve(SchedulePolicy::ShortestPrefillFirst), serve(SchedulePolicy::Hrrn));
    assert_eq!(shortest, 80, "last of all");
    assert!(hrrn < 60, "its turn came at {hrrn}");
}

#[test]
fn random_is_no_order_of_arrival_and_serves_everyone() {
    let mut bench = one_at_a_time(SchedulePolicy::Random);
    (0..20).for_each(|i| _ = bench.ask("hello", seeded(i, 1)));
    bench.run();
    let mut order = starts(&bench);
    assert_ne!(order, (1..=20).collect::<Vec<_>>());
    order.sort_unstable();
    assert_eq!(order, (1..=20).collect::<Vec<_>>());
}

#[test]
fn priority_comes_before_the_policys_order() {
    let tuned = settings().seqs(1).tuned(|s| {
        s.schedule_policy = SchedulePolicy::Lof;
        s.scheduling_policy = SchedulingPolicy::Priority;
    });
    let mut bench = Bench::with(tuned, babbler());
    for (priority, tokens) in [(1, 9), (0, 2), (0, 5)] {
        let request = bench.request("hello", seeded(1, tokens));
        bench.submit(Request { priority, ..request });
    }
    bench.run();
    assert_eq!(starts(&bench), [3, 2, 1]);
}

// ---- round robin ----

/// The glossary's fairness example: A, B and C, one place, slices of 10 ms, steps of 5 ms.
#[test]
fn the_glossarys_round_robin() {
    let clock = Clock::virtual_time();
    let tuned = settings().seqs(1).tuned(|s| s.schedule_policy = SchedulePolicy::RoundRobin);
    let runner = babbler().taking(clock.clone(), Duration::from_millis(5));
    let mut bench = Bench::timed(tuned, runner, clock);
    let ids = ["AAAA", "BBBB", "CCCC"].map(|prompt| bench.ask(prompt, seeded(1, 5)));
    let mut turns = Vec::new();
    while bench.engine.can_step() {
        bench.step();
        turns.push(bench.record().rows[0].seq.request.0);
    }
    assert_eq!(turns, [1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3, 1, 2, 3]);
    assert_eq!(bench.engine.snapshot().counters.preemptions, 0, "whoever waits keeps its blocks");
    for (prompt, id) in ["AAAA", "BBBB", "CCCC"].into_iter().zip(ids) {
        assert_eq!(bench.tokens(first(id)), solo(babbler, prompt, &seeded(1, 5)));
    }
}

#[test]
fn waiting_for_a_turn_is_a_reason() {
    let clock = Clock::virtual_time();
    let tuned = settings().seqs(2).tuned(|s| s.schedule_policy = SchedulePolicy::RoundRobin);
    let mut bench = Bench::timed(tuned, babbler().taking(clock.clone(), Duration::from_millis(5)), clock);
    (0..4).for_each(|i| _ = bench.ask("hello", seeded(i, 9)));
    bench.step();
    assert_eq!(bench.record().waiting[0].reason.to_string(), "turns of 10 ms; 2 before it");
    bench.run();
}

/// Memory for two of five: whoever waits for a turn gives its blocks to whose turn it is.
#[test]
fn round_robin_in_a_small_pool_takes_blocks_from_those_that_wait() {
    let clock = Clock::virtual_time();
    let tuned = settings().seqs(2).tuned(|s| s.schedule_policy = SchedulePolicy::RoundRobin);
    let runner = Scripted::babbling(Scripted::limits(9, 4)).taking(clock.clone(), Duration::from_millis(5));
    let mut bench = Bench::timed(tuned, runner, clock);
    let ids: Vec<RequestId> = (0..5).map(|i| bench.ask(format!("prompt {i}"), seeded(i, 9))).collect();
    bench.run();
    for (seed, id) in (0..).zip(ids) {
        assert_eq!(bench.tokens(first(id)), solo(babbler, &format!("prompt {seed}"), &seeded(seed, 9)));
    }
}

/// Whoever loses its blocks between two turns is preempted like any other: counted, named, and a
/// breakpoint sees it.
#[test]
fn blocks_taken_from_those_that_wait_for_a_turn_are_preemptions() {
    let clock = Clock::virtual_time();
    let tuned = settings().seqs(2).tuned(|s| s.schedule_policy = SchedulePolicy::RoundRobin);
    let runner = Scripted::babbling(Scripted::limits(9, 4)).taking(clock.clone(), Duration::from_millis(5));
    let mut bench = Bench::timed(tuned, runner, clock);
    (0..5).for_each(|i| _ = bench.ask(format!("prompt {i}"), seeded(i, 9)));
    let mut preempted = 0;
    while bench.engine.can_step() {
        bench.step();
        for preemption in bench.record().preempted {
            assert!(preemption.blocks_freed > 0 && preemption.seq != preemption.by, "{preemption:?}");
            preempted += 1;
        }
    }
    assert!(preempted > 0);
    assert_eq!(bench.engine.snapshot().counters.preemptions, preempted);
    let of_choices: u32 = (1..=5).map(|id| bench.outcome(first(RequestId(id))).timings.preemptions).sum();
    assert_eq!(u64::from(of_choices), preempted);
}

#[test]
fn whoever_lets_a_relative_go_first_says_so() {
    let mut bench =
        Bench::with(settings().seqs(1).tuned(|s| s.schedule_policy = SchedulePolicy::Lpm), babbler());
    let family = "one family: forty common tokens in front";
    bench.ask("somebody else, who has the only place", seeded(1, 4));
    bench.step();
    let ids = [1, 2].map(|i| bench.ask(format!("{family}, {i}"), seeded(i, 4)));
    bench.step();
    let right = [Reason::Slots { running: 1, most: 1 }, Reason::InBatchPrefix { by: first(ids[0]) }];
    assert_eq!(bench.record().waiting.iter().map(|waiting| waiting.reason).collect::<Vec<_>>(), right);
    bench.run();
    assert!(bench.outcome(first(ids[1])).usage.cached_tokens >= 40);
}

/// A lone sequence always fits, for intake refuses what the pool cannot hold: SGLang's last resort,
/// to abort the only one left, is never needed.
#[test]
fn the_last_one_left_fits_and_is_never_aborted() {
    let mut bench = betting(8, 0.01);
    let params = |seed| SamplingParams { ignore_eos: false, max_tokens: None, ..seeded(seed, 1) };
    let ids: Vec<RequestId> = (0..4).map(|i| bench.ask(format!("{i:04}"), params(i))).collect();
    bench.run();
    for (i, id) in (0..).zip(ids) {
        assert!(!matches!(bench.reason(id), FinishReason::Error(_) | FinishReason::Abort), "{i}");
    }
    let id = bench.ask("x".repeat(32), params(9));
    assert_eq!(bench.failure(id).kind, FailureKind::TooLong);
}

#[test]
fn the_estimate_counts_what_a_running_prompt_has_still_to_compute() {
    let tuned = settings().budget(10).tuned(|s| {
        s.preemption_mode = PreemptionMode::Retract;
        s.long_prefill_token_threshold = 5;
        s.scheduler_reserve_full_isl = false;
    });
    let mut bench = Bench::with(tuned, Scripted::babbling(Scripted::limits(20, 4)));
    bench.ask("a".repeat(60), seeded(1, 4));
    bench.step();
    bench.ask("b".repeat(12), seeded(2, 4));
    while bench.record().rows[0].kind == RowKind::Prefill {
        bench.step();
        assert_eq!(bench.record().rows.len(), 1, "80 tokens, 64 of them promised; 16 do not fit");
    }
    bench.run();
}

// ---- SGLang's bet ----

fn betting(blocks: usize, conservativeness: f32) -> Bench {
    let tuned = settings().tuned(|s| {
        s.preemption_mode = PreemptionMode::Retract;
        s.schedule_conservativeness = conservativeness;
    });
    Bench::with(tuned, Scripted::babbling(Scripted::limits(blocks, 4)))
}

/// 40 blocks hold 160 tokens. Each request may need 4 + 60: with all of it promised two fit, and
/// the third waits with its numbers.
#[test]
fn the_estimate_keeps_tokens_for_running_answers() {
    let mut bench = betting(40, 1.0);
    (0..4).for_each(|i| _ = bench.ask(format!("{i:04}"), seeded(i, 60)));
    bench.step();
    assert_eq!(bench.record().rows.len(), 2);
    let reason = bench.record().waiting[0].reason;
    assert!(matches!(reason, Reason::Estimate { needed: 64, .. }), "{reason}");
    bench.run();
    assert_eq!(bench.engine.snapshot().counters.preemptions, 0);
}

/// Answers that do not ignore the end token are expected to use 0.7 of their limit, then less.
#[test]
fn a_bolder_bet_admits_more_and_a_lost_one_takes_back_the_shortest_answer() {
    let admitted = |conservativeness| {
        let mut bench = betting(40, conservativeness);
        let params = |i| SamplingParams { ignore_eos: false, ..seeded(i, 60) };
        let ids: Vec<RequestId> = (0..6).map(|i| bench.ask(format!("{i:04}"), params(i))).collect();
        bench.step();
        let rows = bench.record().rows.len();
        bench.run();
        for (seed, id) in (0..).zip(ids) {
            assert_eq!(bench.tokens(first(id)), solo(babbler, &format!("{seed:04}"), &params(seed)));
        }
        (rows, bench.engine.snapshot().counters.preemptions)
    };
    let ((careful, _), (bold, lost)) = (admitted(1.4), admitted(0.2));
    assert!(bold > careful, "{bold} against {careful}");
    assert!(lost > 0, "the bet was lost");
}

#[test]
fn retraction_takes_the_shortest_answer_and_of_those_the_longest_prompt() {
    let mut bench = betting(16, 0.05);
    let old = bench.ask("aaaa", SamplingParams { ignore_eos: false, ..seeded(1, 24) });
    (0..6).for_each(|_| bench.step());
    let short = bench.ask("bbbb", SamplingParams { ignore_eos: false, ..seeded(2, 24) });
    let long = bench.ask("cccccccc", SamplingParams { ignore_eos: false, ..seeded(3, 24) });
    let mut record = StepRecord::default();
    while record.preempted.is_empty() && bench.engine.can_step() {
        bench.step();
        record = bench.record();
    }
    assert_eq!(record.preempted[0].seq, first(long), "{record:?}");
    bench.run();
    for (id, prompt, seed) in [(old, "aaaa", 1), (short, "bbbb", 2), (long, "cccccccc", 3)] {
        let params = SamplingParams { ignore_eos: false, ..seeded(seed, 24) };
        assert_eq!(bench.tokens(first(id)), solo(babbler, prompt, &params));
    }
}

// ---- swapping ----

fn swapping(blocks: usize, host_blocks: usize) -> Bench {
    let limits = Scripted::limits(blocks, 4);
    let tuned = settings().tuned(|s| s.preemption_mode = PreemptionMode::Swap);
    let settings = EngineSettings { host_kv_bytes: host_blocks * limits.bytes_per_block, ..tuned };
    Bench::with(settings, Scripted::babbling(limits))
}

#[test]
fn a_swapped_sequence_comes_back_and_computes_nothing_again() {
    let mut bench = swapping(12, 32);
    let ids = ["first prompt", "second one"].map(|prompt| bench.ask(prompt, seeded(1, 24)));
    let (mut swapped, mut computed) = (0, 0);
    while bench.engine.can_step() {
        bench.step();
        let record = bench.record();
        swapped += record.preempted.iter().filter(|preemption| preemption.swapped).count();
        computed += record.tokens;
    }
    assert!(swapped > 0);
    assert_eq!(computed, 12 + 10 + 2 * 23, "no token twice");
    let counters = bench.engine.snapshot().counters;
    assert_eq!((counters.swaps, counters.preemptions), (swapped as u64, swapped as u64));
    for (prompt, id) in ["first prompt", "second one"].into_iter().zip(ids) {
        assert_eq!(bench.tokens(first(id)), solo(babbler, prompt, &seeded(1, 24)));
    }
}

#[test]
fn without_room_in_host_memory_a_swap_becomes_a_recomputation() {
    let mut bench = swapping(12, 2);
    let ids = ["first prompt", "second one"].map(|prompt| bench.ask(prompt, seeded(1, 24)));
    bench.run();
    let counters = bench.engine.snapshot().counters;
    assert!(counters.preemptions > 0 && counters.swaps == 0);
    for (prompt, id) in ["first prompt", "second one"].into_iter().zip(ids) {
        assert_eq!(bench.tokens(first(id)), solo(babbler, prompt, &seeded(1, 24)));
    }
}

#[test]
fn an_abort_of_a_swapped_sequence_gives_its_host_memory_back() {
    let mut bench = swapping(12, 8);
    for round in 0..12u64 {
        let ids = ["first prompt", "second one"].map(|prompt| bench.ask(prompt, seeded(round, 24)));
        let mut record = StepRecord::default();
        while record.preempted.is_empty() {
            bench.step();
            record = bench.record();
        }
        assert!(record.preempted[0].swapped, "round {round}: host memory ran out");
        bench.send(Command::Abort(ids[1]));
        bench.run();
        bench.send(Command::ResetPrefixCache);
    }
}
