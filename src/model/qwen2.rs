//! Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases on queries, keys and values, and rotary
//! pairs in halves.

use super::config::ModelConfig;
use super::layers::Decoder;
use super::llama;
use super::load::{LoadError, Loader};
use crate::compute::{Backend, RopeStyle};

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    llama::load(loader, config, RopeStyle::Halves)
}
