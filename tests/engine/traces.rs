//! Random traces: arrivals, cancels, pauses, forks, small pools, small budgets. After every step
//! every block is accounted for (the harness) and every row attends to its own past (the runner).

use crate::harness::*;
use glassbox::model::{ModelLimits, Scripted};
use glassbox::protocol::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Act {
    Ask { prefix: usize, own: usize, n: u32, tokens: u32, seed: u64, scored: bool },
    Abort(usize),
    Steps(usize),
    SetParams(usize, u64),
    Pause,
    Resume,
    Reset,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0usize..30, 1usize..12, 1u32..5, 1u32..20, 0u64..50, prop::bool::weighted(0.1)).prop_map(
            |(prefix, own, n, tokens, seed, scored)| Act::Ask { prefix, own, n: n.saturating_sub(2).max(1), tokens, seed, scored }
        ),
        2 => any::<usize>().prop_map(Act::Abort),
        6 => (1usize..12).prop_map(Act::Steps),
        1 => (any::<usize>(), 0u64..50).prop_map(|(who, seed)| Act::SetParams(who, seed)),
        1 => Just(Act::Pause),
        1 => Just(Act::Resume),
        1 => Just(Act::Reset),
    ]
}

#[derive(Clone, Debug)]
struct House {
    blocks: usize,
    block_size: usize,
    budget: usize,
    seqs: usize,
    outputs: usize,
    caching: bool,
}

fn house() -> impl Strategy<Value = House> {
    (12usize..40, 1usize..6, 1usize..24, 1usize..6, 1usize..8, any::<bool>()).prop_map(
        |(blocks, block_size, budget, seqs, outputs, caching)| House {
            // Room for the longest sequence there is: 61 tokens.
            blocks: blocks.max(62usize.div_ceil(block_size)),
            block_size,
            budget,
            seqs,
            outputs,
            caching,
        },
    )
}

const COMMON: &str = "a common beginning of thirty chars";

fn bench(house: &House) -> Bench {
    let limits =
        ModelLimits { max_outputs: house.outputs, ..Scripted::limits(house.blocks, house.block_size) };
    let settings = settings().budget(house.budget).seqs(house.seqs).caching(house.caching);
    Bench::with(settings, Scripted::babbling(limits))
}

fn prompt(prefix: usize, own: usize, seed: u64) -> String {
    format!("{}{}", &COMMON[..prefix], format!("{seed:02}abcdefghijkl").get(..own).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn every_choice_ends_once_and_says_what_it_says_alone(
        house in house(),
        acts in prop::collection::vec(act(), 1..40),
    ) {
        let mut bench = bench(&house);
        let mut asked: Vec<(RequestId, String, SamplingParams, u32)> = Vec::new();
        let mut disturbed = std::collections::BTreeSet::new();
        for act in acts {
            match act {
                Act::Ask { prefix, own, n, tokens, seed, scored } => {
                    let (prompt, params) = (prompt(prefix, own, seed), seeded(seed, tokens));
                    let request = bench.request(prompt.clone(), params.clone());
                    let prompt_logprobs = scored.then_some(1);
                    let id = bench.submit(Request { n, prompt_logprobs, ..request });
                    asked.push((id, prompt, params, n));
                }
                Act::Abort(who) if !asked.is_empty() => {
                    let id = asked[who % asked.len()].0;
                    disturbed.insert(id);
                    bench.send(Command::Abort(id));
                }
                Act::SetParams(who, seed) if !asked.is_empty() => {
                    let (id, _, params, _) = &asked[who % asked.len()];
                    disturbed.insert(*id);
                    bench.send(Command::SetParams(*id, Box::new(SamplingParams { seed: Some(seed), ..params.clone() })));
                }
                Act::Steps(n) => (0..n).for_each(|_| bench.step()),
                Act::Pause => bench.send(Command::Pause),
                Act::Resume => bench.send(Command::Resume),
                Act::Reset => bench.send(Command::ResetPrefixCache),
                Act::Abort(_) | Act::SetParams(..) => {}
            }
        }
        bench.send(Command::Resume);
        bench.run();
        prop_assert!(bench.engine.is_idle());
        let mut alone = BTreeMap::new();
        for (id, prompt, params, n) in asked {
            for choice in 0..n {
                let seq = SeqId { request: id, choice };
                let outcome = bench.outcome(seq);
                if disturbed.contains(&id) {
                    continue;
                }
                prop_assert_eq!(&outcome.reason, &FinishReason::Length);
                let seed = params.seed.unwrap() + u64::from(choice);
                let key = (prompt.clone(), seed, params.max_tokens);
                let right = alone.entry(key).or_insert_with(|| {
                    solo(babbler, &prompt, &SamplingParams { seed: Some(seed), ..params.clone() })
                });
                prop_assert_eq!(&bench.tokens(seq), right, "choice {}", seq);
            }
        }
    }
}

/// One long trace: thousands of steps over a crowded pool. Nobody starves: every request starts in
/// the order it came, and ends.
#[test]
fn thousands_of_steps_in_a_crowded_pool() {
    let house = House { blocks: 20, block_size: 4, budget: 20, seqs: 6, outputs: 8, caching: true };
    let mut bench = bench(&house);
    let mut order = Vec::new();
    for i in 0..1500u64 {
        let own = 1 + (i * 7 % 11) as usize;
        order.push(first(
            bench.ask(prompt((i * 13 % 30) as usize, own, i % 40), seeded(i % 50, 1 + (i * 5 % 17) as u32)),
        ));
        (0..(i * 31 % 5)).for_each(|_| bench.step());
    }
    bench.run();
    let started = bench.started();
    assert_eq!(started, order);
    assert!(order.iter().all(|seq| bench.outcome(*seq).reason == FinishReason::Length));
    let snapshot = bench.engine.snapshot();
    assert!(snapshot.step > 3000 && snapshot.counters.preemptions > 100, "{:?}", snapshot.counters);
    assert!(snapshot.counters.prefix_hits > 0 && snapshot.counters.evictions > 0);
}
