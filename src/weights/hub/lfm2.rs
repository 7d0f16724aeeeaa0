//! LFM2: short convolutions and attention. GGUF says which layer is which by its key heads.

use super::config::{layers, put_whole};
use super::family::Family;
use super::json::Json;
use super::settings::Settings;
use super::state;
use super::weights::Weights;
use crate::weights::CheckpointError;

pub(super) const FAMILY: Family = Family {
    architecture: "lfm2",
    model_types: &["lfm2"],
    settings,
    names: &[
        ("model.embedding_norm", "token_embd_norm"),
        ("model.layers.*.operator_norm", "blk.*.attn_norm"),
        ("model.layers.*.ffn_norm", "blk.*.ffn_norm"),
        ("model.layers.*.conv.conv", "blk.*.shortconv.conv"),
        ("model.layers.*.conv.in_proj", "blk.*.shortconv.in_proj"),
        ("model.layers.*.conv.out_proj", "blk.*.shortconv.out_proj"),
        ("model.layers.*.self_attn.out_proj", "blk.*.attn_output"),
        ("model.layers.*.self_attn.q_layernorm", "blk.*.attn_q_norm"),
        ("model.layers.*.self_attn.k_layernorm", "blk.*.attn_k_norm"),
        ("model.layers.*.feed_forward.w1", "blk.*.ffn_gate"),
        ("model.layers.*.feed_forward.w2", "blk.*.ffn_down"),
        ("model.layers.*.feed_forward.w3", "blk.*.ffn_up"),
    ],
    recipes,
    ignored: &[],
};

fn settings(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_rms_epsilon", 1e-5f32);
    settings.put_default("rope.freq_base", 1_000_000f32);
    put_whole(settings, "shortconv.l_cache", Some(config.u64("conv_L_cache")?.unwrap_or(3)));
    put_whole(settings, "feed_forward_length", feed_forward(config)?);
    let attends = match config.u64s("full_attn_idxs")? {
        Some(which) => Some((0..layers(config)?).map(|layer| which.contains(&layer)).collect()),
        None => None,
    };
    state::put_key_heads(config, settings, attends)
}

/// The width that is said, or two thirds of it rounded up.
fn feed_forward(config: &Json) -> Result<Option<u64>, CheckpointError> {
    let Some(said) = config.u64_of(&["block_ff_dim", "intermediate_size"])? else { return Ok(None) };
    if config.bool("block_auto_adjust_ff_dim")? == Some(false) {
        return Ok(Some(said));
    }
    let multiple = config.u64("block_multiple_of")?.unwrap_or(256).max(1);
    let multiplier = f64::from(config.f32("block_ffn_dim_multiplier")?.unwrap_or(1.0));
    let width = ((said.saturating_mul(2) / 3) as f64 * multiplier) as u64;
    Ok(Some(width.div_ceil(multiple).saturating_mul(multiple)))
}

fn recipes(_: &Json, weights: &mut Weights) -> Result<(), CheckpointError> {
    weights.map("model.layers.*.conv.conv.weight", "blk.*.shortconv.conv.weight", state::kernel)
}
