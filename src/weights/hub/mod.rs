//! Folders as model hubs have them, told in GGUF's keys and names: `config.json` becomes metadata,
//! tensors of safetensors files get the names that llama.cpp gives them.
//!
//! A folder is read in these steps, each in a file of its own: [`index`] finds the files, [`safetensors`] reads
//! their headers, [`config`] and [`rope`] say what most configurations have in common, [`quantised`] makes blocks of
//! packed weights, and [`names`] places tensors by tables.
//!
//! # To add a family
//!
//! A file `hub/<family>.rs` with a [`Family`](family::Family), a line in `family.rs`'s list, and `mod` below:
//! - `architecture`: llama.cpp's name; `model_types`: those of `config.json`.
//! - `settings`: keys that `config.rs` does not put (it puts all it finds, so look there first), and
//!   [`put_default`](settings::Settings::put_default) for what configurations leave out.
//! - `names`: rows for tensors that `names.rs` has not, or has with another meaning. `*` is a number.
//! - `recipes`: what is more than a name: [`Weights::map`](weights::Weights::map) with [`Item`](item::Item)'s functions
//!   (`rows` of a fused matrix, `transposed`, `gathered`, `every`, `parts`, `stack`, `reshaped`). Packed weights are
//!   unpacked before, under the name that plain ones have.
//! - `ignored`: what may lie there and is not needed, with the reason.
//!
//! Numbers are not changed here: a norm that wants 1 added is stored as the hub has it, and the model
//! asks [`Checkpoint::is_hub`]; rows are not permuted for interleaved rotary pairs either. A tensor that nobody places keeps
//! its name, so that the loader can say that it has no place. `llama.rs` is the shortest example, `gemma3.rs` one with
//! names and keys of its own.

mod about;
mod cohere;
mod config;
mod content;
mod deepseek;
mod dtype;
mod family;
mod gemma;
mod gemma3;
mod glm4;
mod gpt2;
mod gpt_neox;
mod gpt_oss;
mod granite;
mod index;
mod item;
mod json;
mod lfm2;
mod llama;
mod mamba2;
mod mixture;
mod names;
mod olmo2;
mod phi;
mod phi3;
mod quantised;
mod qwen;
mod qwen_next;
mod rope;
mod safetensors;
mod settings;
mod smollm3;
mod starcoder2;
mod state;
mod translate;
mod unique;
mod usual;
mod weights;

pub(in crate::weights) use content::refuse_pickle;
pub(in crate::weights) use names::{Table, original};
pub(in crate::weights) use safetensors::{Entry, parse as entries};

use super::bytes::Bytes;
use super::checkpoint::{Checkpoint, CheckpointError};
use index::Shard;
use json::Json;
use std::path::Path;

const CONFIG: &str = "config.json";

/// The folder that is meant, where it is one: itself, or that of one of its files.
pub(super) fn folder(path: &Path) -> Option<&Path> {
    if path.is_dir() {
        return Some(path);
    }
    let of_hub = path.extension().is_some_and(|extension| extension == "safetensors")
        || path.file_name().is_some_and(|name| name == CONFIG);
    of_hub.then(|| path.parent()).flatten().map(|parent| match parent.as_os_str().is_empty() {
        true => Path::new("."),
        false => parent,
    })
}

/// Opens a folder: `config.json` first, because without it nobody knows what the tensors are.
pub(super) fn read(folder: &Path) -> Result<Checkpoint, CheckpointError> {
    let path = folder.join(CONFIG);
    if !path.exists() {
        if folder.join("adapter_config.json").exists() {
            let problem = "it is an adapter (adapter_config.json), and no model of its own".to_owned();
            return Err(CheckpointError::Hub { path: folder.to_owned(), problem });
        }
        // What else lies there says more than that this file does not.
        index::open(folder)?;
        let problem = format!("it has no {CONFIG}, which says what its tensors are");
        return Err(CheckpointError::Hub { path: folder.to_owned(), problem });
    }
    let bytes = Bytes::map(&path).map_err(|source| CheckpointError::Open { path: path.clone(), source })?;
    let config = Json::parse(&path, &bytes)?;
    family::family(&translate::text_part(&config)?)?;
    translate::translate(folder, &config, index::open(folder)?)
}

/// The same for bytes in memory, of one file with weights; for tests and fuzzers.
pub(super) fn read_bytes(
    folder: &Path,
    config: &[u8],
    weights: Vec<u8>,
) -> Result<Checkpoint, CheckpointError> {
    let config = Json::parse(&folder.join(CONFIG), config)?;
    let shard = Shard::read(folder.join("model.safetensors"), Bytes::Owned(weights))?;
    translate::translate(folder, &config, vec![shard])
}
