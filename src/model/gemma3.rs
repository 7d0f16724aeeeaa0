//! Gemma 3, text (Gemma Team 2025): local layers with a sliding window between global ones, heads
//! normalised before the rotation, parts normalised after as well as before, embeddings scaled.

use super::config::{ModelConfig, Rope};
use super::layers::{Attention, Decoder, FeedForward};
use super::load::{LoadError, Loader};
use crate::compute::{Activation, Backend, RopeStyle};
use crate::weights::Checkpoint;

/// Into the decoder's ropes.
const GLOBAL: usize = 0;
const LOCAL: usize = 1;

/// Every sixth layer is global, the last of its six.
const PATTERN: u64 = 6;

struct Sizes {
    /// Of each layer.
    windows: Vec<Option<usize>>,
    /// Multiplies scores.
    scale: f32,
}

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    let file = loader.file();
    let local_base = file.f32("gemma3.rope.freq_base_swa")?.unwrap_or(10_000.0);
    let sizes = Sizes {
        windows: windows(file, config)?,
        // The 27B divides by the width per head, the others by the head's size.
        scale: match config.layers {
            62 => 1.0 / ((config.dim / config.heads) as f32).sqrt(),
            _ => 1.0 / (config.head_dim as f32).sqrt(),
        },
    };
    let rope = |base, linear| Rope {
        style: RopeStyle::Halves,
        inverse_frequencies: config.inverse_frequencies(base, linear, None),
    };
    Ok(Decoder {
        // Rounded to bf16 in the reference's bf16 mode; the golden data are computed in f32.
        embedding: loader.embedding((config.dim as f32).sqrt())?,
        layers: (0..config.layers).map(|i| layer(loader, config, &sizes, i)).collect::<Result<_, _>>()?,
        size: loader.size(),
        head: loader.head(config)?,
        ropes: vec![rope(config.rope_base, config.rope_scaling), rope(local_base, 1.0)],
    })
}

/// Tokens that each layer sees; `None` is all of them.
pub(super) fn windows(file: &Checkpoint, config: &ModelConfig) -> Result<Vec<Option<usize>>, LoadError> {
    let pattern = file.u64("gemma3.attention.sliding_window_pattern")?.unwrap_or(PATTERN).max(1);
    // A token sees itself at least.
    let window = file.require_u64("gemma3.attention.sliding_window")?.max(1) as usize;
    let global = |layer: u64| (layer + 1).is_multiple_of(pattern);
    Ok((0..config.layers as u64).map(|layer| (!global(layer)).then_some(window)).collect())
}

fn layer<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    sizes: &Sizes,
    i: usize,
) -> Result<(Attention<B>, FeedForward<B>), LoadError> {
    let window = sizes.windows[i];
    let (dim, eps) = (config.dim, config.eps);
    let post_norm = loader.norm(i, "post_attention_norm", dim, eps)?;
    let attention = Attention {
        norm: loader.norm(i, "attn_norm", dim, eps)?,
        qkv: loader.qkv(config, i)?,
        bias: None,
        query_norm: Some(loader.norm(i, "attn_q_norm", config.head_dim, eps)?),
        key_norm: Some(loader.norm(i, "attn_k_norm", config.head_dim, eps)?),
        output: loader.row_parallel(
            i,
            "attn_output",
            config.heads * config.head_dim,
            dim,
            Some(post_norm),
        )?,
        heads: config.heads,
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
        scale: sizes.scale,
        window,
        rope: if window.is_none() { GLOBAL } else { LOCAL },
    };
    let norm = loader.norm(i, "ffn_norm", dim, eps)?;
    let post_norm = loader.norm(i, "post_ffw_norm", dim, eps)?;
    Ok((attention, loader.feed_forward(config, i, norm, Activation::GeluTanh, Some(post_norm))?))
}
