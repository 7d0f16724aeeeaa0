//! A model, the conversations held with it, and what each of them must say.

use crate::cpu::cpu;
use crate::drive::{Driver, Seen, Told, Word};
use crate::modes::{Mode, Pool};
use crate::talks::{Shape, Talk, talks};
use glassbox::base::Clock;
use glassbox::config::EngineSettings;
use glassbox::engine::Engine;
use glassbox::kv::most_blocks;
use glassbox::model::{LoadOptions, Runner, load};
use glassbox::open::text_model;
use glassbox::protocol::{KvCacheDtype, PrefixCache};
use glassbox::text::TextModel;
use glassbox::weights::Checkpoint;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

pub struct House {
    name: String,
    path: PathBuf,
    text: Arc<TextModel>,
    talks: Vec<Talk>,
    longest: usize,
    threads: usize,
    /// What the conversations say, by what the cache stores numbers as.
    right: Mutex<Vec<(KvCacheDtype, Arc<Vec<Told>>)>>,
}

/// Most tokens of a step, in every mode: with windows, it decides about a pool's least size.
const CHUNK: usize = 512;

impl House {
    /// One of the committed checkpoints.
    pub fn tiny(name: &str, count: usize) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/gguf/{name}.gguf"));
        let shape = Shape { vocab: 0, system: 48, question: 24, answer: (4, 20), longest: 240, turns: 4 };
        Self::new(name, path, count, shape, 1)
    }

    /// A model that people use: fewer and shorter words, because each costs a thousand times as much.
    pub fn real(name: &str, path: PathBuf, count: usize) -> Self {
        let shape = Shape { vocab: 0, system: 32, question: 6, answer: (8, 12), longest: 110, turns: 2 };
        Self::new(name, path, count, shape, 2)
    }

    fn new(name: &str, path: PathBuf, count: usize, shape: Shape, threads: usize) -> Self {
        let text = text_model(&Checkpoint::open(&path).unwrap(), None).unwrap();
        let talks = talks(count, Shape { vocab: text.vocab_size(), ..shape });
        let (name, text, longest) = (name.into(), Arc::new(text), shape.longest);
        Self { name, path, text, talks, longest, threads, right: Mutex::default() }
    }

    pub fn count(&self) -> usize {
        self.talks.len()
    }

    fn runner(&self, settings: &EngineSettings, pool: Pool) -> Box<dyn Runner> {
        let file = Checkpoint::open(&self.path).unwrap();
        let open = |kv_cache_bytes| {
            let options = LoadOptions {
                max_model_len: Some(self.longest),
                block_size: settings.block_size.unwrap_or(16),
                kv_cache_dtype: settings.kv_cache_dtype,
                max_batched_tokens: CHUNK,
                kv_cache_bytes,
                ..LoadOptions::default()
            };
            load(&file, cpu(self.threads), &options, &|_, _| ()).unwrap().runner
        };
        let ample = open(None);
        let Pool::Tight { percent } = pool else { return ample };
        let limits = ample.limits();
        let least = most_blocks(&limits.groups, self.longest, CHUNK, limits.block_size);
        open(Some((least * percent).div_ceil(100) * limits.bytes_per_block))
    }

    fn engine(&self, mode: &Mode) -> Engine {
        let runner = self.runner(&mode.settings, mode.pool);
        let mut settings = mode.settings.clone();
        settings.host_kv_bytes *= runner.limits().bytes_per_block;
        Engine::new(&settings, runner, self.text.clone(), Clock::wall())
    }

    /// The reference: no cache, one request at a time, each choice by itself, every prompt whole.
    fn right(&self, dtype: KvCacheDtype, count: usize) -> Arc<Vec<Told>> {
        let mut known = self.right.lock().unwrap();
        if let Some((_, told)) = known.iter().find(|(of, told)| *of == dtype && told.len() >= count) {
            return told.clone();
        }
        let start = Instant::now();
        let mut mode = Mode::plain("alone");
        (mode.settings.prefix_cache, mode.settings.kv_cache_dtype) = (PrefixCache::Off, dtype);
        let mut driver = Driver::new(self.engine(&mode), &self.talks[..count]);
        driver.alone = true;
        let (told, seen) = driver.run(1);
        assert_eq!((seen.chunks, seen.counters.prefix_hits), (0, 0), "whole, and nothing found");
        self.report("alone, the reference", count, &seen, start);
        let told = Arc::new(told);
        known.push((dtype, told.clone()));
        told
    }

    /// Holds the mode's part of the conversations in it: every word, and the bits of every word's
    /// log-probability, must be those of the reference; and the mode must really have happened.
    /// `MODE=swap` in the environment leaves only the modes with that in their names.
    pub fn prove(&self, mode: &Mode) {
        if std::env::var("MODE").is_ok_and(|wanted| !mode.name.contains(&wanted)) {
            return;
        }
        let range = mode.part.of(self.count());
        let dtype = mode.settings.kv_cache_dtype;
        let right = match dtype {
            KvCacheDtype::F16 => self.right(dtype, self.count()),
            _ => self.right(dtype, range.end),
        };
        for (round, happened) in mode.rounds.iter().enumerate() {
            let start = Instant::now();
            let driver = Driver::new(self.engine(mode), &self.talks[range.clone()]);
            let (told, seen) = driver.run(mode.width);
            for (number, told) in range.clone().zip(&told) {
                let place = format!("{}, {}, round {round}, conversation {number}", self.name, mode.name);
                compare(told, &right[number], &self.talks[number], &place);
            }
            self.report(&format!("{} {}", mode.name, ["", "again"][round]), told.len(), &seen, start);
            assert!(happened(&seen), "{}, {}: it did not happen: {:?}", self.name, mode.name, seen.counters);
            assert!(seen.branches > 0 || range.len() < 100, "nobody branched");
            assert!(seen.aborts > 0 || range.len() < 100, "nobody broke off");
        }
    }

    fn report(&self, mode: &str, conversations: usize, seen: &Seen, start: Instant) {
        let c = &seen.counters;
        let tiers: Vec<String> =
            seen.tiers.iter().map(|tier| format!("{:?} {} hits", tier.medium, tier.hits)).collect();
        println!(
            "{} | {mode} | {conversations} conversations | {} answers, {} tokens | {} steps, {} chunks | \
             {} preempted, {} swaps | {} of {} prompt tokens hit | {} copied | {} evicted | {} branches | {} | {:.1} s",
            self.name,
            seen.answers,
            seen.tokens,
            seen.steps,
            seen.chunks,
            c.preemptions,
            c.swaps,
            c.prefix_hits,
            c.prefix_queries,
            c.copies_on_write,
            c.evictions,
            seen.branches,
            tiers.join(", "),
            start.elapsed().as_secs_f64(),
        );
    }
}

fn compare(told: &Told, right: &Told, talk: &Talk, place: &str) {
    assert_eq!(told.turns.len(), right.turns.len(), "{place}");
    for (turn, (told, right)) in told.turns.iter().zip(&right.turns).enumerate() {
        for (choice, (told, right)) in told.iter().zip(right).enumerate() {
            let place = format!("{place}, turn {turn}, choice {choice}");
            // What was broken off is a beginning.
            let broken_off = talk.abort.is_some() && turn + 1 == talk.turns.len();
            let end = if broken_off { told.len().min(right.len()) } else { right.len() };
            same(told, &right[..end], &place);
        }
    }
    if let Some((at, branch)) = &told.branch {
        let parent = &right.turns[talk.turns.len() - 1][0];
        same(branch, &parent[*at..], &format!("{place}, branched at {at}"));
    }
}

fn same(told: &[Word], right: &[Word], place: &str) {
    let ids = |words: &[Word]| words.iter().map(|word| word.0).collect::<Vec<_>>();
    assert_eq!(ids(told), ids(right), "{place}: tokens");
    let bits = |words: &[Word]| words.iter().map(|word| (word.1, word.2)).collect::<Vec<_>>();
    assert_eq!(bits(told), bits(right), "{place}: bits of log-probabilities and entropies");
}
