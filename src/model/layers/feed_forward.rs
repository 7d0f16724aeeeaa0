use super::{Buffers, Mixture, Normalisation, Pass, RowParallel};
use crate::compute::{Activation, Backend, Gate, Norm, Result, Write};

/// What a layer does to each token alone.
pub(in crate::model) enum FeedForward<B: Backend> {
    Gated(Gated<B>),
    Dense(Dense<B>),
    Mixture(Mixture<B>),
}

impl<B: Backend> FeedForward<B> {
    pub(super) fn forward(&self, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        match self {
            FeedForward::Gated(gated) => {
                let Buffers { x, gated: to, .. } = buffers;
                gated.inner(pass, to, x, gated.norm.as_ref().map(Normalisation::as_op))?;
            }
            FeedForward::Dense(dense) => {
                let Buffers { x, gated: to, .. } = buffers;
                dense.inner(pass, to, x, dense.norm.as_ref().map(Normalisation::as_op))?;
            }
            // Router and experts read the same.
            FeedForward::Mixture(mixture) => {
                self.normalise(pass, buffers)?;
                return mixture.forward_normalised(pass, buffers);
            }
        }
        self.down(pass, buffers)
    }

    /// `normed = norm(x)`, for [`Self::forward_normalised`] once x has changed.
    pub(super) fn normalise(&self, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        let norm = match self {
            FeedForward::Gated(gated) => gated.norm.as_ref(),
            FeedForward::Dense(dense) => dense.norm.as_ref(),
            FeedForward::Mixture(mixture) => Some(&mixture.norm),
        };
        let norm = norm.expect("parallel parts are normalised before").as_op();
        pass.backend.normalise(&mut buffers.normed, &buffers.x, pass.tokens.len(), norm)
    }

    pub(super) fn forward_normalised(&self, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        let Buffers { normed, gated: to, .. } = buffers;
        match self {
            FeedForward::Gated(gated) => gated.inner(pass, to, normed, None)?,
            FeedForward::Dense(dense) => dense.inner(pass, to, normed, None)?,
            FeedForward::Mixture(mixture) => return mixture.forward_normalised(pass, buffers),
        }
        self.down(pass, buffers)
    }

    fn down(&self, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        let Buffers { x, gated, projected, .. } = buffers;
        match self {
            FeedForward::Gated(Gated { down, .. }) | FeedForward::Dense(Dense { down, .. }) => {
                down.forward(pass, x, gated, projected)
            }
            FeedForward::Mixture(_) => Ok(()),
        }
    }
}

/// `x += down (activation(gate h) * (up h))`, h being the normalised x (Shazeer 2020, GLU variants).
pub(in crate::model) struct Gated<B: Backend> {
    pub(in crate::model) norm: Option<Normalisation<B>>,
    pub(in crate::model) gate: B::Matrix,
    pub(in crate::model) up: B::Matrix,
    pub(in crate::model) gate_bias: Option<B::Buf>,
    pub(in crate::model) up_bias: Option<B::Buf>,
    pub(in crate::model) activation: Activation,
    pub(in crate::model) down: RowParallel<B>,
}

impl<B: Backend> Gated<B> {
    pub(super) fn inner(
        &self,
        pass: &mut Pass<B>,
        to: &mut B::Buf,
        x: &B::Buf,
        norm: Option<Norm<B>>,
    ) -> Result<()> {
        let gate = Gate {
            gate: &self.gate,
            up: &self.up,
            gate_bias: self.gate_bias.as_ref(),
            up_bias: self.up_bias.as_ref(),
            activation: self.activation,
        };
        pass.backend.gated(to, x, pass.tokens.len(), norm, gate)
    }
}

/// `x += down activation(up h)`, h being the normalised x.
pub(in crate::model) struct Dense<B: Backend> {
    pub(in crate::model) norm: Option<Normalisation<B>>,
    pub(in crate::model) up: B::Matrix,
    pub(in crate::model) up_bias: Option<B::Buf>,
    /// Rows of `up`.
    pub(in crate::model) width: usize,
    pub(in crate::model) activation: Activation,
    pub(in crate::model) down: RowParallel<B>,
}

impl<B: Backend> Dense<B> {
    fn inner(&self, pass: &mut Pass<B>, to: &mut B::Buf, x: &B::Buf, norm: Option<Norm<B>>) -> Result<()> {
        let (rows, bias) = (pass.tokens.len(), self.up_bias.as_ref());
        pass.backend.project(to, x, rows, norm, &self.up, Write::Store { bias })?;
        pass.backend.activate(to, rows * self.width, self.activation)
    }
}
