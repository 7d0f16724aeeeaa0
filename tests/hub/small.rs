//! Small folders made in code.

use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use std::path::Path;

/// Of one tensor each: a name, its shape, and numbers that count up.
pub fn tensors(names: &[(&str, &[usize])]) -> Vec<(String, Vec<usize>, Vec<u8>)> {
    let floats = |count: usize| (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect::<Vec<u8>>();
    names
        .iter()
        .map(|(name, shape)| ((*name).to_owned(), shape.to_vec(), floats(shape.iter().product())))
        .collect()
}

/// A safetensors file of f32.
pub fn file(names: &[(&str, &[usize])]) -> Vec<u8> {
    let tensors = tensors(names);
    let views = tensors.iter().map(|(name, shape, data)| {
        (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), data).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

/// A llama of one layer, too small to be one.
pub fn llama() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 8, "hidden_size": 4,
        "intermediate_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": true
    })
}

pub const LLAMA_TENSORS: [(&str, &[usize]); 11] = [
    ("model.embed_tokens.weight", &[8, 4]),
    ("model.norm.weight", &[4]),
    ("model.layers.0.input_layernorm.weight", &[4]),
    ("model.layers.0.post_attention_layernorm.weight", &[4]),
    ("model.layers.0.self_attn.q_proj.weight", &[4, 4]),
    ("model.layers.0.self_attn.k_proj.weight", &[2, 4]),
    ("model.layers.0.self_attn.v_proj.weight", &[2, 4]),
    ("model.layers.0.self_attn.o_proj.weight", &[4, 4]),
    ("model.layers.0.mlp.gate_proj.weight", &[6, 4]),
    ("model.layers.0.mlp.up_proj.weight", &[6, 4]),
    ("model.layers.0.mlp.down_proj.weight", &[4, 6]),
];

/// Writes a folder of files.
pub fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(Path::new(folder.path()).join(name), bytes).unwrap();
    }
    folder
}
