use super::prefix::Hit;
use super::table::NULL;
use super::{BlockId, BlockManager, BlockTable, CacheKey, Hits, HostSlot, Prefix};
use crate::protocol::Medium;

/// What a third tier needs: it stores known blocks under their keys, and brings them back by way
/// of the host tier.
impl BlockManager {
    /// The full blocks of a table from place `from_block` on, with the keys they are found by. Of a
    /// recurrent group, the checkpoints that are still there.
    pub fn keys_of<'a>(
        &'a self,
        table: &'a BlockTable,
        prefix: Prefix<'a>,
        from_block: usize,
    ) -> impl Iterator<Item = (CacheKey, BlockId)> + 'a {
        let full = table.offered.min(prefix.chain.hashes().len());
        let places = (0..self.config.groups.len())
            .flat_map(move |group| (from_block..full).map(move |at| (group, at)));
        places.filter_map(move |(group, at)| {
            let key = CacheKey::new(&prefix.chain.hashes()[at], group);
            let id =
                if self.is_state(group) { self.pool.index().find(&key)? } else { table.group(group)[at] };
            (id != NULL && !self.pool.is_tainted(id)).then_some((key, id))
        })
    }

    /// Blocks that would make the cached prefix of the first `len` tokens longer and that disk
    /// `contains`; none where it cannot.
    pub fn disk_wanted(
        &mut self,
        prefix: Prefix,
        len: usize,
        contains: &dyn Fn(&CacheKey) -> bool,
    ) -> Vec<CacheKey> {
        let mut hits = Hits::default();
        self.search(prefix, len, Some(contains), &mut hits);
        let on_disk = hits.iter().filter(|(.., hit)| *hit == Hit::Disk);
        on_disk.map(|(group, at, _)| CacheKey::new(&prefix.chain.hashes()[at], group)).collect()
    }

    /// A slot for content that is on its way; it is nobody else's until it has arrived or failed.
    /// None where the content is here already, or on its way, or there is no room.
    pub fn host_slot_for(&mut self, key: CacheKey) -> Option<HostSlot> {
        let new = self.host.reserve(key)?;
        if let Some(evicted) = new.evicted {
            self.events.removed(&evicted, Medium::Host);
        }
        Some(new.slot)
    }

    pub fn host_arrived(&mut self, slot: HostSlot) {
        if let Some(key) = self.host.arrived(slot) {
            self.events.stored_by_name(&key, self.config.block_size, Medium::Host);
        }
    }

    pub fn host_failed(&mut self, slot: HostSlot) {
        self.host.failed(slot);
    }
}
