use crate::weights::gguf::Value;
use crate::weights::{Checkpoint, CheckpointError, GgufWriter, MetaValue};
use std::collections::BTreeMap;
use std::path::Path;

/// Metadata by GGUF's keys, on its way into a checkpoint.
#[derive(Clone, Debug)]
pub(in crate::weights) struct Settings {
    architecture: String,
    values: BTreeMap<String, MetaValue>,
}

impl Settings {
    pub fn new(architecture: &str) -> Settings {
        let mut settings = Settings { architecture: architecture.to_owned(), values: BTreeMap::new() };
        settings.put_global("general.architecture", architecture);
        settings
    }

    /// Under `{architecture}.`; replaces what was put before.
    pub fn put(&mut self, key: &str, value: impl Into<MetaValue>) {
        self.values.insert(format!("{}.{key}", self.architecture), value.into());
    }

    /// Nothing where there is nothing.
    pub fn put_some(&mut self, key: &str, value: Option<impl Into<MetaValue>>) {
        if let Some(value) = value {
            self.put(key, value);
        }
    }

    /// What a configuration leaves out because it is the family's usual value.
    pub fn put_default(&mut self, key: &str, value: impl Into<MetaValue>) {
        self.values.entry(format!("{}.{key}", self.architecture)).or_insert_with(|| value.into());
    }

    pub fn put_global(&mut self, key: &str, value: impl Into<MetaValue>) {
        self.values.insert(key.to_owned(), value.into());
    }

    pub fn remove(&mut self, key: &str) {
        self.values.remove(&format!("{}.{key}", self.architecture));
    }

    /// As a GGUF file would have them: written as its header and read back, so that values have one
    /// home.
    pub(super) fn finish(self, path: &Path) -> Result<BTreeMap<String, Value>, CheckpointError> {
        let writer =
            self.values.into_iter().fold(GgufWriter::default(), |w, (key, value)| w.put(&key, value));
        let header = Checkpoint::from_bytes(path, writer.to_bytes())?;
        Ok(header.metadata().map(|(key, value)| (key.to_owned(), value.clone())).collect())
    }
}
