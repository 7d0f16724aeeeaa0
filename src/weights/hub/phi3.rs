//! Phi-3 and Phi-4: queries, keys and values are one matrix, gate and up another, as in GGUF files.

use super::family::{Family, no_recipes};
use super::json::Json;
use super::settings::Settings;
use super::usual;
use crate::weights::CheckpointError;

pub(super) const FAMILY: Family = Family {
    architecture: "phi3",
    model_types: &["phi3"],
    settings,
    names: &[
        ("model.layers.*.self_attn.qkv_proj", "blk.*.attn_qkv"),
        ("model.layers.*.mlp.gate_up_proj", "blk.*.ffn_up"),
    ],
    recipes: no_recipes,
    ignored: &[],
};

fn settings(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_rms_epsilon", 1e-5f32);
    settings.put_default("rope.freq_base", 10_000f32);
    usual::activation(config, settings)
}
