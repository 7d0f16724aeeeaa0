//! Llama, and Mistral, which is Llama with a sliding window.

use super::family::{Family, no_recipes};
use super::json::Json;
use super::settings::Settings;
use crate::weights::CheckpointError;

pub(super) const FAMILY: Family = Family {
    architecture: "llama",
    model_types: &["llama"],
    settings,
    names: &[],
    recipes: no_recipes,
    ignored: &[],
};

pub(super) const MISTRAL: Family = Family { model_types: &["mistral"], ..FAMILY };

fn settings(_: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_rms_epsilon", 1e-6f32);
    settings.put_default("rope.freq_base", 10_000f32);
    Ok(())
}
