//! Who owns which block of the KV cache. Ids and counts only, never a tensor.
//!
//! | file | what stands there |
//! |---|---|
//! | `hash` | the name of a full block: its tokens and everything before them |
//! | `pool` | the blocks: free list, reference counts, which content is still known |
//! | `radix` | cached prefixes found by their tokens, as SGLang |
//! | `disk` | cached blocks in a folder, which outlives the program |
//! | `manager` | block tables of sequences: prefix hits, growth, copy-on-write, forks |

mod disk;
mod hash;
mod manager;
mod pool;
mod radix;

pub use disk::{DiskError, DiskStore};
pub use hash::{BlockHash, HashChain};
pub use manager::{
    BlockManager, BlockTable, Hits, HostSlot, KvConfig, KvCounts, Moves, Prefix, SwappedTable,
};
pub use pool::BlockPool;
pub use radix::RadixTree;

/// Index of a block in the pool. Block 0 is the null block: it holds a place in a table and is
/// never owned, written or read.
pub type BlockId = u32;

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
