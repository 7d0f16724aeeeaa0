//! Gemma 3, text: norms after as well as before each part, local layers between global ones.
//! Its norms are stored without the 1 that is added; see [`Checkpoint::is_hub`](crate::weights::Checkpoint::is_hub).

use super::config::layers;
use super::family::{Family, no_recipes};
use super::json::Json;
use super::settings::Settings;
use crate::weights::CheckpointError;

pub(super) const FAMILY: Family = Family {
    architecture: "gemma3",
    model_types: &["gemma3_text", "gemma3"],
    settings,
    names: &[
        ("model.layers.*.post_attention_layernorm", "blk.*.post_attention_norm"),
        ("model.layers.*.pre_feedforward_layernorm", "blk.*.ffn_norm"),
        ("model.layers.*.post_feedforward_layernorm", "blk.*.post_ffw_norm"),
    ],
    recipes: no_recipes,
    ignored: &[],
};

fn settings(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_rms_epsilon", 1e-6f32);
    settings.put_default("rope.freq_base", 1_000_000f32);
    settings.put_default("rope.freq_base_swa", 10_000f32);
    put_scale(config, settings)?;
    put_windows(config, 6, settings)
}

/// Families of one size divide by the width of a head, others not; the file says which.
pub(super) fn put_scale(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    let scalar = config.f32("query_pre_attn_scalar")?.unwrap_or(256.0);
    if scalar <= 0.0 {
        return Err(config.wrong("query_pre_attn_scalar", format!("is {scalar}, a number above 0 is needed")));
    }
    settings.put("attention.scale", 1.0 / scalar.sqrt());
    Ok(())
}

/// One layer of `usual` is global, where the configuration does not say which are.
pub(super) fn put_windows(config: &Json, usual: u64, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.sliding_window", 4096u32);
    if let Some(period) = period(config, usual)? {
        settings.put("attention.sliding_window_pattern", u32::try_from(period).unwrap_or(u32::MAX));
    }
    Ok(())
}

/// Every how many layers one is global, where that is all there is to say.
fn period(config: &Json, usual: u64) -> Result<Option<u64>, CheckpointError> {
    let Some(kinds) = config.strs("layer_types")? else {
        return Ok(Some(
            config.u64_of(&["sliding_window_pattern", "_sliding_window_pattern"])?.unwrap_or(usual),
        ));
    };
    let global = |layer: usize| kinds[layer] == "full_attention";
    let layers = layers(config)? as usize;
    let first = (0..layers.min(kinds.len())).find(|layer| global(*layer));
    let period = first.map_or(layers + 1, |first| first + 1);
    let periodic = (0..kinds.len()).all(|layer| global(layer) == (layer + 1).is_multiple_of(period));
    Ok(periodic.then_some(period as u64))
}
