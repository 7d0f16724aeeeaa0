//! Gemma (Gemma Team 2024): Llama with wide heads, a GELU in its gates, and embeddings scaled by the root of
//! their width. Hubs store the weights of its norms less 1.

use crate::compute::{Activation, Backend, RopeStyle};
use crate::model::config::{ConfigError, ModelConfig};
use crate::model::layers::{Decoder, FeedForward, Layer, Mixer};
use crate::model::load::LoadError;
use crate::model::loader::Loader;
use crate::weights::Checkpoint;

pub(super) fn configure(file: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.norm_plus_one = file.is_hub();
    Ok(())
}

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    Ok(Decoder {
        // Rounded to bf16 in the reference's bf16 mode; the golden data are computed in f32.
        embedding: loader.embedding((config.dim as f32).sqrt())?,
        layers: (0..config.layers).map(|i| layer(loader, config, i)).collect::<Result<_, _>>()?,
        size: loader.size(),
        head: loader.head(config)?,
        ropes: vec![loader.rope(config, RopeStyle::Halves)?],
    })
}

fn layer<B: Backend>(loader: &mut Loader<B>, config: &ModelConfig, i: usize) -> Result<Layer<B>, LoadError> {
    Ok(Layer {
        mixer: Mixer::Attention(loader.attention(config, i)?),
        // Published configurations that say "gelu" mean this form too.
        feed_forward: Some(FeedForward::Gated(loader.gated(config, i, Activation::GeluTanh)?)),
        parallel: false,
    })
}
