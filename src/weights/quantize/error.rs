use crate::weights::{BlockFormat, CheckpointError};
use std::io;
use std::path::PathBuf;

/// Why a model was not quantised, or not written.
#[derive(Debug, thiserror::Error)]
pub enum QuantizeError {
    #[error(transparent)]
    File(#[from] CheckpointError),
    #[error("{}: every matrix takes as few bits as {} already: there is nothing to make smaller", path.display(), to.name())]
    Nothing { path: PathBuf, to: BlockFormat },
    #[error("{} has no matrix that {} blocks fit: their rows must be whole blocks", path.display(), to.name())]
    NoMatrix { path: PathBuf, to: BlockFormat },
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    #[error("{}: a GGUF file has no {}", path.display(), format.name())]
    NotInGguf { path: PathBuf, format: BlockFormat },
    #[error("{}: tensor {tensor:?} is {format}, which glassbox cannot read", path.display())]
    Unread { path: PathBuf, tensor: String, format: &'static str },
    /// Of a hub's folder whose family's tensors differ between the two kinds of file in ways that we do not know.
    #[error("{}: glassbox does not know how a GGUF file holds the family {architecture:?}", path.display())]
    Family { path: PathBuf, architecture: String },
    #[error("{}: {problem}", path.display())]
    Folder { path: PathBuf, problem: String },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("interrupted")]
    Interrupted,
}
