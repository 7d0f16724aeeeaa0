//! vLLM's scheduler, behaviour by behaviour: who is admitted, how the budget is split, what waits and
//! why. In the words of ENGINE.md 1.1 and 1.3.

use crate::harness::*;
use glassbox::config::EngineSettings;
use glassbox::model::{ModelLimits, Scripted};
use glassbox::protocol::*;

fn bench(change: impl FnOnce(&mut SchedulerSettings)) -> Bench {
    Bench::with(settings().tuned(change), babbler())
}

fn in_pool(blocks: usize, settings: EngineSettings) -> Bench {
    Bench::with(settings, Scripted::babbling(Scripted::limits(blocks, 4)))
}

/// A prompt of so many tokens that shares nothing with others of another letter.
fn prompt(letter: char, tokens: usize) -> String {
    std::iter::repeat_n(letter, tokens).collect()
}

fn reasons(bench: &Bench) -> Vec<String> {
    bench.record().waiting.iter().map(|waiting| waiting.reason.to_string()).collect()
}

fn running(bench: &Bench) -> Vec<u64> {
    bench.record().rows.iter().map(|row| row.seq.request.0).collect()
}

// ---- admission and the budget ----

#[test]
fn all_requests_that_fit_start_in_one_step() {
    let mut bench = bench(|_| {});
    (0..10).for_each(|i| _ = bench.ask(prompt('a', 10 + i), seeded(1, 4)));
    bench.step();
    assert_eq!(bench.row_tokens(), [10, 11, 12, 13, 14, 15, 16, 17, 18, 19].map(|n| n - shared(n)));
    assert!(bench.record().waiting.is_empty());
}

/// Of a prompt of so many `a`: what the one before it in the same step has in whole blocks of 4.
fn shared(n: usize) -> usize {
    if n == 10 { 0 } else { (n - 1) / 4 * 4 }
}

#[test]
fn a_prompt_longer_than_the_budget_runs_in_chunks_and_decodes_after_the_last() {
    let mut bench = bench(|s| s.max_num_batched_tokens = 10);
    bench.ask(prompt('a', 25), seeded(1, 3));
    let mut seen = Vec::new();
    while bench.engine.can_step() {
        bench.step();
        let row = bench.record().rows[0].clone();
        seen.push((row.kind, row.tokens, row.sampled.is_some()));
    }
    use RowKind::{Decode, Prefill};
    let right = [
        (Prefill, 10, false),
        (Prefill, 10, false),
        (Prefill, 5, true),
        (Decode, 1, true),
        (Decode, 1, true),
    ];
    assert_eq!(seen, right);
}

#[test]
fn running_prompts_come_before_waiting_ones() {
    let mut bench = bench(|s| s.max_num_batched_tokens = 20);
    bench.ask(prompt('a', 30), seeded(1, 2));
    bench.step();
    bench.ask(prompt('b', 30), seeded(2, 2));
    bench.step();
    assert_eq!((running(&bench), bench.row_tokens()), (vec![1, 2], vec![10, 10]));
}

#[test]
fn several_prompts_may_be_half_computed_at_once() {
    let mut bench = bench(|s| {
        s.max_num_batched_tokens = 60;
        s.long_prefill_token_threshold = 20;
    });
    for letter in ['a', 'b', 'c'] {
        bench.ask(prompt(letter, 50), seeded(1, 4));
    }
    for tokens in [vec![20, 20, 20], vec![20, 20, 20], vec![10, 10, 10], vec![1, 1, 1]] {
        bench.step();
        assert_eq!(bench.row_tokens(), tokens);
    }
}

#[test]
fn the_long_prefill_threshold_is_ignored_for_a_lone_request() {
    let mut bench = bench(|s| s.long_prefill_token_threshold = 5);
    bench.ask(prompt('a', 40), seeded(1, 2));
    bench.step();
    assert_eq!(bench.row_tokens(), [40]);
}

#[test]
fn the_long_prefill_threshold_holds_beside_others_and_leaves_budget_for_them() {
    let mut bench = bench(|s| {
        s.long_prefill_token_threshold = 5;
        s.max_num_batched_tokens = 12;
    });
    for letter in ['a', 'b', 'c'] {
        bench.ask(prompt(letter, 9), seeded(1, 2));
    }
    bench.step();
    assert_eq!(bench.row_tokens(), [5, 5, 2]);
}

#[test]
fn an_adaptive_threshold_is_at_least_an_equal_share() {
    let mut bench = bench(|s| {
        s.long_prefill_token_threshold = 2;
        s.long_prefill_token_threshold_adaptive = true;
        s.max_num_batched_tokens = 30;
    });
    for letter in ['a', 'b', 'c'] {
        bench.ask(prompt(letter, 20), seeded(1, 2));
    }
    bench.step();
    assert_eq!(bench.row_tokens(), [10, 10, 10]);
}

#[test]
fn without_chunking_a_prompt_waits_for_a_step_that_holds_it_whole() {
    let mut bench = bench(|s| {
        s.max_num_batched_tokens = 20;
        s.enable_chunked_prefill = false;
    });
    bench.ask(prompt('a', 12), seeded(1, 3));
    bench.ask(prompt('b', 12), seeded(1, 3));
    bench.step();
    assert_eq!(bench.row_tokens(), [12]);
    assert_eq!(reasons(&bench), ["a prompt of 12 tokens is not split; 8 are left of the budget"]);
    bench.step();
    assert_eq!(bench.row_tokens(), [1, 12]);
    bench.run();
}

#[test]
fn without_chunking_a_prompt_beyond_every_budget_is_split_rather_than_stuck() {
    let mut bench = bench(|s| {
        s.max_num_batched_tokens = 20;
        s.enable_chunked_prefill = false;
    });
    let id = bench.ask(prompt('a', 50), seeded(1, 3));
    bench.run();
    assert_eq!(bench.tokens(first(id)), solo(babbler, &prompt('a', 50), &seeded(1, 3)));
}

#[test]
fn without_chunking_the_threshold_still_says_how_much_of_a_prompt_is_whole() {
    let mut bench = bench(|s| {
        s.max_num_batched_tokens = 20;
        s.long_prefill_token_threshold = 5;
        s.enable_chunked_prefill = false;
    });
    bench.ask(prompt('a', 5), seeded(1, 3));
    bench.ask(prompt('b', 18), seeded(1, 3));
    bench.step();
    assert_eq!(bench.row_tokens(), [5, 5]);
    bench.run();
}

#[test]
fn max_num_active_seqs_caps_admission_below_max_num_seqs() {
    let mut bench = bench(|s| (s.max_num_seqs, s.max_num_active_seqs) = (8, Some(3)));
    (0..5).for_each(|i| _ = bench.ask(prompt('a', 5), seeded(i, 4)));
    bench.step();
    assert_eq!(running(&bench), [1, 2, 3]);
    assert_eq!(reasons(&bench)[0], "3 of 3 sequences are running");
    bench.run();
}

#[test]
fn a_place_that_gets_free_is_filled_in_the_next_step() {
    let mut bench = bench(|s| s.max_num_seqs = 2);
    for (i, n) in [2, 5, 3].into_iter().enumerate() {
        bench.ask(prompt('a', 5), seeded(i as u64, n));
    }
    bench.step();
    bench.step();
    assert_eq!(running(&bench), [1, 2]);
    bench.step();
    assert_eq!(running(&bench), [2, 3]);
    let slots = bench.record().slots;
    assert_eq!((slots.all, slots.used, slots.idle), (2, 2, 0));
}

#[test]
fn choices_beyond_max_num_active_seqs_wait_in_front() {
    let mut bench = bench(|s| (s.max_num_seqs, s.max_num_active_seqs) = (8, Some(3)));
    let request = bench.request(prompt('a', 5), seeded(1, 4));
    bench.submit(Request { n: 5, ..request });
    bench.ask(prompt('b', 5), seeded(9, 4));
    bench.step();
    bench.step();
    let choices: Vec<u32> = bench.record().rows.iter().map(|row| row.seq.choice).collect();
    assert_eq!((running(&bench), choices), (vec![1, 1, 1], vec![0, 1, 2]));
    bench.run();
    let order: Vec<SeqId> = bench.started();
    assert_eq!(order.last(), Some(&first(RequestId(2))), "{order:?}");
}

#[test]
fn a_branch_takes_no_place_that_is_not_free() {
    let mut bench = bench(|s| (s.max_num_seqs, s.max_num_active_seqs) = (8, Some(2)));
    let ids = ['a', 'b'].map(|letter| bench.ask(prompt(letter, 5), seeded(1, 9)));
    (0..3).for_each(|_| bench.step());
    let id = RequestId(1000);
    let parent = first(ids[0]);
    let fork = ForkRequest { id, parent, keep: 6, then: Vec::new(), params: seeded(1, 9) };
    bench.send(Command::Fork(Box::new(fork)));
    bench.step();
    assert_eq!(running(&bench), [1, 2]);
    bench.run();
    assert_eq!(bench.tokens(first(id)), bench.tokens(parent)[1..]);
}

// ---- blocks ----

#[test]
fn only_a_sequence_that_fits_whole_is_admitted() {
    let mut bench = in_pool(10, settings().budget(8));
    bench.ask(prompt('a', 20), seeded(1, 2));
    bench.ask(prompt('b', 30), seeded(2, 2));
    bench.step();
    bench.step();
    bench.step();
    assert_eq!(running(&bench), [1], "8 of 30 tokens would fit, the rest would not");
    assert_eq!(
        reasons(&bench),
        ["needs 8 blocks, 5 free, 0 evictable, 1 reserved for running prompts; head of the queue"]
    );
    bench.run();
    assert_eq!(bench.engine.snapshot().counters.preemptions, 0);
}

#[test]
fn without_reserving_the_whole_the_first_chunk_decides_and_preemption_mends_it() {
    let tuned = settings().budget(8).tuned(|s| s.scheduler_reserve_full_isl = false);
    let mut bench = in_pool(10, tuned);
    let a = bench.ask(prompt('a', 20), seeded(1, 2));
    let b = bench.ask(prompt('b', 30), seeded(2, 2));
    (0..4).for_each(|_| bench.step());
    assert!(bench.started().contains(&first(b)));
    bench.run();
    assert_eq!(bench.tokens(first(a)), solo(babbler, &prompt('a', 20), &seeded(1, 2)));
    assert_eq!(bench.tokens(first(b)), solo(babbler, &prompt('b', 30), &seeded(2, 2)));
}

#[test]
fn the_watermark_keeps_blocks_free_beside_running_sequences_only() {
    let tuned = || settings().tuned(|s| s.watermark = 0.5);
    let mut bench = in_pool(10, tuned());
    bench.ask(prompt('a', 36), seeded(1, 2));
    bench.step();
    assert_eq!(running(&bench), [1], "nothing runs beside it: the watermark does not count");
    let mut bench = in_pool(10, tuned());
    bench.ask(prompt('a', 12), seeded(1, 8));
    bench.ask(prompt('b', 12), seeded(1, 8));
    bench.step();
    assert_eq!(
        reasons(&bench),
        ["needs 3 blocks, 7 free, 0 evictable, 6 reserved for running prompts; head of the queue"]
    );
    bench.run();
}

#[test]
fn the_last_admitted_gives_way_and_returns_to_the_front() {
    let mut bench = in_pool(8, settings());
    let ids = ['a', 'b', 'c'].map(|letter| bench.ask(prompt(letter, 7), seeded(1, 12)));
    bench.step();
    let mut record = bench.record();
    while record.preempted.is_empty() {
        bench.step();
        record = bench.record();
    }
    let victim = record.preempted[0];
    assert_eq!(victim.seq, first(ids[2]));
    assert_eq!(record.waiting[0].seq, first(ids[2]));
    assert!(matches!(record.waiting[0].reason, Reason::Preempting { victims: 1 }));
    let late = bench.ask(prompt('d', 3), seeded(1, 2));
    bench.run();
    let starts: Vec<SeqId> = bench.started();
    assert_eq!(starts.last(), Some(&first(late)), "the preempted one came before the newcomer");
    for (letter, id) in ['a', 'b', 'c'].into_iter().zip(ids) {
        assert_eq!(bench.tokens(first(id)), solo(babbler, &prompt(letter, 7), &seeded(1, 12)));
    }
}

#[test]
fn no_block_stays_behind_after_ends_and_aborts() {
    let mut bench = in_pool(64, settings());
    for round in 0..20 {
        let ids: Vec<RequestId> =
            (0..6).map(|i| bench.ask(prompt('a', 5 + i), seeded(round, 3 + i as u32))).collect();
        (0..round % 4).for_each(|_| bench.step());
        bench.send(Command::Abort(ids[round as usize % 6]));
        bench.run();
        let kv = bench.kv();
        assert_eq!((kv.owned, kv.free + kv.cached), (0, 64));
    }
}

#[test]
fn aborting_those_that_wait_leaves_those_that_run() {
    let mut bench = bench(|s| s.max_num_seqs = 1);
    let runs = bench.ask(prompt('a', 5), seeded(1, 5));
    let waits = bench.ask(prompt('b', 5), seeded(1, 5));
    bench.step();
    bench.send(Command::Abort(waits));
    bench.run();
    assert_eq!(bench.reason(waits), &FinishReason::Abort);
    assert_eq!(bench.tokens(first(runs)).len(), 5);
}

/// K14: an abort for what has just finished, and twice.
#[test]
fn k14_an_abort_that_comes_with_the_end_frees_once() {
    let mut bench = in_pool(16, settings());
    let id = bench.ask(prompt('a', 5), seeded(1, 2));
    bench.step();
    bench.step();
    bench.send(Command::Abort(id));
    bench.send(Command::Abort(id));
    assert_eq!(bench.reason(id), &FinishReason::Length);
    assert_eq!(bench.kv().owned, 0);
    let id = bench.ask(prompt('b', 5), seeded(1, 2));
    bench.step();
    bench.send(Command::Abort(id));
    bench.step();
    assert_eq!((bench.reason(id), bench.kv().owned), (&FinishReason::Abort, 0));
}

/// K01: 120 requests, then 24, then 24: the pool is as full after each as after the first.
#[test]
fn k01_drained_means_drained() {
    let mut bench = in_pool(300, settings());
    for count in [120, 24, 24] {
        (0..count)
            .for_each(|i| _ = bench.ask(format!("request {i} of {count}"), seeded(i, 1 + i as u32 % 9)));
        bench.run();
        let kv = bench.kv();
        assert_eq!((kv.owned, kv.free + kv.cached), (0, 300));
    }
}

/// K13: a long prompt and a busy neighbour: both get done, with few preemptions.
#[test]
fn k13_a_prompt_as_large_as_the_pool_is_no_livelock() {
    for mode in PreemptionMode::ALL {
        let tuned = settings().tuned(|s| s.preemption_mode = *mode);
        let mut bench = in_pool(12, EngineSettings { host_kv_bytes: 64 << 10, ..tuned });
        let busy = bench.ask(prompt('a', 4), seeded(1, 30));
        bench.step();
        let long = bench.ask(prompt('b', 44), seeded(2, 3));
        let steps = bench.run();
        assert!(steps < 120, "{mode}: {steps} steps");
        assert!(bench.engine.snapshot().counters.preemptions <= 3, "{mode}");
        assert_eq!(bench.tokens(first(busy)), solo(babbler, &prompt('a', 4), &seeded(1, 30)), "{mode}");
        assert_eq!(bench.tokens(first(long)), solo(babbler, &prompt('b', 44), &seeded(2, 3)), "{mode}");
    }
}

// ---- prefixes ----

#[test]
fn a_lookup_counts_once_however_often_admission_is_tried() {
    let mut bench = in_pool(8, settings());
    bench.ask(prompt('a', 20), seeded(1, 6));
    bench.ask(prompt('b', 12), seeded(2, 2));
    bench.run();
    let counters = bench.engine.snapshot().counters;
    assert_eq!((counters.prefix_queries, counters.prefix_hits), (32, 0));
}

#[test]
fn a_preempted_sequence_looks_its_tokens_up_again_without_counting() {
    let mut bench = in_pool(8, settings());
    for letter in ['a', 'b'] {
        bench.ask(prompt(letter, 10), seeded(1, 16));
    }
    bench.run();
    let counters = bench.engine.snapshot().counters;
    assert!(counters.preemptions > 0);
    assert_eq!(counters.prefix_queries, 20);
}

#[test]
fn a_reset_of_the_prefix_cache_leaves_running_sequences_alone() {
    let mut bench = in_pool(64, settings());
    let id = bench.ask(prompt('a', 20), seeded(1, 10));
    (0..3).for_each(|_| bench.step());
    bench.send(Command::ResetPrefixCache);
    bench.run();
    assert_eq!(bench.tokens(first(id)), solo(babbler, &prompt('a', 20), &seeded(1, 10)));
}

/// K05: the same prompt under two salts, and under none.
#[test]
fn k05_requests_of_different_salts_share_nothing() {
    let mut bench = in_pool(64, settings());
    for (salt, cached) in [(Some("one"), 0), (Some("two"), 0), (None, 0), (Some("one"), 16), (None, 16)] {
        let request = bench.request(prompt('a', 20), seeded(1, 4));
        let id = bench.submit(Request { cache_salt: salt.map(str::to_owned), ..request });
        bench.run();
        assert_eq!(bench.outcome(first(id)).usage.cached_tokens, cached, "{salt:?}");
        assert_eq!(bench.tokens(first(id)), solo(babbler, &prompt('a', 20), &seeded(1, 4)));
    }
}

// ---- how prompts and decodes alternate ----

#[test]
fn prefills_come_every_nth_step_while_something_decodes() {
    let mut bench = bench(|s| {
        s.prefill_schedule_interval = 3;
        s.max_num_batched_tokens = 6;
    });
    bench.ask(prompt('a', 4), seeded(1, 20));
    bench.step();
    bench.ask(prompt('b', 12), seeded(2, 20));
    let mut prefills = Vec::new();
    for _ in 0..9 {
        bench.step();
        prefills.push(
            bench
                .record()
                .rows
                .iter()
                .filter(|row| row.kind == RowKind::Prefill)
                .map(|row| row.tokens)
                .sum::<usize>(),
        );
    }
    assert_eq!(prefills, [0, 0, 5, 0, 0, 5, 0, 0, 2]);
}

#[test]
fn the_interval_does_not_hold_up_a_prompt_that_is_alone() {
    let mut bench = bench(|s| {
        s.prefill_schedule_interval = 5;
        s.max_num_batched_tokens = 4;
    });
    bench.ask(prompt('a', 12), seeded(1, 2));
    for _ in 0..3 {
        bench.step();
        assert_eq!(bench.row_tokens(), [4]);
    }
}

/// Steps with a prompt in them, of the next nine.
fn prefill_steps(bench: &mut Bench) -> Vec<usize> {
    let mut prefills = Vec::new();
    for step in 1..10 {
        bench.step();
        if bench.record().rows.iter().any(|row| row.kind == RowKind::Prefill) {
            prefills.push(step);
        }
    }
    prefills
}

#[test]
fn an_interval_of_one_defers_nothing() {
    let mut bench = bench(|s| s.max_num_batched_tokens = 4);
    bench.ask(prompt('a', 4), seeded(1, 30));
    bench.step();
    bench.ask(prompt('b', 9), seeded(2, 30));
    assert_eq!(prefill_steps(&mut bench), [1, 2, 3]);
}

/// vLLM: `prefill_capacity_bound`. A queue that the last prefill step could not empty is not kept
/// waiting on top of it; once it is empty, the interval counts again.
#[test]
fn the_interval_is_waived_while_a_prefill_step_leaves_somebody_waiting() {
    let mut bench = bench(|s| {
        s.prefill_schedule_interval = 4;
        s.max_num_batched_tokens = 8;
    });
    bench.ask(prompt('a', 4), seeded(1, 30));
    bench.step();
    for letter in ['b', 'c', 'd'] {
        bench.ask(prompt(letter, 6), seeded(2, 30));
    }
    // Step 4: b, and one token of c; d is left. Step 5: the rest of c, and one token of d.
    assert_eq!(prefill_steps(&mut bench), [4, 5, 9]);
    bench.run();
}

/// vLLM: test_preempt_skipped_request. A prompt that was passed over in this very step gives way in
/// it; what was noted of it is overtaken.
#[test]
fn a_deferred_prompt_can_be_the_victim_of_its_step() {
    let tuned = settings().budget(6).tuned(|s| {
        s.prefill_schedule_interval = 100;
        s.long_prefill_token_threshold = 3;
        s.scheduling_policy = SchedulingPolicy::Priority;
        s.scheduler_reserve_full_isl = false;
    });
    let mut bench = in_pool(5, tuned);
    let low = bench.request(prompt('l', 18), seeded(1, 2));
    let low = bench.submit(Request { priority: 5, ..low });
    bench.step();
    let high = bench.request(prompt('h', 3), seeded(2, 12));
    let high = bench.submit(Request { priority: 1, ..high });
    let mut victim = None;
    while bench.engine.can_step() {
        bench.step();
        let record = bench.record();
        if let Some(preempted) = record.preempted.first() {
            victim.get_or_insert(preempted.seq);
            let noted = record.waiting.iter().filter(|waiting| waiting.seq == preempted.seq).count();
            assert_eq!(noted, 1, "{:?}", record.waiting);
        }
    }
    assert_eq!(victim, Some(first(low)));
    assert_eq!(bench.tokens(first(low)), solo(babbler, &prompt('l', 18), &seeded(1, 2)));
    assert_eq!(bench.tokens(first(high)), solo(babbler, &prompt('h', 3), &seeded(2, 12)));
}

#[test]
fn a_deferred_prompt_says_for_how_long() {
    let mut bench = bench(|s| s.prefill_schedule_interval = 4);
    bench.ask(prompt('a', 4), seeded(1, 20));
    bench.step();
    bench.step();
    bench.ask(prompt('b', 4), seeded(1, 20));
    bench.step();
    assert_eq!(reasons(&bench), ["prompts run every 4 steps while others decode; 1 since the last"]);
}

// ---- ends ----

#[test]
fn the_end_token_ends_unless_it_is_to_be_ignored() {
    let script = || Scripted::saying(Scripted::limits(64, 4), "abc");
    let mut bench = Bench::new(script());
    let id = bench.ask("x", greedy());
    bench.run();
    assert_eq!((bench.reason(id), bench.tokens(first(id)).len()), (&FinishReason::Stop, 4));
    let mut bench = Bench::new(script());
    let id = bench.ask("x", SamplingParams { ignore_eos: true, max_tokens: Some(7), ..greedy() });
    bench.run();
    assert_eq!((bench.reason(id), bench.tokens(first(id)).len()), (&FinishReason::Length, 7));
}

#[test]
fn a_stop_token_ends_also_where_the_end_token_is_ignored() {
    let mut bench = Bench::new(Scripted::saying(Scripted::limits(64, 4), "abc"));
    let params = SamplingParams { ignore_eos: true, stop_token_ids: vec![u32::from(b'b')], ..greedy() };
    let id = bench.ask("x", params);
    bench.run();
    assert_eq!((bench.reason(id), bench.text(id).as_str()), (&FinishReason::Stop, "a"));
}

#[test]
fn no_end_before_min_tokens_but_the_length_caps_it() {
    let mut bench = Bench::new(Scripted::saying(Scripted::limits(64, 4), "ab"));
    let params = SamplingParams { min_tokens: 6, max_tokens: Some(4), ..greedy() };
    let id = bench.ask("x", params);
    bench.run();
    // Out of range is refused; a cap by the context is not.
    match bench.reason(id) {
        FinishReason::Error(failure) => assert_eq!(failure.kind, FailureKind::BadRequest),
        other => assert_eq!(other, &FinishReason::Length),
    }
    let limits = ModelLimits { max_model_len: 6, ..Scripted::limits(64, 4) };
    let mut bench = Bench::new(Scripted::saying(limits, "ab"));
    let id = bench.ask("x", SamplingParams { min_tokens: 20, ..greedy() });
    bench.run();
    assert_eq!((bench.reason(id), bench.tokens(first(id)).len()), (&FinishReason::Length, 5));
}

#[test]
fn the_context_ends_an_answer_that_has_no_limit() {
    let limits = ModelLimits { max_model_len: 10, ..Scripted::limits(64, 4) };
    let mut bench = Bench::new(Scripted::babbling(limits));
    let id = bench.ask("abcd", SamplingParams { max_tokens: None, ..seeded(1, 1) });
    bench.run();
    assert_eq!((bench.reason(id), bench.tokens(first(id)).len()), (&FinishReason::Length, 6));
}

// ---- settings while it runs ----

#[test]
fn settings_change_between_steps_and_are_told() {
    let mut bench = bench(|_| {});
    let ids: Vec<RequestId> = (0..4).map(|i| bench.ask(prompt('a', 6), seeded(i, 20))).collect();
    bench.step();
    assert_eq!(running(&bench).len(), 4);
    let fewer = SchedulerSettings { max_num_seqs: 2, ..Default::default() };
    bench.send(Command::Configure(Box::new(fewer.clone())));
    assert!(bench.events.iter().any(|event| event == &Event::Configured(Box::new(fewer.clone()))));
    bench.step();
    assert_eq!(running(&bench), [1, 2], "the others keep their blocks and wait");
    assert_eq!(bench.engine.snapshot().scheduler, fewer);
    bench.run();
    for (seed, id) in (0..).zip(ids) {
        assert_eq!(bench.tokens(first(id)), solo(babbler, &prompt('a', 6), &seeded(seed, 20)));
    }
}

#[test]
fn a_budget_beyond_what_memory_was_planned_for_is_refused_with_the_number() {
    let mut bench = bench(|_| {});
    let more = SchedulerSettings { max_num_batched_tokens: 1 << 20, ..Default::default() };
    bench.send(Command::Configure(Box::new(more)));
    assert!(bench.notes()[0].contains("can be at most 4096"), "{:?}", bench.notes());
    assert_eq!(bench.engine.snapshot().scheduler, SchedulerSettings::default());
}

/// K09: what a front end would refuse is refused here too.
#[test]
fn k09_settings_out_of_range_change_nothing_and_are_named() {
    type Change = fn(&mut SchedulerSettings);
    let bad: [(Change, &str); 6] = [
        (|s| s.max_num_batched_tokens = 0, "max_num_batched_tokens"),
        (|s| s.max_num_seqs = 0, "max_num_seqs"),
        (|s| s.num_scheduler_steps = 0, "num_scheduler_steps"),
        (|s| s.watermark = f32::NAN, "watermark"),
        (|s| s.time_slice_ms = -1.0, "time_slice_ms"),
        (|s| s.prefill_schedule_interval = u32::MAX, "prefill_schedule_interval"),
    ];
    for (change, name) in bad {
        let mut bench = bench(|_| {});
        let id = bench.ask(prompt('a', 6), seeded(1, 9));
        bench.step();
        let mut settings = SchedulerSettings::default();
        change(&mut settings);
        bench.send(Command::Configure(Box::new(settings)));
        assert!(bench.notes()[0].contains(name), "{:?}", bench.notes());
        assert_eq!(bench.engine.snapshot().scheduler, SchedulerSettings::default());
        bench.run();
        assert_eq!(bench.tokens(first(id)).len(), 9);
    }
}

// ---- static batching ----

#[test]
fn a_static_batch_lets_nobody_in_before_all_have_finished() {
    let mut bench = bench(|s| (s.batching, s.max_num_seqs) = (Batching::Static, 3));
    for (i, n) in [2, 6, 4, 3, 3].into_iter().enumerate() {
        bench.ask(prompt('a', 5), seeded(i as u64, n));
    }
    let mut seen = Vec::new();
    while bench.engine.can_step() {
        bench.step();
        let slots = bench.record().slots;
        seen.push((running(&bench), slots.idle));
    }
    let batch = |ids: &[u64], idle| (ids.to_vec(), idle);
    let right = [
        batch(&[1, 2, 3], 0),
        batch(&[1, 2, 3], 0),
        batch(&[2, 3], 1),
        batch(&[2, 3], 1),
        batch(&[2], 2),
        batch(&[2], 2),
        batch(&[4, 5], 0),
        batch(&[4, 5], 0),
        batch(&[4, 5], 0),
    ];
    assert_eq!(seen, right);
}

#[test]
fn a_static_batch_forms_over_several_steps_when_the_budget_is_small() {
    let mut bench =
        bench(|s| (s.batching, s.max_num_seqs, s.max_num_batched_tokens) = (Batching::Static, 2, 6));
    for letter in ['a', 'b', 'c'] {
        bench.ask(prompt(letter, 6), seeded(1, 9));
    }
    bench.step();
    bench.step();
    bench.step();
    assert_eq!(running(&bench), [1, 2]);
    assert_eq!(reasons(&bench), ["static batching: 2 of the batch still run"]);
    bench.run();
}

#[test]
fn a_static_batch_is_no_larger_than_may_be_active() {
    let mut bench = bench(|s| {
        s.batching = Batching::Static;
        (s.max_num_seqs, s.max_num_active_seqs) = (8, Some(2));
    });
    for (i, n) in [2, 5, 3].into_iter().enumerate() {
        bench.ask(prompt('a', 5), seeded(i as u64, n));
    }
    for right in [vec![1, 2], vec![1, 2], vec![2], vec![2], vec![2], vec![3]] {
        bench.step();
        assert_eq!(running(&bench), right);
    }
    bench.run();
}
