//! Command R (Cohere 2024): attention and feed-forward part side by side behind one LayerNorm without biases,
//! logits scaled; Command R+ normalises each head of queries and keys by weights of its own.

use crate::compute::{Activation, Backend, RopeStyle};
use crate::model::config::{ConfigError, ModelConfig};
use crate::model::layers::{Decoder, FeedForward, Layer, Mixer};
use crate::model::load::LoadError;
use crate::model::loader::Loader;
use crate::weights::Checkpoint;

pub(super) fn configure(_: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.widths.normed = true;
    Ok(())
}

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    let embedding = loader.embedding(1.0)?;
    let layers = (0..config.layers).map(|i| layer(loader, config, i)).collect::<Result<_, _>>()?;
    let size = loader.size();
    let mut head = loader.head(config)?;
    head.scale = loader.file().require_f32("command-r.logit_scale")?;
    let rope = loader.rope(config, RopeStyle::Interleaved)?;
    Ok(Decoder { embedding, layers, head, ropes: vec![rope], size })
}

fn layer<B: Backend>(loader: &mut Loader<B>, config: &ModelConfig, i: usize) -> Result<Layer<B>, LoadError> {
    let mut gated = loader.gated(config, i, Activation::Silu)?;
    gated.norm = Some(loader.norm(config, &format!("blk.{i}.attn_norm"), config.dim)?);
    Ok(Layer {
        mixer: Mixer::Attention(loader.attention(config, i)?),
        feed_forward: Some(FeedForward::Gated(gated)),
        parallel: true,
    })
}
