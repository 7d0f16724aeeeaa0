//! DeepSeek-V2 and V3, and what is built like them: latent attention, experts chosen by groups, one expert
//! that every token sees (DeepSeek-AI 2024: V2, section 2; V3, section 2.1).

use crate::compute::{Activation, Backend, RopeStyle};
use crate::model::config::{ConfigError, ModelConfig, bad};
use crate::model::layers::{Decoder, FeedForward, Latent, LatentSizes, Layer, Mixer};
use crate::model::load::LoadError;
use crate::model::loader::{Loader, MixtureConfig};
use crate::weights::{BlockFormat, Checkpoint, Tensor};

pub(super) fn configure(file: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let LatentSizes { rank, plain, rotated, value } = sizes(file, config)?;
    let (heads, head) = (config.heads, rotated + rank);
    let query_rank = query_rank(file, config)?;
    (config.head_dim, config.kv_heads, config.rope_dims) = (head, 1, rotated);
    config.latent = Some(rotated);
    let mixture = read(file, config)?;
    let widths = &mut config.widths;
    widths.qkv = (heads + 1) * head;
    widths.attended = (heads * rank).max(query_rank.unwrap_or(0));
    widths.side = heads * (plain + rotated).max(value);
    widths.gated = widths.gated.max(rank);
    widths.router = rotated;
    mixture.widen(config);
    if rank > config.dim {
        let key = format!("{}.attention.kv_lora_rank", config.architecture);
        return Err(bad(&key, rank, "latent vectors longer than the hidden state are not supported"));
    }
    Ok(())
}

/// V2 and V2-Lite leave weights as the softmax has them, V3 makes them add up to 1; files of today say so.
fn read(file: &Checkpoint, config: &ModelConfig) -> Result<MixtureConfig, ConfigError> {
    MixtureConfig::read(file, config, false)
}

fn sizes(file: &Checkpoint, config: &ModelConfig) -> Result<LatentSizes, ConfigError> {
    let rank = config.whole(file, "attention.kv_lora_rank")?;
    let rotated = config.whole(file, "rope.dimension_count")?;
    // Files made before the latent cache have the sizes of a head in the keys without `_mla`.
    let of_head = |name: &str| {
        let newer = format!("{name}_mla");
        let key = format!("{}.{newer}", config.architecture);
        Ok::<_, ConfigError>(if file.u64(&key)?.is_some() { newer } else { name.to_owned() })
    };
    let key_len = config.whole(file, &of_head("attention.key_length")?)?;
    let value = config.whole(file, &of_head("attention.value_length")?)?;
    match key_len.checked_sub(rotated) {
        Some(plain) if plain > 0 => Ok(LatentSizes { rank, plain, rotated, value }),
        _ => {
            let key = format!("{}.rope.dimension_count", config.architecture);
            Err(bad(&key, rotated, &format!("a head's key has {key_len} elements")))
        }
    }
}

fn query_rank(file: &Checkpoint, config: &ModelConfig) -> Result<Option<usize>, ConfigError> {
    match file.u64(&format!("{}.attention.q_lora_rank", config.architecture))? {
        None | Some(0) => Ok(None),
        Some(_) => config.whole(file, "attention.q_lora_rank").map(Some),
    }
}

pub(super) fn load<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
) -> Result<Decoder<B>, LoadError> {
    let mixture = loader.read(|file| read(file, config))?;
    let sizes = loader.read(|file| sizes(file, config))?;
    let query_rank = loader.read(|file| query_rank(file, config))?;
    let rope = loader.rope(config, RopeStyle::Interleaved)?;
    let layer = |loader: &mut Loader<B>, i| {
        Ok::<_, LoadError>(Layer {
            mixer: Mixer::Latent(latent(loader, config, (sizes, query_rank), i)?),
            feed_forward: Some(feed_forward(loader, config, &mixture, i)?),
            parallel: false,
        })
    };
    Ok(Decoder {
        embedding: loader.embedding(1.0)?,
        layers: (0..config.layers).map(|i| layer(loader, i)).collect::<Result<_, _>>()?,
        size: loader.size(),
        head: loader.head(config)?,
        ropes: vec![rope],
    })
}

fn feed_forward<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    mixture: &MixtureConfig,
    i: usize,
) -> Result<FeedForward<B>, LoadError> {
    Ok(match i < mixture.dense_layers {
        true => FeedForward::Gated(loader.gated(config, i, Activation::Silu)?),
        false => FeedForward::Mixture(loader.mixture(config, mixture, i, "ffn_norm", Activation::Silu)?),
    })
}

fn latent<B: Backend>(
    loader: &mut Loader<B>,
    config: &ModelConfig,
    (sizes, query_rank): (LatentSizes, Option<usize>),
    i: usize,
) -> Result<Latent<B>, LoadError> {
    let LatentSizes { rank, plain, rotated, value } = sizes;
    let (dim, heads) = (config.dim, config.heads);
    let name = |part: &str| format!("blk.{i}.{part}");
    let query_rows = heads * (plain + rotated);
    let (query_down, query) = match query_rank {
        None => (None, loader.matrix(&[(name("attn_q.weight"), query_rows)], dim)?),
        Some(q_rank) => {
            let down = loader.matrix(&[(name("attn_q_a.weight"), q_rank)], dim)?;
            let norm = loader.norm(config, &name("attn_q_a_norm"), q_rank)?;
            (Some((down, norm)), loader.matrix(&[(name("attn_q_b.weight"), query_rows)], q_rank)?)
        }
    };
    let both = loader.file().tensor(&name("attn_kv_a_mqa.weight"))?;
    loader.check(&both, &[dim, rank + rotated])?;
    let (query_to_latent, latent_to_value) = absorbed(loader, &name(""), heads, sizes)?;
    Ok(Latent {
        norm: loader.norm(config, &name("attn_norm"), dim)?,
        query_down,
        query,
        latent: loader.stacked(vec![both.rows(0..rank)])?,
        latent_norm: loader.norm(config, &name("attn_kv_a_norm"), rank)?,
        rotated_key: loader.stacked(vec![both.rows(rank..rank + rotated)])?,
        query_to_latent,
        latent_to_value,
        output: loader.row_parallel(&name("attn_output"), heads * value, dim, None)?,
        heads,
        sizes,
        scale: loader.read(|file| scale(file, config, plain + rotated))?,
    })
}

/// YaRN's correction of the temperature is twice in the scores, where it is not in the rotation (V3's
/// modelling code: `mscale_all_dim`).
fn scale(file: &Checkpoint, config: &ModelConfig, key_len: usize) -> Result<f32, ConfigError> {
    let key = |name: &str| format!("{}.rope.scaling.{name}", config.architecture);
    let by_log = file.f32(&key("yarn_log_multiplier"))?.unwrap_or(0.0);
    let factor = file.f32(&key("factor"))?.unwrap_or(1.0).max(1.0);
    let correction = 1.0 + by_log * factor.ln();
    Ok(correction * correction / (key_len as f32).sqrt())
}

/// Of each head the two matrices, in which files made before the latent cache are one: `attn_kv_b`, of each
/// head rows that make keys and rows that make values of a latent vector.
fn absorbed<B: Backend>(
    loader: &mut Loader<B>,
    layer: &str,
    heads: usize,
    LatentSizes { rank, plain, value, .. }: LatentSizes,
) -> Result<(B::Matrix, B::Matrix), LoadError> {
    let name = |part: &str| format!("{layer}{part}.weight");
    let file = loader.file();
    if file.info(&name("attn_k_b")).is_some() {
        let mut of = |part: &str, dims: [usize; 2]| {
            let parts = (0..heads).map(|head| file.part(&name(part), head, heads));
            let parts = parts.collect::<Result<Vec<_>, _>>()?;
            parts.iter().try_for_each(|part| loader.check(part, &dims))?;
            loader.stacked(parts)
        };
        return Ok((of("attn_k_b", [plain, rank])?, of("attn_v_b", [rank, value])?));
    }
    let both = file.tensor(&name("attn_kv_b"))?;
    loader.check(&both, &[rank, heads * (plain + value)])?;
    let head = |head: usize| both.rows(head * (plain + value)..(head + 1) * (plain + value));
    let keys = (0..heads).map(|i| transposed(&head(i).rows(0..plain))).collect();
    let values = (0..heads).map(|i| head(i).rows(plain..plain + value)).collect();
    Ok((loader.stacked(keys)?, loader.stacked(values)?))
}

fn transposed(matrix: &Tensor) -> Tensor<'static> {
    let (cols, rows) = (matrix.info.row_len(), matrix.info.rows());
    let values = matrix.to_f32();
    let turned: Vec<f32> = (0..cols * rows).map(|i| values[i % rows * cols + i / rows]).collect();
    // Floats stay what they were; blocks cannot be turned, and become floats.
    let format = if matrix.info.format.block_len() == 1 { matrix.info.format } else { BlockFormat::F16 };
    Tensor::of_values(&matrix.info.name, &[rows, cols], format, &turned)
}
