//! What a file is, by its first bytes: a pickle runs code when it is loaded, so none is, whatever it is called.

use super::safetensors;
use crate::weights::CheckpointError;
use std::path::Path;

const PICKLE: &str = "it is a Python pickle, which can run any code when it is loaded; glassbox reads only \
                      safetensors and GGUF files";
const ZIP: &str = "it is a zip archive, as PyTorch saves pickles in, which can run any code when they are loaded; \
                   glassbox reads only safetensors and GGUF files";

/// Refuses pickles and what holds them, by their content.
pub(in crate::weights) fn refuse_pickle(path: &Path, file: &[u8]) -> Result<(), CheckpointError> {
    // A header of 640 bytes starts as a pickle does.
    if safetensors::looks_like(file) {
        return Ok(());
    }
    let problem = match file {
        [b'P', b'K', 3 | 5, 4 | 6, ..] => ZIP,
        // Protocols 2 to 5 say so; 0 and 1 do not, and PyTorch never wrote them.
        [0x80, 2..=5, ..] => PICKLE,
        _ => return Ok(()),
    };
    Err(CheckpointError::Hub { path: path.to_owned(), problem: problem.to_owned() })
}

/// Names that pickles usually have; for a folder that has nothing else.
pub(super) fn usual_pickle(name: &str) -> bool {
    [".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"].iter().any(|ending| name.ends_with(ending))
}

/// A pointer that was fetched in place of a file.
pub(super) fn is_lfs_pointer(file: &[u8]) -> bool {
    file.starts_with(b"version https://git-lfs")
}
