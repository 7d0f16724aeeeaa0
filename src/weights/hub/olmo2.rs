//! OLMo 2: norms after each part, none before.

use super::family::{Family, no_recipes};
use super::json::Json;
use super::settings::Settings;
use super::usual;
use crate::weights::CheckpointError;

pub(super) const FAMILY: Family = Family {
    architecture: "olmo2",
    model_types: &["olmo2"],
    settings,
    names: &[
        ("model.layers.*.post_attention_layernorm", "blk.*.post_attention_norm"),
        ("model.layers.*.post_feedforward_layernorm", "blk.*.post_ffw_norm"),
    ],
    recipes: no_recipes,
    ignored: &[],
};

fn settings(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_rms_epsilon", 1e-5f32);
    settings.put_default("rope.freq_base", 10_000f32);
    usual::activation(config, settings)
}
