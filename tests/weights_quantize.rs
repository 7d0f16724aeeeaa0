//! Models in fewer bits: what is encoded, what that loses, and the files that are written.
#![allow(clippy::unwrap_used)]

use glassbox::weights::{
    BlockFormat, Checkpoint, FolderFormat, GgufWriter, QuantizeError, Quantized, Value, decode, measure,
    write_folder, write_gguf,
};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

const LLAMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/gguf/llama.gguf");

fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn write(file: &Checkpoint, to: BlockFormat, path: &Path) -> Result<Quantized, QuantizeError> {
    write_gguf(file, to, path, false, &mut go_on)
}

/// Noise that no block holds exactly.
fn noise(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        f64::from(state) / f64::from(u32::MAX) - 0.5
    };
    (0..len).map(|_| ((next() + next() + next()) * 0.1) as f32).collect()
}

/// Two layers; rows of 256, of 96 and of 24.
fn model() -> Checkpoint {
    let mut writer = GgufWriter::new("llama")
        .alignment(64)
        .put("general.file_type", 0u32)
        .put("split.count", 1u16)
        .put("tokenizer.ggml.tokens", &["a", "", "ü"][..])
        .put("tokenizer.ggml.scores", vec![0.5f32, -1.0, f32::NEG_INFINITY])
        .put("llama.block_count", 2u32)
        .tensor_f32("token_embd.weight", &[256, 8], &noise(256 * 8, 1));
    for layer in 0..2 {
        let name = |part: &str| format!("blk.{layer}.{part}");
        writer = writer
            .tensor_f32(&name("attn_norm.weight"), &[256], &noise(256, 2))
            .tensor_f32(&name("attn_q.weight"), &[256, 16], &noise(256 * 16, 3 + layer))
            .tensor_f32(&name("attn_q.bias"), &[16], &noise(16, 4))
            .tensor_f32(&name("ffn_gate_inp.weight"), &[256, 4], &noise(256 * 4, 5))
            .tensor_f32(&name("ffn_down_exps.weight"), &[96, 4, 3], &noise(96 * 12, 6 + layer))
            .tensor_f32(&name("attn_output.weight"), &[24, 16], &noise(24 * 16, 7));
    }
    let q4 = BlockFormat::Q4_0;
    writer = writer.tensor("output.weight", &[256, 8], q4, vec![0; 256 * 8 / 32 * q4.block_bytes()]);
    Checkpoint::from_bytes(Path::new("model.gguf"), writer.to_bytes()).unwrap()
}

fn format(file: &Checkpoint, name: &str) -> BlockFormat {
    file.info(name).unwrap().format
}

#[test]
fn matrices_become_blocks_and_all_else_stays() {
    let file = model();
    let Quantized { checkpoint, encoded, small, .. } = file.quantized(BlockFormat::Q4_K);
    assert_eq!((encoded, small), (4, 1));
    for (part, right) in [
        ("attn_q.weight", BlockFormat::Q4_K),
        ("ffn_down_exps.weight", BlockFormat::Q5_0), // rows of 96
        ("attn_output.weight", BlockFormat::F32),    // rows of 24
        ("ffn_gate_inp.weight", BlockFormat::F32),
        ("attn_norm.weight", BlockFormat::F32),
        ("attn_q.bias", BlockFormat::F32),
    ] {
        assert_eq!(format(&checkpoint, &format!("blk.1.{part}")), right, "{part}");
    }
    // Only looked up, and as small as it would become.
    assert_eq!(format(&checkpoint, "token_embd.weight"), BlockFormat::F32);
    assert_eq!(format(&checkpoint, "output.weight"), BlockFormat::Q4_0);
}

/// |W - Q(W)| / |W| from the outside.
fn error(before: &Checkpoint, after: &Checkpoint, name: &str) -> f64 {
    let (was, is) = (before.tensor(name).unwrap().to_f32(), after.tensor(name).unwrap().to_f32());
    let squares = |values: Vec<f32>| values.into_iter().map(|x| f64::from(x).powi(2)).sum::<f64>();
    let lost = was.iter().zip(&is).map(|(was, is)| was - is).collect();
    (squares(lost) / squares(was)).sqrt()
}

#[test]
fn a_gguf_file_has_the_blocks_the_keys_and_the_loss_that_was_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.gguf");
    let file = model();
    let told = write(&file, BlockFormat::Q4_K, &path).unwrap();
    let again = Checkpoint::open(&path).unwrap();

    assert_eq!(again.tensors().len(), file.tensors().len());
    let losses = told.losses.tensors();
    assert_eq!(losses.len(), 4);
    for loss in &losses {
        let error = error(&file, &again, &loss.name);
        assert!((error - loss.error).abs() < 1e-9, "{}: {error}, told {}", loss.name, loss.error);
        assert_eq!((loss.from, loss.to), (BlockFormat::F32, format(&again, &loss.name)));
        assert!(loss.error > 0.005 && loss.error < 0.1, "{}: {}", loss.name, loss.error);
    }
    for same in ["token_embd.weight", "blk.0.attn_norm.weight", "blk.1.attn_q.bias", "output.weight"] {
        assert_eq!(again.tensor(same).unwrap().data, file.tensor(same).unwrap().data, "{same}");
    }
    let layers: Vec<_> = told.losses.layers().iter().map(|layer| (layer.layer, layer.matrices)).collect();
    assert_eq!(layers, [(Some(0), 2), (Some(1), 2)]);

    let texts = |file: &Checkpoint| {
        let texts = file.require_texts("tokenizer.ggml.tokens").unwrap();
        (0..texts.len()).map(|i| String::from_utf8(texts.get(i).to_vec()).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(texts(&again), ["a", "", "ü"]);
    assert_eq!(again.f32s("tokenizer.ggml.scores").unwrap(), file.f32s("tokenizer.ggml.scores").unwrap());
    assert_eq!(again.u64("general.file_type").unwrap(), Some(14));
    assert_eq!(again.u64("general.quantization_version").unwrap(), Some(2));
    assert!(again.value("general.alignment").is_none() && again.value("split.count").is_none());

    // And what is only measured is the same.
    assert_eq!(measure(&file, BlockFormat::Q4_K, &mut go_on).unwrap().losses.tensors(), losses);
}

#[test]
fn every_key_of_a_real_converters_file_is_copied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.gguf");
    let file = Checkpoint::open(Path::new(LLAMA)).unwrap();
    write(&file, BlockFormat::Q8_0, &path).unwrap();
    let again = Checkpoint::open(&path).unwrap();
    for (key, value) in file.metadata().filter(|(key, _)| *key != "general.file_type") {
        let copied = again.value(key).unwrap_or_else(|| panic!("{key} is gone"));
        match (value, copied) {
            (Value::Array(was), Value::Array(is)) => {
                let all =
                    |array: &glassbox::weights::Array| format!("{:?}", array.values().collect::<Vec<_>>());
                assert_eq!(all(is), all(was), "{key}");
            }
            _ => assert_eq!(format!("{copied:?}"), format!("{value:?}"), "{key}"),
        }
    }
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_that_is_there_stays_and_an_interrupted_one_is_not_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.gguf");
    std::fs::write(&path, "mine").unwrap();
    let file = model();
    let refused = write(&file, BlockFormat::Q8_0, &path).err().unwrap();
    assert_eq!(refused.to_string(), format!("{} is there already", path.display()));

    let interrupted = write_gguf(&file, BlockFormat::Q8_0, &path, true, &mut |done, total| {
        assert!(done <= total);
        if done > total / 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(interrupted, Err(QuantizeError::Interrupted)));
    assert_eq!(
        (files(dir.path()), std::fs::read(&path).unwrap()),
        (vec!["out.gguf".to_owned()], b"mine".to_vec())
    );

    write_gguf(&file, BlockFormat::Q8_0, &path, true, &mut go_on).unwrap();
    assert!(Checkpoint::open(&path).is_ok());
    assert_eq!(files(dir.path()), ["out.gguf"]);
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.gguf");
    let file = model();
    let small = write(&file, BlockFormat::Q4_K, &path).unwrap().checkpoint;
    let again = write(&small, BlockFormat::Q8_0, &dir.path().join("b.gguf")).err().unwrap().to_string();
    assert!(again.contains("every matrix takes as few bits as Q8_0 already"), "{again}");
    let eight = write(&file, BlockFormat::F8, &dir.path().join("c.gguf")).err().unwrap().to_string();
    assert!(eight.contains("a GGUF file has no F8"), "{eight}");

    let nan = GgufWriter::new("llama").tensor_f32("blk.0.a.weight", &[32, 2], &[f32::NAN; 64]);
    let nan = Checkpoint::from_bytes(Path::new("nan.gguf"), nan.to_bytes()).unwrap();
    let said = write(&nan, BlockFormat::Q8_0, &dir.path().join("d.gguf")).err().unwrap().to_string();
    assert!(said.contains("\"blk.0.a.weight\": weight 0 is NaN"), "{said}");
    assert_eq!(files(dir.path()), ["out.gguf"]);
}

// ---- folders ----

/// A hub's folder with these tensors of f32: name, rows, columns (0 is a vector).
fn folder(dir: &Path, shards: &[&[(&str, usize, usize)]]) -> PathBuf {
    let folder = dir.join("model");
    std::fs::create_dir(&folder).unwrap();
    for (i, tensors) in shards.iter().enumerate() {
        let made: Vec<(String, Vec<usize>, Vec<u8>)> = (tensors.iter().zip(1..))
            .map(|((name, rows, cols), seed)| {
                let shape = if *cols == 0 { vec![*rows] } else { vec![*rows, *cols] };
                let weights = noise(shape.iter().product(), seed);
                ((*name).to_owned(), shape, weights.iter().flat_map(|w| w.to_le_bytes()).collect())
            })
            .collect();
        let views = made.iter().map(|(name, shape, bytes)| {
            let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes);
            (name.clone(), view.unwrap())
        });
        let bytes = safetensors::serialize(views, None).unwrap();
        std::fs::write(folder.join(format!("model-{}.safetensors", i + 1)), bytes).unwrap();
    }
    std::fs::write(folder.join("config.json"), r#"{"model_type": "llama", "hidden_size": 64}"#).unwrap();
    std::fs::write(folder.join("tokenizer.json"), "{}").unwrap();
    std::fs::write(folder.join("pytorch_model.bin"), "not copied").unwrap();
    folder
}

const SHARDS: [&[(&str, usize, usize)]; 2] = [
    &[
        ("model.embed_tokens.weight", 8, 64),
        ("model.layers.0.mlp.gate_proj.weight", 12, 64),
        ("model.layers.0.mlp.gate.weight", 4, 64),
    ],
    &[
        ("model.layers.1.self_attn.q_proj.weight", 64, 64),
        ("model.norm.weight", 64, 0),
        ("lm_head.weight", 8, 64),
    ],
];

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn a_folder_gets_bytes_with_a_scale_for_each_row() {
    for (to, dtype, most) in [
        (FolderFormat::Int8, safetensors::Dtype::I8, 0.01),
        (FolderFormat::Fp8, safetensors::Dtype::F8_E4M3, 0.04),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let from = folder(dir.path(), &SHARDS);
        let out = dir.path().join("out");
        let losses = write_folder(&from, to, &out, false, &mut go_on).unwrap();
        assert_eq!(
            files(&out),
            [
                "config.json",
                "model-1.safetensors",
                "model-2.safetensors",
                "model.safetensors.index.json",
                "tokenizer.json",
            ]
        );
        let names: Vec<_> = losses.iter().map(|loss| loss.name.as_str()).collect();
        assert_eq!(names, ["model.layers.0.mlp.gate_proj.weight", "model.layers.1.self_attn.q_proj.weight"]);

        let (old, new) = ["model", "out"]
            .map(|f| std::fs::read(dir.path().join(f).join("model-1.safetensors")).unwrap())
            .into();
        let (old, new) = (
            safetensors::SafeTensors::deserialize(&old).unwrap(),
            safetensors::SafeTensors::deserialize(&new).unwrap(),
        );
        for same in ["model.embed_tokens.weight", "model.layers.0.mlp.gate.weight"] {
            assert_eq!(new.tensor(same).unwrap().data(), old.tensor(same).unwrap().data());
        }
        let name = "model.layers.0.mlp.gate_proj.weight";
        let (bytes, scales) = (new.tensor(name).unwrap(), new.tensor(&format!("{name}_scale")).unwrap());
        assert_eq!((bytes.dtype(), bytes.shape(), scales.shape()), (dtype, &[12, 64][..], &[12, 1][..]));
        let (weights, scales) = (floats(old.tensor(name).unwrap().data()), floats(scales.data()));
        let (mut lost, mut all) = (0f64, 0f64);
        for (i, (byte, weight)) in bytes.data().iter().zip(&weights).enumerate() {
            let value = match to {
                FolderFormat::Int8 => f32::from(*byte as i8),
                FolderFormat::Fp8 => {
                    // One block of our own F8 with scale 1.
                    let mut block = vec![*byte; 32];
                    block.extend(1f32.to_le_bytes());
                    let mut decoded = [0.0; 32];
                    decode(BlockFormat::F8, &block, &mut decoded);
                    decoded[0]
                }
            };
            lost += f64::from(weight - value * scales[i / 64]).powi(2);
            all += f64::from(*weight).powi(2);
        }
        let error = (lost / all).sqrt();
        assert!((error - losses[0].error).abs() < 1e-9 && error > 0.0 && error < most, "{error}");

        let config: serde_json::Value =
            serde_json::from_slice(&std::fs::read(out.join("config.json")).unwrap()).unwrap();
        assert_eq!(config["hidden_size"], 64);
        let described = &config["quantization_config"];
        assert_eq!(described["quant_method"], "compressed-tensors");
        assert_eq!(described["config_groups"]["group_0"]["weights"]["strategy"], "channel");
        let ignored: Vec<_> =
            described["ignore"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
        assert_eq!(ignored, ["lm_head", "model.embed_tokens", "model.layers.0.mlp.gate"]);

        // It is quantised now, and there.
        let again = write_folder(&out, to, &dir.path().join("x"), false, &mut go_on).unwrap_err().to_string();
        assert!(again.contains("quantised already"), "{again}");
        let there = write_folder(&from, to, &out, false, &mut go_on).unwrap_err();
        assert!(matches!(there, QuantizeError::Exists(_)));
        let itself = write_folder(&from, to, &from, true, &mut go_on).unwrap_err();
        assert!(matches!(itself, QuantizeError::Exists(_)));
    }
}

/// What is written is what is read, but for what a byte loses of each weight.
#[test]
fn a_written_folder_is_a_model() {
    let from = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/checkpoints/llama_sharded"));
    let before = Checkpoint::open(from).unwrap();
    for (to, format, loss) in
        [(FolderFormat::Int8, BlockFormat::Q8_0, 0.02), (FolderFormat::Fp8, BlockFormat::F8, 0.05)]
    {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        write_folder(from, to, &out, false, &mut go_on).unwrap();
        let after = Checkpoint::open(&out).unwrap();
        assert_eq!(after.tensors().len(), before.tensors().len());
        for tensor in before.tensors() {
            let [old, new] = [&before, &after].map(|file| file.tensor(&tensor.name).unwrap());
            let encoded = tensor.name.starts_with("blk.") && tensor.rows() > 1;
            assert_eq!(new.info.format, if encoded { format } else { tensor.format }, "{}", tensor.name);
            let (old, new) = (old.to_f32(), new.to_f32());
            let length = |x: &mut dyn Iterator<Item = f32>| x.map(|x| x * x).sum::<f32>().sqrt();
            let error =
                length(&mut old.iter().zip(&new).map(|(a, b)| a - b)) / length(&mut old.iter().copied());
            assert!(error <= if encoded { loss } else { 0.0 }, "{}: {error}", tensor.name);
        }
    }
}

#[test]
fn folders_that_are_none_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let said = |from: &Path| {
        write_folder(from, FolderFormat::Int8, &dir.path().join("out"), false, &mut go_on)
            .unwrap_err()
            .to_string()
    };
    assert!(said(dir.path()).contains("config.json"));
    let from = folder(dir.path(), &[&[("a.layers.0.b.weight", 2, 32)]]);
    let path = from.join("model-1.safetensors");
    let whole = std::fs::read(&path).unwrap();
    for (cut, wanted) in
        [(4, "ends after 4 bytes"), (20, "its header is"), (whole.len() - 1, "its data end at")]
    {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let said = said(&from);
        assert!(said.contains("model-1.safetensors") && said.contains(wanted), "{said}");
    }
    std::fs::write(&path, [u64::MAX.to_le_bytes().as_slice(), b"{}"].concat()).unwrap();
    assert!(said(&from).contains("bytes long, at most"));
    assert!(!dir.path().join("out/config.json").exists());
}
