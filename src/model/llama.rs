//! Llama (Touvron et al. 2023; Llama 3: Grattafiori et al. 2024), and what is built like it:
//! SmolLM2, Mistral 7B, TinyLlama. Biases are there when the file has them.

use super::config::{ModelConfig, Rope};
use super::layers::{Attention, Buffers, Decoder, Embedding, FeedForward, Head, Pass};
use super::load::{LoadError, Loader};
use crate::compute::{Activation, Backend, MatrixSize, Result, RopeStyle};

pub(super) struct Llama<B: Backend> {
    embedding: Embedding<B>,
    layers: Vec<(Attention<B>, FeedForward<B>)>,
    head: Head<B>,
    ropes: Vec<Rope>,
    size: MatrixSize,
}

impl<B: Backend> Llama<B> {
    pub(super) fn load(
        loader: &mut Loader<B>,
        config: &ModelConfig,
        rope: RopeStyle,
    ) -> std::result::Result<Self, LoadError> {
        let factors = loader.optional_vector("rope_freqs.weight", config.rope_dims / 2)?;
        let inverse_frequencies =
            config.inverse_frequencies(config.rope_base, config.rope_scaling, factors.as_deref());
        let layers = (0..config.layers)
            .map(|i| Self::layer(loader, config, i))
            .collect::<std::result::Result<_, _>>()?;
        Ok(Self {
            embedding: loader.embedding(1.0)?,
            layers,
            size: loader.size(),
            head: loader.head(config)?,
            ropes: vec![Rope { style: rope, inverse_frequencies }],
        })
    }

    fn layer(
        loader: &mut Loader<B>,
        config: &ModelConfig,
        i: usize,
    ) -> std::result::Result<(Attention<B>, FeedForward<B>), LoadError> {
        let attention = Attention {
            norm: loader.norm(i, "attn_norm", config.dim, config.eps)?,
            qkv: loader.qkv(config, i)?,
            bias: loader.qkv_bias(config, i)?,
            query_norm: None,
            key_norm: None,
            output: loader.row_parallel(
                i,
                "attn_output",
                config.heads * config.head_dim,
                config.dim,
                None,
            )?,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            scale: 1.0 / (config.head_dim as f32).sqrt(),
            window: None,
            rope: 0,
        };
        let norm = loader.norm(i, "ffn_norm", config.dim, config.eps)?;
        Ok((attention, loader.feed_forward(config, i, norm, Activation::Silu, None)?))
    }
}

impl<B: Backend> Decoder<B> for Llama<B> {
    fn forward(&self, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        self.embedding.forward(pass, buffers)?;
        for (i, (attention, feed_forward)) in self.layers.iter().enumerate() {
            attention.forward(i, pass, buffers)?;
            feed_forward.forward(pass, buffers)?;
        }
        Ok(())
    }

    fn head(&self) -> &Head<B> {
        &self.head
    }

    fn ropes(&self) -> &[Rope] {
        &self.ropes
    }

    fn size(&self) -> MatrixSize {
        self.size
    }
}
