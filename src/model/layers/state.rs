use super::Pass;
use crate::compute::{Backend, Columns, Convolution, Result, State};

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

    pub(super) fn forward(&self, layer: usize, pass: &mut Pass<B>, x: (&mut B::Buf, Columns)) -> Result<()> {
        let Kernel { weight, bias, width, silu, .. } = self;
        let convolution = Convolution { weight, bias: bias.as_ref(), width: *width, silu: *silu };
        let place = pass.places[layer];
        let state = State { cache: &mut pass.caches[place.cache], group: place.group, first: 0 };
        pass.backend.convolve(x, &pass.spans[place.group], &convolution, state)
    }
}
