use super::index::Shard;
use super::item::Item;
use super::names::{self, matched};
use crate::weights::CheckpointError;
use crate::weights::bytes::Bytes;
use crate::weights::checkpoint::{Files, Source};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The tensors of a hub's folder on their way to our names: what is pending has its hub's name, what is
/// placed has ours.
#[derive(Debug)]
pub(in crate::weights) struct Weights {
    /// The folder.
    path: PathBuf,
    files: Vec<Arc<Bytes>>,
    pending: BTreeMap<String, Item>,
    placed: Vec<Placed>,
    notes: Vec<String>,
}

/// A tensor with its name of ours, and what the hub called it or the first that it is made of.
#[derive(Debug)]
pub(super) struct Placed {
    pub name: String,
    pub original: String,
    pub item: Item,
}

impl Weights {
    pub(super) fn new(folder: &Path, shards: Vec<Shard>) -> Result<Weights, CheckpointError> {
        let mut pending: BTreeMap<String, Item> = BTreeMap::new();
        for (file, shard) in shards.iter().enumerate() {
            for entry in &shard.entries {
                let source = Source::Plain { file, offset: entry.range.start, bytes: entry.range.len() };
                let item = Item { shape: entry.shape.clone(), dtype: entry.dtype, source };
                if pending.insert(entry.name.clone(), item).is_some() {
                    let problem = format!("tensor {:?} is in another file too", entry.name);
                    return Err(CheckpointError::Hub { path: shard.path.clone(), problem });
                }
            }
        }
        let files = shards.into_iter().map(|shard| shard.bytes).collect();
        let (placed, notes) = (Vec::new(), Vec::new());
        let mut weights = Weights { path: folder.to_owned(), files, pending, placed, notes };
        weights.leave_out_empty();
        Ok(weights)
    }

    /// A dimension beside a zero may be of any size, and cost nothing in a file.
    fn leave_out_empty(&mut self) {
        let empty =
            self.pending.iter().filter(|(_, item)| item.elements() == 0).map(|(name, _)| name.clone());
        let empty: Vec<String> = empty.collect();
        empty.iter().for_each(|name| drop(self.pending.remove(name)));
        self.note_left_out(&empty, "it has no elements");
    }

    pub fn has(&self, name: &str) -> bool {
        self.pending.contains_key(name)
    }

    pub fn get(&self, name: &str) -> Option<&Item> {
        self.pending.get(name)
    }

    pub fn take(&mut self, name: &str) -> Option<Item> {
        self.pending.remove(name)
    }

    /// Takes a tensor that must be there.
    pub fn require(&mut self, name: &str) -> Result<Item, CheckpointError> {
        let missing = || CheckpointError::MissingTensor { path: self.path.clone(), name: name.to_owned() };
        self.pending.remove(name).ok_or_else(missing)
    }

    /// Pending tensors that fit a pattern of [`names`], and their numbers.
    pub fn matching(&self, pattern: &str) -> Vec<(String, Vec<usize>)> {
        let fits = |name: &String| Some((name.clone(), matched(pattern, name)?));
        self.pending.keys().filter_map(fits).collect()
    }

    /// Names of pending tensors that end so.
    pub fn ending(&self, ending: &str) -> Vec<String> {
        self.pending.keys().filter(|name| name.ends_with(ending)).cloned().collect()
    }

    /// Puts one back under a name of the hub, for the tables to place.
    pub fn put(&mut self, name: String, item: Item) {
        self.pending.insert(name, item);
    }

    /// Gives a tensor its name of ours; `original` is what errors call it.
    pub fn place(&mut self, name: String, original: String, item: Item) {
        self.placed.push(Placed { name, original, item });
    }

    /// Places every tensor that fits `pattern` (a whole name) as what `make` makes of it.
    pub fn map(
        &mut self,
        pattern: &str,
        ours: &str,
        make: impl Fn(&Item) -> Result<Item, String>,
    ) -> Result<(), CheckpointError> {
        for (name, numbers) in self.matching(pattern) {
            let made = make(&self.require(&name)?).map_err(|problem| self.wrong(&name, problem))?;
            self.place(names::filled(ours, &numbers), name, made);
        }
        Ok(())
    }

    /// Leaves out all tensors whose names fit a glob, and notes why.
    pub fn leave_out(&mut self, pattern: &str, why: &str) {
        self.leave_out_where(|name| names::fits(pattern, name), why);
    }

    pub fn leave_out_where(&mut self, fits: impl Fn(&str) -> bool, why: &str) {
        let gone: Vec<String> = self.pending.keys().filter(|name| fits(name)).cloned().collect();
        gone.iter().for_each(|name| drop(self.pending.remove(name)));
        self.note_left_out(&gone, why);
    }

    fn note_left_out(&mut self, names: &[String], why: &str) {
        match names {
            [] => {}
            [name] => self.notes.push(format!("{name} is left out: {why}")),
            [first, ..] => {
                self.notes.push(format!("{} tensors like {first} are left out: {why}", names.len()));
            }
        }
    }

    /// Renames pending tensors.
    pub(super) fn rename(&mut self, rename: impl Fn(&str) -> Option<String>) -> Result<(), CheckpointError> {
        for (name, item) in std::mem::take(&mut self.pending) {
            let plain = rename(&name).unwrap_or_else(|| name.clone());
            if self.pending.insert(plain.clone(), item).is_some() {
                return Err(self.wrong(&name, format!("another tensor is {plain} too")));
            }
        }
        Ok(())
    }

    /// As sources read them.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// The bytes of a tensor, for what has to be known before it is loaded.
    pub fn read(&self, name: &str, item: &Item) -> Result<Vec<u8>, CheckpointError> {
        let read = item.source.read(&self.files).map(|data| data.into_owned());
        read.map_err(|problem| self.wrong(name, problem))
    }

    /// An error about a tensor, by the hub's name.
    pub fn wrong(&self, name: &str, problem: impl Into<String>) -> CheckpointError {
        CheckpointError::Tensor { path: self.path.clone(), name: name.to_owned(), problem: problem.into() }
    }

    pub(super) fn is_placed(&self, name: &str) -> bool {
        self.placed.iter().any(|placed| placed.name == name)
    }

    pub(super) fn take_all(&mut self) -> BTreeMap<String, Item> {
        std::mem::take(&mut self.pending)
    }

    pub(super) fn finish(self) -> (Vec<Arc<Bytes>>, Vec<Placed>, Vec<String>) {
        (self.files, self.placed, self.notes)
    }

    /// What the hub calls each of our tensors.
    pub(super) fn originals(placed: &[Placed]) -> HashMap<String, String> {
        placed.iter().map(|placed| (placed.name.clone(), placed.original.clone())).collect()
    }
}
