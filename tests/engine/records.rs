//! What steps leave behind: the block map can be gone back through, counters add up, and the events of
//! the cache say exactly what is known.

use crate::harness::*;
use glassbox::config::EngineSettings;
use glassbox::model::{Fault, Scripted};
use glassbox::protocol::*;
use std::collections::HashSet;

fn in_pool(blocks: usize, settings: EngineSettings) -> Bench {
    Bench::with(settings, Scripted::babbling(Scripted::limits(blocks, 4)))
}

fn loops() -> [EngineSettings; 3] {
    let tuned = |change: fn(&mut SchedulerSettings)| settings().tuned(change);
    [settings(), tuned(|s| s.async_scheduling = true), tuned(|s| s.num_scheduler_steps = 4)]
}

/// The `i`-th of some requests with much in common: chunks, forks, scored prompts.
fn ask_some(bench: &mut Bench, i: u64) {
    let prompt = format!("{} common beginning, own end {i}", i % 3);
    let request = bench.request(prompt, seeded(i, 3 + i as u32 % 9));
    let n = if i % 4 == 1 { 2 } else { 1 };
    bench.submit(Request { n, prompt_logprobs: (i % 5 == 2).then_some(1), ..request });
}

#[test]
fn undoing_the_changes_of_the_newest_steps_gives_the_blocks_as_they_were() {
    for settings in loops() {
        let host_kv_bytes = 30 * Scripted::limits(14, 4).bytes_per_block;
        let mut bench = in_pool(14, EngineSettings { host_kv_bytes, ..settings.budget(20) });
        let untouched = bench.kv().blocks;
        let mut seen: Vec<Vec<BlockView>> = Vec::new();
        let mut i = 0;
        while i < 14 || bench.engine.can_step() {
            if i < 14 && seen.len().is_multiple_of(3) {
                ask_some(&mut bench, i);
                i += 1;
            }
            bench.step();
            let snapshot = bench.engine.snapshot();
            if snapshot.step as usize > seen.len() {
                seen.push(snapshot.kv.blocks);
            }
        }
        let snapshot = bench.engine.snapshot();
        assert_eq!(snapshot.steps.len(), seen.len());
        assert!(snapshot.counters.evictions > 0 && snapshot.counters.copies_on_write > 0);
        let mut blocks = snapshot.kv.blocks;
        for (record, right) in snapshot.steps.iter().zip(&seen).rev() {
            assert!(blocks == *right, "after step {}", record.step);
            for change in &record.blocks {
                assert_eq!(blocks[change.block as usize], change.after, "step {}", record.step);
                assert_ne!(change.before, change.after);
                blocks[change.block as usize] = change.before;
            }
        }
        assert!(blocks == untouched);
    }
}

#[test]
fn every_record_has_the_counters_of_its_step_and_they_add_up() {
    for settings in loops() {
        let mut bench = in_pool(24, settings.budget(20));
        (0..10).for_each(|i| ask_some(&mut bench, i));
        while bench.engine.can_step() {
            let before = bench.engine.snapshot().step;
            bench.step();
            let snapshot = bench.engine.snapshot();
            if snapshot.step > before {
                assert_eq!(snapshot.steps.last().unwrap().counters, snapshot.counters);
            }
        }
        let snapshot = bench.engine.snapshot();
        let sum =
            |of: fn(&StepRecord) -> usize| snapshot.steps.iter().map(|step| of(step) as u64).sum::<u64>();
        let Counters { evictions, copies_on_write, preemptions, requests_finished, .. } = snapshot.counters;
        assert_eq!(sum(|step| step.blocks_evicted), evictions);
        assert_eq!(sum(|step| step.blocks_copied), copies_on_write);
        assert_eq!(sum(|step| step.preempted.len()), preemptions);
        assert_eq!(requests_finished, 10);
        let generated = bench.events.iter().filter(|event| matches!(event, Event::Token { .. })).count();
        assert_eq!(snapshot.counters.generated_tokens, generated as u64);
        for (step, record) in (1..).zip(&snapshot.steps) {
            assert_eq!(record.step, step);
            assert_eq!(record.tokens, record.rows.iter().map(|row| row.tokens).sum::<usize>());
            assert!(record.tokens <= record.token_budget && record.rows.len() == record.slots.used);
        }
    }
}

#[test]
fn the_focused_sequences_sampling_is_in_the_record_of_its_step() {
    for settings in loops() {
        let mut bench = in_pool(64, settings);
        let ids = ["one", "two"].map(|prompt| bench.ask(prompt, seeded(1, 9)));
        bench.send(Command::Focus(Some(first(ids[1]))));
        bench.run();
        let steps = bench.engine.snapshot().steps;
        let drawn: Vec<TokenId> =
            steps.iter().filter_map(|step| step.sampling.as_ref().map(|trace| trace.drawn)).collect();
        assert_eq!(drawn, bench.tokens(first(ids[1])));
        for step in steps.iter().filter(|step| step.sampling.is_some()) {
            let row = step.rows.iter().find(|row| row.seq == first(ids[1])).unwrap();
            assert_eq!(row.sampled, step.sampling.as_ref().map(|trace| trace.drawn));
        }
    }
}

/// What a listener knows who only ever hears the events.
#[derive(Default)]
struct Listener {
    known: HashSet<(Medium, usize, KvHash)>,
    heard: Vec<KvEvent>,
}

impl Listener {
    fn listen(&mut self, events: &mut Vec<Event>) {
        for event in events.drain(..) {
            let Event::Kv(content) = event else { continue };
            for event in content {
                match &event {
                    KvEvent::BlockStored {
                        block_hashes, medium, group_idx, token_ids, block_size, ..
                    } => {
                        for hash in block_hashes {
                            assert!(
                                self.known.insert((*medium, *group_idx, *hash)),
                                "stored twice: {event:?}"
                            );
                        }
                        assert!(token_ids.is_empty() || token_ids.len() == block_hashes.len() * block_size);
                    }
                    KvEvent::BlockRemoved { block_hashes, medium, group_idx } => {
                        for hash in block_hashes {
                            let was_known = self.known.remove(&(*medium, *group_idx, *hash));
                            assert!(was_known, "removed, and never stored: {event:?}");
                        }
                    }
                    KvEvent::AllBlocksCleared => self.known.clear(),
                }
                self.heard.push(event);
            }
        }
    }

    fn check(&self, bench: &Bench) {
        let snapshot = bench.engine.snapshot();
        let on = |medium| self.known.iter().filter(|(of, ..)| *of == medium).count();
        assert_eq!(on(Medium::Device), snapshot.kv.blocks.iter().filter(|block| block.cached).count());
        let newest = &self.heard[self.heard.len().saturating_sub(snapshot.kv_events.len())..];
        assert_eq!(snapshot.kv_events, newest);
        if bench.engine.is_idle() {
            assert_eq!(on(Medium::Host), snapshot.kv.tiers[0].used);
        }
    }
}

#[test]
fn the_events_of_the_cache_tell_exactly_what_is_known() {
    for cache in [PrefixCache::Hash, PrefixCache::Radix] {
        for settings in loops() {
            let limits = Scripted::limits(24, 4);
            let host_kv_bytes = 10 * limits.bytes_per_block;
            let settings = EngineSettings { kv_events: true, prefix_cache: cache, host_kv_bytes, ..settings };
            let mut bench = Bench::with(settings, Scripted::babbling(limits).failing_at(40, Fault::Device));
            let mut listener = Listener::default();
            for i in 0..24 {
                ask_some(&mut bench, i);
                for _ in 0..5 {
                    bench.step();
                    listener.listen(&mut bench.events);
                    listener.check(&bench);
                }
                match i {
                    7 => bench.send(Command::Abort(RequestId(8))),
                    12 | 20 => bench.send(Command::ResetPrefixCache),
                    _ => {}
                }
                listener.listen(&mut bench.events);
                listener.check(&bench);
            }
            bench.run();
            listener.listen(&mut bench.events);
            listener.check(&bench);
            bench.send(Command::ResetPrefixCache);
            listener.listen(&mut bench.events);
            assert!(listener.known.is_empty(), "{:?}", listener.known);
            assert!(listener.heard.len() > 64, "the ring of the snapshot is shorter than the stream");
        }
    }
}

#[test]
fn nobody_is_told_who_did_not_ask() {
    let mut bench = in_pool(24, settings());
    ask_some(&mut bench, 0);
    bench.run();
    assert!(!bench.events.iter().any(|event| matches!(event, Event::Kv(_))));
    assert!(!bench.engine.snapshot().kv_events.is_empty(), "the panel always sees them");
}
