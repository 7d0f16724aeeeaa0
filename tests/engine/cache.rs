//! Blocks: shared prefixes, forks, copies, preemption; none lost, none mixed up.

use crate::harness::*;
use glassbox::model::{ModelLimits, Scripted};
use glassbox::protocol::*;

fn pool(blocks: usize) -> Bench {
    Bench::new(Scripted::babbling(Scripted::limits(blocks, 4)))
}

fn choices(bench: &mut Bench, prompt: &str, n: u32, params: SamplingParams) -> Vec<SeqId> {
    let request = bench.request(prompt, params);
    let id = bench.submit(Request { n, ..request });
    (0..n).map(|choice| SeqId { request: id, choice }).collect()
}

#[test]
fn a_second_turn_finds_the_first_in_the_cache() {
    let mut bench = pool(64);
    let prompt = "twelve chars";
    let id = bench.ask(prompt, seeded(1, 8));
    bench.run();
    let answer: Vec<TokenId> = bench.tokens(first(id));
    let mut history: Vec<TokenId> = prompt.bytes().map(u32::from).collect();
    history.extend(&answer);
    let request = Request { prompt: Prompt::Tokens(history), ..bench.request("", seeded(2, 8)) };
    let again = bench.submit(request);
    bench.run();
    // Of 20 tokens the last generated one was never computed: 16 are in full blocks.
    assert_eq!(bench.outcome(first(again)).usage.cached_tokens, 16);
    let counters = bench.engine.snapshot().counters;
    assert_eq!((counters.prefix_queries, counters.prefix_hits), (12 + 20, 16));
}

/// K03: the same prompt again, of exactly one and of exactly two blocks.
#[test]
fn k03_a_wholly_cached_prompt_still_runs_its_last_block() {
    for (prompt, cached) in [("16 tokens long..", 12), ("four", 0), ("five5", 4)] {
        let mut bench = pool(64);
        let cold = bench.ask(prompt, seeded(5, 10));
        bench.run();
        let warm = bench.ask(prompt, seeded(5, 10));
        bench.run();
        assert_eq!(bench.tokens(first(cold)), bench.tokens(first(warm)));
        assert_eq!(bench.outcome(first(warm)).usage.cached_tokens, cached, "{prompt}");
    }
}

/// K16: a cache that knows nothing is a plain miss.
#[test]
fn k16_the_first_request_of_all_misses() {
    let mut bench = pool(64);
    let id = bench.ask("hello hello hello", seeded(1, 3));
    bench.run();
    assert_eq!(bench.outcome(first(id)).usage.cached_tokens, 0);
}

#[test]
fn requests_of_one_step_share_a_prefix_that_none_has_computed_yet() {
    let mut bench = pool(64);
    let system = "the same sixteen";
    let ids: Vec<RequestId> = (0..3).map(|i| bench.ask(format!("{system} and {i}"), seeded(i, 6))).collect();
    bench.step();
    assert_eq!(bench.record().blocks_hit, 10);
    let shared = bench.kv().blocks.iter().filter(|block| block.references == 3).count();
    assert_eq!(shared, 5, "16 tokens and ` and`");
    bench.run();
    for (seed, id) in (0..).zip(ids) {
        let right = solo(babbler, &format!("{system} and {seed}"), &seeded(seed, 6));
        assert_eq!(bench.tokens(first(id)), right);
    }
}

#[test]
fn the_cache_changes_no_token() {
    let run = |caching| {
        let settings = settings().caching(caching).budget(9);
        let mut bench = Bench::with(settings, Scripted::babbling(Scripted::limits(40, 4)));
        let ids: Vec<RequestId> = (0..10)
            .map(|i| {
                bench.step();
                bench.ask(format!("a common beginning {}", i % 3), seeded(i, 12))
            })
            .collect();
        bench.run();
        let tokens: Vec<Vec<TokenId>> = ids.iter().map(|id| bench.tokens(first(*id))).collect();
        (tokens, bench.engine.snapshot().counters.prefix_hits)
    };
    let ((with, hits), (without, none)) = (run(true), run(false));
    assert_eq!(with, without);
    assert!(hits > 0 && none == 0);
}

#[test]
fn a_reset_forgets_what_nobody_owns() {
    let mut bench = pool(64);
    bench.ask("a prompt to remember", seeded(1, 3));
    bench.run();
    assert!(bench.kv().cached > 0);
    bench.send(Command::ResetPrefixCache);
    assert_eq!(bench.kv().cached, 0);
    let id = bench.ask("a prompt to remember", seeded(1, 3));
    bench.run();
    assert_eq!(bench.outcome(first(id)).usage.cached_tokens, 0);
}

/// Four continuations of one prompt: computed once, every block shared, and only the partly filled
/// one copied, by all writers but the last.
#[test]
fn choices_share_the_prompt_and_copy_only_its_last_block() {
    let mut bench = pool(64);
    let ids = choices(&mut bench, "ten tokens", 4, seeded(20, 9));
    bench.step();
    assert_eq!(bench.row_tokens(), [10]);
    let blocks = bench.kv().blocks;
    assert_eq!(blocks.iter().filter(|block| block.references == 4).count(), 3);
    assert_eq!(blocks.iter().filter(|block| block.references > 0).count(), 3);
    bench.step();
    assert_eq!((bench.record().blocks_copied, bench.row_tokens()), (3, vec![1; 4]));
    assert_eq!(bench.kv().blocks.iter().filter(|block| block.references == 4).count(), 2);
    bench.run();
    assert_eq!(bench.engine.snapshot().counters.copies_on_write, 3);
    assert_eq!(bench.engine.snapshot().counters.prompt_tokens, 10, "computed once");
    for (seed, id) in (20..).zip(&ids) {
        assert_eq!(bench.tokens(*id), solo(babbler, "ten tokens", &seeded(seed, 9)), "choice {id}");
        assert_eq!(bench.outcome(*id).seed, seed);
    }
    assert_eq!(bench.outcome(ids[3]).usage.cached_tokens, 10);
}

#[test]
fn a_prompt_of_whole_blocks_needs_no_copy() {
    let mut bench = pool(64);
    choices(&mut bench, "8 tokens", 3, seeded(1, 9));
    bench.run();
    assert_eq!(bench.engine.snapshot().counters.copies_on_write, 0);
}

#[test]
fn choices_end_one_by_one_and_the_first_may_end_at_once() {
    // The first token of choice i is drawn with seed + i; a stop token ends some of them there.
    let prompt = "ten tokens";
    let heads: Vec<TokenId> = (0..8).map(|i| solo(babbler, prompt, &seeded(i, 1))[0]).collect();
    let params = SamplingParams { stop_token_ids: vec![heads[0], heads[3]], ..seeded(0, 12) };
    let mut bench = pool(64);
    let ids = choices(&mut bench, prompt, 8, params.clone());
    bench.run();
    for (seed, id) in (0..).zip(&ids) {
        let params = SamplingParams { seed: Some(seed), ..params.clone() };
        assert_eq!(bench.tokens(*id), solo(babbler, prompt, &params));
    }
    assert_eq!((bench.tokens(ids[0]).len(), bench.tokens(ids[3]).len()), (1, 1));
}

#[test]
fn more_choices_than_slots_or_outputs_wait_for_their_turn() {
    for (max_num_seqs, max_outputs, blocks) in [(3, 256, 64), (32, 3, 64), (4, 2, 9), (1, 1, 6)] {
        let limits = ModelLimits { max_outputs, ..Scripted::limits(blocks, 4) };
        let settings = settings().seqs(max_num_seqs);
        let mut bench = Bench::with(settings, Scripted::babbling(limits));
        let ids = choices(&mut bench, "ten tokens", 10, seeded(5, 7));
        bench.run();
        for (seed, id) in (5..).zip(&ids) {
            assert_eq!(bench.tokens(*id), solo(babbler, "ten tokens", &seeded(seed, 7)), "choice {id}");
        }
        let started = bench.events.iter().filter(|event| matches!(event, Event::Started { .. })).count();
        assert_eq!(started, 10);
        let widest = bench.engine.snapshot().steps.iter().map(|step| step.rows.len()).max().unwrap();
        assert!(widest <= max_num_seqs);
    }
}

#[test]
fn choices_of_a_scored_prompt_fork_too() {
    let mut bench = pool(64);
    let request = bench.request("ten tokens", seeded(5, 7));
    let id = bench.submit(Request { n: 3, prompt_logprobs: Some(4), ..request });
    bench.run();
    for choice in 0..3 {
        let seq = SeqId { request: id, choice };
        assert_eq!(bench.tokens(seq), solo(babbler, "ten tokens", &seeded(5 + u64::from(choice), 7)));
    }
    let scored: usize = bench
        .events
        .iter()
        .map(|event| if let Event::PromptLogprobs { rows, .. } = event { rows.len() } else { 0 })
        .sum();
    assert_eq!(scored, 10);
}

/// K11: a pool for one and a half requests. Both give way to each other, and both say what they
/// would have said alone, once.
#[test]
fn k11_preempted_sequences_lose_and_repeat_nothing() {
    for caching in [true, false] {
        let settings = settings().caching(caching);
        let mut bench = Bench::with(settings, Scripted::babbling(Scripted::limits(12, 4)));
        let ids = [bench.ask("first prompt", seeded(1, 24)), bench.ask("second one", seeded(2, 24))];
        bench.run();
        for (seed, (id, prompt)) in (1..).zip(ids.into_iter().zip(["first prompt", "second one"])) {
            assert_eq!(bench.tokens(first(id)), solo(babbler, prompt, &seeded(seed, 24)));
        }
        let snapshot = bench.engine.snapshot();
        assert!((1..=6).contains(&snapshot.counters.preemptions), "{}", snapshot.counters.preemptions);
        assert_eq!(bench.outcome(first(ids[1])).timings.preemptions as u64, snapshot.counters.preemptions);
        let reasons: Vec<&Preemption> = snapshot.steps.iter().flat_map(|step| &step.preempted).collect();
        assert!(
            reasons[0].to_string().starts_with("sequence 1 needs 1 block, 0 free, 0 evictable"),
            "{reasons:?}"
        );
        assert!(reasons[0].blocks_freed > 0);
    }
}

#[test]
fn nothing_is_admitted_in_a_step_that_preempted() {
    let mut bench = pool(8);
    bench.ask("0123456", seeded(1, 20));
    bench.ask("abcdefg", seeded(2, 20));
    let third = bench.ask("x", seeded(3, 2));
    while bench.engine.snapshot().counters.preemptions == 0 {
        bench.send(Command::Abort(third));
        bench.step();
        bench.ask("y", seeded(3, 2));
    }
    let record = bench.record();
    let prefills = record.rows.iter().filter(|row| row.kind == RowKind::Prefill).count();
    assert_eq!(prefills, 0);
    assert!(
        record.waiting.iter().all(|w| w.reason.to_string().contains("a step that preempted")),
        "{record:?}"
    );
    let sequences = bench.engine.snapshot().sequences;
    let preempted = sequences.iter().find(|seq| seq.state == SequenceState::Preempted).unwrap();
    assert_eq!((preempted.computed_tokens, preempted.blocks.len(), preempted.preemptions), (0, 0, 1));
    bench.run();
}

/// K13: a long prompt beside a busy neighbour is admitted when all of it fits, and not before; when
/// the neighbour outgrows the rest of the pool it gives way once, and is not resumed and preempted in
/// turn.
#[test]
fn k13_a_long_prompt_waits_until_it_fits_and_then_goes_on() {
    let prompt = "a prompt of forty tokens, not one less..";
    for (blocks, preemptions) in [(11, 0), (12, 1)] {
        let settings = settings().budget(6);
        let mut bench = Bench::with(settings, Scripted::babbling(Scripted::limits(blocks, 4)));
        let busy = bench.ask("busy", seeded(1, 30));
        bench.step();
        let long = bench.ask(prompt, seeded(2, 4));
        bench.step();
        if blocks == 11 {
            let reason = bench.record().waiting[0].reason.to_string();
            assert_eq!(reason, "needs 10 blocks, 9 free, 0 evictable; head of the queue");
        }
        bench.run();
        assert_eq!(bench.tokens(first(busy)), solo(babbler, "busy", &seeded(1, 30)));
        assert_eq!(bench.tokens(first(long)), solo(babbler, prompt, &seeded(2, 4)));
        assert_eq!(bench.engine.snapshot().counters.preemptions, preemptions);
    }
}

/// A prompt that is scored advances by few tokens a step and leaves budget for others; its blocks
/// are spoken for all the same.
#[test]
fn blocks_that_a_running_prompt_will_need_are_not_given_away() {
    let limits = ModelLimits { max_outputs: 2, ..Scripted::limits(12, 4) };
    let mut bench = Bench::new(Scripted::babbling(limits));
    let request = bench.request("0123456789 0123456789 0123456789", seeded(1, 4));
    bench.submit(Request { prompt_logprobs: Some(1), ..request });
    bench.ask("abcdefghij abcdefghij abcdefghij", seeded(2, 4));
    bench.step();
    let reason = bench.record().waiting[0].reason.to_string();
    let right = "needs 8 blocks, 11 free, 0 evictable, 7 reserved for running prompts; head of the queue";
    assert_eq!(reason, right);
    bench.run();
    assert_eq!(bench.engine.snapshot().counters.preemptions, 0);
}

/// K01: after any number of requests every block is back.
#[test]
fn k01_every_block_comes_back() {
    let mut bench = pool(40);
    let mut seed = 0;
    for wave in [120, 24, 24] {
        for i in 0..wave {
            seed += 1;
            bench.ask(format!("request {seed}"), seeded(seed, 1 + i % 13));
        }
        bench.run();
        let kv = bench.kv();
        assert_eq!((kv.free + kv.cached, kv.owned), (40, 0));
    }
    assert!(bench.engine.snapshot().counters.evictions > 0);
}

#[test]
fn the_block_map_shows_owners_and_shares() {
    let mut bench = pool(16);
    let ids = choices(&mut bench, "ten tokens", 2, seeded(1, 9));
    bench.step();
    bench.step();
    let snapshot = bench.engine.snapshot();
    assert_eq!(snapshot.sequences.iter().map(|s| s.seq).collect::<Vec<_>>(), ids);
    let kv = &snapshot.kv;
    assert_eq!((kv.blocks.len(), kv.free + kv.cached + kv.owned, kv.owned), (17, 16, 4));
    for seq in &snapshot.sequences {
        assert_eq!((seq.blocks.len(), seq.computed_tokens, seq.generated_tokens), (3, 11, 2));
        let own = &kv.blocks[seq.blocks[2] as usize];
        assert_eq!((own.owner, own.references, own.cached), (Some(seq.seq), 1, false));
        assert!(kv.blocks[seq.blocks[0] as usize].cached);
    }
    assert_eq!(kv.blocks[0].references, 0, "the null block is nobody's");
}
