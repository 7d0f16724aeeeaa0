//! `scheduling_policy = priority`: lower values first, then arrival; the lowest in rank gives way.

use crate::harness::*;
use glassbox::model::Scripted;
use glassbox::protocol::*;
use proptest::prelude::*;

fn bench(blocks: usize, seqs: usize) -> Bench {
    let tuned = settings().seqs(seqs).tuned(|s| s.scheduling_policy = SchedulingPolicy::Priority);
    Bench::with(tuned, Scripted::babbling(Scripted::limits(blocks, 4)))
}

fn ask(bench: &mut Bench, priority: i32, prompt: &str, params: SamplingParams) -> RequestId {
    let request = bench.request(prompt, params);
    bench.submit(Request { priority, ..request })
}

fn starts(bench: &Bench) -> Vec<u64> {
    bench.started().iter().map(|seq| seq.request.0).collect()
}

#[test]
fn the_lowest_value_is_served_first() {
    let mut bench = bench(64, 1);
    for priority in [2, 0, 1] {
        ask(&mut bench, priority, "hello", seeded(1, 2));
    }
    bench.run();
    assert_eq!(starts(&bench), [2, 3, 1]);
}

#[test]
fn equals_are_served_in_the_order_they_came() {
    let mut bench = bench(64, 1);
    for priority in [5, 5, 5, 5] {
        ask(&mut bench, priority, "hello", seeded(1, 2));
    }
    bench.run();
    assert_eq!(starts(&bench), [1, 2, 3, 4]);
}

#[test]
fn ranks_and_arrivals_mix() {
    let mut bench = bench(64, 1);
    for priority in [1, -3, 1, 0, -3] {
        ask(&mut bench, priority, "hello", seeded(1, 2));
    }
    bench.run();
    assert_eq!(starts(&bench), [2, 5, 4, 1, 3]);
}

#[test]
fn a_late_urgent_request_overtakes_the_queue_but_not_those_that_run() {
    let mut bench = bench(64, 1);
    let runs = ask(&mut bench, 5, "hello", seeded(1, 4));
    bench.step();
    ask(&mut bench, 3, "hello", seeded(1, 2));
    ask(&mut bench, 0, "hello", seeded(1, 2));
    bench.step();
    assert_eq!(bench.record().rows[0].seq, first(runs));
    bench.run();
    assert_eq!(starts(&bench), [1, 3, 2]);
}

#[test]
fn fcfs_takes_no_notice_of_priority() {
    let mut bench = Bench::with(settings().seqs(1), babbler());
    for priority in [2, 0, 1] {
        ask(&mut bench, priority, "hello", seeded(1, 2));
    }
    bench.run();
    assert_eq!(starts(&bench), [1, 2, 3]);
}

#[test]
fn the_lowest_in_rank_gives_way_wherever_it_stands() {
    let mut bench = bench(8, 8);
    let low = ask(&mut bench, 9, "aaaaaaa", seeded(1, 14));
    let ids = [ask(&mut bench, 0, "bbbbbbb", seeded(1, 14)), ask(&mut bench, 1, "ccccccc", seeded(1, 14))];
    let mut record = StepRecord::default();
    while record.preempted.is_empty() {
        bench.step();
        record = bench.record();
    }
    assert_eq!(record.preempted[0].seq, first(low), "it was admitted first");
    bench.run();
    for (id, prompt) in [(low, "aaaaaaa"), (ids[0], "bbbbbbb"), (ids[1], "ccccccc")] {
        assert_eq!(bench.tokens(first(id)), solo(babbler, prompt, &seeded(1, 14)));
    }
}

/// vLLM's test_priority_preemption_bug: the victim stands before the one that needs its blocks, and had
/// its share of the step already. Its tokens go back to the budget and its row is not run.
#[test]
fn a_victim_that_was_scheduled_already_loses_its_row() {
    let mut bench = bench(6, 8);
    let low = ask(&mut bench, 5, "aaaaaaaa", seeded(1, 11));
    let high = ask(&mut bench, 0, "bbbbbbbbbbbb", seeded(1, 11));
    loop {
        bench.step();
        let record = bench.record();
        if let Some(preemption) = record.preempted.first() {
            assert_eq!(preemption.seq, first(low));
            assert!(record.rows.iter().all(|row| row.seq != first(low)), "{record:?}");
            assert_eq!(record.tokens, record.rows.iter().map(|row| row.tokens).sum::<usize>());
            break;
        }
    }
    bench.run();
    assert_eq!(bench.tokens(first(low)), solo(babbler, "aaaaaaaa", &seeded(1, 11)));
    assert_eq!(bench.tokens(first(high)), solo(babbler, "bbbbbbbbbbbb", &seeded(1, 11)));
}

#[test]
fn of_equals_the_latest_gives_way() {
    let mut bench = bench(8, 8);
    let ids = ["aaaaaaa", "bbbbbbb", "ccccccc"].map(|prompt| ask(&mut bench, 1, prompt, seeded(1, 14)));
    let mut record = StepRecord::default();
    while record.preempted.is_empty() {
        bench.step();
        record = bench.record();
    }
    assert_eq!(record.preempted[0].seq, first(ids[2]));
    bench.run();
}

#[test]
fn nobody_gives_way_while_there_is_room() {
    let mut bench = bench(64, 8);
    for priority in [9, 0, 5] {
        ask(&mut bench, priority, "hello", seeded(1, 20));
    }
    bench.run();
    assert_eq!(bench.engine.snapshot().counters.preemptions, 0);
}

#[test]
fn a_preempted_sequence_returns_in_its_rank_and_repeats_nothing() {
    let mut bench = bench(7, 8);
    let low = ask(&mut bench, 5, "aaaaaaaa", seeded(1, 12));
    ask(&mut bench, 0, "bbbbbbbb", seeded(1, 12));
    bench.step();
    let middle = ask(&mut bench, 3, "cccccccc", seeded(1, 4));
    bench.run();
    assert!(bench.engine.snapshot().counters.preemptions > 0);
    assert_eq!(bench.tokens(first(low)), solo(babbler, "aaaaaaaa", &seeded(1, 12)));
    assert_eq!(bench.tokens(first(middle)), solo(babbler, "cccccccc", &seeded(1, 4)));
}

#[test]
fn an_abort_in_the_middle_of_the_queue_leaves_its_order() {
    let mut bench = bench(64, 1);
    let ids: Vec<RequestId> = [4, 1, 3, 2].map(|p| ask(&mut bench, p, "hello", seeded(1, 2))).into();
    bench.send(Command::Abort(ids[2]));
    bench.run();
    assert_eq!(starts(&bench), [2, 4, 1]);
}

#[test]
fn changing_the_policy_sorts_the_queue_anew() {
    let mut bench = Bench::with(settings().seqs(1), babbler());
    for priority in [2, 0, 1] {
        ask(&mut bench, priority, "hello", seeded(1, 2));
    }
    let by_priority = SchedulerSettings {
        max_num_seqs: 1,
        scheduling_policy: SchedulingPolicy::Priority,
        ..Default::default()
    };
    bench.send(Command::Configure(Box::new(by_priority)));
    bench.run();
    assert_eq!(starts(&bench), [2, 3, 1]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Anything goes: everyone ends with the tokens it has alone, and the queue serves by rank.
    #[test]
    fn blast(
        requests in prop::collection::vec((0i32..4, 1usize..12, 1u32..14, 0usize..4), 1..24),
        blocks in 8usize..20,
        seqs in 1usize..6,
    ) {
        let mut bench = bench(blocks, seqs);
        let mut asked = Vec::new();
        for (i, (priority, length, tokens, steps)) in requests.into_iter().enumerate() {
            let prompt: String = format!("{i:02}abcdefghij")[..length].to_owned();
            let params = seeded(i as u64, tokens);
            asked.push((ask(&mut bench, priority, &prompt, params.clone()), prompt, params));
            (0..steps).for_each(|_| bench.step());
        }
        bench.run();
        for (id, prompt, params) in asked {
            prop_assert_eq!(bench.tokens(first(id)), solo(babbler, &prompt, &params));
        }
    }
}

/// vLLM: limited_slots and heap_property. One place: everyone gets it in order of rank, then arrival.
#[test]
fn one_place_is_given_in_order_of_rank() {
    let tuned = settings().seqs(1).tuned(|s| s.scheduling_policy = SchedulingPolicy::Priority);
    let mut bench = Bench::with(tuned, babbler());
    let ranks = [7, -3, 4, 0, 7, -3, 12, 1, 0, 5];
    let mut order: Vec<(i32, SeqId)> = Vec::new();
    for (i, priority) in ranks.into_iter().enumerate() {
        let request = bench.request(format!("{i}"), seeded(1, 2));
        order.push((priority, first(bench.submit(Request { priority, ..request }))));
    }
    bench.run();
    order.sort();
    assert_eq!(bench.started(), order.into_iter().map(|(_, seq)| seq).collect::<Vec<_>>());
}
