//! Who owns which block of the KV cache. Ids and counts only, never a tensor.
//!
//! | file | what stands there |
//! |---|---|
//! | `hash` | the name of a full block: its tokens, everything before them, adapter and salt |
//! | `pool` | the blocks: who is free, reference counts, which content is still known |
//! | `index` | which block holds which content: by hash, or by a `radix` tree of tokens |
//! | `table` | the blocks of one sequence, for every cache group |
//! | `manager` | tables grow: admission, copy-on-write, sliding windows, forks, release |
//! | `moves` | what is copied between blocks and tiers before a step runs |
//! | `prefix` | the longest cached prefix of a sequence, over all groups and tiers |
//! | `cache` | content becomes known, and is forgotten |
//! | `host` | the second tier: slots in host memory |
//! | `swap` | whole sequences go to the host tier and come back |
//! | `offload` | what goes to the third tier, and what is wanted back |
//! | `disk` | the third tier: cached blocks in a folder, which outlives the program |
//! | `events` | what happened to the content, for those who listen |
//! | `look` | what a block holds and the cached prefixes as a tree, for whoever looks |
//! | `check` | everything recounted |

mod cache;
mod check;
mod disk;
mod events;
mod hash;
mod host;
mod index;
mod look;
mod manager;
mod moves;
mod offload;
mod pool;
mod prefix;
mod queue;
mod radix;
mod swap;
mod table;

#[cfg(test)]
mod tests;

pub use disk::{DiskError, DiskStore};
pub use hash::{BlockHash, CacheKey, ExtraKeys, HashChain};
pub use look::CachedRun;
pub use manager::{BlockManager, KvConfig, KvCounts};
pub use moves::Moves;
pub use pool::BlockPool;
pub use prefix::{Hits, Prefix};
pub use swap::SwappedTable;
pub use table::BlockTable;

use index::Index;
use radix::RadixTree;

/// Index of a block in the pool. Block 0 is the null block: it holds a place in a table and is
/// never owned, written or read.
pub type BlockId = u32;

/// Index of a block in the host tier.
pub type HostSlot = u32;

/// What one layer keeps of the past. A model declares one for each layer; layers of the same kind
/// form a group, and a sequence has one block table for each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheSpec {
    /// Every token.
    Full,
    /// The last `window` tokens (the token itself included).
    Sliding { window: usize },
    /// One state for the whole past (linear attention, a convolution), in a single block.
    Recurrent,
}

/// Blocks of all groups that a sequence of `tokens` owns at most, when no step runs more than `chunk`
/// of them.
pub fn most_blocks(groups: &[CacheSpec], tokens: usize, chunk: usize, block_size: usize) -> usize {
    let blocks = tokens.div_ceil(block_size);
    groups.iter().map(|spec| spec.most_blocks(blocks, chunk, block_size)).sum()
}

impl CacheSpec {
    /// Of `blocks` blocks across a sequence, those that are owned at a time: of a window, its own and
    /// those of the step's tokens, and one more because neither begins at a block's edge.
    fn most_blocks(self, blocks: usize, chunk: usize, block_size: usize) -> usize {
        match self {
            CacheSpec::Full => blocks,
            CacheSpec::Sliding { window } => {
                blocks.min((window.saturating_sub(1).saturating_add(chunk)).div_ceil(block_size) + 1)
            }
            CacheSpec::Recurrent => blocks.min(1),
        }
    }

    /// The blocks that must be there to go on after `blocks` full ones.
    fn needed_before(self, blocks: usize, block_size: usize) -> std::ops::Range<usize> {
        match self {
            CacheSpec::Full => 0..blocks,
            CacheSpec::Sliding { window } => {
                blocks.saturating_sub(window.saturating_sub(1).div_ceil(block_size))..blocks
            }
            CacheSpec::Recurrent => blocks.saturating_sub(1)..blocks,
        }
    }

    /// The first block that tokens from position `computed` on still look at.
    fn first_kept(self, computed: usize, block_size: usize) -> usize {
        match self {
            CacheSpec::Sliding { window } => (computed + 1).saturating_sub(window) / block_size,
            CacheSpec::Full | CacheSpec::Recurrent => 0,
        }
    }
}
