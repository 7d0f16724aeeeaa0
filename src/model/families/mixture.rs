//! Decoders whose feed-forward parts are mixtures of experts and whose attention is Llama's or Qwen's:
//! Mixtral (Jiang et al. 2024), Qwen1.5-MoE and Qwen2-MoE (Yang et al. 2024), Qwen3-MoE (Yang et al. 2025),
//! GLM-4.5 (Zeng et al. 2025).

use crate::compute::{Activation, Backend, RopeStyle};
use crate::model::config::{ConfigError, ModelConfig};
use crate::model::layers::{Decoder, FeedForward, Layer, Mixer};
use crate::model::load::LoadError;
use crate::model::loader::{Loader, MixtureConfig};
use crate::weights::Checkpoint;

pub(super) fn configure(file: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    read(file, config)?.widen(config);
    Ok(())
}

/// Qwen2-MoE alone leaves the weights as the softmax over all experts has them.
fn read(file: &Checkpoint, config: &ModelConfig) -> Result<MixtureConfig, ConfigError> {
    MixtureConfig::read(file, config, config.architecture != "qwen2moe")
}

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    // As in llama.rs: Mixtral's GGUF files are llama files.
    let pairs = config.architecture == "llama" && !loader.file().is_hub();
    let style = if pairs { RopeStyle::Interleaved } else { RopeStyle::Halves };
    let mixture = loader.read(|file| read(file, config))?;
    let rope = loader.rope(config, style)?;
    Ok(Decoder {
        embedding: loader.embedding(1.0)?,
        layers: (0..config.layers).map(|i| layer(loader, config, &mixture, i)).collect::<Result<_, _>>()?,
        size: loader.size(),
        head: loader.head(config)?,
        ropes: vec![rope],
    })
}

/// Some layers are dense: the first ones of GLM-4.5, and whichever a Qwen names.
fn layer<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    mixture: &MixtureConfig,
    i: usize,
) -> Result<Layer<B>, LoadError> {
    let mixer = Mixer::Attention(loader.attention(config, i)?);
    let glm = config.architecture == "glm4moe";
    let norm = if glm { "post_attention_norm" } else { "ffn_norm" };
    let has_router = loader.file().info(&format!("blk.{i}.ffn_gate_inp.weight")).is_some();
    let feed_forward = if has_router && i >= mixture.dense_layers {
        FeedForward::Mixture(loader.mixture(config, mixture, i, norm, Activation::Silu)?)
    } else {
        let mut gated = loader.gated(config, i, Activation::Silu)?;
        gated.norm = Some(loader.norm(config, &format!("blk.{i}.{norm}"), config.dim)?);
        FeedForward::Gated(gated)
    };
    Ok(Layer { mixer, feed_forward: Some(feed_forward), parallel: false })
}
