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

/// A tensor of a file: name, type, shape, bytes.
pub type Raw = (&'static str, &'static str, Vec<usize>, Vec<u8>);

/// A small folder in memory, its file in parts.
pub struct Folder {
    pub name: &'static str,
    pub config: Vec<u8>,
    pub header: Vec<u8>,
    pub data: Vec<u8>,
}

impl Folder {
    pub fn new(name: &'static str, config: &Value, tensors: &[Raw]) -> Folder {
        let (mut described, mut data) = (serde_json::Map::new(), Vec::new());
        for (name, dtype, shape, bytes) in tensors {
            let start = data.len();
            data.extend_from_slice(bytes);
            let tensor = json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, data.len()] });
            described.insert((*name).to_owned(), tensor);
        }
        let header = Value::Object(described).to_string().into_bytes();
        Folder { name, config: config.to_string().into_bytes(), header, data }
    }

    pub fn file(&self) -> Vec<u8> {
        [(self.header.len() as u64).to_le_bytes().as_slice(), &self.header, &self.data].concat()
    }

    pub fn open(&self) -> glassbox::weights::Checkpoint {
        glassbox::weights::Checkpoint::from_hub_bytes("m".as_ref(), &self.config, self.file()).unwrap()
    }
}

/// A configuration with a way to quantise.
pub fn quantised(how: Value) -> Value {
    let mut config = llama();
    config["quantization_config"] = how;
    config
}

pub fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

pub fn halves(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(|value| half::f16::from_f32(value).to_le_bytes()).collect()
}

pub fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// A folder of every kind that is read: plain, and each way to quantise.
pub fn folders() -> Vec<Folder> {
    const DOWN: &str = "model.layers.0.mlp.down_proj";
    let name = |part: &str| -> &'static str { format!("{DOWN}.{part}").leak() };
    let plain: Vec<Raw> = (tensors(&LLAMA_TENSORS).into_iter().zip(&LLAMA_TENSORS))
        .map(|((_, shape, data), (name, _))| (*name, "F32", shape, data))
        .collect();
    let mut gemma = llama();
    gemma["model_type"] = json!("gemma3_text");
    gemma["sliding_window"] = json!(8);
    gemma["layer_types"] = json!(["sliding_attention"]);
    let mut oss = quantised(json!({ "quant_method": "mxfp4" }));
    oss["model_type"] = json!("gpt_oss");
    let groups = json!({ "group_0": { "weights": { "num_bits": 8, "block_structure": [8, 32] } } });
    vec![
        Folder::new("plain", &llama(), &plain),
        Folder::new("gemma", &gemma, &plain),
        Folder::new(
            "gptq",
            &quantised(json!({ "quant_method": "gptq", "bits": 4, "group_size": 32 })),
            &[
                (name("qweight"), "I32", vec![8, 8], words(0..64)),
                (name("qzeros"), "I32", vec![2, 1], words([0x7777_7777, 0x1234_5677])),
                (name("scales"), "F16", vec![2, 8], halves((0..16).map(|i| i as f32 / 8.0))),
                (name("g_idx"), "I32", vec![64], words((0..64).map(|i| i / 32))),
            ],
        ),
        Folder::new(
            "awq",
            &quantised(json!({ "quant_method": "awq", "bits": 4, "group_size": 32 })),
            &[
                (name("qweight"), "I32", vec![64, 1], words(0..64)),
                (name("qzeros"), "I32", vec![2, 1], words([0x8888_8888, 3])),
                (name("scales"), "F16", vec![2, 8], halves((0..16).map(|i| i as f32 / 8.0))),
            ],
        ),
        Folder::new(
            "fp8",
            &quantised(json!({ "quant_method": "fp8", "weight_block_size": [8, 32] })),
            &[
                (name("weight"), "F8_E4M3", vec![12, 64], (0..768).map(|i| (i % 127) as u8).collect()),
                (name("weight_scale_inv"), "F32", vec![2, 2], floats([1.0, 2.0, 0.5, 0.25])),
            ],
        ),
        Folder::new(
            "compressed",
            &quantised(json!({ "quant_method": "compressed-tensors", "config_groups": groups })),
            &[
                (name("weight_packed"), "I32", vec![8, 8], words(0..64)),
                (name("weight_scale"), "F16", vec![8, 2], halves((1..17).map(|i| i as f32 / 8.0))),
                (name("weight_zero_point"), "I32", vec![1, 2], words([0x8888_8888, 0x1234_5678])),
                (
                    name("weight_shape"),
                    "I64",
                    vec![2],
                    [8u64, 64].into_iter().flat_map(u64::to_le_bytes).collect(),
                ),
                ("model.layers.0.mlp.up_proj.weight", "I8", vec![4, 32], (0..128).collect()),
                ("model.layers.0.mlp.up_proj.weight_scale", "F32", vec![4, 1], floats([1.0, 0.5, 2.0, 3.0])),
                ("model.layers.0.mlp.gate_proj.weight", "F8_E4M3", vec![2, 32], vec![0x38; 64]),
                ("model.layers.0.mlp.gate_proj.weight_scale", "F32", vec![2, 1], floats([1.0, 0.5])),
            ],
        ),
        Folder::new(
            "mxfp4",
            &oss,
            &[
                (
                    "model.layers.0.mlp.experts.gate_up_proj_blocks",
                    "U8",
                    vec![2, 4, 1, 16],
                    (0..128).collect(),
                ),
                ("model.layers.0.mlp.experts.gate_up_proj_scales", "U8", vec![2, 4, 1], vec![127; 8]),
                ("model.layers.0.mlp.experts.gate_up_proj_bias", "F32", vec![2, 4], floats([0.0; 8])),
                (
                    "model.layers.0.mlp.experts.down_proj",
                    "F32",
                    vec![2, 3, 4],
                    floats((0..24).map(|i| i as f32)),
                ),
            ],
        ),
    ]
}
