//! Where a case's files lie, and what is known of it.

use super::support::{Golden, fixture};
use glassbox::weights::{BlockFormat, Checkpoint};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A model on disk, and what transformers says of it.
pub struct Case {
    pub name: String,
    pub kind: Kind,
    pub path: PathBuf,
    pub golden: Golden,
    /// Of the reference itself: f32 against f64, of the logits.
    pub noise: f32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Hub,
    Gguf,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Hub => "hub",
            Kind::Gguf => "gguf",
        }
    }
}

/// Where a case does not say what its noise is.
const NOISE: f32 = 1e-5;

impl Case {
    /// `None`, said aloud, where the files are not here: they are no part of the repository.
    pub fn find(name: &str, kind: Kind) -> Option<Self> {
        let places: Vec<PathBuf> = match kind {
            Kind::Hub => folders().iter().map(|folder| folder.join(name)).collect(),
            Kind::Gguf => gguf_folders().iter().map(|folder| folder.join(format!("{name}.gguf"))).collect(),
        };
        let Some(path) = places.into_iter().find(|path| path.exists()) else {
            println!("skipped: {name} ({}) is not here", kind.name());
            return None;
        };
        let case = Self::at(name, kind, path);
        if case.is_none() {
            println!("skipped: what transformers says of {name} is not here");
        }
        case
    }

    fn at(name: &str, kind: Kind, path: PathBuf) -> Option<Self> {
        let of_case = folders().into_iter().map(|folder| folder.join(name).join("golden.safetensors"));
        let beside = path.join("golden.safetensors");
        let kept = fixture(&format!("golden/{name}.safetensors"));
        let golden = [beside, kept].into_iter().chain(of_case).find(|path| path.exists())?;
        Some(Self {
            name: name.to_owned(),
            kind,
            path,
            noise: noise(&golden.with_extension("json")).unwrap_or(NOISE),
            golden: Golden::read_file(&golden),
        })
    }

    pub fn open(&self) -> Checkpoint {
        Checkpoint::open(&self.path).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }
}

/// Folders with a folder for each case.
pub fn folders() -> Vec<PathBuf> {
    vec![fixture("checkpoints"), shared("checkpoints")]
}

pub fn gguf_folders() -> Vec<PathBuf> {
    vec![fixture("gguf"), shared("gguf")]
}

/// Golden data that are not in the repository, beside it.
fn shared(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/golden").join(name)
}

fn noise(json: &Path) -> Option<f32> {
    let facts: serde_json::Value = serde_json::from_slice(&fs::read(json).ok()?).unwrap();
    facts["f32_vs_f64"].as_f64().map(|noise| noise as f32)
}

/// Formats of the matrices, and whether every weight is a float: the CPU multiplies those as they are, with
/// activations in f32.
pub fn formats(file: &Checkpoint) -> (String, bool) {
    let floats = [BlockFormat::F32, BlockFormat::F16, BlockFormat::BF16];
    // Weights that were packed otherwise are floats here only because no block format of ours holds them.
    let config = fs::read_to_string(file.path().join("config.json")).unwrap_or_default();
    let packed = config.contains("quantization_config");
    let exact = !packed && file.tensors().all(|tensor| floats.contains(&tensor.format));
    let matrices = file.tensors().filter(|tensor| tensor.rows() > 1);
    let names: BTreeSet<&str> = matrices.map(|tensor| tensor.format.name()).collect();
    (names.into_iter().collect::<Vec<_>>().join(" "), exact)
}
