//! Mixtures of experts over the attention of Llama and Qwen: Mixtral, Qwen2-MoE, Qwen3-MoE, GLM-4.5.

use super::family::{Family, no_recipes};
use super::json::Json;
use super::settings::Settings;
use crate::weights::CheckpointError;

/// Llama with experts, which GGUF calls llama as well.
pub(super) const MIXTRAL: Family = Family {
    architecture: "llama",
    model_types: &["mixtral"],
    settings: mixtral,
    names: &[
        ("model.layers.*.block_sparse_moe.gate", "blk.*.ffn_gate_inp"),
        ("model.layers.*.block_sparse_moe.experts.*.w1", "blk.*.ffn_gate_exps"),
        ("model.layers.*.block_sparse_moe.experts.*.w2", "blk.*.ffn_down_exps"),
        ("model.layers.*.block_sparse_moe.experts.*.w3", "blk.*.ffn_up_exps"),
    ],
    recipes: no_recipes,
    ignored: &[],
};

pub(super) const QWEN2: Family = Family {
    architecture: "qwen2moe",
    model_types: &["qwen2_moe"],
    settings: qwen,
    names: &[],
    recipes: no_recipes,
    ignored: &[],
};

pub(super) const QWEN3: Family = Family { architecture: "qwen3moe", model_types: &["qwen3_moe"], ..QWEN2 };

pub(super) const GLM4: Family = Family {
    architecture: "glm4moe",
    model_types: &["glm4_moe"],
    settings: glm4,
    names: &[("model.layers.*.post_attention_layernorm", "blk.*.post_attention_norm")],
    recipes: no_recipes,
    ignored: &[],
};

fn mixtral(_: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_rms_epsilon", 1e-5f32);
    settings.put_default("rope.freq_base", 1_000_000f32);
    settings.put_default("expert_count", 8u32);
    settings.put_default("expert_used_count", 2u32);
    Ok(())
}

/// What transformers' configurations leave out is false: weights stay as the softmax over all has them.
fn qwen(_: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_rms_epsilon", 1e-6f32);
    settings.put_default("rope.freq_base", 10_000f32);
    settings.put_default("expert_weights_norm", false);
    Ok(())
}

fn glm4(_: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    settings.put_default("attention.layer_norm_rms_epsilon", 1e-5f32);
    settings.put_default("rope.freq_base", 10_000f32);
    settings.put_default("expert_weights_norm", true);
    settings.put("expert_gating_func", 2u32);
    Ok(())
}
