//! The KV cache, as data: how prefixes are found and dropped, what a number is stored as, and what
//! happened to which block.

use super::TokenId;
use super::named::named;
use serde::{Deserialize, Serialize};

named! {
    /// How the blocks of past prompts are found again.
    PrefixCache {
        /// By the hash of a block's tokens and of everything before them, as vLLM.
        #[default]
        Hash = "hash",
        /// By a radix tree of tokens, as SGLang.
        Radix = "radix",
        Off = "off",
    }
}

named! {
    /// Which cached blocks go first when memory is short. The hash cache is always `lru`; the radix
    /// tree drops leaves in this order (SGLang's `radix_eviction_policy`).
    EvictionPolicy {
        /// Least recently used.
        #[default]
        Lru = "lru",
        /// Least often hit, then least recently used.
        Lfu = "lfu",
        /// Oldest.
        Fifo = "fifo",
        /// Most recently used.
        Mru = "mru",
        /// Youngest.
        Filo = "filo",
        /// Segmented LRU: hit less than twice first, then least recently used.
        Slru = "slru",
        /// Lowest priority of the requests that passed through, then least recently used.
        Priority = "priority",
    }
}

named! {
    /// What keys and values are stored as.
    KvCacheDtype {
        #[default]
        F16 = "f16",
        Bf16 = "bf16",
        /// As computed, in twice the memory: for checking.
        F32 = "f32",
        /// 8 bits and one scale for each token and head.
        Int8 = "int8",
        /// 8 bits as e4m3 (sign, 4 of exponent, 3 of mantissa) and one scale for each token and head.
        Fp8 = "fp8",
    }
}

named! {
    /// Where a block's content lies.
    Medium {
        /// The device that computes with it.
        #[default]
        Device = "device",
        Host = "host",
        Disk = "disk",
    }
}

/// What happened to the *content* of the cache, as vLLM publishes it: a block is stored once its
/// tokens are known under a hash, and removed when no prefix can hit it any more, however many
/// sequences own it meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum KvEvent {
    BlockStored {
        block_hashes: Vec<KvHash>,
        /// Of the block before the first; none for the first of a sequence.
        parent_block_hash: Option<KvHash>,
        token_ids: Vec<TokenId>,
        block_size: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lora_name: Option<String>,
        medium: Medium,
        group_idx: usize,
    },
    BlockRemoved {
        block_hashes: Vec<KvHash>,
        medium: Medium,
        group_idx: usize,
    },
    AllBlocksCleared,
}

/// The low 64 bits of a block's hash: vLLM's integer form.
pub type KvHash = u64;
