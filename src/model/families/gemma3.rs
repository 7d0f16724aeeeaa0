//! Gemma 3, text (Gemma Team 2025): local layers with a sliding window between global ones, heads
//! normalised before the rotation, parts normalised after as well as before, embeddings scaled.

use super::gemma2;
use crate::compute::{Backend, RopeStyle};
use crate::model::config::{ConfigError, ModelConfig};
use crate::model::layers::{Decoder, Layer};
use crate::model::load::LoadError;
use crate::model::loader::Loader;
use crate::model::rope::Rope;
use crate::weights::Checkpoint;

/// Into the decoder's ropes.
const GLOBAL: usize = 0;
const LOCAL: usize = 1;

/// Every sixth layer is global, the last of its six.
const PERIOD: u64 = 6;

pub(super) fn configure(file: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let window = config.require_window(file, None)?;
    config.slide(window, &config.sliding_layers(file, PERIOD)?);
    // The 27B divides by the width per head, the others by the head's size.
    if config.layers == 62 {
        config.attention_scale.get_or_insert(1.0 / ((config.dim / config.heads) as f32).sqrt());
    }
    config.norm_plus_one = file.is_hub();
    Ok(())
}

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    let local_base = loader.file().f32("gemma3.rope.freq_base_swa")?.unwrap_or(10_000.0);
    let local = Rope::plain(RopeStyle::Halves, local_base, config.rope_dims);
    Ok(Decoder {
        // Rounded to bf16 in the reference's bf16 mode; the golden data are computed in f32.
        embedding: loader.embedding((config.dim as f32).sqrt())?,
        layers: (0..config.layers).map(|i| layer(loader, config, i)).collect::<Result<_, _>>()?,
        size: loader.size(),
        head: loader.head(config)?,
        ropes: vec![loader.rope(config, RopeStyle::Halves)?, local],
    })
}

fn layer<B: Backend>(loader: &mut Loader<B>, config: &ModelConfig, i: usize) -> Result<Layer<B>, LoadError> {
    let mut attention = loader.attention(config, i)?;
    attention.rope = Some(if attention.window.is_none() { GLOBAL } else { LOCAL });
    gemma2::layer(loader, config, i, attention)
}
