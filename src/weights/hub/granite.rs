//! Granite 3: Llama with multipliers.

use super::family::{Family, no_recipes};
use super::json::Json;
use super::settings::Settings;
use crate::weights::CheckpointError;

pub(super) const FAMILY: Family = Family {
    architecture: "granite",
    model_types: &["granite"],
    settings,
    names: &[],
    recipes: no_recipes,
    ignored: &[],
};

/// (Hub's field, key); 1 where there is none.
const MULTIPLIERS: [(&str, &str); 4] = [
    ("embedding_multiplier", "embedding_scale"),
    ("attention_multiplier", "attention.scale"),
    ("residual_multiplier", "residual_scale"),
    ("logits_scaling", "logit_scale"),
];

fn settings(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_rms_epsilon", 1e-6f32);
    settings.put_default("rope.freq_base", 10_000f32);
    for (field, key) in MULTIPLIERS {
        settings.put(key, config.f32(field)?.unwrap_or(1.0));
    }
    Ok(())
}
