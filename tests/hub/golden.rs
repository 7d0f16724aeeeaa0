//! The golden checkpoints: every tensor decodes to what the `safetensors` crate reads under its own name.

use glassbox::weights::Checkpoint;
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;
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

/// Families that are told apart, and those that are still to come.
#[test]
fn every_tensor_is_what_lies_in_the_files() {
    let mut opened = 0;
    for folder in folders() {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let checkpoint = match Checkpoint::open(&folder) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                println!("{name}: {error}");
                continue;
            }
        };
        opened += 1;
        let plain = plain(&folder);
        for info in checkpoint.tensors() {
            let original = checkpoint.original_name(&info.name).unwrap();
            let Some(expected) = plain.get(&original) else { continue };
            if expected.len() == info.elements() {
                assert_eq!(&checkpoint.tensor(&info.name).unwrap().to_f32(), expected, "{name}: {original}");
            }
            assert_ne!(original, info.name, "{name}: no family has a place for it");
        }
    }
    assert!(opened > 0);
}
