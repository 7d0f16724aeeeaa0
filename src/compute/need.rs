//! What not every device can do.

use super::CacheShape;

/// What a model asks of a device, beside what every model does ([`Backend::supports`](super::Backend)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Attention over such a cache.
    Attention(CacheShape),
    /// Layers that keep one state for the whole past.
    States,
    Experts(MixtureShape),
}

/// The experts of a layer, the largest of them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MixtureShape {
    pub experts: usize,
    /// Experts of a row.
    pub top: usize,
    /// Columns before gate and up, and behind them.
    pub dim: usize,
    pub width: usize,
}
