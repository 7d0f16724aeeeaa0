//! GLM-4 as of its 0414 release (GLM Team 2024): neighbours turn together in half of each head, queries, keys and
//! values have biases, parts are normalised after as well as before.

use crate::compute::{Activation, Backend, RopeStyle};
use crate::model::config::ModelConfig;
use crate::model::layers::{Decoder, FeedForward, Layer, Mixer};
use crate::model::load::LoadError;
use crate::model::loader::Loader;

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    Ok(Decoder {
        embedding: loader.embedding(1.0)?,
        layers: (0..config.layers).map(|i| layer(loader, config, i)).collect::<Result<_, _>>()?,
        size: loader.size(),
        head: loader.head(config)?,
        ropes: vec![loader.rope(config, RopeStyle::Interleaved)?],
    })
}

fn layer<B: Backend>(loader: &mut Loader<B>, config: &ModelConfig, i: usize) -> Result<Layer<B>, LoadError> {
    let mut attention = loader.attention(config, i)?;
    attention.output.post_norm =
        Some(loader.norm(config, &format!("blk.{i}.post_attention_norm"), config.dim)?);
    let mut gated = loader.gated(config, i, Activation::Silu)?;
    gated.down.post_norm = Some(loader.norm(config, &format!("blk.{i}.post_ffw_norm"), config.dim)?);
    Ok(Layer {
        mixer: Mixer::Attention(attention),
        feed_forward: Some(FeedForward::Gated(gated)),
        parallel: false,
    })
}
