use super::{BlockHash, BlockId, CacheSpec};
use crate::protocol::SeqId;

/// Holds a place where a table keeps no block.
pub(super) const NULL: BlockId = 0;

/// The blocks of one sequence, in order of position, for every cache group.
#[derive(Debug, Default)]
pub struct BlockTable {
    pub owner: SeqId,
    /// `[groups, stride]`
    blocks: Vec<BlockId>,
    /// Places of each group.
    stride: usize,
    /// Places that are not null.
    owned: usize,
    /// How many full blocks, from the first on, have been offered to the prefix cache.
    pub(super) offered: usize,
    /// After the step that is being planned the recurrent state holds this many tokens, which end
    /// at a block border and have this name.
    pub(super) checkpoint: Option<(usize, BlockHash)>,
}

impl BlockTable {
    pub(super) fn new(owner: SeqId, groups: usize, stride: usize) -> Self {
        Self { owner, blocks: vec![NULL; groups * stride], stride, ..Self::default() }
    }

    /// Blocks of all groups, group after group; the null block where a group no longer keeps one.
    /// Of a recurrent group only the last place is used.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Owned blocks.
    pub fn len(&self) -> usize {
        self.owned
    }

    pub fn is_empty(&self) -> bool {
        self.owned == 0
    }

    /// Places of each group, kept or null: the blocks that its tokens span.
    pub fn stride(&self) -> usize {
        self.stride
    }

    pub(super) fn group(&self, group: usize) -> &[BlockId] {
        &self.blocks[group * self.stride..][..self.stride]
    }

    pub(super) fn set(&mut self, group: usize, at: usize, id: BlockId) {
        let place = &mut self.blocks[group * self.stride + at];
        self.owned += usize::from(id != NULL);
        self.owned -= usize::from(*place != NULL);
        *place = id;
    }

    /// The ids of owned blocks.
    pub fn owned(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.blocks.iter().copied().filter(|id| *id != NULL)
    }

    /// More places, null at first; a recurrent state moves to the new last one.
    pub(super) fn widen(&mut self, groups: &[CacheSpec], stride: usize) {
        let old = self.stride;
        if stride <= old {
            return;
        }
        self.blocks.resize(groups.len() * stride, NULL);
        for (group, spec) in groups.iter().enumerate().rev() {
            let start = group * stride;
            self.blocks.copy_within(group * old..(group + 1) * old, start);
            self.blocks[start + old..start + stride].fill(NULL);
            if *spec == CacheSpec::Recurrent && old > 0 {
                self.blocks.swap(start + old - 1, start + stride - 1);
            }
        }
        self.stride = stride;
    }

    /// Empty again, and of the same owner.
    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        (self.stride, self.owned, self.offered) = (0, 0, 0);
        self.checkpoint = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wider_table_keeps_every_block_in_its_group_and_the_state_in_the_last_place() {
        let groups = [CacheSpec::Full, CacheSpec::Recurrent, CacheSpec::Sliding { window: 4 }];
        let mut table = BlockTable::default();
        table.widen(&groups, 1);
        (0..3).for_each(|group| table.set(group, 0, group as u32 + 1));
        table.widen(&groups, 3);
        assert_eq!(table.blocks(), [1, 0, 0, 0, 0, 2, 3, 0, 0]);
        table.set(0, 1, 4);
        table.widen(&groups, 4);
        assert_eq!(table.blocks(), [1, 4, 0, 0, 0, 0, 0, 2, 3, 0, 0, 0]);
        assert_eq!((table.len(), table.stride()), (4, 4));
        table.clear();
        assert!(table.is_empty() && table.blocks().is_empty());
    }
}
