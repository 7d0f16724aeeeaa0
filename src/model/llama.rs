//! Llama (Touvron et al. 2023; Llama 3: Grattafiori et al. 2024), and what is built like it:
//! SmolLM2, Mistral 7B, TinyLlama. Biases are there when the file has them.

use super::config::{ModelConfig, Rope};
use super::layers::{Attention, Decoder, FeedForward};
use super::load::{LoadError, Loader};
use crate::compute::{Activation, Backend, RopeStyle};

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    style: RopeStyle,
) -> Result<Decoder<B>, LoadError> {
    let factors = loader.optional_vector("rope_freqs.weight", config.rope_dims / 2)?;
    let inverse_frequencies =
        config.inverse_frequencies(config.rope_base, config.rope_scaling, factors.as_deref());
    Ok(Decoder {
        embedding: loader.embedding(1.0)?,
        layers: (0..config.layers).map(|i| layer(loader, config, i)).collect::<Result<_, _>>()?,
        size: loader.size(),
        head: loader.head(config)?,
        ropes: vec![Rope { style, inverse_frequencies }],
    })
}

fn layer<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    i: usize,
) -> Result<(Attention<B>, FeedForward<B>), LoadError> {
    let attention = Attention {
        norm: loader.norm(i, "attn_norm", config.dim, config.eps)?,
        qkv: loader.qkv(config, i)?,
        bias: loader.qkv_bias(config, i)?,
        query_norm: None,
        key_norm: None,
        output: loader.row_parallel(i, "attn_output", config.heads * config.head_dim, config.dim, None)?,
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
