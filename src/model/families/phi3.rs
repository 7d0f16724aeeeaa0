//! Phi-3 and Phi-4 (Abdin et al. 2024): Llama with a window in every layer, matrices stored fused, and two sets
//! of rotary factors, for short and for long sequences (LongRoPE; Ding et al. 2024).

use super::llama;
use crate::compute::{Backend, RopeStyle};
use crate::model::config::{ConfigError, ModelConfig};
use crate::model::layers::Decoder;
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
    llama::load_with(loader, config, RopeStyle::Halves)
}
