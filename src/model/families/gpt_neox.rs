//! GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023): attention and feed-forward part side by side,
//! each behind a LayerNorm of its own, a quarter of each head turned.

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
    // A few models of its kind have one part after the other.
    let parallel = loader.file().bool("gptneox.use_parallel_residual")?.unwrap_or(true);
    Ok(Decoder {
        embedding: loader.embedding(1.0)?,
        layers: (0..config.layers).map(|i| layer(loader, config, i, parallel)).collect::<Result<_, _>>()?,
        size: loader.size(),
        head: loader.head(config)?,
        ropes: vec![loader.rope(config, RopeStyle::Halves)?],
    })
}

fn layer<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    i: usize,
    parallel: bool,
) -> Result<Layer<B>, LoadError> {
    Ok(Layer {
        mixer: Mixer::Attention(loader.attention(config, i)?),
        feed_forward: Some(FeedForward::Dense(loader.dense(config, i, Activation::Gelu)?)),
        parallel,
    })
}
