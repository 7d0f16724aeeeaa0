//! StarCoder2 (Lozhkov et al. 2024): LayerNorm, biases everywhere, a feed-forward part without gates, grouped
//! queries, and a window in the smaller models.

use crate::compute::{Activation, Backend, RopeStyle};
use crate::model::config::{ConfigError, ModelConfig};
use crate::model::layers::{Decoder, FeedForward, Layer, Mixer};
use crate::model::load::LoadError;
use crate::model::loader::Loader;
use crate::weights::Checkpoint;

pub(super) fn configure(file: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if let Some(window) = config.window_length(file)? {
        config.slide(window, &vec![true; config.layers]);
    }
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
    Ok(Layer {
        mixer: Mixer::Attention(loader.attention(config, i)?),
        feed_forward: Some(FeedForward::Dense(loader.dense(config, i, Activation::GeluTanh)?)),
        parallel: false,
    })
}
