//! GPT-NeoX and Pythia: queries, keys and values are one matrix, head by head.

use super::family::Family;
use super::item::Item;
use super::json::Json;
use super::settings::Settings;
use super::usual;
use super::weights::Weights;
use crate::weights::CheckpointError;

pub(super) const FAMILY: Family = Family {
    architecture: "gptneox",
    model_types: &["gpt_neox"],
    settings,
    names: &[
        ("gpt_neox.embed_in", "token_embd"),
        ("embed_out", "output"),
        ("gpt_neox.final_layer_norm", "output_norm"),
        ("gpt_neox.layers.*.input_layernorm", "blk.*.attn_norm"),
        ("gpt_neox.layers.*.post_attention_layernorm", "blk.*.ffn_norm"),
        ("gpt_neox.layers.*.attention.query_key_value", "blk.*.attn_qkv"),
        ("gpt_neox.layers.*.attention.dense", "blk.*.attn_output"),
        ("gpt_neox.layers.*.mlp.dense_h_to_4h", "blk.*.ffn_up"),
        ("gpt_neox.layers.*.mlp.dense_4h_to_h", "blk.*.ffn_down"),
    ],
    recipes,
    ignored: &[("gpt_neox.layers.*.attention.bias", "masks are computed")],
};

fn settings(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_epsilon", 1e-5f32);
    settings.put_default("rope.freq_base", 10_000f32);
    usual::partial_rotary(config, 4, settings)?;
    settings.put("use_parallel_residual", config.bool("use_parallel_residual")?.unwrap_or(true));
    usual::activation(config, settings)
}

/// `[heads, 3, head_dim]` rows become `[3, heads, head_dim]`.
fn recipes(config: &Json, weights: &mut Weights) -> Result<(), CheckpointError> {
    let heads = config.require_u64("num_attention_heads")? as usize;
    let apart = |item: &Item| {
        let rows = item.shape.first().copied().unwrap_or(0);
        let head_dim = rows / (3 * heads).max(1);
        if head_dim * 3 * heads != rows {
            return Err(format!("{rows} rows are not queries, keys and values of {heads} heads"));
        }
        let start = |part: usize, head: usize| (3 * head + part) * head_dim;
        let ranges = (0..3).flat_map(|part| (0..heads).map(move |head| start(part, head)));
        item.gathered(ranges.map(|start| start..start + head_dim).collect())
    };
    for ending in ["weight", "bias"] {
        let theirs = format!("gpt_neox.layers.*.attention.query_key_value.{ending}");
        weights.map(&theirs, &format!("blk.*.attn_qkv.{ending}"), apart)?;
    }
    Ok(())
}
