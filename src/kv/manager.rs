use super::events::EventLog;
use super::host::HostPool;
use super::prefix::Hit;
use super::table::NULL;
use super::{BlockId, BlockPool, BlockTable, CacheKey, CacheSpec, Hits, HostSlot, Moves, most_blocks};
use crate::protocol::{
    BlockChange, BlockView, EvictionPolicy, KvEvent, PrefixCache, SeqId, Shortage, TierView,
};

/// Gives blocks to sequences: finds cached prefixes, grows tables, copies shared blocks before they
/// are written, takes everything back.
///
/// A block becomes known to the prefix cache when its last token is *scheduled*, so that a later
/// row of the same step can hit it. This is sound because
/// - rows hit only blocks of rows before them in the batch, and a runner writes a layer's keys and
///   values of all rows before that layer attends;
/// - a sequence that got tokens in a step is not preempted in that step, or its row is withdrawn
///   ([`BlockManager::withdraw`]), and nothing is admitted in a step that preempts;
/// - a step that fails as a whole resets everything ([`BlockManager::reset`]), and a sequence whose
///   own numbers went wrong takes its blocks out of the cache ([`BlockManager::forget`]).
#[derive(Debug)]
pub struct BlockManager {
    pub(super) pool: BlockPool,
    pub(super) host: HostPool,
    pub(super) config: KvConfig,
    pub(super) counts: KvCounts,
    pub(super) events: EventLog,
    /// Blocks without owner that the planned step still copies from.
    pub(super) holds: Vec<BlockId>,
    /// Host slots that it loads from; and of those, the ones that are free then.
    pub(super) pins: Vec<HostSlot>,
    pub(super) leaving: Vec<HostSlot>,
    /// Resets so far.
    pub(super) epoch: u64,
    pub(super) forgotten: Vec<(BlockId, CacheKey)>,
}

/// What a pool is made of.
#[derive(Clone, Debug)]
pub struct KvConfig {
    /// The null block included.
    pub num_blocks: usize,
    pub block_size: usize,
    /// Most tokens that one step gives a sequence: bounds what a sliding window holds.
    pub chunk: usize,
    /// One entry for each cache group of the model; at least one.
    pub groups: Vec<CacheSpec>,
    pub prefix_cache: PrefixCache,
    pub eviction: EvictionPolicy,
    /// Slots of the host tier; 0 is none.
    pub host_blocks: usize,
    /// Collect [`KvEvent`]s.
    pub events: bool,
}

impl KvConfig {
    /// One group of full attention, the hash cache, no tiers.
    pub fn new(num_blocks: usize, block_size: usize) -> Self {
        Self {
            num_blocks,
            block_size,
            chunk: usize::MAX,
            groups: vec![CacheSpec::Full],
            prefix_cache: PrefixCache::Hash,
            eviction: EvictionPolicy::Lru,
            host_blocks: 0,
            events: false,
        }
    }
}

/// Since the manager was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvCounts {
    /// Given to a sequence, hits not included.
    pub taken: u64,
    /// Lost their last owner.
    pub freed: u64,
    pub hit: u64,
    /// Second and later owners by forks.
    pub forked: u64,
    pub evicted: u64,
    pub copied: u64,
    /// To host memory, and back.
    pub saved: u64,
    pub loaded: u64,
}

impl BlockManager {
    pub fn new(config: KvConfig) -> Self {
        assert!(config.block_size > 0 && !config.groups.is_empty(), "blocks hold the tokens of some group");
        Self {
            pool: BlockPool::new(&config),
            host: HostPool::new(config.host_blocks),
            events: EventLog::new(config.events),
            counts: KvCounts::default(),
            holds: Vec::new(),
            pins: Vec::new(),
            leaving: Vec::new(),
            epoch: 0,
            forgotten: Vec::new(),
            config,
        }
    }

    /// A new step is planned: the moves of the one before are done.
    pub fn begin_step(&mut self, step: u64) {
        self.pool.set_step(step);
        self.end_moves();
    }

    /// Starts a table with a cached prefix and room for `len` tokens, if `whole` tokens would fit
    /// beside the `reserved` blocks: a sequence of which only the first chunk fits must wait.
    pub fn admit(
        &mut self,
        owner: SeqId,
        hits: &Hits,
        len: usize,
        whole: usize,
        reserved: usize,
        moves: &mut Moves,
    ) -> Result<BlockTable, Shortage> {
        debug_assert!(hits.tokens() < len && len <= whole);
        let in_tree = |group| self.pool.index().tree_group() == Some(group);
        let deepest = hits.iter().rev().find_map(|(group, _, hit)| match hit {
            Hit::Device(id) if in_tree(group) => Some(id),
            _ => None,
        });
        let lost = self.pool.cost_of(hits.device(), deepest);
        let loaded =
            hits.iter().filter(|(group, _, hit)| !self.is_state(*group) && matches!(hit, Hit::Host(_)));
        let new = self.new_blocks(hits.blocks(), whole) + loaded.count();
        self.require(new + lost, reserved)?;

        let mut table = BlockTable::new(owner, self.config.groups.len(), self.blocks_across(len));
        table.offered = hits.blocks();
        self.take_hits(&mut table, hits);
        self.load_hits(&mut table, hits, moves);
        self.fill(&mut table, hits.blocks(), moves);
        Ok(table)
    }

    /// Makes positions `computed..len` writable: new blocks at the end, and a copy of every block
    /// among them that somebody else, or the prefix cache, still wants as it is.
    pub fn grow(
        &mut self,
        table: &mut BlockTable,
        computed: usize,
        len: usize,
        moves: &mut Moves,
    ) -> Result<(), Shortage> {
        self.slide(table, computed);
        let new = self.missing(table, len);
        let copied = self.written(table, computed, len).filter(|(.., id)| self.is_shared(*id)).count();
        self.require(new + copied, 0)?;
        if new + copied + self.state_groups() <= self.pool.available() {
            self.keep_checkpoint(table, computed);
        }
        // One place at a time: a copy changes the table.
        loop {
            let shared = self.written(table, computed, len).find(|(.., id)| self.is_shared(*id));
            let Some((group, at, from)) = shared else { break };
            self.copy_on_write(table, group, at, from, moves);
        }
        self.lengthen(table, len, moves);
        Ok(())
    }

    /// Blocks for tokens up to `len`, ahead of the steps that compute them: no window slides and no
    /// state is named for it, for the step that runs first still looks at both.
    pub fn reserve(&mut self, table: &mut BlockTable, len: usize, moves: &mut Moves) -> Result<(), Shortage> {
        self.require(self.missing(table, len), 0)?;
        self.lengthen(table, len, moves);
        Ok(())
    }

    /// A second owner for every block that holds one of the first `keep` tokens of `table`, the
    /// partly filled one too. Where [`can_fork`](Self::can_fork) says so.
    pub fn fork(&mut self, owner: SeqId, table: &BlockTable, keep: usize) -> BlockTable {
        let stride = self.blocks_across(keep).min(table.stride());
        let mut child = BlockTable::new(owner, self.config.groups.len(), stride);
        for group in 0..self.config.groups.len() {
            for at in 0..stride {
                let from = if self.is_state(group) && at + 1 == stride { table.stride() - 1 } else { at };
                let id = table.group(group)[from];
                if id != NULL {
                    self.pool.share(id, owner);
                    child.set(group, at, id);
                }
            }
        }
        self.counts.forked += child.len() as u64;
        child.offered = table.offered.min(keep / self.config.block_size);
        child
    }

    /// Whether a fork of a table with `computed` tokens can go on after the first `keep` of them: a
    /// window that has slid on and a state that has run on cannot be brought back.
    pub fn can_fork(&self, table: &BlockTable, computed: usize, keep: usize) -> bool {
        keep <= computed
            && self.config.groups.iter().enumerate().all(|(group, spec)| match spec {
                CacheSpec::Recurrent => keep == computed || keep == 0,
                _ => {
                    let first = spec.first_kept(keep, self.config.block_size);
                    (first..self.blocks_across(keep)).all(|at| table.group(group)[at] != NULL)
                }
            })
    }

    /// Takes a table back, the last block first: the end of a prefix is evicted before its start.
    pub fn release(&mut self, table: &mut BlockTable) {
        for group in 0..self.config.groups.len() {
            // The radix tree has an order of its own, and the deepest block still protects the others.
            let in_tree = self.pool.index().tree_group() == Some(group);
            for i in 0..table.stride() {
                let at = if in_tree { i } else { table.stride() - 1 - i };
                self.release_place(table, group, at);
            }
        }
        table.clear();
        if self.pool.all_references() == 0 {
            // Nobody is left for whom a step would be run.
            self.end_moves();
        }
    }

    /// Back to an empty pool. Tables made before, swapped ones too, are void.
    pub fn reset(&mut self) {
        self.counts.freed += (self.pool.total() - self.pool.available()) as u64;
        self.pool.reset(&self.config);
        self.host.reset(&mut Vec::new());
        self.holds.clear();
        self.pins.clear();
        self.leaving.clear();
        self.epoch += 1;
        if self.pool.index().is_on() {
            self.events.cleared();
        }
    }

    /// Takes the place of another: whoever looks at both sees numbers that only grow.
    pub fn count_on(&mut self, before: &Self) {
        (self.counts, self.epoch) = (before.counts, before.epoch + 1);
    }

    pub fn block_size(&self) -> usize {
        self.config.block_size
    }

    /// Blocks of all groups that `len` tokens need at most.
    pub fn blocks_for(&self, len: usize) -> usize {
        most_blocks(&self.config.groups, len, self.config.chunk, self.config.block_size)
    }

    /// Blocks of all groups that a table will need at most, on its way to `len` tokens. Unlike
    /// `blocks_for(len) - table.len()` it does not ask again for blocks that a window left behind.
    pub fn still_needed(&self, table: &BlockTable, len: usize) -> usize {
        self.new_blocks(table.stride(), len)
    }

    /// The same for a sequence whose states are there already.
    pub(super) fn blocks_beyond(&self, stride: usize, len: usize) -> usize {
        self.new_blocks(stride, len) - if len > 0 { self.state_groups() } else { 0 }
    }

    /// The most blocks taken on the way from `stride` blocks across to `len` tokens. A state takes
    /// its block once.
    fn new_blocks(&self, stride: usize, len: usize) -> usize {
        let KvConfig { groups, chunk, block_size, .. } = &self.config;
        let across = self.blocks_across(len).saturating_sub(stride);
        let of_group = |spec: &CacheSpec| match spec {
            CacheSpec::Recurrent => usize::from(len > 0),
            _ => spec.most_blocks(across, *chunk, *block_size),
        };
        groups.iter().map(of_group).sum()
    }

    /// Blocks of all groups that a table must get to hold `len` tokens now.
    pub(super) fn missing(&self, table: &BlockTable, len: usize) -> usize {
        let paged = self.blocks_across(len).saturating_sub(table.stride()) * self.paged_groups();
        paged + if len > 0 && table.stride() == 0 { self.state_groups() } else { 0 }
    }

    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    pub fn counts(&self) -> KvCounts {
        KvCounts { evicted: self.pool.evictions(), ..self.counts }
    }

    pub fn view(&self, id: BlockId) -> BlockView {
        self.pool.view(id)
    }

    /// Appends the blocks that look different from when this was last called.
    pub fn take_changes(&mut self, into: &mut Vec<BlockChange>) {
        self.pool.take_changes(into);
    }

    /// Host memory and what it did, where it is on.
    pub fn tiers(&self) -> Vec<TierView> {
        self.host.is_on().then(|| self.host.view()).into_iter().collect()
    }

    /// What happened to the content of the cache since the last call.
    pub fn take_events(&mut self) -> Vec<KvEvent> {
        self.events.take()
    }
}

impl BlockManager {
    /// Owns what lies on the device and pins what lies in host memory, before anything is evicted.
    fn take_hits(&mut self, table: &mut BlockTable, hits: &Hits) {
        // The deepest first: that one protects all before it in the radix tree.
        for (group, at, hit) in hits.iter().rev() {
            match hit {
                Hit::Device(id) if self.is_state(group) => self.hold(id),
                Hit::Device(id) => {
                    self.pool.share(id, table.owner);
                    table.set(group, at, id);
                }
                Hit::Host(slot) => {
                    self.pin(slot);
                    // Its block becomes known again when it is offered.
                    table.offered = table.offered.min(at);
                }
                Hit::Disk => unreachable!("what is found on disk is fetched first"),
            }
            self.counts.hit += u64::from(matches!(hit, Hit::Device(_)));
        }
        self.host.queries += hits.host_queries;
        self.host.hits += hits.host_blocks() as u64;
    }

    /// Blocks for what lies in host memory, and states of the sequence's own.
    fn load_hits(&mut self, table: &mut BlockTable, hits: &Hits, moves: &mut Moves) {
        let last = table.stride() - 1;
        for (group, at, hit) in hits.iter() {
            let place = if self.is_state(group) { last } else { at };
            match hit {
                Hit::Host(slot) => {
                    let id = self.take(table, group, place, moves);
                    moves.loads.push((slot, id));
                    self.counts.loaded += 1;
                }
                // A state is written in every step: its checkpoint stays as it is.
                Hit::Device(from) if self.is_state(group) => {
                    let id = self.take(table, group, place, moves);
                    moves.copies.push((from, id));
                    self.counts.copied += 1;
                }
                Hit::Device(_) | Hit::Disk => {}
            }
        }
    }

    fn lengthen(&mut self, table: &mut BlockTable, len: usize, moves: &mut Moves) {
        let old = table.stride();
        table.widen(&self.config.groups, self.blocks_across(len));
        self.fill(table, old, moves);
    }

    /// New blocks for all places from `first` on, and for states that are not there yet.
    pub(super) fn fill(&mut self, table: &mut BlockTable, first: usize, moves: &mut Moves) {
        for group in 0..self.config.groups.len() {
            let first = if self.is_state(group) { table.stride() - 1 } else { first };
            for at in first..table.stride() {
                if table.group(group)[at] == NULL {
                    self.take(table, group, at, moves);
                }
            }
        }
    }

    /// Blocks that lie wholly before what position `computed` still looks at are free, the last one
    /// first.
    fn slide(&mut self, table: &mut BlockTable, computed: usize) {
        for group in 0..self.config.groups.len() {
            let first = self.config.groups[group].first_kept(computed, self.config.block_size);
            for at in (0..first.min(table.stride())).rev() {
                if table.group(group)[at] == NULL {
                    break;
                }
                self.release_place(table, group, at);
            }
        }
    }

    /// The blocks a table has now and that a step will write: group, place, block.
    fn written<'t>(
        &self,
        table: &'t BlockTable,
        computed: usize,
        len: usize,
    ) -> impl Iterator<Item = (usize, usize, BlockId)> + use<'t, '_> {
        let stride = table.stride();
        let paged = computed / self.config.block_size..self.blocks_across(len).min(stride);
        self.config.groups.iter().enumerate().flat_map(move |(group, spec)| {
            let places = match spec {
                CacheSpec::Recurrent => stride.saturating_sub(1)..stride,
                _ => paged.clone(),
            };
            places.map(move |at| (group, at, table.group(group)[at])).filter(|(.., id)| *id != NULL)
        })
    }

    /// What others own or may still find must not be written.
    fn is_shared(&self, id: BlockId) -> bool {
        self.pool.references(id) > 1 || self.pool.is_known(id)
    }

    fn copy_on_write(
        &mut self,
        table: &mut BlockTable,
        group: usize,
        at: usize,
        from: BlockId,
        moves: &mut Moves,
    ) {
        // Its last owner may be this one; and what is free may be loaded over before it is copied.
        self.hold(from);
        self.release_place(table, group, at);
        let to = self.take(table, group, at, moves);
        if self.pool.is_tainted(from) {
            self.pool.taint(to);
        }
        moves.copies.push((from, to));
        self.counts.copied += 1;
        if !self.is_state(group) {
            table.offered = table.offered.min(at);
        }
    }

    fn release_place(&mut self, table: &mut BlockTable, group: usize, at: usize) {
        let id = table.group(group)[at];
        if id != NULL {
            table.set(group, at, NULL);
            self.counts.freed += u64::from(self.pool.release(id, table.owner));
        }
    }

    pub(super) fn require(&self, needed: usize, reserved: usize) -> Result<(), Shortage> {
        let (available, cached) = (self.pool.available(), self.pool.cached());
        if needed + reserved <= available {
            return Ok(());
        }
        Err(Shortage { needed, free: available - cached, cached, reserved })
    }

    pub(super) fn is_state(&self, group: usize) -> bool {
        self.config.groups[group] == CacheSpec::Recurrent
    }

    fn state_groups(&self) -> usize {
        (0..self.config.groups.len()).filter(|group| self.is_state(*group)).count()
    }

    fn paged_groups(&self) -> usize {
        self.config.groups.len() - self.state_groups()
    }

    pub(super) fn blocks_across(&self, len: usize) -> usize {
        len.div_ceil(self.config.block_size)
    }
}
