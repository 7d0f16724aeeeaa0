//! Shards and collectives. One device needs neither, and pays nothing: [`Solo`] does nothing.
//!
//! The seams stand from the start: weights are loaded through a [`Shard`], and a row-parallel
//! matrix (attention output, feed-forward down) is followed by [`Communicator::all_reduce`]
//! (Shoeybi et al. 2019, Megatron-LM, section 3).

use crate::compute::{Backend, Result};

/// Which part of a model a rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    pub rank: usize,
    pub world: usize,
}

impl Shard {
    pub const WHOLE: Shard = Shard { rank: 0, world: 1 };

    pub fn is_whole(self) -> bool {
        self.world == 1
    }
}

/// The ranks that compute one model together, as one of them sees them.
pub trait Communicator<B: Backend>: Send {
    fn shard(&self) -> Shard;

    /// Sums the first `len` values of `x` over all ranks.
    fn all_reduce(&self, backend: &mut B, x: &mut B::Buf, len: usize) -> Result<()>;
}

/// A group of one.
pub struct Solo;

impl<B: Backend> Communicator<B> for Solo {
    fn shard(&self) -> Shard {
        Shard::WHOLE
    }

    fn all_reduce(&self, _: &mut B, _: &mut B::Buf, _: usize) -> Result<()> {
        Ok(())
    }
}
