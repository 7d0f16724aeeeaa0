//! Qwen 2 and 2.5, and Qwen 3: dense.

use super::family::{Family, no_recipes};
use super::json::Json;
use super::settings::Settings;
use crate::weights::CheckpointError;

pub(super) const QWEN2: Family = Family {
    architecture: "qwen2",
    model_types: &["qwen2"],
    settings,
    names: &[],
    recipes: no_recipes,
    ignored: &[],
};

pub(super) const QWEN3: Family = Family { architecture: "qwen3", model_types: &["qwen3"], ..QWEN2 };

fn settings(_: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_rms_epsilon", 1e-6f32);
    settings.put_default("rope.freq_base", 10_000f32);
    Ok(())
}
