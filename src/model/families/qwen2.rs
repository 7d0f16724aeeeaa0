//! Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases on queries, keys and values, and rotary
//! pairs in halves. Qwen3 (Yang et al. 2025): without the biases, but each head of queries and keys is
//! normalised before it turns.

use super::llama;
use crate::compute::{Backend, RopeStyle};
use crate::model::config::ModelConfig;
use crate::model::layers::Decoder;
use crate::model::load::LoadError;
use crate::model::loader::Loader;

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    llama::load_with(loader, config, RopeStyle::Halves)
}
