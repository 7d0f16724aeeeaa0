//! The ways of working that must not change a word, and how each is known to have been at work.

use crate::drive::Seen;
use glassbox::config::EngineSettings;
use glassbox::protocol::*;
use std::ops::Range;
use std::path::Path;

pub struct Mode {
    pub name: String,
    /// `host_kv_bytes` counts blocks here, because what a block takes is the model's.
    pub settings: EngineSettings,
    pub pool: Pool,
    /// Conversations at a time.
    pub width: usize,
    pub part: Part,
    /// For each time the conversations are held, in a new engine: whether the mode was at work.
    pub rounds: Vec<fn(&Seen) -> bool>,
}

#[derive(Clone, Copy)]
pub enum Pool {
    Ample,
    /// So many percent of the blocks that the longest conversation needs.
    Tight {
        percent: usize,
    },
}

/// With fewer, a mode may have no occasion to be at work.
const FEWEST: usize = 20;

/// Which conversations are held.
#[derive(Clone, Copy)]
pub enum Part {
    All,
    /// One of so many equal parts.
    One {
        at: usize,
        of: usize,
    },
}

impl Part {
    pub fn of(self, count: usize) -> Range<usize> {
        match self {
            Part::All => 0..count,
            Part::One { at, of } => {
                let size = count.div_ceil(of).max(FEWEST).min(count);
                let start = (count * at / of).min(count - size);
                start..start + size
            }
        }
    }
}

impl Mode {
    pub fn plain(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            settings: EngineSettings::default(),
            pool: Pool::Ample,
            width: 8,
            part: Part::All,
            rounds: vec![|_| true],
        }
    }

    fn with(mut self, change: impl FnOnce(&mut EngineSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    fn scheduled(self, change: impl FnOnce(&mut SchedulerSettings)) -> Self {
        self.with(|settings| change(&mut settings.scheduler))
    }

    fn tight(self, percent: usize) -> Self {
        Self { pool: Pool::Tight { percent }, ..self }
    }

    fn part(self, at: usize, of: usize) -> Self {
        Self { part: Part::One { at, of }, ..self }
    }

    fn claims(&self) -> bool {
        CLAIMS.contains(&self.name.as_str()) || self.name.starts_with("chunks")
    }

    fn seen(self, happened: fn(&Seen) -> bool) -> Self {
        Self { rounds: vec![happened], ..self }
    }
}

fn hits(seen: &Seen) -> u64 {
    seen.tiers.iter().map(|tier| tier.hits).sum()
}

fn disk_hits(seen: &Seen) -> u64 {
    seen.tiers.iter().filter(|tier| tier.medium == Medium::Disk).map(|tier| tier.hits).sum()
}

pub fn caches() -> Vec<Mode> {
    vec![
        Mode::plain("no cache, batched").with(|s| s.prefix_cache = PrefixCache::Off).seen(|seen| {
            seen.counters.prefix_hits == 0 && seen.most_open > 4 && seen.counters.copies_on_write > 0
        }),
        Mode::plain("hash").seen(|seen| seen.counters.prefix_hits > 0),
        Mode::plain("radix")
            .with(|s| s.prefix_cache = PrefixCache::Radix)
            .seen(|seen| seen.counters.prefix_hits > 0),
        Mode::plain("hash, short of blocks")
            .tight(150)
            .scheduled(|s| s.max_num_seqs = 1)
            .seen(|seen| seen.counters.evictions > 0 && seen.counters.prefix_hits > 0),
        Mode::plain("radix, short of blocks")
            .with(|s| s.prefix_cache = PrefixCache::Radix)
            .tight(150)
            .seen(|seen| seen.counters.evictions > 0 && seen.counters.prefix_hits > 0),
    ]
}

pub fn preemption() -> Vec<Mode> {
    let by = |mode: PreemptionMode| {
        Mode::plain(format!("preempted, {mode}")).tight(105).scheduled(move |s| {
            s.preemption_mode = mode;
            s.schedule_conservativeness = 0.01;
        })
    };
    vec![
        by(PreemptionMode::Recompute).seen(|seen| seen.counters.preemptions > 0 && seen.counters.swaps == 0),
        by(PreemptionMode::Swap)
            .with(|s| s.host_kv_bytes = 400)
            .seen(|seen| seen.counters.preemptions > 0 && seen.counters.swaps > 0 && seen.loaded > 0),
        by(PreemptionMode::Retract).seen(|seen| seen.counters.preemptions > 0),
        Mode { name: "preempted, radix".into(), ..by(PreemptionMode::Recompute) }
            .with(|s| s.prefix_cache = PrefixCache::Radix)
            .seen(|seen| seen.counters.preemptions > 0),
    ]
}

/// Blocks that leave the pool and come back: from host memory; from disk, in a second engine too.
pub fn tiers(folder: &Path) -> Vec<Mode> {
    let offloaded = |name: &str, cache| {
        Mode::plain(name)
            .tight(130)
            .with(|s| (s.prefix_cache, s.host_kv_bytes) = (cache, 400))
            .seen(|seen| hits(seen) > 0 && seen.loaded > 0)
    };
    let kept = |name: &str, cache| Mode {
        rounds: vec![
            |seen| seen.tiers.iter().any(|tier| tier.medium == Medium::Disk && tier.stored > 0),
            |seen| disk_hits(seen) > 0 && seen.loaded > 0 && seen.counters.prefix_hits > 0,
        ],
        ..Mode::plain(name)
            .with(|s| (s.prefix_cache, s.kv_cache_dir) = (cache, Some(folder.join(name.replace(' ', "-")))))
    };
    vec![
        offloaded("host memory, hash", PrefixCache::Hash),
        offloaded("host memory, radix", PrefixCache::Radix),
        kept("disk, hash", PrefixCache::Hash),
        kept("disk, radix", PrefixCache::Radix),
    ]
}

/// Chunk sizes share the conversations out among themselves: a budget of one token takes a step for
/// every token of every prompt.
pub fn chunks() -> Vec<Mode> {
    let budgets = [1, 2, 3, 7, 16, 31, 64, 127, 512];
    let modes = budgets.iter().enumerate().map(|(at, budget)| {
        let mode = Mode::plain(format!("chunks of {budget}"))
            .part(at, budgets.len())
            .with(|s| s.prefix_cache = [PrefixCache::Off, PrefixCache::Radix, PrefixCache::Hash][at % 3])
            .scheduled(|s| s.max_num_batched_tokens = *budget);
        if *budget < 100 { mode.seen(|seen| seen.chunks > 0) } else { mode }
    });
    modes.collect()
}

pub fn loops() -> Vec<Mode> {
    vec![
        Mode::plain("overlapped").scheduled(|s| s.async_scheduling = true).seen(|seen| seen.first_word == 2),
        Mode::plain("overlapped, preempted, swapped")
            .tight(105)
            .with(|s| s.host_kv_bytes = 400)
            .scheduled(|s| {
                (s.async_scheduling, s.preemption_mode) = (true, PreemptionMode::Swap);
            })
            .seen(|seen| seen.first_word == 2 && seen.counters.preemptions > 0),
        Mode::plain("four steps a plan")
            .scheduled(|s| (s.num_scheduler_steps, s.max_num_seqs) = (4, 4))
            .seen(|seen| seen.first_word == 1 && seen.round_waits > 0),
    ]
}

/// Each takes a quarter: they change the order of work, which the other modes have changed before.
pub fn policies() -> Vec<Mode> {
    let turns = |policy| Mode::plain(format!("{policy}")).scheduled(move |s| s.schedule_policy = policy);
    vec![
        turns(SchedulePolicy::RoundRobin)
            .scheduled(|s| (s.max_num_seqs, s.time_slice_ms) = (2, 0.5))
            .part(0, 4)
            .seen(|seen| seen.most_open > 2),
        turns(SchedulePolicy::RoundRobin)
            .scheduled(|s| (s.max_num_seqs, s.time_slice_ms) = (2, 0.5))
            .tight(110)
            .part(1, 4)
            .seen(|seen| seen.most_open > 2),
        turns(SchedulePolicy::Lpm)
            .scheduled(|s| s.max_num_seqs = 2)
            .part(2, 4)
            .seen(|seen| seen.overtaken > 0),
        turns(SchedulePolicy::DfsWeight)
            .scheduled(|s| s.max_num_seqs = 2)
            .part(3, 4)
            .seen(|seen| seen.overtaken > 0),
        Mode::plain("priority")
            .scheduled(|s| (s.max_num_seqs, s.scheduling_policy) = (4, SchedulingPolicy::Priority))
            .tight(105)
            .part(0, 4)
            .seen(|seen| seen.overtaken > 0),
        Mode::plain("static batches")
            .scheduled(|s| (s.max_num_seqs, s.batching) = (4, Batching::Static))
            .part(1, 4)
            .seen(|seen| seen.static_waits > 0),
    ]
}

/// A quarter each. Numbers are rounded as they are stored, so each dtype has a reference of its own.
pub fn layouts() -> Vec<Mode> {
    let hit: fn(&Seen) -> bool = |seen| seen.counters.prefix_hits > 0;
    // Few prompts fill so large a block; choices and branches share what there is of it.
    let shared: fn(&Seen) -> bool = |seen| seen.counters.blocks_shared > 0;
    let sizes = [(1, 120, hit), (5, 120, hit), (64, 300, shared)];
    let sizes = sizes.into_iter().enumerate().map(|(at, (size, percent, happened))| {
        Mode::plain(format!("blocks of {size}"))
            .with(move |s| {
                s.block_size = Some(size);
                s.prefix_cache = [PrefixCache::Hash, PrefixCache::Radix][at % 2];
            })
            .tight(percent)
            .part(at, 4)
            .seen(happened)
    });
    let dtypes = [KvCacheDtype::Bf16, KvCacheDtype::Int8, KvCacheDtype::Fp8].into_iter().flat_map(|dtype| {
        PrefixCache::ALL.iter().map(move |cache| {
            let mode = Mode::plain(format!("{dtype}, {cache}"))
                .with(|s| (s.kv_cache_dtype, s.prefix_cache) = (dtype, *cache))
                .part(0, 4);
            if *cache == PrefixCache::Off { mode } else { mode.seen(|seen| seen.counters.prefix_hits > 0) }
        })
    });
    sizes.chain(dtypes).collect()
}

/// What must hold over every conversation on a model that people use; the chunk sizes share them out.
const CLAIMS: [&str; 8] = [
    "no cache, batched",
    "hash",
    "radix",
    "preempted, recompute",
    "preempted, swap",
    "host memory, hash",
    "disk, hash",
    "overlapped",
];

/// For a model that takes its time: the claims over all conversations; what varies them, and is proven
/// over all of them on the committed checkpoints, over an eighth each.
pub fn on_disk(folder: &Path) -> Vec<Mode> {
    let all = [caches(), preemption(), tiers(folder), loops(), chunks(), policies(), layouts()];
    let (claims, mut variations): (Vec<Mode>, Vec<Mode>) =
        all.into_iter().flatten().partition(|mode| mode.claims());
    for (at, mode) in variations.iter_mut().enumerate() {
        let own_reference = mode.settings.kv_cache_dtype != KvCacheDtype::F16;
        mode.part = Part::One { at: if own_reference { 0 } else { at % 8 }, of: 8 };
    }
    claims.into_iter().chain(variations).collect()
}
