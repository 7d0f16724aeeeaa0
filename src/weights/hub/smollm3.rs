//! SmolLM3: Llama, with layers without positions.

use super::config::layers;
use super::family::{Family, no_recipes};
use super::json::Json;
use super::settings::Settings;
use crate::weights::CheckpointError;

pub(super) const FAMILY: Family = Family {
    architecture: "smollm3",
    model_types: &["smollm3"],
    settings,
    names: &[],
    recipes: no_recipes,
    ignored: &[],
};

/// Every so many layers one has no positions, unless they are listed.
const INTERVAL: u64 = 4;

fn settings(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_rms_epsilon", 1e-6f32);
    settings.put_default("rope.freq_base", 2_000_000f32);
    // For all its name, the list has 1 for a layer that turns.
    let turning: Vec<bool> = match config.u64s("no_rope_layers")? {
        Some(listed) if listed.len() as u64 != layers(config)? => {
            return Err(config.wrong("no_rope_layers", format!("has {} layers", listed.len())));
        }
        Some(listed) => listed.iter().map(|turns| *turns != 0).collect(),
        None => {
            let interval = config.u64("no_rope_layer_interval")?.unwrap_or(INTERVAL).max(1);
            (1..=layers(config)?).map(|layer| !layer.is_multiple_of(interval)).collect()
        }
    };
    settings.put("rope.layers", turning);
    Ok(())
}
