//! Files beside a hub's weights, carried inside a GGUF file: a hub's tokenizer says more than GGUF's own keys can.

use super::QuantizeError;
use crate::weights::{Checkpoint, GgufWriter};
use std::fs;

/// What the tokenizer is made of, and what it is told by.
const CARRIED: [&str; 6] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "config.json",
];

/// GGUF has a key for the first; the others are ours.
fn key(name: &str) -> String {
    match name {
        "tokenizer.json" => "tokenizer.huggingface.json".to_owned(),
        other => format!("glassbox.hub.{other}"),
    }
}

impl Checkpoint {
    /// What a GGUF file carries of a hub's folder that it was made from: the text of `tokenizer.json`, say.
    pub fn carried(&self, name: &str) -> Option<&str> {
        self.str(&key(name)).ok().flatten()
    }
}

/// The files beside the weights, where there is a tokenizer among them.
pub(super) fn carry(file: &Checkpoint, mut writer: GgufWriter) -> Result<GgufWriter, QuantizeError> {
    if file.companion("tokenizer.json").is_none() {
        return Ok(writer);
    }
    for name in CARRIED {
        let Some(path) = file.companion(name) else { continue };
        let text = fs::read_to_string(&path)
            .map_err(|error| QuantizeError::Folder { path, problem: error.to_string() })?;
        writer = writer.put(&key(name), text);
    }
    Ok(writer)
}
