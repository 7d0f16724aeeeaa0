use super::table::NULL;
use super::{BlockManager, BlockTable, CacheSpec, HostSlot, Moves};
use crate::protocol::{SeqId, Shortage};

/// Where the blocks of a swapped-out sequence lie in the host tier.
#[derive(Debug, Default)]
pub struct SwappedTable {
    /// Tokens whose keys and values they hold.
    pub computed: usize,
    blocks: Vec<SwappedBlock>,
    /// A reset of the manager makes it void.
    epoch: u64,
}

#[derive(Clone, Copy, Debug)]
struct SwappedBlock {
    group: usize,
    at: usize,
    slot: HostSlot,
}

impl SwappedTable {
    /// Host slots that it holds.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

/// Whole sequences go to the host tier and come back.
impl BlockManager {
    /// Moves what a sequence has computed to the host tier and releases its table; `None`, and
    /// nothing changed, where the host tier has no room for all of it.
    pub fn swap_out(
        &mut self,
        table: &mut BlockTable,
        computed: usize,
        moves: &mut Moves,
    ) -> Option<SwappedTable> {
        let places: Vec<_> = self.worth_keeping(table, computed).collect();
        // What is still to be loaded cannot be saved: saves come first.
        let loading = |id| moves.loads.iter().any(|(_, to)| *to == id);
        let ids = || places.iter().map(|(group, at)| table.group(*group)[*at]);
        if places.is_empty() || places.len() > self.host.room() || ids().any(loading) {
            return None;
        }
        self.withdraw(table, computed);
        let mut blocks = Vec::with_capacity(places.len());
        for (group, at) in places {
            let new = self.host.take_private().expect("there is room");
            // What is still to be copied lies where it is copied from.
            let id = table.group(group)[at];
            let from =
                moves.copies.iter().rev().fold(id, |id, (from, to)| if *to == id { *from } else { id });
            self.save(from, new, moves);
            blocks.push(SwappedBlock { group, at, slot: new.slot });
        }
        self.release(table);
        Some(SwappedTable { computed, blocks, epoch: self.epoch })
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
        debug_assert!(swapped.epoch == self.epoch || swapped.blocks.is_empty());
        let held = self.blocks_across(swapped.computed);
        let beyond = self.blocks_beyond(held, whole);
        self.require(swapped.blocks.len() + beyond, reserved)?;
        let mut table = BlockTable::new(owner, self.config.groups.len(), self.blocks_across(len));
        for SwappedBlock { group, at, slot } in swapped.blocks.drain(..) {
            let at = if self.is_state(group) { table.stride() - 1 } else { at };
            let id = self.take(&mut table, group, at, moves);
            moves.loads.push((slot, id));
            self.counts.loaded += 1;
            self.pin(slot);
            self.leaving.push(slot);
        }
        swapped.computed = 0;
        self.fill(&mut table, held, moves);
        Ok(table)
    }

    /// Gives up what a swapped-out sequence holds in the host tier.
    pub fn drop_swapped(&mut self, swapped: SwappedTable) {
        if swapped.epoch == self.epoch {
            swapped.blocks.iter().for_each(|block| self.host.drop_private(block.slot));
        }
    }

    /// Group and place of every block that tokens from `computed` on will look at.
    fn worth_keeping<'t>(
        &self,
        table: &'t BlockTable,
        computed: usize,
    ) -> impl Iterator<Item = (usize, usize)> + use<'t, '_> {
        let (block_size, stride) = (self.config.block_size, table.stride());
        let end = if computed > 0 { self.blocks_across(computed).min(stride) } else { 0 };
        self.config.groups.iter().enumerate().flat_map(move |(group, spec)| {
            let places = match spec {
                CacheSpec::Recurrent if computed > 0 => stride.saturating_sub(1)..stride,
                CacheSpec::Recurrent => 0..0,
                _ => spec.first_kept(computed, block_size)..end,
            };
            places.filter(move |at| table.group(group)[*at] != NULL).map(move |at| (group, at))
        })
    }
}
