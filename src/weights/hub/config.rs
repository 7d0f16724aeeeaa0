//! What most families' `config.json` say, under GGUF's keys. A family says the rest.

use super::json::Json;
use super::rope;
use super::settings::Settings;
use crate::weights::CheckpointError;

/// No model has more layers; a list of one value for each is made for no more.
const MOST_LAYERS: u64 = 4096;

/// (Key, spellings): whole numbers.
const WHOLE: [(&str, &[&str]); 14] = [
    ("block_count", &["num_hidden_layers", "n_layer"]),
    ("context_length", &["max_position_embeddings", "n_positions", "n_ctx"]),
    ("embedding_length", &["hidden_size", "n_embd"]),
    ("feed_forward_length", &["intermediate_size", "n_inner"]),
    ("attention.head_count", &["num_attention_heads", "n_head"]),
    ("attention.head_count_kv", &["num_key_value_heads"]),
    ("vocab_size", &["vocab_size"]),
    ("expert_count", &["num_local_experts", "num_experts", "n_routed_experts"]),
    ("expert_used_count", &["num_experts_per_tok", "experts_per_token"]),
    ("expert_feed_forward_length", &["moe_intermediate_size"]),
    ("expert_shared_feed_forward_length", &["shared_expert_intermediate_size"]),
    ("expert_shared_count", &["n_shared_experts"]),
    ("expert_group_count", &["n_group"]),
    ("expert_group_used_count", &["topk_group"]),
];

/// The same: numbers with a fraction.
const FRACTIONAL: [(&str, &[&str]); 5] = [
    ("attention.layer_norm_rms_epsilon", &["rms_norm_eps", "norm_eps"]),
    ("attention.layer_norm_epsilon", &["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"]),
    ("expert_weights_scale", &["routed_scaling_factor"]),
    ("attn_logit_softcapping", &["attn_logit_softcapping"]),
    ("final_logit_softcapping", &["final_logit_softcapping"]),
];

/// Puts all that is there.
pub(super) fn common(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    for (key, names) in WHOLE {
        put_whole(settings, key, config.u64_of(names)?);
    }
    for (key, names) in FRACTIONAL {
        settings.put_some(key, config.f32_of(names)?);
    }
    settings.put_some("expert_weights_norm", config.bool("norm_topk_prob")?);
    put_whole(settings, "leading_dense_block_count", config.u64("first_k_dense_replace")?);
    let head_dim = head_dim(config)?;
    put_whole(settings, "attention.key_length", head_dim);
    put_whole(settings, "attention.value_length", head_dim);
    windows(config, settings)?;
    rope::put(config, settings, head_dim)
}

/// Elements of a head: said, or what the width gives each.
pub(super) fn head_dim(config: &Json) -> Result<Option<u64>, CheckpointError> {
    if let Some(said) = config.u64("head_dim")? {
        return Ok(Some(said));
    }
    let heads = config.u64_of(&["num_attention_heads", "n_head"])?;
    let (Some(width), Some(heads)) = (config.u64_of(&["hidden_size", "n_embd"])?, heads) else {
        return Ok(None);
    };
    Ok(width.checked_div(heads).filter(|head| head * heads == width))
}

/// In the width that GGUF files usually have.
pub(super) fn put_whole(settings: &mut Settings, key: &str, value: Option<u64>) {
    match value.map(u32::try_from) {
        None => {}
        Some(Ok(value)) => settings.put(key, value),
        Some(Err(_)) => settings.put(key, value.unwrap_or_default()),
    }
}

pub(super) fn layers(config: &Json) -> Result<u64, CheckpointError> {
    let layers = config.u64_of(&["num_hidden_layers", "n_layer"])?;
    match layers.ok_or_else(|| config.wrong("num_hidden_layers", "is missing, a whole number is needed"))? {
        layers if layers > MOST_LAYERS => {
            Err(config.wrong("num_hidden_layers", format!("is {layers}, at most {MOST_LAYERS} are possible")))
        }
        layers => Ok(layers),
    }
}

/// `attention.sliding_window`, and where only some layers have one, which: `true` for each that has.
fn windows(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    const SLIDING: [&str; 2] = ["sliding_attention", "local_attention"];
    let Some(window) = config.u64("sliding_window")? else { return Ok(()) };
    if config.bool("use_sliding_window")? == Some(false) {
        return Ok(());
    }
    let sliding: Option<Vec<bool>> = match config.strs("layer_types")? {
        Some(types) => {
            if types.len() as u64 != layers(config)? {
                return Err(config.wrong("layer_types", format!("has {} layers", types.len())));
            }
            Some(types.iter().map(|kind| SLIDING.contains(&kind.as_str())).collect())
        }
        // Qwen's spelling: the first layers see everything.
        None if config.bool("use_sliding_window")? == Some(true) => match config.u64("max_window_layers")? {
            Some(full) => Some((0..layers(config)?).map(|layer| layer >= full).collect()),
            None => None,
        },
        None => None,
    };
    match sliding {
        Some(layers) if layers.iter().all(|sliding| !sliding) => return Ok(()),
        Some(layers) if layers.iter().any(|sliding| !sliding) => {
            settings.put("attention.sliding_window_pattern", layers);
        }
        _ => {}
    }
    put_whole(settings, "attention.sliding_window", Some(window));
    Ok(())
}
