//! Gemma 1 and 2. Norms are stored without the 1 that is added, as Gemma 3's are.

use super::family::{Family, no_recipes};
use super::gemma3;
use super::json::Json;
use super::settings::Settings;
use crate::weights::CheckpointError;

pub(super) const GEMMA: Family = Family {
    architecture: "gemma",
    model_types: &["gemma"],
    settings: usual,
    names: &[],
    recipes: no_recipes,
    ignored: &[],
};

pub(super) const GEMMA2: Family =
    Family { architecture: "gemma2", model_types: &["gemma2"], settings: second, ..gemma3::FAMILY };

fn usual(_: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_rms_epsilon", 1e-6f32);
    settings.put_default("rope.freq_base", 10_000f32);
    Ok(())
}

fn second(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    usual(config, settings)?;
    gemma3::put_scale(config, settings)?;
    gemma3::put_windows(config, 2, settings)?;
    // One that is left out is the paper's; `null` says that there is none.
    for cap in ["attn_logit_softcapping", "final_logit_softcapping"] {
        if config.names().any(|name| name == cap) {
            settings.put_default(cap, 0f32);
        }
    }
    Ok(())
}
