//! Layers that keep one state for the whole past.

use super::Backend;

/// Where a layer's state lies: in the last block of a sequence's table in a group. A span that starts at
/// 0 finds zeros there, whatever was written before.
pub struct State<'a, B: Backend> {
    pub cache: &'a mut B::Cache,
    /// Of the [`Step`](super::Step): whose block tables these are.
    pub group: usize,
    /// Values (f32) of the block before this part of the state.
    pub first: usize,
}

/// A causal convolution of each channel over the sequence; the state is the last `width - 1` inputs,
/// `[width - 1, channels]`.
pub struct Convolution<'a, B: Backend> {
    pub weight: &'a B::Buf,       // [channels, width]
    pub bias: Option<&'a B::Buf>, // [channels]
    pub width: usize,
    pub silu: bool,
}

/// The gated delta rule (Yang et al. 2024): of each value head a state S `[key_dim, value_dim]`, and for
/// each token `S = exp(g) S; S += k (beta (v - S^T k))^T; out = S^T q`, with
/// `g = -exp(a_log) softplus(a + dt_bias)`, `beta = sigmoid(b)`, q and k normalised to length 1
/// (eps 1e-6), q divided by sqrt(key_dim). The state is `[value_heads, key_dim, value_dim]`.
pub struct DeltaRule<'a, B: Backend> {
    pub key_heads: usize,
    /// A multiple; value head h reads key head `h / (value_heads / key_heads)`.
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    /// Columns of a row of `x`: queries and keys `[key_heads, key_dim]`, values `[value_heads, value_dim]`.
    pub query: usize,
    pub key: usize,
    pub value: usize,
    pub stride: usize,
    /// Of a row of `gates`: b and a, `[value_heads]` each.
    pub b: usize,
    pub a: usize,
    pub gates_stride: usize,
    pub a_log: &'a B::Buf, // [value_heads]: -exp(a_log) as it multiplies, which GGUF calls ssm_a
    pub dt_bias: &'a B::Buf, // [value_heads]
}

/// Mamba-2's state-space recurrence (Dao and Gu 2024, section 6): of each head a state h `[head_dim, state]`,
/// and for each token `dt = clamp(softplus(dt + dt_bias)); h = exp(dt a) h + dt x B^T; out = h C + d x`.
/// The state is `[heads, head_dim, state]`.
pub struct Scan<'a, B: Backend> {
    pub heads: usize,
    pub head_dim: usize,
    /// B and C are shared by the heads of a group.
    pub groups: usize,
    pub state: usize,
    /// Columns of a row of `x`: x `[heads, head_dim]`, B and C `[groups, state]`.
    pub x: usize,
    pub b: usize,
    pub c: usize,
    pub stride: usize,
    /// Of a row of `dt`: `[heads]`.
    pub dt: usize,
    pub dt_stride: usize,
    pub a: &'a B::Buf,       // [heads], negative
    pub d: &'a B::Buf,       // [heads]
    pub dt_bias: &'a B::Buf, // [heads]
    pub dt_limit: (f32, f32),
}
