//! Granite 3 (IBM 2024): Llama with four multipliers, of embeddings, scores, what joins the residual stream, and
//! logits, chosen by small models for large ones (Yang et al. 2022; the Power scheduler, Shen et al. 2024).

use super::llama;
use crate::compute::{Backend, RopeStyle};
use crate::model::config::{ConfigError, ModelConfig, bad};
use crate::model::layers::{Decoder, FeedForward, Mixer};
use crate::model::load::LoadError;
use crate::model::loader::Loader;
use crate::weights::Checkpoint;

struct Multipliers {
    embedding: f32,
    residual: f32,
    logits: f32,
}

pub(super) fn configure(file: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    multipliers(file, config)?;
    super::as_read(file, config)
}

fn multipliers(file: &Checkpoint, config: &ModelConfig) -> Result<Multipliers, ConfigError> {
    let said = |name: &str| {
        let key = format!("{}.{name}", config.architecture);
        match file.f32(&key)?.unwrap_or(1.0) {
            value if value.is_finite() && value != 0.0 => Ok(value),
            wrong => Err(bad(&key, wrong, "nothing would be left")),
        }
    };
    // Logits are divided by theirs.
    Ok(Multipliers {
        embedding: said("embedding_scale")?,
        residual: said("residual_scale")?,
        logits: 1.0 / said("logit_scale")?,
    })
}

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    let Multipliers { embedding, residual, logits } = loader.read(|file| multipliers(file, config))?;
    // As in llama.rs: rows of GGUF's queries and keys are permuted for pairs of neighbours.
    let style = if loader.file().is_hub() { RopeStyle::Halves } else { RopeStyle::Interleaved };
    let mut decoder = llama::load_with(loader, config, style)?;
    decoder.embedding.scale = embedding;
    decoder.head.scale = logits;
    for layer in &mut decoder.layers {
        if let Mixer::Attention(attention) = &mut layer.mixer {
            attention.output.scale = residual;
        }
        if let Some(FeedForward::Gated(gated)) = &mut layer.feed_forward {
            gated.down.scale = residual;
        }
    }
    Ok(decoder)
}
