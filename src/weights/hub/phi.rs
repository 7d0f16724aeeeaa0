//! Phi-1.5 and Phi-2.

use super::family::{Family, no_recipes};
use super::json::Json;
use super::settings::Settings;
use super::usual;
use crate::weights::CheckpointError;

pub(super) const FAMILY: Family = Family {
    architecture: "phi2",
    model_types: &["phi"],
    settings,
    names: &[
        ("model.final_layernorm", "output_norm"),
        ("model.layers.*.self_attn.dense", "blk.*.attn_output"),
        ("model.layers.*.self_attn.q_layernorm", "blk.*.attn_q_norm"),
        ("model.layers.*.self_attn.k_layernorm", "blk.*.attn_k_norm"),
        ("model.layers.*.mlp.fc1", "blk.*.ffn_up"),
        ("model.layers.*.mlp.fc2", "blk.*.ffn_down"),
    ],
    recipes: no_recipes,
    ignored: &[],
};

fn settings(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_epsilon", 1e-5f32);
    settings.put_default("rope.freq_base", 10_000f32);
    usual::partial_rotary(config, 2, settings)?;
    usual::activation(config, settings)
}
