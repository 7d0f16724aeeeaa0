//! SmolLM3 (Hugging Face 2025): Llama, with layers in which nothing turns between those in which it does (Yang
//! et al. 2025, "RoPE to NoPE and back again").

use super::llama;
use crate::compute::{Backend, RopeStyle};
use crate::model::config::{ConfigError, ModelConfig, bad};
use crate::model::layers::{Decoder, Mixer};
use crate::model::load::LoadError;
use crate::model::loader::Loader;
use crate::weights::Checkpoint;

/// Nothing turns in every fourth layer. GGUF has no key for it; ours is a list.
const PERIOD: usize = 4;

pub(super) fn configure(file: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    turning(file, config)?;
    super::as_read(file, config)
}

/// Whether each layer has positions.
fn turning(file: &Checkpoint, config: &ModelConfig) -> Result<Vec<bool>, ConfigError> {
    let key = format!("{}.rope.layers", config.architecture);
    match file.bools(&key)? {
        Some(listed) if listed.len() == config.layers => Ok(listed),
        Some(listed) => Err(bad(
            &key,
            format!("a list of {}", listed.len()),
            &format!("the model has {} layers", config.layers),
        )),
        None => Ok((1..=config.layers).map(|layer| !layer.is_multiple_of(PERIOD)).collect()),
    }
}

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    let turning = loader.read(|file| turning(file, config))?;
    // As in llama.rs: rows of GGUF's queries and keys are permuted for pairs of neighbours.
    let style = if loader.file().is_hub() { RopeStyle::Halves } else { RopeStyle::Interleaved };
    let mut decoder = llama::load_with(loader, config, style)?;
    for (layer, _) in decoder.layers.iter_mut().zip(turning).filter(|(_, turns)| !turns) {
        if let Mixer::Attention(attention) = &mut layer.mixer {
            attention.rope = None;
        }
    }
    Ok(decoder)
}
