//! DeepSeek-V2 and V3: latent attention, whose key and value matrix stays one (the loader cuts it).

use super::config::put_whole;
use super::family::{Family, no_recipes};
use super::json::Json;
use super::settings::Settings;
use crate::weights::CheckpointError;

pub(super) const FAMILY: Family = Family {
    architecture: "deepseek2",
    model_types: &["deepseek_v2", "deepseek_v3"],
    settings,
    names: &[
        ("model.layers.*.self_attn.q_a_proj", "blk.*.attn_q_a"),
        ("model.layers.*.self_attn.q_a_layernorm", "blk.*.attn_q_a_norm"),
        ("model.layers.*.self_attn.q_b_proj", "blk.*.attn_q_b"),
        ("model.layers.*.self_attn.kv_a_proj_with_mqa", "blk.*.attn_kv_a_mqa"),
        ("model.layers.*.self_attn.kv_a_layernorm", "blk.*.attn_kv_a_norm"),
        ("model.layers.*.self_attn.kv_b_proj", "blk.*.attn_kv_b"),
    ],
    recipes: no_recipes,
    ignored: &[],
};

fn settings(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_rms_epsilon", 1e-6f32);
    settings.put_default("rope.freq_base", 10_000f32);
    let size = |name: &str| {
        let value = config.u64(name)?;
        value.ok_or_else(|| config.wrong(name, "is missing, a whole number is needed"))
    };
    let (rank, plain) = (size("kv_lora_rank")?, size("qk_nope_head_dim")?);
    let (rotated, value) = (size("qk_rope_head_dim")?, size("v_head_dim")?);
    put_whole(settings, "attention.kv_lora_rank", Some(rank));
    put_whole(settings, "attention.q_lora_rank", config.u64("q_lora_rank")?);
    put_whole(settings, "attention.key_length", Some(rank.saturating_add(rotated)));
    put_whole(settings, "attention.value_length", Some(rank));
    put_whole(settings, "attention.key_length_mla", Some(plain.saturating_add(rotated)));
    put_whole(settings, "attention.value_length_mla", Some(value));
    // One latent key serves all heads.
    settings.put("attention.head_count_kv", 1u32);
    routing(config, settings)
}

fn routing(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    let v3 = config.require_str("model_type")? == "deepseek_v3";
    let score = config.str("scoring_func")?.unwrap_or(if v3 { "sigmoid" } else { "softmax" });
    let number = match score {
        "softmax" => 1u32,
        "sigmoid" => 2,
        other => {
            return Err(
                config.wrong("scoring_func", format!("is {other:?}; softmax and sigmoid are supported"))
            );
        }
    };
    settings.put("expert_gating_func", number);
    settings.put_default("expert_weights_norm", v3);
    match config.str("topk_method")?.unwrap_or(if v3 { "noaux_tc" } else { "greedy" }) {
        // From all experts, whatever the groups.
        "greedy" => settings.remove("expert_group_count"),
        "group_limited_greedy" | "noaux_tc" => {}
        other => {
            let known = "greedy, group_limited_greedy and noaux_tc are supported";
            return Err(config.wrong("topk_method", format!("is {other:?}; {known}")));
        }
    }
    Ok(())
}
