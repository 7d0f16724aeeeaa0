//! OLMo 2 (Team OLMo 2025, section 3.1): parts are normalised after and not before, queries and keys each as a
//! whole before they turn.

use crate::compute::{Activation, Backend, RopeStyle};
use crate::model::config::ModelConfig;
use crate::model::layers::{Decoder, FeedForward, Layer, Mixer};
use crate::model::load::LoadError;
use crate::model::loader::Loader;

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    let rope = loader.rope(config, RopeStyle::Halves)?;
    Ok(Decoder {
        embedding: loader.embedding(1.0)?,
        layers: (0..config.layers).map(|i| layer(loader, config, i)).collect::<Result<_, _>>()?,
        size: loader.size(),
        head: loader.head(config)?,
        ropes: vec![rope],
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
