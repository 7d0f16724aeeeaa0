//! The parts decoders are made of.
//!
//! Shapes: `x: [tokens, dim]` is the residual stream, which every part adds to.

use super::config::Rope;
use super::groups::Place;
use crate::compute::{
    Activation, AttentionSpec, Backend, Gate, MatrixSize, Norm, Result, RopeTable, Span, Write,
};
use crate::parallel::Communicator;

/// A stack of layers between an embedding and a head: what every family so far comes to.
pub(super) struct Decoder<B: Backend> {
    pub(super) embedding: Embedding<B>,
    pub(super) layers: Vec<(Attention<B>, FeedForward<B>)>,
    pub(super) head: Head<B>,
    /// Kinds of rotary embedding; layers name them by index.
    pub(super) ropes: Vec<Rope>,
    /// Weights that one pass reads, the head left out.
    pub(super) size: MatrixSize,
}

impl<B: Backend> Decoder<B> {
    /// Hidden states of the step's tokens into `buffers.x`, before the final normalisation.
    pub(super) fn forward(&self, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        self.embedding.forward(pass, buffers)?;
        for (i, (attention, feed_forward)) in self.layers.iter().enumerate() {
            attention.forward(i, pass, buffers)?;
            feed_forward.forward(pass, buffers)?;
        }
        Ok(())
    }
}

/// One pass over the layers: the device, the caches, and which tokens are whose.
pub(super) struct Pass<'a, B: Backend> {
    pub(super) backend: &'a mut B,
    pub(super) group: &'a dyn Communicator<B>,
    pub(super) caches: &'a mut [B::Cache],
    /// Of each layer: its cache, and the group whose block tables it uses.
    pub(super) places: &'a [Place],
    pub(super) ropes: &'a [RopeTable],
    /// For each cache group, the rows with their tables in it.
    pub(super) spans: &'a [Vec<Span<'a>>],
    pub(super) tokens: &'a [u32],
}

/// Allocated once for the largest batch.
pub(super) struct Buffers<B: Backend> {
    pub(super) x: B::Buf,         // [tokens, dim]
    pub(super) qkv: B::Buf,       // [tokens, (heads + 2 kv_heads) * head_dim]
    pub(super) attended: B::Buf,  // [tokens, heads * head_dim]
    pub(super) gated: B::Buf,     // [tokens, feed-forward width]
    pub(super) projected: B::Buf, // [tokens, dim]
}

/// Root mean square normalisation.
pub(super) struct RmsNorm<B: Backend> {
    pub(super) weight: B::Buf, // [dim]
    pub(super) eps: f32,
}

impl<B: Backend> RmsNorm<B> {
    fn as_op(&self) -> Norm<'_, B> {
        Norm { weight: &self.weight, eps: self.eps }
    }
}

/// `x = embedding[tokens] * scale`
pub(super) struct Embedding<B: Backend> {
    pub(super) table: B::Table,
    pub(super) scale: f32,
}

impl<B: Backend> Embedding<B> {
    fn forward(&self, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        pass.backend.embed(&mut buffers.x, &self.table, pass.tokens, self.scale)
    }
}

/// Grouped-query attention with rotary positions (Ainslie et al. 2023).
pub(super) struct Attention<B: Backend> {
    pub(super) norm: RmsNorm<B>,
    pub(super) qkv: B::Matrix, // queries, keys, values stacked
    pub(super) bias: Option<B::Buf>,
    pub(super) query_norm: Option<RmsNorm<B>>,
    pub(super) key_norm: Option<RmsNorm<B>>,
    pub(super) output: RowParallel<B>,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) scale: f32,
    pub(super) window: Option<usize>,
    /// Into [`Decoder::ropes`].
    pub(super) rope: usize,
}

impl<B: Backend> Attention<B> {
    pub(super) fn forward(&self, layer: usize, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        let rows = pass.tokens.len();
        let Buffers { x, qkv, attended, projected, .. } = buffers;
        let place = pass.places[layer];
        let spec = AttentionSpec {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            scale: self.scale,
            window: self.window,
            query_norm: self.query_norm.as_ref().map(RmsNorm::as_op),
            key_norm: self.key_norm.as_ref().map(RmsNorm::as_op),
            rope: &pass.ropes[self.rope],
            group: place.group,
            rope_index: self.rope,
        };
        let (cache, spans) = (&mut pass.caches[place.cache], &pass.spans[place.group]);
        let bias = self.bias.as_ref();
        pass.backend.project(qkv, x, rows, Some(self.norm.as_op()), &self.qkv, Write::Store { bias })?;
        pass.backend.store_kv(qkv, spans, &spec, cache)?;
        pass.backend.attend(attended, qkv, spans, &spec, cache)?;
        self.output.forward(pass, x, attended, projected)
    }
}

/// `x += down (activation(gate h) * (up h))`, h being the normalised x (Shazeer 2020, GLU variants).
pub(super) struct FeedForward<B: Backend> {
    pub(super) norm: RmsNorm<B>,
    pub(super) gate: B::Matrix,
    pub(super) up: B::Matrix,
    pub(super) gate_bias: Option<B::Buf>,
    pub(super) up_bias: Option<B::Buf>,
    pub(super) activation: Activation,
    pub(super) down: RowParallel<B>,
}

impl<B: Backend> FeedForward<B> {
    pub(super) fn forward(&self, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        let rows = pass.tokens.len();
        let Buffers { x, gated, projected, .. } = buffers;
        let norm = Some(self.norm.as_op());
        let gate = Gate {
            gate: &self.gate,
            up: &self.up,
            gate_bias: self.gate_bias.as_ref(),
            up_bias: self.up_bias.as_ref(),
            activation: self.activation,
        };
        pass.backend.gated(gated, x, rows, norm, gate)?;
        self.down.forward(pass, x, gated, projected)
    }
}

/// A matrix whose columns are spread over the ranks: each computes a part of the sum.
pub(super) struct RowParallel<B: Backend> {
    pub(super) weight: B::Matrix,
    pub(super) bias: Option<B::Buf>,
    pub(super) dim: usize,
    /// Gemma normalises a part's output before it joins the residual stream.
    pub(super) post_norm: Option<RmsNorm<B>>,
}

impl<B: Backend> RowParallel<B> {
    /// `x += norm(sum over ranks of W input (+ bias, once))`
    fn forward(
        &self,
        pass: &mut Pass<B>,
        x: &mut B::Buf,
        input: &B::Buf,
        projected: &mut B::Buf,
    ) -> Result<()> {
        let rows = pass.tokens.len();
        let bias = self.bias.as_ref().filter(|_| pass.group.shard().rank == 0);
        if pass.group.shard().is_whole() && self.post_norm.is_none() {
            return pass.backend.project(x, input, rows, None, &self.weight, Write::Add { bias });
        }
        pass.backend.project(projected, input, rows, None, &self.weight, Write::Store { bias })?;
        pass.group.all_reduce(pass.backend, projected, rows * self.dim)?;
        match &self.post_norm {
            Some(norm) => pass.backend.add_norm(x, projected, rows, norm.as_op()),
            None => pass.backend.add(x, projected, rows * self.dim),
        }
    }
}

/// Final normalisation and the projection to the vocabulary.
pub(super) struct Head<B: Backend> {
    pub(super) norm: RmsNorm<B>,
    pub(super) weight: B::Matrix,
}

impl<B: Backend> Head<B> {
    pub(super) fn forward(
        &self,
        backend: &mut B,
        logits: &mut B::Buf,
        hidden: &B::Buf,
        rows: usize,
    ) -> Result<()> {
        let norm = Some(self.norm.as_op());
        backend.project(logits, hidden, rows, norm, &self.weight, Write::Store { bias: None })
    }
}
