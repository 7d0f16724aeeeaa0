//! Packings that no golden case has, made small by hand.

use super::small::{Folder, Raw, folders, halves, quantised, words};
use glassbox::weights::{BlockFormat, Checkpoint};
use serde_json::json;

fn folder(name: &str) -> Checkpoint {
    folders().into_iter().find(|folder| folder.name == name).unwrap().open()
}

const DOWN: &str = "blk.0.ffn_down.weight";

/// `scale * (q - zero)`: words 0 to 63 have codes in their low bits only, which are counted from 8.
#[test]
fn words_of_compressed_tensors_go_by_rows() {
    let checkpoint = folder("compressed");
    let tensor = checkpoint.tensor(DOWN).unwrap();
    assert_eq!((tensor.info.format, tensor.info.dims.as_slice()), (BlockFormat::Q4_1, [64, 8].as_slice()));
    let ours = tensor.to_f32();
    for (i, ours) in ours.iter().enumerate() {
        let (row, column) = (i / 64, i % 64);
        let scale = (1 + 2 * row + column / 32) as f32 / 8.0;
        let word = [0x8888_8888u32, 0x1234_5678][column / 32];
        let zero = (word >> (4 * row) & 15) as f32;
        let q = (i / 8) as u32 >> (4 * (i % 8)) & 15;
        assert_eq!(*ours, scale * (q as f32 - zero), "row {row}, column {column}");
    }
}

#[test]
fn signed_bytes_are_q8_0_and_e4m3_keeps_its_scale_for_each_row() {
    let checkpoint = folder("compressed");
    let up = checkpoint.tensor("blk.0.ffn_up.weight").unwrap();
    assert_eq!(up.info.format, BlockFormat::Q8_0);
    let scales = [1.0, 0.5, 2.0, 3.0];
    let expected: Vec<f32> = (0..128).map(|i| i as f32 * scales[i / 32]).collect();
    assert_eq!(up.to_f32(), expected);
    let gate = checkpoint.tensor("blk.0.ffn_gate.weight").unwrap();
    assert_eq!(gate.info.format, BlockFormat::F8);
    assert_eq!(gate.data[32..36], 1f32.to_le_bytes());
    assert_eq!(gate.data[36 + 32..], 0.5f32.to_le_bytes());
}

/// The second version holds zeros as they are, the first less one; one group may be all columns.
#[test]
fn both_versions_of_gptq_and_one_group_for_all() {
    let tensors = |zero: u32| -> Vec<Raw> {
        vec![
            ("model.layers.0.mlp.down_proj.qweight", "I32", vec![4, 8], words([0x7654_3210; 32])),
            ("model.layers.0.mlp.down_proj.qzeros", "I32", vec![1, 1], words([zero])),
            ("model.layers.0.mlp.down_proj.scales", "F16", vec![1, 8], halves([0.5; 8])),
        ]
    };
    let how = |format: &str| {
        quantised(json!({ "quant_method": "gptq", "bits": 4, "group_size": -1, "checkpoint_format": format }))
    };
    let first = Folder::new("first", &how("gptq"), &tensors(0x7777_7777)).open();
    let second = Folder::new("second", &how("gptq_v2"), &tensors(0x8888_8888)).open();
    for checkpoint in [&first, &second] {
        let tensor = checkpoint.tensor(DOWN).unwrap();
        assert_eq!(tensor.info.format, BlockFormat::Q4_0);
        let expected: Vec<f32> = (0..256).map(|i| ((i % 8) as f32 - 8.0) * 0.5).collect();
        assert_eq!(tensor.to_f32(), expected);
    }
    // Zeros that are not in the middle: Q4_1, and exactly so here.
    let other = Folder::new("other", &how("gptq_v2"), &tensors(0x3333_3333)).open();
    let tensor = other.tensor(DOWN).unwrap();
    assert_eq!((tensor.info.format, tensor.to_f32()[0]), (BlockFormat::Q4_1, -1.5));
}

/// A bias of zeros that a writer added is no bias of the model.
#[test]
fn biases_of_zeros_are_left_out() {
    let tensors: Vec<Raw> = vec![
        ("model.layers.0.mlp.down_proj.qweight", "I32", vec![4, 8], words([0; 32])),
        ("model.layers.0.mlp.down_proj.qzeros", "I32", vec![1, 1], words([0x7777_7777])),
        ("model.layers.0.mlp.down_proj.scales", "F16", vec![1, 8], halves([0.5; 8])),
        ("model.layers.0.mlp.down_proj.bias", "F16", vec![8], halves([0.0; 8])),
    ];
    let checkpoint =
        Folder::new("bias", &quantised(json!({ "quant_method": "gptq", "bits": 4 })), &tensors).open();
    assert!(checkpoint.info("blk.0.ffn_down.bias").is_none());
    assert_eq!(checkpoint.notes(), ["model.layers.0.mlp.down_proj.bias is left out: it is zero"]);
}

/// Parts that do not fit together are refused by the hub's name and what is wrong.
#[test]
fn sizes_that_do_not_fit_are_refused() {
    let gptq = quantised(json!({ "quant_method": "gptq", "bits": 4 }));
    let refused = |config: &serde_json::Value, tensors: &[Raw]| {
        let folder = Folder::new("refused", config, tensors);
        Checkpoint::from_hub_bytes("m".as_ref(), &folder.config, folder.file()).unwrap_err().to_string()
    };
    let stem = "m: tensor \"model.layers.0.mlp.down_proj\": ";
    let codes = ("model.layers.0.mlp.down_proj.qweight", "I32", vec![4, 8], words([0; 32]));
    let zeros = ("model.layers.0.mlp.down_proj.qzeros", "I32", vec![1, 1], words([0]));
    let scales = ("model.layers.0.mlp.down_proj.scales", "F16", vec![1, 7], halves([0.5; 7]));
    assert_eq!(
        refused(&gptq, &[codes.clone(), zeros.clone(), scales]),
        format!("{stem}its scales have shape [1, 7], [1, 8] is needed")
    );
    assert_eq!(
        refused(&gptq, &[codes.clone(), zeros.clone()]),
        "m has no tensor \"model.layers.0.mlp.down_proj.scales\""
    );
    let scales = ("model.layers.0.mlp.down_proj.scales", "F16", vec![1, 8], halves([0.5; 8]));
    let order = ("model.layers.0.mlp.down_proj.g_idx", "I32", vec![32], words([7; 32]));
    assert_eq!(
        refused(&gptq, &[codes, zeros, scales, order]),
        "m: tensor \"model.layers.0.mlp.down_proj.g_idx\": its largest group is 7, and there are scales for 1"
    );
    let fp8 = quantised(json!({ "quant_method": "fp8", "weight_block_size": [32, 32] }));
    let codes = ("model.layers.0.mlp.down_proj.weight", "F8_E4M3", vec![4, 64], vec![0; 256]);
    let scales = ("model.layers.0.mlp.down_proj.weight_scale_inv", "F16", vec![1, 3], halves([0.5; 3]));
    assert_eq!(
        refused(&fp8, &[codes, scales]),
        "m: tensor \"model.layers.0.mlp.down_proj.weight\": scales of shape [1, 3] fit no way to scale 4 rows of 64"
    );
}
