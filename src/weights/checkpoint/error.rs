use std::io;
use std::path::{Path, PathBuf};

/// Why a model's files cannot be read, or lacks what was asked of it. Names from the file are printed
/// escaped: a file may hold anything.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("cannot open {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} is not a GGUF file: {problem}", path.display())]
    NotGguf { path: PathBuf, problem: String },
    #[error("{}: big-endian GGUF is not supported", path.display())]
    BigEndian { path: PathBuf },
    #[error("{}: GGUF version {version} is not supported; versions 2 and 3 are", path.display())]
    Version { path: PathBuf, version: u32 },
    #[error("{} is damaged or incomplete: {what}, at byte {offset}: {problem}", path.display())]
    Damaged { path: PathBuf, what: String, offset: u64, problem: String },
    #[error("{}: {problem}", path.display())]
    Split { path: PathBuf, problem: String },
    #[error("{}: tensor {tensor:?} is {format}, which glassbox cannot compute yet", path.display())]
    UnsupportedFormat { path: PathBuf, tensor: String, format: &'static str },
    #[error("{} has no key {key:?}", path.display())]
    MissingKey { path: PathBuf, key: String },
    #[error("{}: key {key:?} is {found}, where {wanted} is expected", path.display())]
    WrongType { path: PathBuf, key: String, wanted: &'static str, found: String },
    #[error("{} has no tensor {name:?}", path.display())]
    MissingTensor { path: PathBuf, name: String },
    #[error("{}: tensor {name:?}: {problem}", path.display())]
    Tensor { path: PathBuf, name: String, problem: String },
    /// Of a file in a hub's folder.
    #[error("{}: {problem}", path.display())]
    Hub { path: PathBuf, problem: String },
}

/// What is wrong at a place of the file; the reader adds which file.
#[derive(Debug)]
pub(in crate::weights) struct Damage {
    pub what: String,
    pub offset: usize,
    pub problem: String,
}

impl Damage {
    pub fn at(offset: usize, problem: String) -> Self {
        Self { what: String::new(), offset, problem }
    }

    /// Says what was being read, unless that was said closer to the place.
    pub fn of(mut self, what: impl FnOnce() -> String) -> Self {
        if self.what.is_empty() {
            self.what = what();
        }
        self
    }

    pub fn in_file(self, path: &Path) -> CheckpointError {
        CheckpointError::Damaged {
            path: path.to_owned(),
            what: self.what,
            offset: self.offset as u64,
            problem: self.problem,
        }
    }
}
