//! Mamba-2 (Dao and Gu 2024): state-space layers and nothing else, so the whole past is one state a layer.

use crate::compute::Backend;
use crate::kv::CacheSpec;
use crate::model::config::{ConfigError, ModelConfig, bad};
use crate::model::layers::{Decoder, GroupNorm, Layer, Mamba2, Mamba2Sizes, Mixer};
use crate::model::load::LoadError;
use crate::model::loader::Loader;
use crate::weights::Checkpoint;

pub(super) fn configure(file: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let sizes = sizes(file, config)?;
    config.caches.fill(CacheSpec::Recurrent);
    // No layer has keys; of that size they would fit every device.
    (config.heads, config.kv_heads, config.head_dim) = (0, 0, 16);
    config.keep_state(kernel_width(file, config)?, sizes.channels(), sizes.state_len())?;
    config.widths.qkv = sizes.projected();
    config.widths.attended = sizes.inner();
    config.widths.gated = 0;
    config.widths.side = sizes.inner();
    Ok(())
}

fn kernel_width(file: &Checkpoint, config: &ModelConfig) -> Result<usize, ConfigError> {
    config.whole(file, "ssm.conv_kernel")
}

fn sizes(file: &Checkpoint, config: &ModelConfig) -> Result<Mamba2Sizes, ConfigError> {
    let whole = |name: &str| config.whole(file, name);
    let (inner, heads) = (whole("ssm.inner_size")?, whole("ssm.time_step_rank")?);
    let (groups, state) = (whole("ssm.group_count")?, whole("ssm.state_size")?);
    let cut = |name: &str, value: usize, problem: String| {
        Err(bad(&format!("{}.{name}", config.architecture), value, &problem))
    };
    if inner % heads != 0 || inner % groups != 0 {
        return cut("ssm.inner_size", inner, format!("{heads} heads and {groups} groups cannot share it"));
    }
    if heads % groups != 0 {
        return cut("ssm.group_count", groups, format!("{heads} heads cannot share them"));
    }
    Ok(Mamba2Sizes { heads, head_dim: inner / heads, groups, state })
}

/// The least and the largest step, where a file bounds them.
fn dt_limit(file: &Checkpoint, config: &ModelConfig) -> Result<(f32, f32), ConfigError> {
    let key = format!("{}.ssm.time_step_limit", config.architecture);
    match file.f32s(&key)?.as_deref() {
        None => Ok((0.0, f32::INFINITY)),
        Some([least, most]) => Ok((*least, *most)),
        Some(other) => Err(bad(&key, format!("{other:?}"), "the least and the largest step are needed")),
    }
}

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    let shape = loader
        .read(|file| Ok((sizes(file, config)?, kernel_width(file, config)?, dt_limit(file, config)?)))?;
    Ok(Decoder {
        embedding: loader.embedding(1.0)?,
        layers: (0..config.layers).map(|i| layer(loader, config, shape, i)).collect::<Result<_, _>>()?,
        size: loader.size(),
        head: loader.head(config)?,
        ropes: Vec::new(),
    })
}

fn layer<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    (sizes, width, dt_limit): (Mamba2Sizes, usize, (f32, f32)),
    i: usize,
) -> Result<Layer<B>, LoadError> {
    let (dim, inner, name) = (config.dim, sizes.inner(), |part: &str| format!("blk.{i}.{part}"));
    let mamba = Mamba2 {
        norm: loader.norm(config, &name("attn_norm"), dim)?,
        input: loader.matrix(&[(name("ssm_in.weight"), sizes.projected())], dim)?,
        bias: loader.bias(&name("ssm_in"), sizes.projected())?,
        kernel: loader.kernel(&name("ssm_conv1d"), sizes.channels(), width, true)?,
        a: loader.decay(&name("ssm_a"), sizes.heads)?,
        d: loader.flat_vector(&name("ssm_d"), sizes.heads)?,
        dt_bias: loader.vector(&name("ssm_dt.bias"), sizes.heads)?,
        dt_limit,
        gated_norm: gated_norm(loader, config, &name("ssm_norm.weight"), sizes)?,
        output: loader.row_parallel(&name("ssm_out"), inner, dim, None)?,
        sizes,
    };
    Ok(Layer { mixer: Mixer::Mamba2(mamba), feed_forward: None, parallel: false })
}

fn gated_norm<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    name: &str,
    sizes: Mamba2Sizes,
) -> Result<GroupNorm<B>, LoadError> {
    let weight = loader.flat_vector(name, sizes.inner())?;
    let (one, weight) = match sizes.groups {
        1 => (weight, None),
        groups => (loader.backend.upload(&vec![1.0; sizes.inner() / groups])?, Some(weight)),
    };
    Ok(GroupNorm { one, weight, groups: sizes.groups, eps: config.eps })
}
