//! Folders as model hubs have them: `config.json`, safetensors, told in GGUF's names.

use super::checkpoint::{Checkpoint, CheckpointError};
use std::path::Path;

/// The folder that is meant, where it is one: itself, or that of one of its files.
pub(super) fn folder(path: &Path) -> Option<&Path> {
    if path.is_dir() {
        return path.join("config.json").is_file().then_some(path);
    }
    let of_hub = path.extension().is_some_and(|extension| extension == "safetensors")
        || path.file_name().is_some_and(|name| name == "config.json");
    of_hub.then(|| path.parent()).flatten()
}

pub(super) fn read(folder: &Path) -> Result<Checkpoint, CheckpointError> {
    Err(CheckpointError::Hub { path: folder.to_owned(), problem: "not yet".into() })
}
