//! Model families, a file each: what of its own a family has, over the shared layers.
//!
//! A family says what shape its model is (`configure`, before anything is allocated) and builds the stack of
//! layers (`load`). Names of keys and tensors are GGUF's, whatever the files are.

mod gemma3;
mod llama;
mod qwen2;

use super::config::{ConfigError, ModelConfig};
use super::layers::Decoder;
use super::load::LoadError;
use super::loader::Loader;
use crate::compute::Backend;
use crate::weights::Checkpoint;

/// Names that files give families (`general.architecture`).
pub const SUPPORTED: &[&str] = &["llama", "qwen2", "gemma3"];

pub(super) struct Family<B: Backend> {
    /// Completes what [`ModelConfig::read`] found: windows, states, widths of buffers.
    pub(super) configure: fn(&Checkpoint, &mut ModelConfig) -> Result<(), ConfigError>,
    pub(super) load: fn(&mut Loader<B>, &ModelConfig) -> Result<Decoder<B>, LoadError>,
}

/// `None` for a name that is not in [`SUPPORTED`].
pub(super) fn family<B: Backend>(architecture: &str) -> Option<Family<B>> {
    Some(match architecture {
        "llama" => Family { configure: as_read, load: llama::load },
        "qwen2" => Family { configure: as_read, load: qwen2::load },
        "gemma3" => Family { configure: gemma3::configure, load: gemma3::load },
        _ => return None,
    })
}

/// All layers see all of the past, and work in buffers as wide as they look.
fn as_read(_: &Checkpoint, _: &mut ModelConfig) -> Result<(), ConfigError> {
    Ok(())
}
