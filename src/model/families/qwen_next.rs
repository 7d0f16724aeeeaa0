//! Qwen3-Next and Qwen3.5 (Qwen Team 2025): of every four layers three are gated delta nets, the fourth is
//! attention whose heads are gated, of which a quarter turns. Qwen3-Next has mixtures of experts.

use crate::compute::{Activation, Backend, NormKind, RopeStyle};
use crate::kv::CacheSpec;
use crate::model::config::{ConfigError, ModelConfig, bad};
use crate::model::layers::{
    Attention, Decoder, DeltaNet, DeltaSizes, FeedForward, Layer, Mixer, Normalisation,
};
use crate::model::load::LoadError;
use crate::model::loader::{Loader, MixtureConfig};
use crate::weights::Checkpoint;

/// What the layers are made of beside what all decoders have.
#[derive(Clone, Copy)]
struct Shape {
    delta: DeltaSizes,
    /// Of the convolution.
    width: usize,
    /// `None` for a dense model.
    mixture: Option<MixtureConfig>,
}

pub(super) fn configure(file: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if !file.is_hub() {
        // Whose heads lie in another order, which nothing here has been compared with.
        let problem = "only its folders from hubs (safetensors) are supported, not GGUF files";
        return Err(bad("general.architecture", &config.architecture, problem));
    }
    config.norm_plus_one = true;
    config.recurrent_where_no_heads(file)?;
    let Shape { delta, width, mixture } = shape(file, config)?;
    config.keep_state(width, delta.channels(), delta.state_len())?;
    let heads = config.heads * config.head_dim;
    let widths = &mut config.widths;
    widths.qkv = widths.qkv.max(delta.projected());
    widths.attended = widths.attended.max(delta.values());
    widths.side = heads.max(delta.values());
    mixture.into_iter().for_each(|mixture| mixture.widen(config));
    Ok(())
}

fn shape(file: &Checkpoint, config: &ModelConfig) -> Result<Shape, ConfigError> {
    let whole = |name: &str| config.whole(file, name);
    let (key_heads, value_heads) = (whole("ssm.group_count")?, whole("ssm.time_step_rank")?);
    let (key_dim, inner) = (whole("ssm.state_size")?, whole("ssm.inner_size")?);
    if value_heads % key_heads != 0 || inner % value_heads != 0 {
        let problem = format!("{key_heads} key heads and {inner} columns cannot be shared by them");
        return Err(bad(&format!("{}.ssm.time_step_rank", config.architecture), value_heads, &problem));
    }
    let has_experts = file.u64(&format!("{}.expert_count", config.architecture))?.is_some();
    Ok(Shape {
        delta: DeltaSizes { key_heads, value_heads, key_dim, value_dim: inner / value_heads },
        width: whole("ssm.conv_kernel")?,
        mixture: has_experts.then(|| MixtureConfig::read(file, config, true)).transpose()?,
    })
}

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    let shape = loader.read(|file| shape(file, config))?;
    let rope = loader.rope(config, RopeStyle::Halves)?;
    Ok(Decoder {
        embedding: loader.embedding(1.0)?,
        layers: (0..config.layers).map(|i| layer(loader, config, shape, i)).collect::<Result<_, _>>()?,
        size: loader.size(),
        head: loader.head(config)?,
        ropes: vec![rope],
    })
}

fn layer<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    shape: Shape,
    i: usize,
) -> Result<Layer<B>, LoadError> {
    let mixer = match config.caches[i] {
        CacheSpec::Recurrent => Mixer::DeltaNet(delta_net(loader, config, shape, i)?),
        _ => Mixer::Attention(attention(loader, config, i)?),
    };
    let routed = loader.file().info(&format!("blk.{i}.ffn_gate_inp.weight")).is_some();
    let feed_forward = match shape.mixture.filter(|_| routed) {
        Some(mixture) => {
            FeedForward::Mixture(loader.mixture(config, &mixture, i, "ffn_norm", Activation::Silu)?)
        }
        None => FeedForward::Gated(loader.gated(config, i, Activation::Silu)?),
    };
    Ok(Layer { mixer, feed_forward: Some(feed_forward), parallel: false })
}

fn attention<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    i: usize,
) -> Result<Attention<B>, LoadError> {
    let mut attention = loader.attention(config, i)?;
    let rows = config.heads * config.head_dim;
    attention.gate = Some(loader.matrix(&[(format!("blk.{i}.attn_gate.weight"), rows)], config.dim)?);
    Ok(attention)
}

fn delta_net<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    Shape { delta, width, .. }: Shape,
    i: usize,
) -> Result<DeltaNet<B>, LoadError> {
    let (dim, name) = (config.dim, |part: &str| format!("blk.{i}.{part}"));
    let input = [
        ("attn_qkv.weight", delta.channels()),
        ("attn_gate.weight", delta.values()),
        ("ssm_beta.weight", delta.value_heads),
        ("ssm_alpha.weight", delta.value_heads),
    ];
    // The one normalisation whose weights are stored whole.
    let head_norm = Normalisation {
        weight: loader.vector(&name("ssm_norm.weight"), delta.value_dim)?,
        bias: None,
        eps: config.eps,
        kind: NormKind::Rms,
    };
    Ok(DeltaNet {
        norm: loader.norm(config, &name("attn_norm"), dim)?,
        input: loader.matrix(&input.map(|(part, rows)| (name(part), rows)), dim)?,
        kernel: loader.kernel(&name("ssm_conv1d"), delta.channels(), width, true)?,
        sizes: delta,
        a_log: loader.decay(&name("ssm_a"), delta.value_heads)?,
        dt_bias: loader.vector(&name("ssm_dt.bias"), delta.value_heads)?,
        head_norm,
        output: loader.row_parallel(&name("ssm_out"), delta.values(), dim, None)?,
    })
}
