use super::{Buffers, Normalisation, Pass, RowParallel};
use crate::compute::{AttentionSpec, Backend, Columns, HeadColumns, Result, Write};

/// Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1): keys and values of all heads are
/// made of one latent vector for each token, and only that and a rotated key, shared by the heads, are kept.
///
/// The matrices that would make keys and values of it are absorbed: queries are turned into the latent space,
/// so that attention reads the cache as it is, and what it finds is turned back for each head. In the cache and in
/// `qkv`, a head is `[rotated | latent]`.
pub(in crate::model) struct Latent<B: Backend> {
    pub(in crate::model) norm: Normalisation<B>,
    /// Queries go through a latent vector of their own, but in V2-Lite.
    pub(in crate::model) query_down: Option<(B::Matrix, Normalisation<B>)>, // [q_rank, dim]
    pub(in crate::model) query: B::Matrix, // [heads * (plain + rotated), q_rank or dim]
    pub(in crate::model) latent: B::Matrix, // [rank, dim]
    pub(in crate::model) latent_norm: Normalisation<B>,
    pub(in crate::model) rotated_key: B::Matrix, // [rotated, dim]
    pub(in crate::model) query_to_latent: B::Matrix, // of each head [rank, plain]
    pub(in crate::model) latent_to_value: B::Matrix, // of each head [value, rank]
    pub(in crate::model) output: RowParallel<B>,
    pub(in crate::model) heads: usize,
    pub(in crate::model) sizes: LatentSizes,
    pub(in crate::model) scale: f32,
}

/// Elements of the parts of a head, and of the latent vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) struct LatentSizes {
    pub(in crate::model) rank: usize,
    pub(in crate::model) plain: usize,
    pub(in crate::model) rotated: usize,
    pub(in crate::model) value: usize,
}

impl<B: Backend> Latent<B> {
    pub(super) fn forward(&self, layer: usize, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        self.queries(pass, buffers)?;
        self.keys(pass, buffers)?;
        let rows = pass.tokens.len();
        let Buffers { x, qkv, attended, side, projected, .. } = buffers;
        let place = pass.places[layer];
        let spec = self.spec(pass, place.group);
        let (cache, spans) = (&mut pass.caches[place.cache], &pass.spans[place.group]);
        pass.backend.store_kv(qkv, spans, &spec, cache)?;
        pass.backend.attend(attended, qkv, spans, &spec, cache)?;
        let (found, values) = (self.head_rows(self.sizes.rank), self.head_rows(self.sizes.value));
        pass.backend.project_heads(
            (side, values),
            (attended, found),
            rows,
            self.heads,
            &self.latent_to_value,
        )?;
        self.output.forward(pass, x, side, projected)
    }

    /// Of each head, what is rotated and what is turned into the latent space, into `qkv`.
    fn queries(&self, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        let (rows, sizes) = (pass.tokens.len(), self.sizes);
        let Buffers { x, qkv, attended, side, .. } = buffers;
        let norm = Some(self.norm.as_op());
        match &self.query_down {
            None => pass.backend.project(side, x, rows, norm, &self.query, Write::Store { bias: None })?,
            Some((down, down_norm)) => {
                let norms = (norm, Some(down_norm.as_op()));
                pass.backend.project(attended, x, rows, norms.0, down, Write::Store { bias: None })?;
                pass.backend.project(
                    side,
                    attended,
                    rows,
                    norms.1,
                    &self.query,
                    Write::Store { bias: None },
                )?;
            }
        }
        let from = self.head_rows(sizes.plain + sizes.rotated);
        let plain = HeadColumns { len: sizes.plain, ..from };
        let rotated = HeadColumns { first: sizes.plain, len: sizes.rotated, ..from };
        let (to_rotated, to_latent) = self.places();
        pass.backend.copy_heads((qkv, to_rotated), (side, rotated), rows, self.heads)?;
        pass.backend.project_heads((qkv, to_latent), (side, plain), rows, self.heads, &self.query_to_latent)
    }

    /// The rotated key and the normalised latent vector behind the queries.
    fn keys(&self, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        let (rows, sizes) = (pass.tokens.len(), self.sizes);
        let Buffers { x, qkv, gated, router, normed, .. } = buffers;
        let norm = Some(self.norm.as_op());
        pass.backend.project(gated, x, rows, norm, &self.latent, Write::Store { bias: None })?;
        pass.backend.normalise(normed, gated, rows, self.latent_norm.as_op())?;
        pass.backend.project(router, x, rows, norm, &self.rotated_key, Write::Store { bias: None })?;
        let head = sizes.rotated + sizes.rank;
        let key = Columns { first: self.heads * head, len: sizes.rotated, stride: (self.heads + 1) * head };
        let latent = Columns { first: key.first + sizes.rotated, len: sizes.rank, ..key };
        pass.backend.copy_columns((qkv, key), (router, Columns::all(sizes.rotated)), rows)?;
        pass.backend.copy_columns((qkv, latent), (normed, Columns::all(sizes.rank)), rows)
    }

    /// Heads of `len` one after the other.
    fn head_rows(&self, len: usize) -> HeadColumns {
        HeadColumns { first: 0, len, step: len, stride: self.heads * len }
    }

    /// Of queries in `qkv`: what is rotated, and what is latent.
    fn places(&self) -> (HeadColumns, HeadColumns) {
        let LatentSizes { rank, rotated, .. } = self.sizes;
        let (step, stride) = (rotated + rank, (self.heads + 1) * (rotated + rank));
        (
            HeadColumns { first: 0, len: rotated, step, stride },
            HeadColumns { first: rotated, len: rank, step, stride },
        )
    }

    fn spec<'a>(&'a self, pass: &Pass<'a, B>, group: usize) -> AttentionSpec<'a, B> {
        AttentionSpec {
            heads: self.heads,
            kv_heads: 1,
            head_dim: self.sizes.rotated + self.sizes.rank,
            scale: self.scale,
            window: None,
            soft_cap: None,
            sinks: None,
            latent: Some(self.sizes.rotated),
            query_norm: None,
            key_norm: None,
            rope: Some(&pass.ropes[0]),
            group,
            rope_index: 0,
        }
    }
}
