//! The cache as a sequence sees it. Every test runs rows through a [`World`], where blocks have
//! content: a step's moves are made, its rows read what they stand on and write what they compute,
//! and whatever is read must be what that sequence would have computed alone.

#![allow(clippy::unwrap_used)]

mod events;
mod fork;
mod groups;
mod host;
mod look;
mod prefix;
mod queue;
mod random;
mod views;

use super::*;
use crate::protocol::{EvictionPolicy, PrefixCache, RequestId, SeqId, Shortage};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The same test with the hash cache and with the radix tree.
macro_rules! both {
    ($($(#[$doc:meta])* fn $name:ident($cache:ident) $body:block)*) => {$(
        $(#[$doc])*
        mod $name {
            use super::*;

            fn test($cache: PrefixCache) $body

            #[test]
            fn hash() {
                test(PrefixCache::Hash);
            }

            #[test]
            fn radix() {
                test(PrefixCache::Radix);
            }
        }
    )*};
}
use both;

pub const FULL: CacheSpec = CacheSpec::Full;
pub const STATE: CacheSpec = CacheSpec::Recurrent;

pub fn sliding(window: usize) -> CacheSpec {
    CacheSpec::Sliding { window }
}

/// What a place of a block holds: the name of one group's keys and values after these tokens.
type Cell = u64;

const NOTHING: Cell = 0;

fn cell(group: usize, namespace: u64, past: &[u32]) -> Cell {
    let mut hasher = DefaultHasher::new();
    (group, namespace, past).hash(&mut hasher);
    hasher.finish() | 1
}

pub struct World {
    pub kv: BlockManager,
    pub moves: Moves,
    pub groups: Vec<CacheSpec>,
    device: Vec<Vec<Cell>>, // [blocks, block_size]
    host: Vec<Vec<Cell>>,
    rows: Vec<Row>,
    block_size: usize,
    step: u64,
    next: u64,
}

/// One sequence and what it has computed.
pub struct Seq {
    pub id: SeqId,
    pub tokens: Vec<u32>,
    pub chain: HashChain,
    pub computed: usize,
    pub table: BlockTable,
    pub swapped: Option<SwappedTable>,
    /// Tokens found when it was admitted.
    pub hit: usize,
    pub priority: i32,
}

#[derive(Clone)]
pub struct Row {
    pub seq: SeqId,
    blocks: Vec<BlockId>,
    stride: usize,
    tokens: Vec<u32>,
    namespace: u64,
    start: usize,
}

impl Seq {
    pub fn prefix(&self) -> Prefix<'_> {
        Prefix { tokens: &self.tokens, chain: &self.chain, priority: self.priority }
    }

    pub fn push(&mut self, tokens: &[u32]) {
        self.tokens.extend(tokens);
        self.chain.extend(&self.tokens);
    }
}

pub fn config(cache: PrefixCache, num_blocks: usize) -> KvConfig {
    KvConfig { prefix_cache: cache, ..KvConfig::new(num_blocks, 4) }
}

pub fn tokens(range: std::ops::Range<u32>) -> Vec<u32> {
    range.collect()
}

impl World {
    /// Blocks of 4 tokens, one group of full attention.
    pub fn new(cache: PrefixCache, num_blocks: usize) -> Self {
        Self::of(config(cache, num_blocks))
    }

    pub fn of(config: KvConfig) -> Self {
        let block = vec![NOTHING; config.block_size];
        Self {
            moves: Moves::default(),
            groups: config.groups.clone(),
            device: vec![block.clone(); config.num_blocks],
            host: vec![block; config.host_blocks],
            rows: Vec::new(),
            block_size: config.block_size,
            step: 0,
            next: 0,
            kv: BlockManager::new(config),
        }
    }

    pub fn seq(&mut self, tokens: &[u32]) -> Seq {
        self.seq_with(tokens, ExtraKeys::default())
    }

    pub fn seq_with(&mut self, tokens: &[u32], keys: ExtraKeys) -> Seq {
        self.next += 1;
        let mut chain = HashChain::new(self.block_size, keys);
        chain.extend(tokens);
        Seq {
            id: SeqId { request: RequestId(self.next), choice: 0 },
            tokens: tokens.to_vec(),
            chain,
            computed: 0,
            table: BlockTable::default(),
            swapped: None,
            hit: 0,
            priority: 0,
        }
    }

    pub fn begin(&mut self) {
        self.step += 1;
        self.moves.clear();
        self.rows.clear();
        self.kv.begin_step(self.step);
    }

    pub fn find(&mut self, seq: &Seq) -> Hits {
        let mut hits = Hits::default();
        self.kv.find_prefix(seq.prefix(), seq.tokens.len(), &mut hits);
        hits
    }

    /// Admits `chunk` tokens of a sequence beyond its cached prefix into the step.
    pub fn admit(&mut self, seq: &mut Seq, chunk: usize) -> Result<(), Shortage> {
        let hits = self.find(seq);
        let whole = seq.tokens.len();
        let len = (hits.tokens() + chunk).min(whole);
        seq.table = self.kv.admit(seq.id, &hits, len, whole, 0, &mut self.moves)?;
        (seq.hit, seq.computed) = (hits.tokens(), hits.tokens());
        self.offer_and_plan(seq, len);
        Ok(())
    }

    pub fn swap_in(&mut self, seq: &mut Seq) -> Result<(), Shortage> {
        let whole = seq.tokens.len();
        let swapped = seq.swapped.as_mut().unwrap();
        let (computed, len) = (swapped.computed, whole);
        seq.table = self.kv.swap_in(seq.id, swapped, len, whole, 0, &mut self.moves)?;
        seq.swapped = None;
        seq.computed = computed;
        self.offer_and_plan(seq, len);
        Ok(())
    }

    /// Room and a row for the next `chunk` tokens that the sequence has.
    pub fn grow(&mut self, seq: &mut Seq, chunk: usize) -> Result<(), Shortage> {
        let len = (seq.computed + chunk).min(seq.tokens.len());
        self.kv.grow(&mut seq.table, seq.computed, len, &mut self.moves)?;
        for (group, spec) in self.groups.iter().enumerate() {
            let first = if *spec == STATE { seq.table.stride() - 1 } else { seq.computed / self.block_size };
            for id in &seq.table.group(group)[first..] {
                assert_eq!(self.kv.pool().references(*id), 1, "a written block has one owner");
            }
        }
        self.offer_and_plan(seq, len);
        Ok(())
    }

    fn offer_and_plan(&mut self, seq: &mut Seq, len: usize) {
        let prefix = Prefix { tokens: &seq.tokens, chain: &seq.chain, priority: seq.priority };
        self.kv.offer(&mut seq.table, prefix, len);
        self.rows.push(Row {
            seq: seq.id,
            blocks: seq.table.blocks().to_vec(),
            stride: seq.table.stride(),
            tokens: seq.tokens[..len].to_vec(),
            namespace: seq.chain.namespace(),
            start: seq.computed,
        });
        seq.computed = len;
    }

    /// The row of a sequence will not run; gives back what was computed before it.
    pub fn unplan(&mut self, seq: &mut Seq) {
        if let Some(at) = self.rows.iter().position(|row| row.seq == seq.id) {
            seq.computed = self.rows.remove(at).start;
        }
    }

    /// Makes the moves of the step, then runs its rows.
    pub fn run(&mut self) {
        self.make_moves();
        for row in std::mem::take(&mut self.rows) {
            for group in 0..self.groups.len() {
                self.run_row(&row, group);
            }
        }
    }

    fn make_moves(&mut self) {
        for (block, slot) in &self.moves.saves {
            self.host[*slot as usize] = self.device[*block as usize].clone();
        }
        for (slot, block) in &self.moves.loads {
            self.device[*block as usize] = self.host[*slot as usize].clone();
        }
        for (from, to) in &self.moves.copies {
            self.device[*to as usize] = self.device[*from as usize].clone();
        }
    }

    fn run_row(&mut self, row: &Row, group: usize) {
        let blocks = &row.blocks[group * row.stride..][..row.stride];
        let (spec, size, len) = (self.groups[group], self.block_size, row.tokens.len());
        let name = |len: usize| cell(group, row.namespace, &row.tokens[..len]);
        if spec == STATE {
            let state = &mut self.device[*blocks.last().unwrap() as usize];
            if row.start > 0 {
                assert_eq!(state[0], name(row.start), "the state of {} at {}", row.seq, row.start);
            }
            state[0] = name(len);
            assert!(blocks[..row.stride - 1].iter().all(|id| *id == 0));
            return;
        }
        let first = match spec {
            CacheSpec::Sliding { window } => (row.start + 1).saturating_sub(window),
            _ => 0,
        };
        for at in first..row.start {
            let block = blocks[at / size];
            assert_ne!(block, 0, "{} looks at position {at} of group {group}", row.seq);
            let read = self.device[block as usize][at % size];
            assert_eq!(read, name(at + 1), "{} reads position {at} of group {group}", row.seq);
        }
        for at in row.start..len {
            assert_ne!(blocks[at / size], 0);
            self.device[blocks[at / size] as usize][at % size] = name(at + 1);
        }
    }

    /// A step of one sequence that is admitted and computed whole.
    pub fn start(&mut self, tokens: &[u32]) -> Seq {
        let mut seq = self.seq(tokens);
        self.start_seq(&mut seq);
        seq
    }

    pub fn start_seq(&mut self, seq: &mut Seq) {
        self.begin();
        self.admit(seq, usize::MAX / 2).unwrap();
        self.run();
    }

    /// Steps in which a sequence grows by these tokens, one each.
    pub fn decode(&mut self, seq: &mut Seq, tokens: &[u32]) {
        for token in tokens {
            self.begin();
            seq.push(&[*token]);
            self.grow(seq, 1).unwrap();
            self.run();
        }
    }

    pub fn fork(&mut self, parent: &Seq, keep: usize) -> Seq {
        let mut child = self.seq(&parent.tokens[..keep]);
        child.chain = parent.chain.clone();
        child.chain.truncate(keep);
        child.table = self.kv.fork(child.id, &parent.table, keep);
        child.computed = keep;
        child
    }

    pub fn release(&mut self, seq: &mut Seq) {
        self.kv.release(&mut seq.table);
        seq.computed = 0;
    }

    /// Tokens a prompt would find.
    pub fn hit(&mut self, tokens: &[u32]) -> usize {
        let seq = self.seq(tokens);
        self.find(&seq).tokens()
    }

    pub fn check<'a>(&self, seqs: impl IntoIterator<Item = &'a Seq>) {
        self.kv.check(seqs.into_iter().map(|seq| &seq.table)).unwrap();
    }

    /// What would be in a block of host memory that came from disk.
    pub fn arrive(&mut self, slot: HostSlot, group: usize, seq: &Seq, at: usize) {
        let namespace = seq.chain.namespace();
        for i in 0..self.block_size {
            let len = at * self.block_size + i + 1;
            let state = self.groups[group] == STATE;
            let len = if state { (at + 1) * self.block_size } else { len };
            self.host[slot as usize][i] = cell(group, namespace, &seq.tokens[..len]);
        }
        self.kv.host_arrived(slot);
    }
}
