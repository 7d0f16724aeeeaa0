//! Attention, and the cache that it looks at.

use super::{Backend, Norm, RopeTable};

/// Keys and values of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    pub blocks: usize,
    /// Tokens of a block.
    pub block_size: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// There are no values beside the keys: the keys' elements from here on are the values (the latent
    /// cache of DeepSeek-V2, section 2.1).
    pub latent: Option<usize>,
    pub dtype: CacheDtype,
    /// A block is as long as this at least: states of other layers lie in blocks of the same pool.
    pub least_bytes: usize,
}

impl CacheShape {
    /// Bytes of one head's keys (or values) in one block, their scales left out.
    pub fn side_bytes(&self) -> usize {
        self.block_size * self.head_dim * self.dtype.bytes()
    }

    /// Bytes of one head's part of a block.
    pub fn part_bytes(&self) -> usize {
        self.block_size * self.token_bytes()
    }

    /// Bytes of one token in one head.
    pub fn token_bytes(&self) -> usize {
        let both = self.dtype.token_bytes(self.head_dim);
        if self.latent.is_some() { both / 2 } else { both }
    }

    /// Bytes of one block: keys and values of all heads, or more where a state is to fit in.
    pub fn block_bytes(&self) -> usize {
        (self.kv_heads * self.part_bytes()).max(self.least_bytes)
    }
}

/// What keys and values are stored as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheDtype {
    #[default]
    F16,
    Bf16,
    /// As computed: for checking.
    F32,
    /// Bytes around zero; each token's key and each token's value has an f32 scale in every head.
    Int8,
    /// The same, but the bytes are e4m3 (Micikevicius et al. 2022): finer near zero, coarser near the
    /// largest.
    Fp8,
}

impl CacheDtype {
    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        match self {
            CacheDtype::F32 => 4,
            CacheDtype::F16 | CacheDtype::Bf16 => 2,
            CacheDtype::Int8 | CacheDtype::Fp8 => 1,
        }
    }

    /// Each token's key and value has a scale in every head.
    pub fn is_scaled(self) -> bool {
        matches!(self, CacheDtype::Int8 | CacheDtype::Fp8)
    }

    /// Bytes of one token's key and value in one head.
    pub fn token_bytes(self, head_dim: usize) -> usize {
        2 * (head_dim * self.bytes() + if self.is_scaled() { size_of::<f32>() } else { 0 })
    }
}

/// How queries, keys and values of a layer are made ready and used.
pub struct AttentionSpec<'a, B: Backend> {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Multiplies scores before the softmax.
    pub scale: f32,
    /// Each token sees the last `window` tokens, itself included.
    pub window: Option<usize>,
    /// Scores become `cap * tanh(score / cap)` (Gemma 2).
    pub soft_cap: Option<f32>,
    /// `[heads]`: a score that takes part in the softmax and has no value (gpt-oss; Xiao et al. 2023).
    pub sinks: Option<&'a B::Buf>,
    /// As of the cache: rows of `qkv` have no values, and `out` has `head_dim - latent` for a head.
    pub latent: Option<usize>,
    /// Normalisation of queries and keys before the rotation.
    pub query_norm: Option<HeadNorm<'a, B>>,
    pub key_norm: Option<HeadNorm<'a, B>>,
    /// `None`: positions are told some other way, or not at all.
    pub rope: Option<&'a RopeTable>,
    /// Of the [`Step`](super::Step): whose block tables these are, and which of its rope tables.
    pub group: usize,
    pub rope_index: usize,
}

/// A normalisation of queries or keys.
pub struct HeadNorm<'a, B: Backend> {
    pub norm: Norm<'a, B>,
    pub over: Over,
}

/// What is a row to a [`HeadNorm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Each head, all by the same weights `[head_dim]`.
    Head,
    /// Each head, by weights of its own: `[heads * head_dim]`.
    EachHead,
    /// All heads together, by weights `[heads * head_dim]`.
    Heads,
}
