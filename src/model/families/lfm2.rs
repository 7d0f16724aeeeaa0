//! LFM2 (Liquid AI 2025): short gated convolutions, and between them attention with normalised heads. What
//! its files call the embedding's normalisation is the last one.

use crate::compute::{Activation, Backend, RopeStyle};
use crate::kv::CacheSpec;
use crate::model::config::{ConfigError, ModelConfig};
use crate::model::layers::{Decoder, FeedForward, Layer, Mixer, ShortConv};
use crate::model::load::LoadError;
use crate::model::loader::Loader;
use crate::weights::Checkpoint;

/// Layers without key heads are convolutions.
pub(super) fn configure(file: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.recurrent_where_no_heads(file)?;
    config.keep_state(kernel_width(file, config)?, config.dim, 0)?;
    config.widths.qkv = config.widths.qkv.max(3 * config.dim);
    config.widths.side = config.dim;
    Ok(())
}

fn kernel_width(file: &Checkpoint, config: &ModelConfig) -> Result<usize, ConfigError> {
    config.whole(file, "shortconv.l_cache")
}

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    let width = loader.read(|file| kernel_width(file, config))?;
    let rope = loader.rope(config, RopeStyle::Halves)?;
    let last = ["token_embd_norm", "output_norm"];
    let there = |name: &&str| loader.file().info(&format!("{name}.weight")).is_some();
    let last = last.into_iter().find(there).unwrap_or("output_norm");
    Ok(Decoder {
        embedding: loader.embedding(1.0)?,
        layers: (0..config.layers).map(|i| layer(loader, config, width, i)).collect::<Result<_, _>>()?,
        size: loader.size(),
        head: loader.head_after(config, last)?,
        ropes: vec![rope],
    })
}

fn layer<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    width: usize,
    i: usize,
) -> Result<Layer<B>, LoadError> {
    let mixer = match config.caches[i] {
        CacheSpec::Recurrent => Mixer::ShortConv(short_conv(loader, config, width, i)?),
        _ => Mixer::Attention(loader.attention(config, i)?),
    };
    let gated = loader.gated(config, i, Activation::Silu)?;
    Ok(Layer { mixer, feed_forward: Some(FeedForward::Gated(gated)), parallel: false })
}

fn short_conv<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    width: usize,
    i: usize,
) -> Result<ShortConv<B>, LoadError> {
    let (dim, name) = (config.dim, |part: &str| format!("blk.{i}.{part}"));
    Ok(ShortConv {
        norm: loader.norm(config, &name("attn_norm"), dim)?,
        input: loader.matrix(&[(name("shortconv.in_proj.weight"), 3 * dim)], dim)?,
        bias: loader.bias(&name("shortconv.in_proj"), 3 * dim)?,
        kernel: loader.kernel(&name("shortconv.conv"), dim, width, false)?,
        output: loader.row_parallel(&name("shortconv.out_proj"), dim, dim, None)?,
    })
}
