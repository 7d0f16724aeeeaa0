//! Llama (Touvron et al. 2023; Llama 3: Grattafiori et al. 2024), and what is built like it:
//! SmolLM2, Mistral 7B, TinyLlama. Biases are there when the file has them.

use super::mixture;
use crate::compute::{Activation, Backend, RopeStyle};
use crate::model::config::{ConfigError, ModelConfig};
use crate::model::layers::{Decoder, FeedForward, Layer, Mixer};
use crate::model::load::LoadError;
use crate::model::loader::Loader;
use crate::weights::Checkpoint;

/// Mixtral's files call themselves Llama's, and have experts.
pub(super) fn configure(file: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    super::as_read(file, config)?;
    if has_experts(file) { mixture::configure(file, config) } else { Ok(()) }
}

fn has_experts(file: &Checkpoint) -> bool {
    file.u64("llama.expert_count").is_ok_and(|experts| experts.is_some_and(|experts| experts > 0))
}

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    if has_experts(loader.file()) {
        return mixture::load(loader, config);
    }
    // GGUF's llama files have the rows of queries and keys permuted for pairs of neighbours.
    let style = if loader.file().is_hub() { RopeStyle::Halves } else { RopeStyle::Interleaved };
    load_with(loader, config, style)
}

pub(super) fn load_with<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    style: RopeStyle,
) -> Result<Decoder<B>, LoadError> {
    let rope = loader.rope(config, style)?;
    Ok(Decoder {
        embedding: loader.embedding(1.0)?,
        layers: (0..config.layers).map(|i| layer(loader, config, i)).collect::<Result<_, _>>()?,
        size: loader.size(),
        head: loader.head(config)?,
        ropes: vec![rope],
    })
}

fn layer<B: Backend>(loader: &mut Loader<B>, config: &ModelConfig, i: usize) -> Result<Layer<B>, LoadError> {
    Ok(Layer {
        mixer: Mixer::Attention(loader.attention(config, i)?),
        feed_forward: Some(FeedForward::Gated(loader.gated(config, i, Activation::Silu)?)),
        parallel: false,
    })
}
