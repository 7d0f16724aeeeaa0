use super::{BlockId, BlockPool, CacheSpec, HashChain};
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
/// - a sequence that got tokens in a step is not preempted in that step, and nothing is admitted in
///   a step that preempts;
/// - a step that fails as a whole resets everything ([`BlockManager::reset`]), and a sequence whose
///   own numbers went wrong takes its blocks out of the cache ([`BlockManager::forget`]).
#[derive(Debug)]
pub struct BlockManager {
    pool: BlockPool,
    config: KvConfig,
    counts: KvCounts,
}

/// What a pool is made of.
#[derive(Clone, Debug)]
pub struct KvConfig {
    /// The null block included.
    pub num_blocks: usize,
    pub block_size: usize,
    /// One entry for each cache group of the model.
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
            groups: vec![CacheSpec::Full],
            prefix_cache: PrefixCache::Hash,
            eviction: EvictionPolicy::Lru,
            host_blocks: 0,
            events: false,
        }
    }
}

/// What a sequence is found by, and offered under.
#[derive(Clone, Copy, Debug)]
pub struct Prefix<'a> {
    /// All of the sequence's tokens.
    pub tokens: &'a [u32],
    pub chain: &'a HashChain,
    pub priority: i32,
}

/// The blocks of one sequence, in order of position.
#[derive(Debug, Default)]
pub struct BlockTable {
    pub owner: SeqId,
    blocks: Vec<BlockId>,
    /// How many of them, from the first on, have been offered to the prefix cache.
    offered: usize,
}

/// Where the blocks of a swapped-out sequence lie in the host tier.
#[derive(Debug, Default)]
pub struct SwappedTable {
    /// Tokens whose keys and values they hold.
    pub computed: usize,
}

/// A cached prefix: whole blocks that hold the first tokens of a sequence. Its memory is used again.
#[derive(Debug, Default)]
pub struct Hits {
    blocks: Vec<BlockId>,
    /// Of those, blocks nobody owns now: taking them makes the pool smaller.
    evictable: usize,
    tokens: usize,
}

/// Blocks to copy before a step writes anything, in this order: saves, loads, copies.
#[derive(Debug, Default)]
pub struct Moves {
    /// Device to host, because the block is about to be used for something else.
    pub saves: Vec<(BlockId, HostSlot)>,
    pub loads: Vec<(HostSlot, BlockId)>,
    /// A shared block is about to be written: its content goes to a block of the writer's own first.
    pub copies: Vec<(BlockId, BlockId)>,
}

/// Index of a block in the host tier.
pub type HostSlot = u32;

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
        Self { pool: BlockPool::new(config.num_blocks), config, counts: KvCounts::default() }
    }

    /// A new plan begins: step `step`, counted from 1.
    pub fn begin_step(&mut self, _step: u64) {}

    /// The longest cached prefix of the first `len` tokens of a sequence. At most `len - 1` of them:
    /// the last one must run, or there would be no logits to go on with.
    pub fn find_prefix(&mut self, prefix: Prefix, len: usize, hits: &mut Hits) {
        hits.clear();
        if !self.caching() {
            return;
        }
        let longest = len.saturating_sub(1) / self.config.block_size;
        for hash in prefix.chain.hashes().iter().take(longest) {
            let Some(id) = self.pool.find(hash) else { break };
            hits.evictable += usize::from(self.pool.references(id) == 0);
            hits.blocks.push(id);
        }
        hits.tokens = hits.blocks.len() * self.config.block_size;
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
        _moves: &mut Moves,
    ) -> Result<BlockTable, Shortage> {
        debug_assert!(hits.tokens < len && len <= whole);
        let needed = self.blocks_for(whole) - hits.blocks.len() + hits.evictable;
        self.require(needed, reserved)?;
        hits.blocks.iter().for_each(|id| self.pool.share(*id));
        self.counts.hit += hits.blocks.len() as u64;
        let mut table = BlockTable { owner, offered: hits.blocks.len(), blocks: hits.blocks.clone() };
        self.extend(&mut table, len);
        Ok(table)
    }

    /// Makes positions `computed..len` writable: new blocks at the end, and a copy of the block at
    /// `computed` where others share it.
    pub fn grow(
        &mut self,
        table: &mut BlockTable,
        computed: usize,
        len: usize,
        moves: &mut Moves,
    ) -> Result<(), Shortage> {
        let written = computed / self.config.block_size;
        let shared = table.blocks.get(written).copied().filter(|id| self.pool.references(*id) > 1);
        let new = self.blocks_for(len).saturating_sub(table.blocks.len());
        self.require(new + usize::from(shared.is_some()), 0)?;
        if let Some(from) = shared {
            let to = self.copy_on_write(table, written, from);
            moves.copies.push((from, to));
        }
        self.extend(table, len);
        Ok(())
    }

    /// Makes the full blocks among the first `len` tokens known to the prefix cache.
    pub fn offer(&mut self, table: &mut BlockTable, prefix: Prefix, len: usize) {
        if !self.caching() {
            return;
        }
        let full = (len / self.config.block_size).min(prefix.chain.hashes().len());
        for at in table.offered..full {
            self.pool.make_known(table.blocks[at], prefix.chain.hashes()[at]);
        }
        table.offered = table.offered.max(full);
    }

    /// A second owner for every block that holds one of the first `keep` tokens of `table`, the
    /// partly filled one too.
    pub fn fork(&mut self, owner: SeqId, table: &BlockTable, keep: usize) -> BlockTable {
        let blocks = table.blocks[..self.blocks_for(keep)].to_vec();
        blocks.iter().for_each(|id| self.pool.share(*id));
        self.counts.forked += blocks.len() as u64;
        BlockTable { owner, offered: table.offered.min(keep / self.config.block_size), blocks }
    }

    /// Takes a table back, the last block first: the end of a prefix is evicted before its start.
    pub fn release(&mut self, table: &mut BlockTable) {
        for id in table.blocks.drain(..).rev() {
            self.counts.freed += u64::from(self.pool.release(id));
        }
        table.offered = 0;
    }

    /// Moves what a sequence has computed to the host tier and releases its table; `None`, and
    /// nothing changed, where the host tier has no room for all of it.
    pub fn swap_out(
        &mut self,
        _table: &mut BlockTable,
        _computed: usize,
        _moves: &mut Moves,
    ) -> Option<SwappedTable> {
        None
    }

    /// Brings a swapped-out sequence back, with room for `len` tokens; `swapped` is empty afterwards.
    pub fn swap_in(
        &mut self,
        owner: SeqId,
        swapped: &mut SwappedTable,
        len: usize,
        whole: usize,
        reserved: usize,
        moves: &mut Moves,
    ) -> Result<BlockTable, Shortage> {
        debug_assert_eq!(swapped.computed, 0);
        self.admit(owner, &Hits::default(), len, whole, reserved, moves)
    }

    /// Gives up what a swapped-out sequence holds in the host tier.
    pub fn drop_swapped(&mut self, _swapped: SwappedTable) {}

    /// The content of these blocks is not to be trusted: no prefix may hit them.
    pub fn forget(&mut self, table: &BlockTable) {
        for id in &table.blocks {
            self.pool.forget(*id);
        }
    }

    /// Forgets the content of every block that no sequence owns, in every tier.
    pub fn reset_prefix_cache(&mut self) {
        self.pool.forget_free();
    }

    /// Back to an empty pool. Tables made before are void.
    pub fn reset(&mut self) {
        self.counts.evicted += self.pool.evictions();
        self.counts.freed += (self.pool.total() - self.pool.available()) as u64;
        self.pool = BlockPool::new(self.pool.total() + 1);
    }

    /// Recounts all blocks against the tables of all sequences: free + cached + owned = total, and
    /// every reference count equals the number of owners. Says what is wrong.
    pub fn check<'a>(&self, tables: impl IntoIterator<Item = &'a BlockTable>) -> Result<(), String> {
        let mut owners = vec![0; self.pool.total() + 1];
        for id in tables.into_iter().flat_map(|table| &table.blocks) {
            owners[*id as usize] += 1;
        }
        self.pool.check(&owners)
    }

    pub fn block_size(&self) -> usize {
        self.config.block_size
    }

    /// Blocks of all groups that `len` tokens need at most.
    pub fn blocks_for(&self, len: usize) -> usize {
        len.div_ceil(self.config.block_size)
    }

    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    pub fn counts(&self) -> KvCounts {
        KvCounts { evicted: self.counts.evicted + self.pool.evictions(), ..self.counts }
    }

    pub fn view(&self, id: BlockId) -> BlockView {
        BlockView {
            references: u16::try_from(self.pool.references(id)).unwrap_or(u16::MAX),
            cached: self.pool.is_known(id),
            ..BlockView::default()
        }
    }

    /// Appends the blocks that are not what they were at the last call.
    pub fn take_changes(&mut self, _into: &mut Vec<BlockChange>) {}

    /// Host memory and what it did, where it is on.
    pub fn tiers(&self) -> Vec<TierView> {
        Vec::new()
    }

    /// What happened to the content of the cache since the last call.
    pub fn take_events(&mut self) -> Vec<KvEvent> {
        Vec::new()
    }

    fn caching(&self) -> bool {
        self.config.prefix_cache != PrefixCache::Off
    }

    fn require(&self, needed: usize, reserved: usize) -> Result<(), Shortage> {
        let (available, cached) = (self.pool.available(), self.pool.cached());
        if needed + reserved <= available {
            return Ok(());
        }
        Err(Shortage { needed, free: available - cached, cached, reserved })
    }

    fn extend(&mut self, table: &mut BlockTable, len: usize) {
        while table.blocks.len() < self.blocks_for(len) {
            let id = self.pool.take().expect("require counted the blocks");
            self.counts.taken += 1;
            table.blocks.push(id);
        }
    }

    fn copy_on_write(&mut self, table: &mut BlockTable, at: usize, from: BlockId) -> BlockId {
        let to = self.pool.take().expect("require counted the blocks");
        self.counts.taken += 1;
        self.counts.copied += 1;
        self.pool.release(from);
        table.blocks[at] = to;
        table.offered = table.offered.min(at);
        to
    }
}

impl BlockTable {
    /// Blocks of all groups, group after group; the null block where a group no longer keeps one.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Owned blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

impl Hits {
    /// How many tokens of the sequence are found.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    pub fn clear(&mut self) {
        self.blocks.clear();
        (self.evictable, self.tokens) = (0, 0);
    }
}

impl Moves {
    pub fn is_empty(&self) -> bool {
        self.saves.is_empty() && self.loads.is_empty() && self.copies.is_empty()
    }

    /// Empties it and keeps the memory.
    pub fn clear(&mut self) {
        self.saves.clear();
        self.loads.clear();
        self.copies.clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn manager(num_blocks: usize, block_size: usize, caching: bool) -> BlockManager {
        let prefix_cache = if caching { PrefixCache::Hash } else { PrefixCache::Off };
        BlockManager::new(KvConfig { prefix_cache, ..KvConfig::new(num_blocks, block_size) })
    }

    fn find(kv: &mut BlockManager, tokens: &[u32], len: usize) -> Hits {
        let (chain, mut hits) = (chain(tokens), Hits::default());
        kv.find_prefix(Prefix { tokens, chain: &chain, priority: 0 }, len, &mut hits);
        hits
    }

    fn chain(tokens: &[u32]) -> HashChain {
        let mut chain = HashChain::new(4, b"");
        chain.extend(tokens);
        chain
    }

    /// Admits, "computes" and offers a whole sequence; gives its table and how many blocks hit.
    fn run(kv: &mut BlockManager, tokens: &[u32]) -> (BlockTable, usize) {
        let hits = find(kv, tokens, tokens.len());
        let found = hits.blocks.len();
        let mut table =
            kv.admit(SeqId::default(), &hits, tokens.len(), tokens.len(), 0, &mut Moves::default()).unwrap();
        let chain = chain(tokens);
        kv.offer(&mut table, Prefix { tokens, chain: &chain, priority: 0 }, tokens.len());
        (table, found)
    }

    #[test]
    fn a_second_sequence_shares_the_full_blocks_of_a_common_prefix() {
        let mut kv = manager(11, 4, true);
        let (a, hit) = run(&mut kv, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(hit, 0);
        let (b, hit) = run(&mut kv, &[1, 2, 3, 4, 5, 6, 7, 8, 10, 11]);
        assert_eq!((hit, &a.blocks()[..2]), (2, &b.blocks()[..2]));
        assert_eq!(kv.pool().references(a.blocks()[0]), 2);
        let (c, hit) = run(&mut kv, &[9, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(hit, 0, "another first token, nothing in common");
        kv.check([&a, &b, &c]).unwrap();
    }

    /// K03: a prompt that is cached to its last token still leaves one block to compute.
    #[test]
    fn k03_a_full_hit_at_a_block_border_leaves_the_last_block_to_run() {
        let mut kv = manager(11, 4, true);
        let tokens = [1, 2, 3, 4, 5, 6, 7, 8];
        let (mut a, _) = run(&mut kv, &tokens);
        kv.release(&mut a);
        assert_eq!(find(&mut kv, &tokens, 8).blocks.len(), 1);
        assert_eq!(find(&mut kv, &[1, 2, 3, 4, 5, 6, 7, 8, 9], 9).blocks.len(), 2);
    }

    /// K16: an empty cache, and nothing to look for, are plain misses.
    #[test]
    fn k16_nothing_cached_and_nothing_asked_are_misses() {
        let mut kv = manager(3, 4, true);
        assert!(find(&mut kv, &[], 0).blocks.is_empty());
        assert!(find(&mut kv, &[1, 2, 3, 4, 5], 5).blocks.is_empty());
    }

    #[test]
    fn evictable_hits_count_once_against_the_free_blocks() {
        let mut kv = manager(5, 4, true); // 4 blocks to own
        let (mut a, _) = run(&mut kv, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let (_b, _) = run(&mut kv, &[7]);
        kv.release(&mut a);
        // 3 available, 2 of them cached. The sequence needs 4 blocks, 2 by hits: 2 + 2 > 3.
        let tokens: Vec<u32> = (1..=14).collect();
        let hits = find(&mut kv, &tokens, 14);
        assert_eq!((hits.blocks.len(), hits.evictable), (2, 2));
        let short = kv.admit(SeqId::default(), &hits, 14, 14, 0, &mut Moves::default()).unwrap_err();
        assert_eq!(short, Shortage { needed: 4, free: 1, cached: 2, reserved: 0 });
        let tokens: Vec<u32> = (1..=12).collect();
        let hits = find(&mut kv, &tokens, 12);
        assert!(kv.admit(SeqId::default(), &hits, 12, 12, 0, &mut Moves::default()).is_ok());
    }

    #[test]
    fn a_prompt_that_fits_only_in_part_is_not_admitted() {
        let mut kv = manager(5, 4, false);
        assert_eq!(
            kv.admit(SeqId::default(), &Hits::default(), 4, 20, 0, &mut Moves::default()).unwrap_err().needed,
            5
        );
        assert_eq!(
            kv.admit(SeqId::default(), &Hits::default(), 4, 8, 3, &mut Moves::default())
                .unwrap_err()
                .reserved,
            3
        );
        assert_eq!(
            kv.admit(SeqId::default(), &Hits::default(), 4, 8, 2, &mut Moves::default()).unwrap().blocks(),
            [1]
        );
    }

    #[test]
    fn forks_share_all_blocks_and_copy_only_the_partial_one_when_it_is_written() {
        let mut kv = manager(11, 4, true);
        let (mut parent, _) = run(&mut kv, &[1, 2, 3, 4, 5, 6]);
        let (mut one, mut two) =
            (kv.fork(SeqId::default(), &parent, 6), kv.fork(SeqId::default(), &parent, 6));
        assert_eq!(kv.pool().available(), 8);
        let partial = parent.blocks()[1];
        let mut moves = Moves::default();
        kv.grow(&mut parent, 6, 7, &mut moves).unwrap();
        assert_eq!(moves.copies, [(partial, parent.blocks()[1])]);
        kv.grow(&mut one, 6, 7, &mut moves).unwrap();
        kv.grow(&mut two, 6, 7, &mut moves).unwrap();
        assert_eq!(moves.copies.len(), 2, "the last owner writes in place");
        assert_eq!(two.blocks()[1], partial);
        kv.grow(&mut two, 7, 9, &mut moves).unwrap();
        assert_eq!(moves.copies.len(), 2);
        assert_eq!(kv.pool().references(parent.blocks()[0]), 3);
        assert_eq!(kv.counts().copied, 2);
        kv.check([&parent, &one, &two]).unwrap();
    }

    #[test]
    fn a_copy_that_does_not_fit_changes_nothing() {
        let mut kv = manager(2, 4, true);
        let (mut parent, _) = run(&mut kv, &[1, 2]);
        let child = kv.fork(SeqId::default(), &parent, 2);
        assert_eq!(kv.grow(&mut parent, 2, 3, &mut Moves::default()).unwrap_err().needed, 1);
        kv.check([&parent, &child]).unwrap();
    }

    /// K02: a length that divides by the block size, then one more.
    #[test]
    fn k02_blocks_are_counted_right_at_a_border() {
        let mut kv = manager(6, 4, true);
        let (mut a, _) = run(&mut kv, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(a.blocks().len(), 2);
        kv.grow(&mut a, 8, 9, &mut Moves::default()).unwrap();
        assert_eq!(a.blocks().len(), 3);
        kv.release(&mut a);
        assert_eq!((kv.pool().available(), kv.pool().cached()), (5, 2));
        kv.check([]).unwrap();
    }

    #[test]
    fn what_is_forgotten_is_never_hit_and_what_is_owned_stays_owned() {
        let mut kv = manager(6, 4, true);
        let tokens = [1, 2, 3, 4, 5];
        let (a, _) = run(&mut kv, &tokens);
        kv.forget(&a);
        assert!(find(&mut kv, &tokens, 5).blocks.is_empty());
        let (mut b, hit) = run(&mut kv, &tokens);
        assert_eq!(hit, 0);
        kv.reset_prefix_cache();
        assert_eq!(find(&mut kv, &tokens, 5).blocks.len(), 1, "owned: still known");
        kv.release(&mut b);
        kv.reset_prefix_cache();
        assert_eq!(find(&mut kv, &tokens, 5).blocks.len(), 0);
        kv.check([&a]).unwrap();
    }

    #[test]
    fn without_caching_nothing_is_known() {
        let mut kv = manager(6, 4, false);
        let (mut a, _) = run(&mut kv, &[1, 2, 3, 4, 5]);
        kv.release(&mut a);
        assert_eq!((kv.pool().cached(), run(&mut kv, &[1, 2, 3, 4, 5]).1), (0, 0));
    }

    #[derive(Clone, Debug)]
    enum Act {
        Admit(Vec<u32>),
        Grow(usize),
        Fork(usize),
        Release(usize),
        Reset,
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            3 => prop::collection::vec(0u32..2, 1..24).prop_map(Act::Admit),
            4 => any::<usize>().prop_map(Act::Grow),
            1 => any::<usize>().prop_map(Act::Fork),
            3 => any::<usize>().prop_map(Act::Release),
            1 => Just(Act::Reset),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        /// Whatever happens: free + cached + owned = total, reference counts equal owners, and a
        /// block that is about to be written has one owner.
        #[test]
        fn no_block_is_lost_or_owned_twice(acts in prop::collection::vec(act(), 1..120)) {
            let mut kv = manager(13, 4, true);
            let mut live: Vec<(Vec<u32>, HashChain, BlockTable)> = Vec::new();
            for act in acts {
                let pick = |i: usize| (!live.is_empty()).then(|| i % live.len());
                match act {
                    Act::Admit(tokens) => {
                        let chain = chain(&tokens);
                        let hits = find(&mut kv, &tokens, tokens.len());
                        if let Ok(mut table) = kv.admit(SeqId::default(), &hits, tokens.len(), tokens.len(), 0, &mut Moves::default()) {
                            kv.offer(&mut table, Prefix { tokens: &tokens, chain: &chain, priority: 0 }, tokens.len());
                            live.push((tokens, chain, table));
                        }
                    }
                    Act::Grow(i) => if let Some(i) = pick(i) {
                        let (tokens, chain, table) = &mut live[i];
                        let len = tokens.len();
                        if kv.grow(table, len, len + 1, &mut Moves::default()).is_ok() {
                            prop_assert_eq!(kv.pool().references(table.blocks()[len / 4]), 1);
                            tokens.push(i as u32);
                            chain.extend(tokens);
                            kv.offer(table, Prefix { tokens, chain, priority: 0 }, len + 1);
                        }
                    },
                    Act::Fork(i) => if let Some(i) = pick(i) {
                        let (tokens, chain) = (live[i].0.clone(), live[i].1.clone());
                        let table = kv.fork(SeqId::default(), &live[i].2, tokens.len());
                        live.push((tokens, chain, table));
                    },
                    Act::Release(i) => if let Some(i) = pick(i) {
                        kv.release(&mut live.swap_remove(i).2);
                    },
                    Act::Reset => kv.reset_prefix_cache(),
                }
                let checked = kv.check(live.iter().map(|(_, _, table)| table));
                prop_assert!(checked.is_ok(), "{:?}", checked);
            }
        }
    }
}
