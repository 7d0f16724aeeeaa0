//! Model families, a file each: what of its own a family has, over the shared layers.
//!
//! A family says what shape its model is (`configure`, before anything is allocated) and builds the stack of
//! layers (`load`). Names of keys and tensors are GGUF's, whatever the files are.

mod cohere;
mod deepseek2;
mod gemma;
mod gemma2;
mod gemma3;
mod glm4;
mod gpt2;
mod gpt_neox;
mod gpt_oss;
mod granite;
mod lfm2;
mod llama;
mod mamba2;
mod mixture;
mod olmo2;
mod phi;
mod phi3;
mod qwen2;
mod qwen_next;
mod smollm3;
mod starcoder2;

use super::config::{ConfigError, ModelConfig};
use super::layers::Decoder;
use super::load::LoadError;
use super::loader::Loader;
use crate::compute::Backend;
use crate::weights::Checkpoint;

/// Names that files give families (`general.architecture`).
#[rustfmt::skip] // as many as fit on a line
pub const SUPPORTED: &[&str] = &[
    "command-r", "deepseek2", "gemma", "gemma2", "gemma3", "glm4", "glm4moe", "gpt-oss", "gpt2", "gptneox",
    "granite", "lfm2", "llama", "mamba2", "olmo2", "phi2", "phi3", "qwen2", "qwen2moe", "qwen3", "qwen35",
    "qwen3moe", "qwen3next", "smollm3", "starcoder2",
];

pub(super) struct Family<B: Backend> {
    /// Completes what [`ModelConfig::read`] found: windows, states, widths of buffers.
    pub(super) configure: fn(&Checkpoint, &mut ModelConfig) -> Result<(), ConfigError>,
    pub(super) load: fn(&mut Loader<B>, &ModelConfig) -> Result<Decoder<B>, LoadError>,
}

/// `None` for a name that is not in [`SUPPORTED`].
pub(super) fn family<B: Backend>(architecture: &str) -> Option<Family<B>> {
    Some(match architecture {
        "llama" => Family { configure: llama::configure, load: llama::load },
        "qwen2" | "qwen3" => Family { configure: as_read, load: qwen2::load },
        "smollm3" => Family { configure: smollm3::configure, load: smollm3::load },
        "olmo2" => Family { configure: as_read, load: olmo2::load },
        "granite" => Family { configure: granite::configure, load: granite::load },
        "gemma3" => Family { configure: gemma3::configure, load: gemma3::load },
        "qwen2moe" | "qwen3moe" | "glm4moe" => Family { configure: mixture::configure, load: mixture::load },
        "deepseek2" => Family { configure: deepseek2::configure, load: deepseek2::load },
        "gpt-oss" => Family { configure: gpt_oss::configure, load: gpt_oss::load },
        "command-r" => Family { configure: cohere::configure, load: cohere::load },
        "gemma" => Family { configure: gemma::configure, load: gemma::load },
        "gemma2" => Family { configure: gemma2::configure, load: gemma2::load },
        "glm4" => Family { configure: as_read, load: glm4::load },
        "gpt2" => Family { configure: gpt2::configure, load: gpt2::load },
        "gptneox" => Family { configure: gpt_neox::configure, load: gpt_neox::load },
        "phi2" => Family { configure: phi::configure, load: phi::load },
        "phi3" => Family { configure: phi3::configure, load: phi3::load },
        "starcoder2" => Family { configure: starcoder2::configure, load: starcoder2::load },
        "lfm2" => Family { configure: lfm2::configure, load: lfm2::load },
        "mamba2" => Family { configure: mamba2::configure, load: mamba2::load },
        "qwen3next" | "qwen35" => Family { configure: qwen_next::configure, load: qwen_next::load },
        _ => return None,
    })
}

/// Layers work in buffers as wide as they look, and see all of the past: or a window, in those that the file
/// lists, or in all.
fn as_read(file: &Checkpoint, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if let Some(window) = config.window_length(file)? {
        let none_is_global = u64::MAX;
        config.slide(window, &config.sliding_layers(file, none_is_global)?);
    }
    Ok(())
}
