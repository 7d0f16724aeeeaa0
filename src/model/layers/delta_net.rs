use super::{Buffers, Kernel, Normalisation, Pass, RowParallel, StateWork};
use crate::compute::{Backend, By, Columns, DeltaRule, Result, State, Write};

/// A gated delta net (Yang et al. 2024), as Qwen3-Next has it: queries, keys and values go through a short
/// convolution, the delta rule makes heads of them, and `x += out (norm(head) * silu(z))`.
pub(in crate::model) struct DeltaNet<B: Backend> {
    pub(in crate::model) norm: Normalisation<B>,
    pub(in crate::model) input: B::Matrix, // [queries | keys | values | z | b | a, dim]
    pub(in crate::model) kernel: Kernel<B>, // of queries, keys and values
    pub(in crate::model) sizes: DeltaSizes,
    pub(in crate::model) a_log: B::Buf,   // [value_heads]: -exp(a_log)
    pub(in crate::model) dt_bias: B::Buf, // [value_heads]
    pub(in crate::model) head_norm: Normalisation<B>, // [value_dim], the same for all heads
    pub(in crate::model) output: RowParallel<B>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) struct DeltaSizes {
    pub(in crate::model) key_heads: usize,
    pub(in crate::model) value_heads: usize,
    pub(in crate::model) key_dim: usize,
    pub(in crate::model) value_dim: usize,
}

impl DeltaSizes {
    /// Columns of all queries, or keys.
    pub(in crate::model) fn keys(&self) -> usize {
        self.key_heads * self.key_dim
    }

    /// Columns of all values, and of z.
    pub(in crate::model) fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Columns that are convolved.
    pub(in crate::model) fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }

    /// Columns of all that is projected.
    pub(in crate::model) fn projected(&self) -> usize {
        self.channels() + self.values() + 2 * self.value_heads
    }

    /// Values of the rule's state.
    pub(in crate::model) fn state_len(&self) -> usize {
        self.values() * self.key_dim
    }
}

impl<B: Backend> DeltaNet<B> {
    pub(super) fn forward(&self, layer: usize, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        let (rows, sizes) = (pass.tokens.len(), &self.sizes);
        let (values, stride) = (sizes.values(), sizes.projected());
        let Buffers { x, qkv, attended, projected, side, .. } = buffers;
        let write = Write::Store { bias: None };
        pass.backend.project(qkv, x, rows, Some(self.norm.as_op()), &self.input, write)?;
        self.kernel.forward(layer, pass, (qkv, Columns { first: 0, len: sizes.channels(), stride }))?;
        let place = pass.places[layer];
        let first = self.kernel.state_len();
        let state = State { cache: &mut pass.caches[place.cache], group: place.group, first };
        pass.backend.delta_rule(attended, qkv, qkv, &pass.spans[place.group], &self.rule(), state)?;
        pass.backend.normalise(side, attended, rows * sizes.value_heads, self.head_norm.as_op())?;
        let z = Columns { first: sizes.channels(), len: values, stride };
        pass.backend.multiply_columns((side, Columns::all(values)), (qkv, z), rows, By::Silu)?;
        self.output.forward(pass, x, side, projected)
    }

    /// Of each value of the state: it decays, is looked at with the key and the query, and gets what is new.
    pub(super) fn work(&self) -> StateWork {
        let values = self.sizes.state_len();
        self.kernel.work() + StateWork { values, flops_per_token: 7 * values }
    }

    fn rule(&self) -> DeltaRule<'_, B> {
        let DeltaSizes { key_heads, value_heads, key_dim, value_dim } = self.sizes;
        let b = self.sizes.channels() + self.sizes.values();
        DeltaRule {
            key_heads,
            value_heads,
            key_dim,
            value_dim,
            query: 0,
            key: self.sizes.keys(),
            value: 2 * self.sizes.keys(),
            stride: self.sizes.projected(),
            b,
            a: b + value_heads,
            gates_stride: self.sizes.projected(),
            a_log: &self.a_log,
            dt_bias: &self.dt_bias,
        }
    }
}
