//! Which files of a folder have the weights: one, or shards that an index lists.

use super::content::{is_lfs_pointer, refuse_pickle, usual_pickle};
use super::safetensors::{self, Entry};
use super::unique::Unique;
use crate::weights::CheckpointError;
use crate::weights::bytes::Bytes;
use serde::Deserialize;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";
/// DeepSeek V3 has 91,000 tensors in 9 MB.
const MOST_INDEX_BYTES: usize = 48 << 20;

/// A file and its tensors.
#[derive(Debug)]
pub(super) struct Shard {
    pub path: PathBuf,
    pub bytes: Arc<Bytes>,
    pub entries: Vec<Entry>,
}

impl Shard {
    /// Checks a file's header.
    pub fn read(path: PathBuf, bytes: Bytes) -> Result<Shard, CheckpointError> {
        refuse_pickle(&path, &bytes)?;
        if is_lfs_pointer(&bytes) {
            let problem = "it is a Git LFS pointer, and the file it points to was not downloaded".to_owned();
            return Err(CheckpointError::Hub { path, problem });
        }
        match safetensors::parse(&bytes) {
            Ok(entries) => Ok(Shard { path, bytes: Arc::new(bytes), entries }),
            Err(problem) => {
                let problem = format!("damaged or no safetensors file: {problem}");
                Err(CheckpointError::Hub { path, problem })
            }
        }
    }

    fn open(folder: &Path, name: &str) -> Result<Shard, CheckpointError> {
        let path = folder.join(name);
        match Bytes::map(&path) {
            Ok(bytes) => Shard::read(path, bytes),
            Err(source) => Err(CheckpointError::Open { path, source }),
        }
    }
}

/// Maps all files with weights.
pub(super) fn open(folder: &Path) -> Result<Vec<Shard>, CheckpointError> {
    if folder.join(INDEX).exists() {
        return indexed(folder);
    }
    if folder.join(SINGLE).exists() {
        return Ok(vec![Shard::open(folder, SINGLE)?]);
    }
    let names = unindexed(folder)?;
    names.iter().map(|name| Shard::open(folder, name)).collect()
}

#[derive(Deserialize)]
struct Index {
    weight_map: Unique<String>,
}

fn indexed(folder: &Path) -> Result<Vec<Shard>, CheckpointError> {
    let path = folder.join(INDEX);
    let wrong = |problem: String| CheckpointError::Hub { path: path.clone(), problem };
    let bytes = Bytes::map(&path).map_err(|source| CheckpointError::Open { path: path.clone(), source })?;
    if bytes.len() > MOST_INDEX_BYTES {
        return Err(wrong(format!("{} bytes; at most {MOST_INDEX_BYTES} are read", bytes.len())));
    }
    let index: Index =
        serde_json::from_slice(&bytes).map_err(|error| wrong(format!("not an index: {error}")))?;
    let names: BTreeSet<&str> = index.weight_map.0.values().map(String::as_str).collect();
    if names.is_empty() {
        return Err(wrong("it lists no tensors".to_owned()));
    }
    if let Some(name) = names.iter().find(|name| !is_plain(name)) {
        return Err(wrong(format!("{name:?} is no name of a file in the folder")));
    }
    refuse_missing(folder, &names).map_err(wrong)?;
    let shards = names.iter().map(|name| Shard::open(folder, name)).collect::<Result<Vec<_>, _>>()?;
    refuse_unkept_promises(&index, &shards).map_err(wrong)?;
    Ok(shards)
}

/// A folder's file, and nothing outside.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\\', '\0', ':']) && name != ".." && name != "."
}

fn refuse_missing(folder: &Path, names: &BTreeSet<&str>) -> Result<(), String> {
    let missing: Vec<&str> = names.iter().copied().filter(|name| !folder.join(name).is_file()).collect();
    match missing.as_slice() {
        [] => Ok(()),
        missing => Err(format!(
            "of the {} files that it names, {} not in the folder: {}",
            names.len(),
            if missing.len() == 1 { "one is".to_owned() } else { format!("{} are", missing.len()) },
            few(missing)
        )),
    }
}

/// Every tensor lies where the index says.
fn refuse_unkept_promises(index: &Index, shards: &[Shard]) -> Result<(), String> {
    let mut places: HashMap<&str, &str> = HashMap::new();
    for shard in shards {
        let file = shard.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        places.extend(shard.entries.iter().map(|entry| (entry.name.as_str(), file)));
    }
    for (tensor, file) in &index.weight_map.0 {
        match places.get(tensor.as_str()) {
            Some(place) if place == file => {}
            Some(place) => return Err(format!("tensor {tensor:?} should be in {file}, and is in {place}")),
            None => return Err(format!("tensor {tensor:?} should be in {file}, and is in no file")),
        }
    }
    Ok(())
}

/// The files of a folder without an index: one, or all parts of one model.
fn unindexed(folder: &Path) -> Result<Vec<String>, CheckpointError> {
    let wrong = |problem: String| CheckpointError::Hub { path: folder.to_owned(), problem };
    let entries = std::fs::read_dir(folder)
        .map_err(|source| CheckpointError::Open { path: folder.to_owned(), source })?;
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    let weights: Vec<&str> = (names.iter().map(String::as_str))
        .filter(|name| name.ends_with(".safetensors") && !name.starts_with("adapter_"))
        // Mistral's own layout, beside the usual one or alone.
        .filter(|name| !name.starts_with("consolidated"))
        .collect();
    match weights.as_slice() {
        [] => Err(wrong(nothing_to_read(&names))),
        [only] if part(only).is_none_or(|(_, count)| count == 1) => Ok(vec![(*only).to_owned()]),
        several => all_parts(several).map_err(wrong),
    }
}

fn nothing_to_read(names: &[String]) -> String {
    let of = |wanted: &dyn Fn(&str) -> bool| -> Vec<&str> {
        names.iter().map(String::as_str).filter(|name| wanted(name)).collect()
    };
    let (pickles, gguf) = (of(&usual_pickle), of(&|name| name.ends_with(".gguf")));
    if !gguf.is_empty() {
        return format!("it has no safetensors files; name the GGUF file to open: {}", few(&gguf));
    }
    if !pickles.is_empty() {
        return format!(
            "its weights are Python pickles only ({}), which can run any code when they are loaded; glassbox \
             reads safetensors: most models have a revision with them, and others can be converted",
            few(&pickles)
        );
    }
    match of(&|name| name.starts_with("consolidated") && name.ends_with(".safetensors")).as_slice() {
        [] => "it has no safetensors files".to_owned(),
        own => format!("{} has tensor names of Mistral's own, which are not supported", few(own)),
    }
}

fn all_parts(names: &[&str]) -> Result<Vec<String>, String> {
    let Some((stem, count)) = part(names[0]) else {
        return Err(format!("it has several files with weights and no {INDEX}: {}", few(names)));
    };
    if count > 100_000 {
        return Err(format!("{} says that it is one of {count}", names[0]));
    }
    let expected: Vec<String> =
        (1..=count).map(|number| format!("{stem}-{number:05}-of-{count:05}.safetensors")).collect();
    if let Some(missing) = expected.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("{missing} is missing: {} names {count} parts", names[0]));
    }
    if let Some(other) = names.iter().find(|name| !expected.iter().any(|one| one == *name)) {
        return Err(format!("{other} is none of the {count} parts of {stem}, and there is no {INDEX}"));
    }
    Ok(expected)
}

/// Stem and count of `model-00001-of-00003.safetensors`.
fn part(name: &str) -> Option<(&str, usize)> {
    let (rest, count) = name.strip_suffix(".safetensors")?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    (digits(number) && digits(count)).then(|| count.parse().ok().map(|count| (stem, count)))?
}

/// The first few of a list.
fn few(names: &[&str]) -> String {
    const FEW: usize = 4;
    let more = names.len().saturating_sub(FEW);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}
