use super::{Buffers, Kernel, Normalisation, Pass, RowParallel, StateWork};
use crate::compute::{Backend, By, Columns, NormKind, Result, Scan, State, Write};

/// Mamba-2's block (Dao and Gu 2024, section 7): z, x, B, C and the step dt are projected from the
/// normalised input together, x, B and C go through a short convolution, and `x += out norm(scan * silu(z))`.
pub(in crate::model) struct Mamba2<B: Backend> {
    pub(in crate::model) norm: Normalisation<B>,
    pub(in crate::model) input: B::Matrix, // [z | x | B | C | dt, dim]
    pub(in crate::model) bias: Option<B::Buf>,
    pub(in crate::model) kernel: Kernel<B>, // of x, B and C
    pub(in crate::model) sizes: Mamba2Sizes,
    pub(in crate::model) a: B::Buf,       // [heads], negative
    pub(in crate::model) d: B::Buf,       // [heads]
    pub(in crate::model) dt_bias: B::Buf, // [heads]
    pub(in crate::model) dt_limit: (f32, f32),
    pub(in crate::model) gated_norm: GroupNorm<B>,
    pub(in crate::model) output: RowParallel<B>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) struct Mamba2Sizes {
    pub(in crate::model) heads: usize,
    pub(in crate::model) head_dim: usize,
    pub(in crate::model) groups: usize,
    pub(in crate::model) state: usize,
}

impl Mamba2Sizes {
    /// Columns of x, and of z.
    pub(in crate::model) fn inner(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Columns that are convolved: x, B and C.
    pub(in crate::model) fn channels(&self) -> usize {
        self.inner() + 2 * self.groups * self.state
    }

    /// Columns of all that is projected.
    pub(in crate::model) fn projected(&self) -> usize {
        self.inner() + self.channels() + self.heads
    }

    /// Values of the recurrence's state.
    pub(in crate::model) fn state_len(&self) -> usize {
        self.inner() * self.state
    }
}

/// Root mean square normalisation of each group of columns by itself, with a weight for each column.
pub(in crate::model) struct GroupNorm<B: Backend> {
    /// Of one group: ones where there are several.
    pub(in crate::model) one: B::Buf,
    pub(in crate::model) weight: Option<B::Buf>, // [groups * columns of a group]
    pub(in crate::model) groups: usize,
    pub(in crate::model) eps: f32,
}

impl<B: Backend> GroupNorm<B> {
    /// `out = norm(x)`, rows of `width` columns.
    fn forward(
        &self,
        backend: &mut B,
        out: &mut B::Buf,
        x: &B::Buf,
        rows: usize,
        width: usize,
    ) -> Result<()> {
        let norm = crate::compute::Norm { weight: &self.one, bias: None, eps: self.eps, kind: NormKind::Rms };
        backend.normalise(out, x, rows * self.groups, norm)?;
        match &self.weight {
            // One row of weights for all.
            Some(weight) => {
                let once = Columns { first: 0, len: width, stride: 0 };
                backend.multiply_columns((out, Columns::all(width)), (weight, once), rows, By::Value)
            }
            None => Ok(()),
        }
    }
}

impl<B: Backend> Mamba2<B> {
    pub(super) fn forward(&self, layer: usize, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        let (rows, sizes) = (pass.tokens.len(), &self.sizes);
        let (inner, stride) = (sizes.inner(), sizes.projected());
        let Buffers { x, qkv, attended, projected, side, .. } = buffers;
        let write = Write::Store { bias: self.bias.as_ref() };
        pass.backend.project(qkv, x, rows, Some(self.norm.as_op()), &self.input, write)?;
        let convolved = Columns { first: inner, len: sizes.channels(), stride };
        self.kernel.forward(layer, pass, (qkv, convolved))?;
        let place = pass.places[layer];
        let first = self.kernel.state_len();
        let state = State { cache: &mut pass.caches[place.cache], group: place.group, first };
        pass.backend.scan(attended, qkv, qkv, &pass.spans[place.group], &self.scan(), state)?;
        let z = Columns { first: 0, len: inner, stride };
        pass.backend.multiply_columns((attended, Columns::all(inner)), (qkv, z), rows, By::Silu)?;
        self.gated_norm.forward(pass.backend, side, attended, rows, inner)?;
        self.output.forward(pass, x, side, projected)
    }

    /// Of each value of the state: it decays, gets what is new, and is looked at.
    pub(super) fn work(&self) -> StateWork {
        let values = self.sizes.state_len();
        self.kernel.work() + StateWork { values, flops_per_token: 5 * values }
    }

    fn scan(&self) -> Scan<'_, B> {
        let Mamba2Sizes { heads, head_dim, groups, state } = self.sizes;
        let inner = self.sizes.inner();
        Scan {
            heads,
            head_dim,
            groups,
            state,
            x: inner,
            b: 2 * inner,
            c: 2 * inner + groups * state,
            stride: self.sizes.projected(),
            dt: inner + self.sizes.channels(),
            dt_stride: self.sizes.projected(),
            a: &self.a,
            d: &self.d,
            dt_bias: &self.dt_bias,
            dt_limit: self.dt_limit,
        }
    }
}
