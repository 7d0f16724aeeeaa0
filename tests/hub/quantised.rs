//! Quantised checkpoints: every repacked matrix against the formula that its packing is defined by
//! (`gen_derived.py` beside the golden data), computed here from the raw words.

use glassbox::weights::{BlockFormat, Checkpoint, Tensor};
use half::f16;
use safetensors::SafeTensors;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoints").join(name)
}

/// The raw tensors of one file.
struct Raw<'a>(SafeTensors<'a>);

impl Raw<'_> {
    fn words(&self, name: &str) -> Vec<u32> {
        self.0.tensor(name).unwrap().data().as_chunks().0.iter().map(|w| u32::from_le_bytes(*w)).collect()
    }
    fn halves(&self, name: &str) -> Vec<f32> {
        let data = self.0.tensor(name).unwrap().data();
        data.as_chunks().0.iter().map(|h| f16::from_le_bytes(*h).to_f32()).collect()
    }
    fn floats(&self, name: &str) -> Vec<f32> {
        self.0.tensor(name).unwrap().data().as_chunks().0.iter().map(|f| f32::from_le_bytes(*f)).collect()
    }
    fn shape(&self, name: &str) -> Vec<usize> {
        self.0.tensor(name).unwrap().shape().to_vec()
    }
    fn stems(&self, ending: &str) -> Vec<String> {
        self.0.names().iter().filter_map(|name| name.strip_suffix(ending)).map(str::to_owned).collect()
    }
}

/// A tensor by what the hub calls it.
fn of_hub<'a>(checkpoint: &'a Checkpoint, original: &str) -> Tensor<'a> {
    let named = |name: &str| checkpoint.original_name(name).as_deref() == Some(original);
    let info = checkpoint.tensors().find(|info| named(&info.name)).unwrap();
    checkpoint.tensor(&info.name).unwrap()
}

fn decoded(tensor: &Tensor<'_>) -> Vec<f32> {
    tensor.to_f32()
}

/// A weight, and how far ours may be from it.
struct Expected {
    weight: f32,
    bound: f32,
}

/// Opens a folder and compares every packed matrix; the largest error is printed.
fn compare(
    case: &str,
    format: BlockFormat,
    packed: &str,
    expected: impl Fn(&Raw<'_>, &str) -> Vec<Expected>,
    decode: impl Fn(&Tensor<'_>) -> Vec<f32>,
) {
    let checkpoint = Checkpoint::open(&folder(case)).unwrap();
    let bytes = std::fs::read(folder(case).join("model.safetensors")).unwrap();
    let raw = Raw(SafeTensors::deserialize(&bytes).unwrap());
    let (mut worst, mut count) = (0f32, 0);
    for stem in raw.stems(packed) {
        let tensor = of_hub(&checkpoint, &format!("{stem}.weight"));
        assert_eq!(tensor.info.format, format, "{case}: {stem}");
        let (ours, expected) = (decode(&tensor), expected(&raw, &stem));
        assert_eq!(ours.len(), expected.len(), "{case}: {stem}");
        for (i, (ours, expected)) in ours.iter().zip(&expected).enumerate() {
            let error = (ours - expected.weight).abs();
            assert!(error <= expected.bound, "{case}: {stem}: {i}: {ours}, not {}", expected.weight);
            worst = worst.max(error);
        }
        count += 1;
    }
    assert_eq!(count, 21, "{case}: seven matrices of three layers");
    println!("{case}: {count} matrices, largest error {worst:e}");
}

/// `w[row][column] = scale[g][row] * (q - zero[g][row])`, g = g_idx[column]; qweight `[in * bits / 32, out]`.
fn gptq(bits: usize, bound: fn(f32) -> f32) -> impl Fn(&Raw<'_>, &str) -> Vec<Expected> {
    move |raw, stem| {
        let [codes, zeros, order] =
            ["qweight", "qzeros", "g_idx"].map(|part| raw.words(&format!("{stem}.{part}")));
        let scales = raw.halves(&format!("{stem}.scales"));
        let (rows, columns) = (raw.shape(&format!("{stem}.qweight"))[1], order.len());
        let (per, mask) = (32 / bits, (1u32 << bits) - 1);
        let weight = |row: usize, column: usize| {
            let group = order[column] as usize;
            let q = codes[column / per * rows + row] >> (bits * (column % per)) & mask;
            let zero = (zeros[group * (rows / per) + row / per] >> (bits * (row % per)) & mask) + 1;
            scales[group * rows + row] * (q as f32 - zero as f32)
        };
        let at = |i: usize| weight(i / columns, i % columns);
        (0..rows * columns).map(|i| Expected { weight: at(i), bound: bound(at(i)) }).collect()
    }
}

/// Exact: the zero is the middle, the codes and f16 scales are kept.
#[test]
fn symmetric_gptq_is_q4_0_and_q8_0_to_the_bit() {
    compare("llama_gptq", BlockFormat::Q4_0, ".qweight", gptq(4, |_| 0.0), decoded);
    compare("llama_gptq_8bit", BlockFormat::Q8_0, ".qweight", gptq(8, |_| 0.0), decoded);
}

/// Neighbouring columns are of different groups, so weights are halves: rounded to 11 bits.
#[test]
fn act_order_is_decoded_to_halves() {
    compare("llama_gptq_actorder", BlockFormat::F16, ".qweight", gptq(4, |w| w.abs() / 2048.0), decoded);
}

/// A block's minimum is `-scale * zero` rounded to 11 bits, so a weight may be off by that much.
#[test]
fn awq_is_q4_1() {
    const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];
    const GROUP: usize = 32;
    let expected = |raw: &Raw<'_>, stem: &str| {
        let [codes, zeros] = ["qweight", "qzeros"].map(|part| raw.words(&format!("{stem}.{part}")));
        let scales = raw.halves(&format!("{stem}.scales"));
        let [columns, words] = raw.shape(&format!("{stem}.qweight"))[..] else { panic!("a matrix") };
        let rows = 8 * words;
        let nibble = |words: &[u32], line: usize, row: usize| {
            let place = ORDER.iter().position(|column| *column == row % 8).unwrap();
            words[line * (rows / 8) + row / 8] >> (4 * place) & 15
        };
        let at = |i: usize| {
            let (row, column) = (i / columns, i % columns);
            let (scale, zero) =
                (scales[column / GROUP * rows + row], nibble(&zeros, column / GROUP, row) as f32);
            let weight = scale * (nibble(&codes, column, row) as f32 - zero);
            Expected { weight, bound: scale * zero / 2048.0 + 1e-7 }
        };
        (0..rows * columns).map(at).collect()
    };
    compare("llama_awq", BlockFormat::Q4_1, ".qweight", expected, decoded);
}

/// e4m3 by its definition: bias 7, no infinities.
fn e4m3(code: u8) -> f32 {
    let (exponent, fraction) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let size =
        if exponent == 0 { fraction / 512.0 } else { (1.0 + fraction / 8.0) * 2f32.powi(exponent - 7) };
    if code & 0x80 == 0 { size } else { -size }
}

/// Exact: codes and f32 scales are kept. Rows of 48 end in half a square of 32.
#[test]
fn squares_of_fp8_are_f8_to_the_bit() {
    const SIDE: usize = 32;
    let expected = |raw: &Raw<'_>, stem: &str| {
        let codes = raw.0.tensor(&format!("{stem}.weight")).unwrap().data().to_vec();
        let scales = raw.floats(&format!("{stem}.weight_scale_inv"));
        let [rows, columns] = raw.shape(&format!("{stem}.weight"))[..] else { panic!("a matrix") };
        let scale = |i: usize| scales[i / columns / SIDE * columns.div_ceil(SIDE) + i % columns / SIDE];
        (0..rows * columns).map(|i| Expected { weight: e4m3(codes[i]) * scale(i), bound: 0.0 }).collect()
    };
    let decode = |tensor: &Tensor<'_>| {
        let blocks = tensor.data.chunks_exact(36).map(|block| block.split_at(32));
        let block = |(codes, scale): (&[u8], &[u8])| {
            let scale = f32::from_le_bytes(scale.try_into().unwrap());
            codes.iter().map(|code| e4m3(*code) * scale).collect::<Vec<f32>>()
        };
        blocks.flat_map(block).collect()
    };
    compare("qwen3_fp8", BlockFormat::F8, ".weight_scale_inv", expected, decode);
}

/// Exact, and the same bytes that llama.cpp's converter writes: gate and up lie in turns, codes of
/// neighbours in one byte.
#[test]
fn mxfp4_experts_are_ggmls_blocks() {
    const VALUES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let value =
        |code: u8| if code & 8 == 0 { VALUES[usize::from(code)] } else { -VALUES[usize::from(code & 7)] };
    let checkpoint = Checkpoint::open(&folder("gpt_oss_mxfp4")).unwrap();
    let bytes = std::fs::read(folder("gpt_oss_mxfp4").join("model.safetensors")).unwrap();
    let raw = Raw(SafeTensors::deserialize(&bytes).unwrap());
    let mut count = 0;
    for layer in 0..4 {
        for (stem, part, step, first) in
            [("gate_up", "gate", 2, 0), ("gate_up", "up", 2, 1), ("down", "down", 1, 0)]
        {
            let stem = format!("model.layers.{layer}.mlp.experts.{stem}_proj");
            let codes = raw.0.tensor(&format!("{stem}_blocks")).unwrap().data().to_vec();
            let scales = raw.0.tensor(&format!("{stem}_scales")).unwrap().data().to_vec();
            let [experts, rows, each] = raw.shape(&format!("{stem}_scales"))[..] else { panic!("blocks") };
            let tensor = checkpoint.tensor(&format!("blk.{layer}.ffn_{part}_exps.weight")).unwrap();
            assert_eq!(
                (tensor.info.format, &tensor.info.dims),
                (BlockFormat::MXFP4, &vec![32 * each, rows / step, experts])
            );
            let ours: Vec<f32> = (tensor.data.chunks_exact(17))
                .flat_map(|block| {
                    let scale = 2f32.powi(i32::from(block[0]) - 127);
                    let low = block[1..].iter().map(move |q| value(q & 15) * scale);
                    low.chain(block[1..].iter().map(move |q| value(q >> 4) * scale))
                })
                .collect();
            let blocks = (0..experts * rows)
                .filter(|row| row % step == first)
                .flat_map(|row| row * each..(row + 1) * each);
            let expected: Vec<f32> = blocks
                .flat_map(|block| {
                    let scale = 2f32.powi(i32::from(scales[block]) - 127);
                    let codes = codes[16 * block..][..16].iter().flat_map(|byte| [byte & 15, byte >> 4]);
                    codes.map(move |code| value(code) * scale)
                })
                .collect();
            assert_eq!(ours, expected, "{stem}: {part}");
            count += 1;
        }
        let bias =
            |name: &str| checkpoint.tensor(&format!("blk.{layer}.ffn_{name}_exps.bias")).unwrap().to_f32();
        let whole = of_bf16(&raw, &format!("model.layers.{layer}.mlp.experts.gate_up_proj_bias"));
        let turns = |first: usize| whole.iter().copied().skip(first).step_by(2).collect::<Vec<f32>>();
        assert_eq!((bias("gate"), bias("up")), (turns(0), turns(1)));
    }
    println!("gpt_oss_mxfp4: {count} tensors of experts, exact");
}

fn of_bf16(raw: &Raw<'_>, name: &str) -> Vec<f32> {
    let data = raw.0.tensor(name).unwrap().data();
    data.as_chunks().0.iter().map(|b| half::bf16::from_le_bytes(*b).to_f32()).collect()
}

#[test]
fn other_ways_to_quantise_are_refused_by_name() {
    let refused = |quantization: serde_json::Value| {
        let mut config = super::small::llama();
        config["quantization_config"] = quantization;
        let weights = super::small::file(&super::small::LLAMA_TENSORS);
        Checkpoint::from_hub_bytes("m".as_ref(), config.to_string().as_bytes(), weights)
            .unwrap_err()
            .to_string()
    };
    let method = |name: &str| refused(serde_json::json!({ "quant_method": name }));
    let supported = "gptq, awq, fp8, compressed-tensors and mxfp4 are supported";
    for name in ["bitsandbytes", "hqq", "aqlm", "eetq", "quip", "modelopt", "torchao"] {
        assert_eq!(
            method(name),
            format!("m/config.json: quantization_config.quant_method is {name:?}; {supported}")
        );
    }
    let bits = refused(serde_json::json!({ "quant_method": "gptq", "bits": 3 }));
    assert!(bits.ends_with("quantization_config.bits is 3; 4 and 8 are supported for GPTQ"), "{bits}");
    let gemv = refused(serde_json::json!({ "quant_method": "awq", "bits": 4, "version": "gemv" }));
    assert!(gemv.ends_with("version is \"gemv\"; gemm is supported"), "{gemv}");
    let sparse = refused(serde_json::json!({ "quant_method": "compressed-tensors", "format": "marlin-24" }));
    assert!(sparse.contains("format is \"marlin-24\"; supported are dense, int-quantized"), "{sparse}");
}
