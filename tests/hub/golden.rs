//! The golden checkpoints: every tensor decodes to what the `safetensors` crate reads under its own name.

use glassbox::weights::{Checkpoint, Value};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// The whole set where it is there; what is committed of it otherwise.
fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (all, some) = (root.join("../shared/golden/checkpoints"), root.join("tests/fixtures/checkpoints"));
    let root = if all.is_dir() {
        all
    } else {
        println!("skipped: {} is not there; only what is committed is read", all.display());
        some
    };
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root).unwrap().map(|e| e.unwrap().path()).collect();
    folders.retain(|folder| folder.join("config.json").is_file());
    folders.sort();
    folders
}

/// Every tensor of a folder that holds plain weights, by its hub's name.
fn plain(folder: &Path) -> HashMap<String, Vec<f32>> {
    let mut all = HashMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.starts_with("model") || !name.ends_with(".safetensors") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for (name, view) in SafeTensors::deserialize(&bytes).unwrap().iter() {
            let data = view.data();
            let pairs = || data.as_chunks::<2>().0.iter();
            let numbers = match view.dtype() {
                Dtype::F32 => data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
                Dtype::F16 => pairs().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
                Dtype::BF16 => pairs().map(|b| bf16::from_le_bytes(*b).to_f32()).collect(),
                _ => continue,
            };
            all.insert(name.to_owned(), numbers);
        }
    }
    all
}

/// Stored turned, or head by head, so that the same numbers come in another order.
const TURNED: [&str; 7] = [
    "experts.down_proj",
    "mlp.c_proj.weight",
    "mlp.c_fc.weight",
    "attn.c_attn.weight",
    "attn.c_proj.weight",
    "attention.query_key_value.weight",
    "attention.query_key_value.bias",
];

/// One tensor of ours of what the hub has under the original's name: the same, the first of a stack, or a part.
fn agrees(original: &str, ours: &[f32], theirs: &[f32]) -> bool {
    let sorted = |numbers: &[f32]| {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f32::total_cmp);
        sorted
    };
    let turned = TURNED.iter().any(|ending| original.ends_with(ending));
    match ours.len().cmp(&theirs.len()) {
        Ordering::Equal if turned => sorted(ours) == sorted(theirs),
        Ordering::Equal => ours == theirs,
        Ordering::Greater => ours.starts_with(theirs),
        Ordering::Less => {
            let (ours, theirs) = (sorted(ours), sorted(theirs));
            let mut left = theirs.iter();
            ours.iter().all(|wanted| left.any(|number| number == wanted))
        }
    }
}

#[test]
fn every_tensor_is_what_lies_in_the_files() {
    let (mut opened, mut compared, mut others) = (0, 0, Vec::new());
    for folder in folders() {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let checkpoint = match Checkpoint::open(&folder) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                // Families to come; nothing else may fail.
                assert!(error.to_string().contains("model_type is"), "{error}");
                others.push(name);
                continue;
            }
        };
        opened += 1;
        let plain = plain(&folder);
        for info in checkpoint.tensors() {
            let original = checkpoint.original_name(&info.name).unwrap();
            assert_ne!(original, info.name, "{name}: no family has a place for it");
            if let Some(expected) = plain.get(&original) {
                let ours = checkpoint.tensor(&info.name).unwrap().to_f32();
                assert!(agrees(&original, &ours, expected), "{name}: {original}");
                compared += 1;
            }
        }
    }
    println!("{opened} folders, {compared} tensors; not supported: {}", others.join(", "));
    assert!(others.is_empty() && opened >= 7 && compared > 100);
}

/// Newer configurations spell much in another way; they mean the same.
#[test]
fn both_spellings_of_a_configuration_are_the_same_settings() {
    let mut compared = 0;
    for folder in folders() {
        let (old, new) = (folder.join("config.json"), folder.join("config_v5.json"));
        let (Ok(old), Ok(new)) = (std::fs::read(old), std::fs::read(new)) else { continue };
        let Ok(weights) = std::fs::read(folder.join("model.safetensors")) else { continue };
        let open = |config: &[u8]| Checkpoint::from_hub_bytes(&folder, config, weights.clone());
        let (Ok(old), Ok(new)) = (open(&old), open(&new)) else { continue };
        let all = |checkpoint: &Checkpoint| -> Vec<(String, String)> {
            checkpoint.metadata().map(|(key, value)| (key.to_owned(), format!("{value:?}"))).collect()
        };
        assert_eq!(all(&old), all(&new), "{}", folder.display());
        compared += 1;
    }
    println!("{compared} configurations in both spellings");
    assert!(compared >= 5);
}

/// Made by llama.cpp's converter from the same folders: the same keys with the same values, tensors of the same
/// names and shapes.
#[test]
fn keys_and_names_are_those_of_llama_cpp() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let all = root.join("../shared/golden/gguf");
    let ggufs = if all.is_dir() { all } else { root.join("tests/fixtures/gguf") };
    let (mut compared, mut wrong) = (0, Vec::new());
    for folder in folders() {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let gguf = ggufs.join(format!("{name}.gguf"));
        let (Ok(gguf), Ok(hub)) = (Checkpoint::open(&gguf), Checkpoint::open(&folder)) else { continue };
        compared += 1;
        for info in gguf.tensors().filter(|info| !own(&info.name)) {
            match hub.info(&info.name) {
                Some(ours) if squeezed(&info.name, &ours.dims) == squeezed(&info.name, &info.dims) => {}
                Some(ours) => {
                    wrong.push(format!("{name}: {}: {:?}, not {:?}", info.name, ours.dims, info.dims))
                }
                None => wrong.push(format!("{name}: no {}", info.name)),
            }
        }
        let all: BTreeMap<&str, &Value> = hub.metadata().collect();
        for (key, theirs) in gguf.metadata().filter(|(key, _)| key.starts_with(gguf.architecture().unwrap()))
        {
            match all.get(key) {
                Some(ours) if same(ours, theirs) => {}
                // The converter writes what a model has none of.
                None if theirs.as_u64() == Some(0) => {}
                ours => wrong.push(format!("{name}: {key} is {ours:?}, not {theirs:?}")),
            }
        }
        let more = hub.tensors().filter(|info| gguf.info(&info.name).is_none() && !own(&info.name));
        wrong.extend(more.map(|info| format!("{name}: {} is not in the GGUF file", info.name)));
    }
    println!("{compared} folders beside their GGUF files");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 0);
}

/// Integers are the same in any width.
fn same(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.values().zip(theirs.values()).all(|(a, b)| same(&a, &b))
        }
        _ => match (ours.as_i64(), theirs.as_i64()) {
            (None, None) => format!("{ours:?}") == format!("{theirs:?}"),
            (ours, theirs) => ours == theirs,
        },
    }
}

/// Made by the converter: factors of rotary pairs, which we compute; the two halves of DeepSeek's key and value
/// matrix, which our loader cuts.
fn own(name: &str) -> bool {
    ["rope_freqs.weight", "attn_k_b.weight", "attn_v_b.weight", "attn_kv_b.weight"]
        .iter()
        .any(|own| name.ends_with(own))
}

/// Without dimensions of one; Mamba's norm, which the converter cuts into groups, as one row.
fn squeezed(name: &str, dims: &[usize]) -> Vec<usize> {
    if name.ends_with("ssm_norm.weight") {
        return vec![dims.iter().product()];
    }
    dims.iter().copied().filter(|dim| *dim != 1).collect()
}
