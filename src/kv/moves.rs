use super::host::NewSlot;
use super::{BlockId, BlockManager, BlockTable, HostSlot};
use crate::protocol::Medium;

/// Blocks to copy before a step writes anything, in this order: saves, loads, copies; and each kind
/// in the order it was planned in.
#[derive(Debug, Default)]
pub struct Moves {
    /// Device to host, because the block is about to be used for something else.
    pub saves: Vec<(BlockId, HostSlot)>,
    pub loads: Vec<(HostSlot, BlockId)>,
    /// A shared block is about to be written: its content goes to a block of the writer's own first.
    pub copies: Vec<(BlockId, BlockId)>,
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

/// What a planned step moves, and what must stay where it is until it has.
impl BlockManager {
    /// A new block for a place of a table. What it held goes to host memory, if that is on.
    pub(super) fn take(
        &mut self,
        table: &mut BlockTable,
        group: usize,
        at: usize,
        moves: &mut Moves,
    ) -> BlockId {
        let (id, evicted) = self.pool.take(table.owner).expect("require counted the blocks");
        self.counts.taken += 1;
        table.set(group, at, id);
        if let Some(key) = evicted {
            self.events.removed(&key, Medium::Device);
            if let Some(new) = self.host.store(key) {
                self.save(id, new, moves);
                self.events.stored_by_name(&key, self.config.block_size, Medium::Host);
            }
        }
        id
    }

    /// Copies a block to host memory.
    pub(super) fn save(&mut self, from: BlockId, to: NewSlot, moves: &mut Moves) {
        if let Some(key) = to.evicted {
            self.events.removed(&key, Medium::Host);
            // What it held may have been on its way there in this very step.
            if let Some(planned) = moves.saves.iter_mut().find(|(_, slot)| *slot == to.slot) {
                planned.0 = from;
                return;
            }
        }
        moves.saves.push((from, to.slot));
        self.counts.saved += 1;
    }

    /// Keeps what is still to be copied from.
    pub(super) fn hold(&mut self, id: BlockId) {
        self.pool.hold(id);
        self.holds.push(id);
    }

    /// Keeps what is still to be loaded from.
    pub(super) fn pin(&mut self, slot: HostSlot) {
        self.host.pin(slot);
        self.pins.push(slot);
    }

    /// The moves of the last plan are done.
    pub(super) fn end_moves(&mut self) {
        while let Some(id) = self.holds.pop() {
            self.pool.drop_hold(id);
        }
        while let Some(slot) = self.pins.pop() {
            self.host.unpin(slot);
        }
        while let Some(slot) = self.leaving.pop() {
            self.host.drop_private(slot);
        }
    }
}
