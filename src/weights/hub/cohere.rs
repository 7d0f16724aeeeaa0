//! Command R.

use super::family::{Family, no_recipes};
use super::json::Json;
use super::settings::Settings;
use super::usual;
use crate::weights::CheckpointError;

pub(super) const FAMILY: Family = Family {
    architecture: "command-r",
    model_types: &["cohere"],
    settings,
    names: &[],
    recipes: no_recipes,
    ignored: &[],
};

fn settings(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_epsilon", 1e-5f32);
    settings.put_default("rope.freq_base", 10_000f32);
    settings.put("logit_scale", config.f32("logit_scale")?.unwrap_or(0.0625));
    usual::activation(config, settings)
}
