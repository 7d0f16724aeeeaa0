use super::Pass;
use crate::compute::{Backend, Columns, Convolution, Result, State};

/// What a layer's state takes: values that a sequence's tokens read and write, and operations for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::model) struct StateWork {
    pub(in crate::model) values: usize,
    pub(in crate::model) flops_per_token: usize,
}

impl std::ops::Add for StateWork {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            values: self.values + other.values,
            flops_per_token: self.flops_per_token + other.flops_per_token,
        }
    }
}

impl std::iter::Sum for StateWork {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), std::ops::Add::add)
    }
}

/// A causal convolution of each channel. Its past inputs are the first values of a layer's state.
pub(in crate::model) struct Kernel<B: Backend> {
    pub(in crate::model) weight: B::Buf,       // [channels, width]
    pub(in crate::model) bias: Option<B::Buf>, // [channels]
    pub(in crate::model) channels: usize,
    pub(in crate::model) width: usize,
    /// SiLU of what comes out.
    pub(in crate::model) silu: bool,
}

impl<B: Backend> Kernel<B> {
    /// Values of the state.
    pub(in crate::model) fn state_len(&self) -> usize {
        (self.width - 1) * self.channels
    }

    pub(super) fn work(&self) -> StateWork {
        StateWork { values: self.state_len(), flops_per_token: 2 * self.width * self.channels }
    }

    pub(super) fn forward(&self, layer: usize, pass: &mut Pass<B>, x: (&mut B::Buf, Columns)) -> Result<()> {
        let Kernel { weight, bias, width, silu, .. } = self;
        let convolution = Convolution { weight, bias: bias.as_ref(), width: *width, silu: *silu };
        let place = pass.places[layer];
        let state = State { cache: &mut pass.caches[place.cache], group: place.group, first: 0 };
        pass.backend.convolve(x, &pass.spans[place.group], &convolution, state)
    }
}
