//! Rotary embeddings as `config.json` says them, in any of its spellings: `rope_theta` and
//! `rope_scaling` (`type` or `rope_type`), or `rope_parameters`, which may be one for each kind of layer.
//!
//! GGUF has no keys for some of it, such as `rope.scaling.low_freq_factor`; those are ours.

use super::config::put_whole;
use super::json::Json;
use super::settings::Settings;
use crate::weights::CheckpointError;

/// (Hub's field, key): numbers.
const NUMBERS: [(&str, &str); 10] = [
    ("factor", "rope.scaling.factor"),
    ("attention_factor", "rope.scaling.attn_factor"),
    ("beta_fast", "rope.scaling.yarn_beta_fast"),
    ("beta_slow", "rope.scaling.yarn_beta_slow"),
    ("low_freq_factor", "rope.scaling.low_freq_factor"),
    ("high_freq_factor", "rope.scaling.high_freq_factor"),
    ("mscale", "rope.scaling.mscale"),
    ("mscale_all_dim", "rope.scaling.mscale_all_dim"),
    ("short_mscale", "rope.scaling.short_mscale"),
    ("long_mscale", "rope.scaling.long_mscale"),
];

/// One factor for each rotary pair.
const LISTS: [(&str, &str); 2] =
    [("short_factor", "rope.scaling.short_factor"), ("long_factor", "rope.scaling.long_factor")];

pub(super) fn put(
    config: &Json,
    settings: &mut Settings,
    head_dim: Option<u64>,
) -> Result<(), CheckpointError> {
    let parameters = config.object("rope_parameters")?;
    let (full, sliding) = match &parameters {
        Some(by_kind) if by_kind.has("full_attention") || by_kind.has("sliding_attention") => {
            (by_kind.object("full_attention")?, by_kind.object("sliding_attention")?)
        }
        _ => (parameters.clone(), None),
    };
    let base = match &full {
        Some(full) if full.has("rope_theta") => full.f32("rope_theta")?,
        _ => config.f32_of(&["rope_theta", "rotary_emb_base"])?,
    };
    settings.put_some("rope.freq_base", base);
    let local = match &sliding {
        Some(sliding) => sliding.f32("rope_theta")?,
        None => config.f32("rope_local_base_freq")?,
    };
    settings.put_some("rope.freq_base_swa", local);
    put_whole(settings, "rope.dimension_count", turned(config, full.as_ref(), head_dim)?);
    match full.or(config.object("rope_scaling")?) {
        Some(scaling) => put_scaling(config, &scaling, settings),
        None => Ok(()),
    }
}

/// Elements of a head that turn.
fn turned(
    config: &Json,
    parameters: Option<&Json>,
    head_dim: Option<u64>,
) -> Result<Option<u64>, CheckpointError> {
    if let Some(separate) = config.u64("qk_rope_head_dim")? {
        return Ok(Some(separate));
    }
    let inner = parameters.map_or(Ok(None), |parameters| parameters.f32("partial_rotary_factor"))?;
    let part = match inner {
        Some(part) => Some(part),
        None => config.f32_of(&["partial_rotary_factor", "rotary_pct"])?,
    };
    let (Some(head_dim), Some(part)) = (head_dim, part) else { return Ok(head_dim) };
    if !(0.0..=1.0).contains(&part) {
        return Err(config.wrong("partial_rotary_factor", format!("is {part}, from 0 to 1 is possible")));
    }
    Ok(Some((head_dim as f64 * f64::from(part)) as u64))
}

fn put_scaling(config: &Json, scaling: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    let name = if scaling.has("rope_type") { "rope_type" } else { "type" };
    let kind = match scaling.str(name)?.unwrap_or("default") {
        "default" | "mrope" | "none" => return Ok(()),
        known @ ("linear" | "dynamic" | "yarn" | "llama3" | "longrope") => known,
        "su" => "longrope",
        other => {
            let problem = format!("is {other:?}; linear, dynamic, yarn, llama3 and longrope are supported");
            return Err(scaling.wrong(name, problem));
        }
    };
    settings.put("rope.scaling.type", kind);
    for (field, key) in NUMBERS {
        settings.put_some(key, scaling.f32(field)?);
    }
    for (field, key) in LISTS {
        settings.put_some(key, scaling.f32s(field)?);
    }
    settings.put_some("rope.scaling.truncate", scaling.bool("truncate")?);
    // llama.cpp's way to say it: what the logarithm of the factor is multiplied with.
    let all_dims = scaling.f32("mscale_all_dim")?.filter(|_| kind == "yarn");
    settings.put_some("rope.scaling.yarn_log_multiplier", all_dims.map(|m| 0.1 * m));
    let original = match scaling.u64("original_max_position_embeddings")? {
        Some(said) => Some(said),
        None => config.u64_of(&["original_max_position_embeddings", "max_position_embeddings"])?,
    };
    if kind != "linear" {
        put_whole(settings, "rope.scaling.original_context_length", original);
    }
    Ok(())
}
