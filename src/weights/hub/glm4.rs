//! GLM-4 as of its 0414 release: norms after as well as before each part; gate and up are one matrix, as in
//! GGUF files.

use super::family::{Family, no_recipes};
use super::json::Json;
use super::settings::Settings;
use super::usual;
use crate::weights::CheckpointError;

pub(super) const FAMILY: Family = Family {
    architecture: "glm4",
    model_types: &["glm4"],
    settings,
    names: &[
        ("model.layers.*.post_self_attn_layernorm", "blk.*.post_attention_norm"),
        ("model.layers.*.post_mlp_layernorm", "blk.*.post_ffw_norm"),
        ("model.layers.*.mlp.gate_up_proj", "blk.*.ffn_up"),
    ],
    recipes: no_recipes,
    ignored: &[],
};

fn settings(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_rms_epsilon", 1.5625e-7f32);
    settings.put_default("rope.freq_base", 10_000f32);
    usual::partial_rotary(config, 2, settings)?;
    usual::activation(config, settings)
}
