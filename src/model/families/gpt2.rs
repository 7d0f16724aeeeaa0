//! GPT-2 (Radford et al. 2019): learned positions, LayerNorm, biases everywhere, a feed-forward part without gates.

use crate::compute::{Activation, Backend};
use crate::model::config::{ConfigError, ModelConfig, bad};
use crate::model::layers::{Decoder, Embedding, FeedForward, Layer, Mixer};
use crate::model::load::LoadError;
use crate::model::loader::Loader;
use crate::weights::Checkpoint;

const POSITIONS: &str = "position_embd.weight";

/// A position without a row cannot be told.
pub(super) fn configure(file: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let table = file.require_info(POSITIONS)?;
    if table.dims != [config.dim, config.context_length] {
        let problem = format!("{POSITIONS} has shape {:?}", table.dims);
        return Err(bad("gpt2.context_length", config.context_length, &problem));
    }
    Ok(())
}

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    Ok(Decoder {
        embedding: Embedding { positions: Some(loader.table(POSITIONS)?), ..loader.embedding(1.0)? },
        layers: (0..config.layers).map(|i| layer(loader, config, i)).collect::<Result<_, _>>()?,
        size: loader.size(),
        head: loader.head(config)?,
        ropes: Vec::new(),
    })
}

fn layer<B: Backend>(loader: &mut Loader<B>, config: &ModelConfig, i: usize) -> Result<Layer<B>, LoadError> {
    let mut attention = loader.attention(config, i)?;
    attention.rope = None;
    Ok(Layer {
        mixer: Mixer::Attention(attention),
        feed_forward: Some(FeedForward::Dense(loader.dense(config, i, Activation::GeluTanh)?)),
        parallel: false,
    })
}
