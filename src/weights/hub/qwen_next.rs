//! Qwen3-Next and Qwen3.5: gated delta nets, and attention that is gated. Their norms are stored without
//! the 1 that is added, but for the one of the delta net's heads.

use super::config::{layers, put_whole};
use super::family::Family;
use super::item::Item;
use super::json::Json;
use super::names::filled;
use super::settings::Settings;
use super::state;
use super::weights::Weights;
use crate::weights::CheckpointError;
use std::ops::Range;

pub(super) const QWEN3_NEXT: Family = Family {
    architecture: "qwen3next",
    model_types: &["qwen3_next"],
    settings,
    names: &[
        ("model.layers.*.self_attn.q_gate", "blk.*.attn_gate"),
        ("model.layers.*.linear_attn.in_proj_qkv", "blk.*.attn_qkv"),
        ("model.layers.*.linear_attn.in_proj_z", "blk.*.attn_gate"),
        ("model.layers.*.linear_attn.in_proj_b", "blk.*.ssm_beta"),
        ("model.layers.*.linear_attn.in_proj_a", "blk.*.ssm_alpha"),
        ("model.layers.*.linear_attn.conv1d", "blk.*.ssm_conv1d"),
        ("model.layers.*.linear_attn.A_log", "blk.*.ssm_a"),
        ("model.layers.*.linear_attn.dt_bias", "blk.*.ssm_dt.bias"),
        ("model.layers.*.linear_attn.norm", "blk.*.ssm_norm"),
        ("model.layers.*.linear_attn.out_proj", "blk.*.ssm_out"),
    ],
    recipes,
    ignored: &[],
};

pub(super) const QWEN3_5: Family =
    Family { architecture: "qwen35", model_types: &["qwen3_5_text", "qwen3_5"], ..QWEN3_NEXT };

fn settings(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_rms_epsilon", 1e-6f32);
    settings.put_default("rope.freq_base", 10_000f32);
    let sizes = Sizes::of(config)?;
    put_whole(settings, "ssm.conv_kernel", Some(config.u64("linear_conv_kernel_dim")?.unwrap_or(4)));
    put_whole(settings, "ssm.state_size", Some(sizes.key_dim as u64));
    put_whole(settings, "ssm.group_count", Some(sizes.key_heads as u64));
    put_whole(settings, "ssm.time_step_rank", Some(sizes.value_heads as u64));
    put_whole(settings, "ssm.inner_size", Some((sizes.value_heads * sizes.value_dim) as u64));
    // Of the chosen experts' weights: what transformers' configurations leave out is true here.
    settings.put_default("expert_weights_norm", true);
    let interval = config.u64("full_attention_interval")?.unwrap_or(4).max(1);
    let attends = (1..=layers(config)?).map(|layer| layer.is_multiple_of(interval)).collect();
    state::put_key_heads(config, settings, Some(attends))
}

/// Heads of the delta net.
#[derive(Clone, Copy)]
struct Sizes {
    key_heads: usize,
    value_heads: usize,
    key_dim: usize,
    value_dim: usize,
}

impl Sizes {
    fn of(config: &Json) -> Result<Self, CheckpointError> {
        let whole = |name: &str, or: u64| match config.u64(name)?.unwrap_or(or) {
            // No model has more; products of them are far from overflowing.
            value @ 1..=65_536 => Ok(value as usize),
            value => Err(config.wrong(name, format!("is {value}, from 1 to 65536 is possible"))),
        };
        let (key_heads, value_heads) =
            (whole("linear_num_key_heads", 16)?, whole("linear_num_value_heads", 32)?);
        if value_heads % key_heads != 0 {
            let problem = format!("is {value_heads}, which {key_heads} key heads cannot share");
            return Err(config.wrong("linear_num_value_heads", problem));
        }
        let (key_dim, value_dim) = (whole("linear_key_head_dim", 128)?, whole("linear_value_head_dim", 128)?);
        Ok(Self { key_heads, value_heads, key_dim, value_dim })
    }

    /// Rows of parts that lie one after the other for each key head, as a list of rows for each part.
    fn apart<const N: usize>(&self, parts: [usize; N]) -> [Vec<Range<usize>>; N] {
        let one: usize = parts.iter().sum();
        std::array::from_fn(|part| {
            let start = parts[..part].iter().sum::<usize>();
            (0..self.key_heads).map(|head| head * one + start..head * one + start + parts[part]).collect()
        })
    }
}

fn recipes(config: &Json, weights: &mut Weights) -> Result<(), CheckpointError> {
    weights.map("model.layers.*.linear_attn.conv1d.weight", "blk.*.ssm_conv1d.weight", state::kernel)?;
    let sizes = Sizes::of(config)?;
    let values = sizes.value_heads / sizes.key_heads;
    let (key, value) = (sizes.key_dim, values * sizes.value_dim);
    let [q, k, v, z] = sizes.apart([key, key, value, value]);
    let together = [q, k, v].concat();
    cut(
        weights,
        "model.layers.*.linear_attn.in_proj_qkvz",
        &[("model.layers.*.linear_attn.in_proj_qkv", together), ("model.layers.*.linear_attn.in_proj_z", z)],
    )?;
    let [b, a] = sizes.apart([values, values]);
    cut(
        weights,
        "model.layers.*.linear_attn.in_proj_ba",
        &[("model.layers.*.linear_attn.in_proj_b", b), ("model.layers.*.linear_attn.in_proj_a", a)],
    )?;
    gated_queries(config, weights)
}

/// Of each head first the query, then its gate.
fn gated_queries(config: &Json, weights: &mut Weights) -> Result<(), CheckpointError> {
    let heads = config.require_u64("num_attention_heads")? as usize;
    let dim = super::config::head_dim(config)?.unwrap_or(256) as usize;
    let rows = |first: usize| -> Vec<Range<usize>> {
        let start = |head: usize| head.saturating_mul(2).saturating_add(first).saturating_mul(dim);
        (0..heads.min(65_536)).map(|head| start(head)..start(head).saturating_add(dim)).collect()
    };
    let (query, gate) = (rows(0), rows(1));
    cut(
        weights,
        "model.layers.*.self_attn.q_proj",
        &[("model.layers.*.self_attn.q_proj", query), ("model.layers.*.self_attn.q_gate", gate)],
    )
}

/// Replaces every tensor that fits `pattern` by parts of it under other names of the hub.
fn cut(
    weights: &mut Weights,
    pattern: &str,
    parts: &[(&str, Vec<Range<usize>>)],
) -> Result<(), CheckpointError> {
    for ending in [".weight", ".bias"] {
        for (name, numbers) in weights.matching(&format!("{pattern}{ending}")) {
            let item = weights.require(&name)?;
            let needed: usize = parts.iter().flat_map(|(_, rows)| rows).map(ExactSizeIterator::len).sum();
            let rows = item.shape.first().copied().unwrap_or(1);
            if rows != needed {
                return Err(weights.wrong(&name, format!("it has {rows} rows, and its parts {needed}")));
            }
            let made: Result<Vec<Item>, String> =
                parts.iter().map(|(_, rows)| item.gathered(rows.clone())).collect();
            for ((part, _), made) in parts.iter().zip(made.map_err(|problem| weights.wrong(&name, problem))?)
            {
                weights.put(format!("{}{ending}", filled(part, &numbers)), made);
            }
        }
    }
    Ok(())
}
