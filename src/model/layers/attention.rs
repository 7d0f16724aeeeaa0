use super::{Buffers, Normalisation, Pass, RowParallel};
use crate::compute::{AttentionSpec, Backend, By, Columns, HeadNorm, Over, Result, Write};

/// Grouped-query attention (Ainslie et al. 2023).
pub(in crate::model) struct Attention<B: Backend> {
    pub(in crate::model) norm: Option<Normalisation<B>>,
    pub(in crate::model) qkv: B::Matrix, // queries, keys, values stacked
    pub(in crate::model) bias: Option<B::Buf>,
    pub(in crate::model) query_norm: Option<Normed<B>>,
    pub(in crate::model) key_norm: Option<Normed<B>>,
    /// Of what heads found, one column for each: multiplied by its sigmoid (Qwen3-Next).
    pub(in crate::model) gate: Option<B::Matrix>,
    pub(in crate::model) output: RowParallel<B>,
    pub(in crate::model) heads: usize,
    pub(in crate::model) kv_heads: usize,
    pub(in crate::model) head_dim: usize,
    pub(in crate::model) scale: f32,
    pub(in crate::model) window: Option<usize>,
    pub(in crate::model) soft_cap: Option<f32>,
    pub(in crate::model) sinks: Option<B::Buf>, // [heads]
    /// Into [`Decoder::ropes`](super::Decoder::ropes); `None` where a layer has no positions.
    pub(in crate::model) rope: Option<usize>,
}

/// A normalisation of queries or keys.
pub(in crate::model) struct Normed<B: Backend> {
    pub(in crate::model) norm: Normalisation<B>,
    pub(in crate::model) over: Over,
}

impl<B: Backend> Normed<B> {
    fn as_op(&self) -> HeadNorm<'_, B> {
        HeadNorm { norm: self.norm.as_op(), over: self.over }
    }
}

impl<B: Backend> Attention<B> {
    pub(super) fn forward(&self, layer: usize, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        let rows = pass.tokens.len();
        let Buffers { x, qkv, attended, projected, side, .. } = buffers;
        let place = pass.places[layer];
        let spec = self.spec(pass, place.group);
        let (cache, spans) = (&mut pass.caches[place.cache], &pass.spans[place.group]);
        let (norm, bias) = (self.norm.as_ref().map(Normalisation::as_op), self.bias.as_ref());
        pass.backend.project(qkv, x, rows, norm, &self.qkv, Write::Store { bias })?;
        pass.backend.store_kv(qkv, spans, &spec, cache)?;
        pass.backend.attend(attended, qkv, spans, &spec, cache)?;
        if let Some(gate) = &self.gate {
            let all = Columns::all(self.heads * self.head_dim);
            pass.backend.project(side, x, rows, norm, gate, Write::Store { bias: None })?;
            pass.backend.multiply_columns((attended, all), (side, all), rows, By::Sigmoid)?;
        }
        self.output.forward(pass, x, attended, projected)
    }

    fn spec<'a>(&'a self, pass: &Pass<'a, B>, group: usize) -> AttentionSpec<'a, B> {
        AttentionSpec {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            scale: self.scale,
            window: self.window,
            soft_cap: self.soft_cap,
            sinks: self.sinks.as_ref(),
            latent: None,
            query_norm: self.query_norm.as_ref().map(Normed::as_op),
            key_norm: self.key_norm.as_ref().map(Normed::as_op),
            rope: self.rope.map(|rope| &pass.ropes[rope]),
            group,
            rope_index: self.rope.unwrap_or(0),
        }
    }
}
