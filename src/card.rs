//! What `models show` says of a model that is here. Part of the wiring: files, text, model and devices
//! each know a part of it.

use crate::config::EngineSettings;
use crate::model::{self, Facts};
use crate::open;
use crate::script::{FileCard, FormatRow, NamedPart, TensorGroup};
use crate::weights::{Checkpoint, Summary, name_parts};

/// A model by its name, as its files and this computer have it.
pub fn file_card(file: &Checkpoint, summary: &Summary, name: &str, settings: &EngineSettings) -> FileCard {
    let text = |key: &str| file.str(key).ok().flatten().unwrap_or_default();
    let (kind, pre) = (text("tokenizer.ggml.model"), text("tokenizer.ggml.pre"));
    let tokenizer = match file.companion("tokenizer.json") {
        Some(_) => "tokenizer.json".to_owned(),
        None => [kind, pre].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", "),
    };
    let text_model = open::text_model(file, None).ok();
    let facts = model::facts(file).ok();
    let runs = open::placements(file, settings);
    FileCard {
        name_parts: named_parts(name, summary),
        layers: summary.layers,
        vocabulary: summary.vocabulary.or_else(|| vocabulary(file, &summary.architecture)),
        formats: formats(summary),
        tensors: groups(file),
        kv_bytes_per_token: facts.as_ref().map(|facts| facts.kv_bytes_per_token as u64),
        cache: facts.as_ref().map(cache).unwrap_or_default(),
        experts: facts
            .as_ref()
            .and_then(|facts| facts.experts)
            .map(|(all, top)| format!("{top} of {all} for a token")),
        tokenizer,
        chat_template: text_model.as_ref().is_some_and(|text| text.has_chat_template()),
        reasoning_parser: text_model.as_ref().and_then(|text| text.reasoning_parser()).map(str::to_owned),
        tool_call_parser: text_model.as_ref().and_then(|text| text.tool_call_parser()).map(str::to_owned),
        notes: file.notes().to_vec(),
        memory: runs.iter().find(|place| place.chosen).map(|place| place.memory.clone()),
        runs,
    }
}

/// Of a folder, whose tokens are in another file.
fn vocabulary(file: &Checkpoint, architecture: &str) -> Option<u64> {
    file.u64(&format!("{architecture}.vocab_size")).ok().flatten()
}

/// The file's own title tells more than a name of a catalogue or a file.
fn named_parts(name: &str, summary: &Summary) -> Vec<NamedPart> {
    let title = summary.title.as_deref().filter(|title| title.contains('-')).unwrap_or(name);
    let part = |part: crate::weights::NamePart| NamedPart { text: part.text, means: part.means };
    name_parts(title).into_iter().map(part).collect()
}

fn formats(summary: &Summary) -> Vec<FormatRow> {
    let row = |share: &crate::weights::FormatShare| FormatRow {
        format: share.format.to_owned(),
        tensors: share.tensors,
        bytes: share.bytes,
        supported: share.supported,
    };
    summary.formats.iter().map(row).collect()
}

/// In words: `23,040 bytes a token in f16; 15 of 18 layers see 512 tokens`.
fn cache(facts: &Facts) -> String {
    let mut said = Vec::new();
    if facts.kv_bytes_per_token > 0 {
        let latent = if facts.latent { ", latent vectors" } else { "" };
        said.push(format!("{} bytes a token in f16{latent}", facts.kv_bytes_per_token));
    }
    if let Some(window) = facts.window {
        said.push(format!("{} of {} layers see {window} tokens", facts.windowed, facts.layers));
    }
    if facts.recurrent > 0 {
        let (layers, bytes) = (facts.recurrent, facts.state_bytes);
        said.push(format!("{layers} of {} layers keep a state, {bytes} bytes a sequence", facts.layers));
    }
    said.join("; ")
}

/// Tensors that differ in the number of their layer only, in the order of the file.
fn groups(file: &Checkpoint) -> Vec<TensorGroup> {
    let known = file.tensors().map(|t| (t.name.as_str(), t.format.name(), &t.dims, t.bytes));
    let others = file.unsupported().iter().map(|t| (t.name.as_str(), t.format, &t.dims, t.bytes));
    let mut groups: Vec<TensorGroup> = Vec::new();
    for (name, format, dims, bytes) in known.chain(others) {
        let name = without_layer(name);
        let shape: Vec<u64> = dims.iter().map(|dim| *dim as u64).collect();
        let same = |g: &&mut TensorGroup| g.name == name && g.format == format && g.shape == shape;
        match groups.iter_mut().find(same) {
            Some(group) => {
                group.count += 1;
                group.bytes += bytes as u64;
            }
            None => {
                let (format, bytes) = (format.to_owned(), bytes as u64);
                groups.push(TensorGroup { name, count: 1, format, shape, bytes });
            }
        }
    }
    groups
}

fn without_layer(name: &str) -> String {
    let number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    name.split('.').map(|word| if number(word) { "*" } else { word }).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_layers_keep_is_said() {
        let facts = Facts {
            layers: 18,
            windowed: 15,
            window: Some(512),
            recurrent: 0,
            latent: false,
            kv_bytes_per_token: 18_432,
            state_bytes: 0,
            experts: None,
            context: 32_768,
        };
        assert_eq!(cache(&facts), "18432 bytes a token in f16; 15 of 18 layers see 512 tokens");
        let hybrid = Facts { window: None, windowed: 0, recurrent: 12, state_bytes: 99, layers: 16, ..facts };
        assert!(cache(&hybrid).ends_with("; 12 of 16 layers keep a state, 99 bytes a sequence"));
        assert_eq!(without_layer("blk.12.attn_q.weight"), "blk.*.attn_q.weight");
    }
}
