//! StarCoder2.

use super::family::{Family, no_recipes};
use super::json::Json;
use super::settings::Settings;
use super::usual;
use crate::weights::CheckpointError;

pub(super) const FAMILY: Family = Family {
    architecture: "starcoder2",
    model_types: &["starcoder2"],
    settings,
    names: &[("model.layers.*.mlp.c_fc", "blk.*.ffn_up"), ("model.layers.*.mlp.c_proj", "blk.*.ffn_down")],
    recipes: no_recipes,
    ignored: &[],
};

fn settings(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_epsilon", 1e-5f32);
    settings.put_default("rope.freq_base", 10_000f32);
    usual::activation(config, settings)
}
