//! Phi-1.5 and Phi-2 (Li et al. 2023): attention and feed-forward part side by side behind one LayerNorm, biases
//! everywhere, half of each head turned.

use crate::compute::{Activation, Backend, RopeStyle};
use crate::model::config::{ConfigError, ModelConfig};
use crate::model::layers::{Decoder, FeedForward, Layer, Mixer};
use crate::model::load::LoadError;
use crate::model::loader::Loader;
use crate::weights::Checkpoint;

pub(super) fn configure(_: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.widths.normed = true;
    Ok(())
}

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    Ok(Decoder {
        embedding: loader.embedding(1.0)?,
        layers: (0..config.layers).map(|i| layer(loader, config, i)).collect::<Result<_, _>>()?,
        size: loader.size(),
        head: loader.head(config)?,
        ropes: vec![loader.rope(config, RopeStyle::Halves)?],
    })
}

fn layer<B: Backend>(loader: &mut Loader<B>, config: &ModelConfig, i: usize) -> Result<Layer<B>, LoadError> {
    let mut dense = loader.dense(config, i, Activation::GeluTanh)?;
    dense.norm = Some(loader.norm(config, &format!("blk.{i}.attn_norm"), config.dim)?);
    Ok(Layer {
        mixer: Mixer::Attention(loader.attention(config, i)?),
        feed_forward: Some(FeedForward::Dense(dense)),
        parallel: true,
    })
}
