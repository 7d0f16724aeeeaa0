//! gpt-oss (OpenAI 2025): every other layer sees a window, scores share the softmax with a sink for each head,
//! everything has biases, experts are gated by a clamped swish.

use crate::compute::{Activation, Backend, RopeStyle};
use crate::kv::CacheSpec;
use crate::model::config::{ConfigError, ModelConfig};
use crate::model::layers::{Decoder, FeedForward, Layer, Mixer};
use crate::model::load::LoadError;
use crate::model::loader::{Loader, MixtureConfig};
use crate::weights::Checkpoint;

pub(super) fn configure(file: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let window = config.whole(file, "attention.sliding_window")?;
    // The even ones, where the file does not list them.
    for (layer, spec) in config.caches.iter_mut().enumerate() {
        if *spec == CacheSpec::Full && layer % 2 == 0 {
            *spec = CacheSpec::Sliding { window };
        }
    }
    read(file, config)?.widen(config);
    Ok(())
}

/// The softmax is over the chosen: the same as weights that add up to 1.
fn read(file: &Checkpoint, config: &ModelConfig) -> Result<MixtureConfig, ConfigError> {
    MixtureConfig::read(file, config, true)
}

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    let mixture = loader.read(|file| read(file, config))?;
    let rope = loader.rope(config, RopeStyle::Halves)?;
    Ok(Decoder {
        embedding: loader.embedding(1.0)?,
        layers: (0..config.layers).map(|i| layer(loader, config, &mixture, i)).collect::<Result<_, _>>()?,
        size: loader.size(),
        head: loader.head(config)?,
        ropes: vec![rope],
    })
}

fn layer<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    mixture: &MixtureConfig,
    i: usize,
) -> Result<Layer<B>, LoadError> {
    let mut attention = loader.attention(config, i)?;
    attention.sinks = Some(loader.vector(&format!("blk.{i}.attn_sinks.weight"), config.heads)?);
    let experts = loader.mixture(config, mixture, i, "post_attention_norm", Activation::ClampedSwiglu)?;
    Ok(Layer {
        mixer: Mixer::Attention(attention),
        feed_forward: Some(FeedForward::Mixture(experts)),
        parallel: false,
    })
}
