//! Gemma 2 (Gemma Team 2024b): every other layer sees a window, parts are normalised after as well as before,
//! scores and logits are capped softly.

use crate::compute::{Activation, Backend, RopeStyle};
use crate::model::config::{ConfigError, ModelConfig};
use crate::model::layers::{Attention, Decoder, FeedForward, Layer, Mixer};
use crate::model::load::LoadError;
use crate::model::loader::Loader;
use crate::weights::Checkpoint;

/// Every second layer sees everything, the first a window.
const PERIOD: u64 = 2;

const WINDOW: usize = 4096;

/// Section 2: of scores, and of logits. Files from before there were keys for them mean these.
const CAPS: (f32, f32) = (50.0, 30.0);

pub(super) fn configure(file: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let window = config.require_window(file, Some(WINDOW))?;
    config.slide(window, &config.sliding_layers(file, PERIOD)?);
    // GGUF has no key for what scores are divided by: the 27B's is the width per head, the others' a head's size.
    if config.layers == 46 {
        config.attention_scale.get_or_insert(1.0 / ((config.dim / config.heads) as f32).sqrt());
    }
    config.norm_plus_one = file.is_hub();
    Ok(())
}

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    let cap = |key: &str, usual: f32| -> Result<Option<f32>, LoadError> {
        let said = loader.file().f32(&format!("gemma2.{key}"))?.unwrap_or(usual);
        Ok((said > 0.0).then_some(said))
    };
    let (scores, logits) = (cap("attn_logit_softcapping", CAPS.0)?, cap("final_logit_softcapping", CAPS.1)?);
    let embedding = loader.embedding((config.dim as f32).sqrt())?;
    let mut layers = Vec::with_capacity(config.layers);
    for i in 0..config.layers {
        let mut attention = loader.attention(config, i)?;
        attention.soft_cap = scores;
        layers.push(layer(loader, config, i, attention)?);
    }
    let size = loader.size();
    let mut head = loader.head(config)?;
    head.soft_cap = logits;
    let rope = loader.rope(config, RopeStyle::Halves)?;
    Ok(Decoder { embedding, layers, head, ropes: vec![rope], size })
}

/// Four norms: before and after each part.
pub(super) fn layer<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    i: usize,
    mut attention: Attention<B>,
) -> Result<Layer<B>, LoadError> {
    attention.output.post_norm =
        Some(loader.norm(config, &format!("blk.{i}.post_attention_norm"), config.dim)?);
    let mut gated = loader.gated(config, i, Activation::GeluTanh)?;
    gated.down.post_norm = Some(loader.norm(config, &format!("blk.{i}.post_ffw_norm"), config.dim)?);
    Ok(Layer {
        mixer: Mixer::Attention(attention),
        feed_forward: Some(FeedForward::Gated(gated)),
        parallel: false,
    })
}
