//! Models with windows and states: every group has its blocks, and the tokens are those of a sequence
//! alone. Scripted reads every group of every row back.

use crate::harness::*;
use glassbox::config::EngineSettings;
use glassbox::kv::CacheSpec;
use glassbox::model::{ModelLimits, Scripted};
use glassbox::protocol::*;
use proptest::prelude::*;

const FULL: CacheSpec = CacheSpec::Full;
const STATE: CacheSpec = CacheSpec::Recurrent;

fn window(window: usize) -> CacheSpec {
    CacheSpec::Sliding { window }
}

/// One of each kind of model.
fn kinds() -> [Vec<CacheSpec>; 5] {
    [
        vec![FULL, window(6)],
        vec![window(9)],
        vec![FULL, STATE],
        vec![STATE],
        vec![FULL, window(5), STATE, window(16)],
    ]
}

fn limits(groups: &[CacheSpec], blocks: usize) -> ModelLimits {
    ModelLimits { groups: groups.to_vec(), ..Scripted::limits(blocks, 4) }
}

fn bench(groups: &[CacheSpec], blocks: usize, settings: EngineSettings) -> Bench {
    Bench::with(settings, Scripted::babbling(limits(groups, blocks)))
}

fn is_solo(bench: &Bench, seq: SeqId, prompt: &str, params: &SamplingParams) {
    assert_eq!(bench.tokens(seq), solo(babbler, prompt, params), "{seq}");
}

#[test]
fn an_answer_is_the_same_whatever_its_groups_and_chunks() {
    let prompt = "a prompt of some more tokens than a window";
    for groups in kinds() {
        for budget in [1, 3, 7, 64] {
            let mut bench = bench(&groups, 128, settings().budget(budget));
            let id = bench.ask(prompt, seeded(1, 30));
            bench.run();
            is_solo(&bench, first(id), prompt, &seeded(1, 30));
        }
    }
}

/// K19: the second of two parallel prompts on a hybrid model must not touch the first one's state.
#[test]
fn k19_two_parallel_prompts_on_a_hybrid_model_are_solo() {
    for groups in [vec![FULL, STATE], vec![STATE], vec![FULL, STATE, STATE, window(7)]] {
        let mut bench = bench(&groups, 128, settings().budget(8));
        let prompts = ["one prompt of two", "and the other one, which is longer"];
        let ids = prompts.map(|prompt| bench.ask(prompt, seeded(1, 20)));
        bench.run();
        for (prompt, id) in prompts.into_iter().zip(ids) {
            is_solo(&bench, first(id), prompt, &seeded(1, 20));
        }
    }
}

#[test]
fn a_window_holds_no_more_than_it_looks_at() {
    let mut bench = bench(&[window(8)], 64, settings().budget(16));
    let id = bench.ask("0123456789012345678901234567890123456789", seeded(1, 40));
    let mut most = 0;
    while bench.engine.can_step() {
        bench.step();
        most = most.max(bench.kv().owned);
    }
    // ceil((8 - 1 + 16) / 4) + 1 of the 20 that it spans.
    assert!(most <= 7, "{most} blocks at a time");
    assert_eq!(bench.tokens(first(id)).len(), 40);
}

#[test]
fn a_prefix_is_hit_where_every_group_can_go_on() {
    for groups in kinds() {
        let mut bench = bench(&groups, 128, settings().budget(8));
        let start = "the same long beginning of a chat, ";
        bench.ask(start, seeded(1, 4));
        bench.run();
        let prompt = format!("{start}and then a question");
        let id = bench.ask(prompt.clone(), seeded(2, 12));
        bench.run();
        let cached = bench.outcome(first(id)).usage.cached_tokens;
        assert!(cached >= 28, "{groups:?}: {cached} tokens hit");
        is_solo(&bench, first(id), &prompt, &seeded(2, 12));
    }
}

#[test]
fn preempted_swapped_or_taken_back_they_lose_and_repeat_nothing() {
    for groups in kinds() {
        for mode in PreemptionMode::ALL {
            for ahead in [false, true] {
                let tuned = settings().budget(12).tuned(|s| {
                    s.preemption_mode = *mode;
                    s.async_scheduling = ahead;
                    s.schedule_conservativeness = 0.01;
                });
                let tuned = EngineSettings { host_kv_bytes: 256 << 10, ..tuned };
                let blocks = 14 * groups.len();
                let mut bench = bench(&groups, blocks, tuned);
                let asked: Vec<(RequestId, String)> = (0..6u64)
                    .map(|i| {
                        let prompt = format!("{i} is a prompt of many tokens");
                        let params = SamplingParams { ignore_eos: false, ..seeded(i, 24) };
                        (bench.ask(prompt.clone(), params), prompt)
                    })
                    .collect();
                bench.run();
                for (i, (id, prompt)) in (0..).zip(asked) {
                    let params = SamplingParams { ignore_eos: false, ..seeded(i, 24) };
                    is_solo(&bench, first(id), &prompt, &params);
                }
            }
        }
    }
}

/// A state that stands between two ends of blocks is of no use to anyone else.
#[test]
fn prompts_stop_where_a_state_can_be_cached() {
    let two_steps = |groups: &[CacheSpec], settings: EngineSettings| {
        let mut bench = bench(groups, 128, settings);
        bench.ask("a prompt of 22 tokens.", seeded(1, 4));
        bench.step();
        let first = bench.row_tokens();
        bench.step();
        (first[0], bench.row_tokens()[0])
    };
    let hybrid = [FULL, STATE];
    assert_eq!(two_steps(&hybrid, settings()), (20, 2));
    assert_eq!(two_steps(&hybrid, settings().budget(7)), (4, 4));
    assert_eq!(two_steps(&hybrid, settings().budget(3)), (3, 1));
    // Nothing is cached, or no state is, or prompts are not cut.
    assert_eq!(two_steps(&hybrid, settings().caching(false)), (22, 1));
    assert_eq!(two_steps(&[FULL, window(6)], settings()), (22, 1));
    let whole = settings().tuned(|s| s.enable_chunked_prefill = false);
    assert_eq!(two_steps(&hybrid, whole), (22, 1));
}

#[test]
fn choices_fork_in_every_group() {
    for groups in kinds() {
        let mut bench = bench(&groups, 128, settings().budget(7));
        let request = bench.request("a prompt with several answers", seeded(5, 14));
        let id = bench.submit(Request { n: 3, ..request });
        bench.run();
        for choice in 0..3 {
            let params = seeded(5 + u64::from(choice), 14);
            is_solo(&bench, SeqId { request: id, choice }, "a prompt with several answers", &params);
        }
    }
}

#[test]
fn a_branch_starts_where_its_groups_allow() {
    for groups in kinds() {
        let mut bench = bench(&groups, 128, settings());
        let parent = first(bench.ask("ten tokens", seeded(4, 24)));
        // With states, one step for the prompt's whole blocks and one for the rest.
        (0..13).for_each(|_| bench.step());
        for (id, keep) in [(1001, 22), (1002, 20), (1003, 12), (1004, 3)] {
            let id = RequestId(id);
            let params = SamplingParams { seed: Some(4), ..seeded(4, 24) };
            let fork = ForkRequest { id, parent, keep, then: Vec::new(), params };
            bench.send(Command::Fork(Box::new(fork)));
        }
        bench.run();
        let whole = bench.tokens(parent);
        assert_eq!(whole, solo(babbler, "ten tokens", &seeded(4, 24)), "{groups:?}");
        for (id, said) in [(1001, 12), (1002, 10), (1003, 2)] {
            assert_eq!(bench.tokens(first(RequestId(id))), whole[said..], "{groups:?}, after {said}");
        }
    }
}

/// A plan for several steps takes the blocks of all of them: a window must not slide for the later
/// ones, nor a state be set aside, before the first has run.
#[test]
fn several_steps_for_one_plan_move_no_window_and_no_state_too_early() {
    for groups in kinds() {
        for steps in 2..7 {
            let tuned = settings().tuned(|s| s.num_scheduler_steps = steps);
            let mut bench = bench(&groups, 128, tuned);
            let ids = ["one", "two and more"].map(|prompt| bench.ask(prompt, seeded(1, 30)));
            bench.run();
            is_solo(&bench, first(ids[0]), "one", &seeded(1, 30));
            is_solo(&bench, first(ids[1]), "two and more", &seeded(1, 30));
        }
    }
}

#[derive(Clone, Debug)]
struct Case {
    kind: usize,
    requests: Vec<(usize, u32, u32, usize)>,
    spare: usize,
    budget: usize,
    steps: u32,
    ahead: bool,
    mode: PreemptionMode,
    cache: PrefixCache,
}

fn case() -> impl Strategy<Value = Case> {
    let requests = prop::collection::vec((1usize..30, 1u32..14, 1u32..3, 0usize..5), 1..10);
    let mode = prop::sample::select(PreemptionMode::ALL);
    let cache = prop::sample::select(PrefixCache::ALL);
    (0usize..5, requests, 0usize..20, 2usize..20, 1u32..5, any::<bool>(), mode, cache).prop_map(
        |(kind, requests, spare, budget, steps, ahead, mode, cache)| Case {
            kind,
            requests,
            spare,
            budget,
            steps,
            ahead,
            mode,
            cache,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn every_model_says_what_it_says_alone(case in case()) {
        let groups = &kinds()[case.kind];
        let limits = limits(groups, 12 * groups.len() + case.spare);
        let tuned = settings().budget(case.budget).tuned(|s| {
            s.async_scheduling = case.ahead;
            s.num_scheduler_steps = case.steps;
            s.preemption_mode = case.mode;
        });
        let host_kv_bytes = 24 * limits.bytes_per_block;
        let tuned = EngineSettings { host_kv_bytes, prefix_cache: case.cache, ..tuned };
        let mut bench = Bench::with(tuned, Scripted::babbling(limits));
        let mut asked = Vec::new();
        for (i, (length, tokens, n, steps)) in case.requests.iter().enumerate() {
            let prompt = format!("{}bcdefghijklmnopqrstuvwxyz1234", i % 3)[..*length].to_owned();
            let request = bench.request(prompt.clone(), seeded(i as u64 * 9, *tokens));
            asked.push((bench.submit(Request { n: *n, ..request }), prompt, *tokens, *n));
            (0..*steps).for_each(|_| bench.step());
        }
        bench.run();
        for (i, (id, prompt, tokens, n)) in (0..).zip(asked) {
            for choice in 0..n {
                let right = solo(babbler, &prompt, &seeded(i * 9 + u64::from(choice), tokens));
                prop_assert_eq!(bench.tokens(SeqId { request: id, choice }), right);
            }
        }
    }
}
