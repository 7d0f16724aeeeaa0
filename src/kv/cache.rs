use super::table::NULL;
use super::{BlockManager, BlockTable, CacheKey, Prefix};
use crate::protocol::Medium;

/// Content becomes known, and is forgotten.
impl BlockManager {
    /// Makes the full blocks among the first `len` tokens known to the prefix cache.
    pub fn offer(&mut self, table: &mut BlockTable, prefix: Prefix, len: usize) {
        if !self.pool.index().is_on() {
            return;
        }
        let block_size = self.config.block_size;
        let full = (len / block_size).min(prefix.chain.hashes().len()).min(table.stride());
        let new = table.offered..full;
        table.offered = table.offered.max(full);
        table.checkpoint = None;
        if self.pool.any_tainted() && table.owned().any(|id| self.pool.is_tainted(id)) {
            // What was computed from a wrong past is as wrong.
            let groups = 0..self.config.groups.len();
            groups.flat_map(|group| &table.group(group)[new.clone()]).for_each(|id| self.pool.taint(*id));
            return;
        }
        if full > 0 && full * block_size == len {
            table.checkpoint = Some((len, prefix.chain.hashes()[full - 1]));
        }
        for group in (0..self.config.groups.len()).filter(|_| !new.is_empty()) {
            if self.is_state(group) {
                continue;
            }
            if self.pool.index().tree_group() == Some(group) {
                self.offer_path(table, group, prefix, new.clone());
                continue;
            }
            for at in new.clone() {
                let id = table.group(group)[at];
                let key = CacheKey::new(&prefix.chain.hashes()[at], group);
                if id != NULL && self.pool.know(id, key) {
                    let parent = at.checked_sub(1).map(|before| prefix.chain.hashes()[before]);
                    let tokens = &prefix.tokens[at * block_size..][..block_size];
                    self.pool.index_mut().note(id, parent, tokens);
                    self.events.stored(group, at, prefix.chain, prefix.tokens, block_size);
                }
            }
        }
    }

    /// All from the first block on: the tree knows nothing but paths. Where a block of the path that
    /// nobody keeps holds the same as one that the sequence computed anew, the new one takes its place:
    /// what the sequence adds behind it would otherwise hold fast both.
    fn offer_path(
        &mut self,
        table: &mut BlockTable,
        group: usize,
        prefix: Prefix,
        new: std::ops::Range<usize>,
    ) {
        let full = new.end;
        let tokens = &prefix.tokens[..full * self.config.block_size];
        let blocks = &table.group(group)[..full];
        let Some(tree) = self.pool.index_mut().tree_mut() else { return };
        let known = tree.insert(prefix.chain.namespace(), tokens, blocks, prefix.priority);
        if known > new.start {
            let path = tree.path(prefix.chain.namespace(), tokens, known);
            for at in new.start..known {
                if path[at] != blocks[at] && !self.pool.is_kept(path[at]) {
                    self.pool.replace_in_tree(path[at], blocks[at]);
                }
            }
        }
        for (at, id) in blocks.iter().enumerate().skip(known) {
            self.pool.know_in_tree(*id, CacheKey::new(&prefix.chain.hashes()[at], group));
            self.events.stored(group, at, prefix.chain, prefix.tokens, self.config.block_size);
        }
    }

    /// Tokens of a block, where states are among what is cached: one that a step leaves at another place
    /// than the end of a block is not.
    pub fn state_border(&self) -> Option<usize> {
        let states = (0..self.config.groups.len()).any(|group| self.is_state(group));
        (states && self.pool.index().is_on()).then_some(self.config.block_size)
    }

    /// Where the state holds what ends at a block border, that block is named before it is written
    /// again: the writer then leaves it to the cache and goes on with a copy.
    pub(super) fn keep_checkpoint(&mut self, table: &mut BlockTable, computed: usize) {
        let Some((_, hash)) = table.checkpoint.take().filter(|(len, _)| *len == computed) else { return };
        for group in 0..self.config.groups.len() {
            if !self.is_state(group) {
                continue;
            }
            let key = CacheKey::new(&hash, group);
            let state = table.group(group)[table.stride() - 1];
            if self.pool.know(state, key) {
                self.events.stored_by_name(&key, self.config.block_size, Medium::Device);
            }
        }
    }

    /// Takes back what a table offered beyond its `computed` tokens: its row of this step will not
    /// run after all.
    pub fn withdraw(&mut self, table: &mut BlockTable, computed: usize) {
        let first = computed / self.config.block_size;
        table.checkpoint = None;
        if first >= table.offered {
            return;
        }
        for group in 0..self.config.groups.len() {
            for at in first..table.offered.min(table.stride()) {
                self.pool.forget(table.group(group)[at], &mut self.forgotten);
            }
        }
        table.offered = first;
        self.tell_forgotten();
    }

    /// The content of these blocks is not to be trusted: no prefix may hit them, nor anything that
    /// their owners compute from them.
    pub fn forget(&mut self, table: &BlockTable) {
        for id in table.owned() {
            self.pool.taint(id);
            self.pool.forget(id, &mut self.forgotten);
        }
        self.tell_forgotten();
    }

    /// Forgets the content of every block that no sequence owns, here and in host memory. What is on
    /// disk stays: it is there to outlive this.
    pub fn reset_prefix_cache(&mut self) {
        self.end_moves();
        self.pool.forget_cached(&mut self.forgotten);
        let mut in_host = Vec::new();
        self.host.forget_cached(&mut in_host);
        if self.pool.known() == 0 && self.pool.index().is_on() {
            self.forgotten.clear();
            self.events.cleared();
            return;
        }
        self.tell_forgotten();
        in_host.iter().for_each(|key| self.events.removed(key, Medium::Host));
    }

    fn tell_forgotten(&mut self) {
        for (_, key) in self.forgotten.drain(..) {
            self.events.removed(&key, Medium::Device);
        }
    }
}
