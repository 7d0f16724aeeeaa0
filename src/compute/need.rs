//! What not every device can do.

use super::CacheShape;

/// What a model asks of a device, beside what every model does ([`Backend::supports`](super::Backend)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Attention over such a cache.
    Attention(CacheShape),
    /// Layers that keep one state for the whole past.
    States,
    /// So many experts, of which each row has `top`.
    Experts { count: usize, top: usize },
}
