//! A model on disk: settings and tensors by the names that GGUF gives them, whatever the files are.
//!
//! Two readers make one ([`gguf`](super::gguf), [`hub`](super::hub)); everything above reads this. GGUF's
//! names are the common tongue because both kinds of file can be told in them.

mod error;
mod fingerprint;
mod getters;
mod source;
mod tensor;

pub use error::CheckpointError;
pub(super) use error::Damage;
pub(super) use source::{Files, Source};
pub use tensor::{Tensor, TensorInfo, UnsupportedTensor};

use super::bytes::Bytes;
use super::gguf::{self, Value};
use super::{BlockFormat, hub};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open model: metadata, and tensors mapped into memory. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    inner: Arc<Contents>,
    by_name: Arc<HashMap<String, usize>>,
}

/// What a reader found.
#[derive(Clone, Debug)]
pub(super) struct Contents {
    /// Of the file, or of the folder.
    pub path: PathBuf,
    pub kind: Kind,
    pub files: Vec<Arc<Bytes>>,
    pub metadata: BTreeMap<String, Value>,
    /// In the order of the files.
    pub tensors: Vec<(TensorInfo, Source)>,
    pub unsupported: Vec<UnsupportedTensor>,
    pub origin: Origin,
}

/// What a hub called things, for errors and reports; empty for a GGUF file.
#[derive(Clone, Debug, Default)]
pub(super) struct Origin {
    /// Of each tensor of ours: the hub's name, or the first of several.
    pub names: HashMap<String, String>,
    /// For those that are not there.
    pub tables: Vec<hub::Table>,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

/// What kind of files a checkpoint lies in. Some families' tensors differ between the two in more than
/// names: rows permuted for interleaved rotary pairs, norms stored with 1 added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One file, and the version of its format: 2 or 3.
    Gguf { version: u32 },
    /// A folder as model hubs have them: `config.json`, safetensors.
    Hub,
}

impl Checkpoint {
    /// Opens a model to compute with: every tensor is in a format we can decode.
    pub fn open(path: &Path) -> Result<Checkpoint, CheckpointError> {
        let file = Checkpoint::inspect(path)?;
        match file.unsupported().first() {
            None => Ok(file),
            Some(tensor) => Err(file.unsupported_format(tensor)),
        }
    }

    /// Opens a model to look at it: a GGUF file, or a folder of a hub (or one of its files). Tensors in
    /// formats we cannot compute are in [`Checkpoint::unsupported`] and nowhere else.
    pub fn inspect(path: &Path) -> Result<Checkpoint, CheckpointError> {
        if let Some(folder) = hub::folder(path) {
            return hub::read(folder);
        }
        let file =
            Bytes::map(path).map_err(|source| CheckpointError::Open { path: path.to_owned(), source })?;
        hub::refuse_pickle(path, &file)?;
        gguf::read(path, file)
    }

    /// As [`Checkpoint::inspect`] for the bytes of a GGUF file in memory; `path` is what errors call them.
    pub fn from_bytes(path: &Path, bytes: Vec<u8>) -> Result<Checkpoint, CheckpointError> {
        gguf::read(path, Bytes::Owned(bytes))
    }

    /// As [`Checkpoint::inspect`] for a hub's folder in memory: `config.json`, and one safetensors file.
    pub fn from_hub_bytes(
        folder: &Path,
        config: &[u8],
        weights: Vec<u8>,
    ) -> Result<Checkpoint, CheckpointError> {
        hub::read_bytes(folder, config, weights)
    }

    pub(super) fn new(contents: Contents) -> Self {
        let names = contents.tensors.iter().enumerate();
        let by_name = Arc::new(names.map(|(index, (info, _))| (info.name.clone(), index)).collect());
        Self { inner: Arc::new(contents), by_name }
    }

    /// The same model with some tensors in other formats; `format` says which, and `None` leaves one as
    /// it is. They are encoded when they are asked for.
    #[must_use]
    pub fn converted(&self, format: impl Fn(&TensorInfo) -> Option<BlockFormat>) -> Self {
        self.mapped(|info, source| {
            let wanted = format(info).filter(|format| *format != info.format)?;
            let to = info.in_format(wanted)?;
            let source = Source::Encoded { of: Box::new(source.clone()), from: info.format, to: to.format };
            Some((to, source))
        })
    }

    /// The same model with some tensors changed; `None` leaves one as it is.
    pub(super) fn mapped(
        &self,
        mut change: impl FnMut(&TensorInfo, &Source) -> Option<(TensorInfo, Source)>,
    ) -> Self {
        let each = |(info, source): &(TensorInfo, Source)| {
            change(info, source).unwrap_or_else(|| (info.clone(), source.clone()))
        };
        let tensors = self.inner.tensors.iter().map(each).collect();
        let inner = Contents { tensors, ..Contents::clone(&self.inner) };
        Self { inner: Arc::new(inner), by_name: self.by_name.clone() }
    }

    /// Of the file, or of the folder.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    pub fn kind(&self) -> Kind {
        self.inner.kind
    }

    pub fn is_hub(&self) -> bool {
        self.inner.kind == Kind::Hub
    }

    /// A file beside the weights of a hub's folder, such as `tokenizer.json`; a GGUF file has none.
    pub fn companion(&self, name: &str) -> Option<PathBuf> {
        let path = self.is_hub().then(|| self.path().join(name))?;
        path.is_file().then_some(path)
    }

    /// What the hub calls a tensor, whether it is there or not: `model.layers.0.self_attn.q_proj.weight` for
    /// `blk.0.attn_q.weight`. `None` for a GGUF file, and for names that nobody knows.
    pub fn original_name(&self, name: &str) -> Option<String> {
        let Origin { names, tables, .. } = &self.inner.origin;
        names.get(name).cloned().or_else(|| hub::original(tables, name))
    }

    /// Tensors that were left out and why, a line for each kind.
    pub fn notes(&self) -> &[String] {
        &self.inner.origin.notes
    }

    fn files(&self) -> &Files {
        &self.inner.files
    }

    /// Of all files with weights.
    pub fn file_bytes(&self) -> u64 {
        self.files().iter().map(|file| file.len() as u64).sum()
    }

    pub fn value(&self, key: &str) -> Option<&Value> {
        self.inner.metadata.get(key)
    }

    /// All metadata, by key.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.inner.metadata.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// In the order of the files.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.inner.tensors.iter().map(|(info, _)| info)
    }

    /// Tensors we cannot compute; none in a file from [`Checkpoint::open`].
    pub fn unsupported(&self) -> &[UnsupportedTensor] {
        &self.inner.unsupported
    }

    fn find(&self, name: &str) -> Option<&(TensorInfo, Source)> {
        Some(&self.inner.tensors[*self.by_name.get(name)?])
    }

    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.find(name).map(|(info, _)| info)
    }

    pub fn require_info(&self, name: &str) -> Result<&TensorInfo, CheckpointError> {
        self.info(name).ok_or_else(|| self.missing(name))
    }

    /// Reads a tensor, or makes it.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>, CheckpointError> {
        let (info, source) = self.find(name).ok_or_else(|| self.missing(name))?;
        self.read(Cow::Borrowed(info), source)
    }

    /// Part `index` of `count` equal ones along the outermost dimension: one expert's matrix.
    pub fn part(&self, name: &str, index: usize, count: usize) -> Result<Tensor<'_>, CheckpointError> {
        let (info, source) = self.find(name).ok_or_else(|| self.missing(name))?;
        let damaged = |problem| CheckpointError::Tensor {
            path: self.path().to_owned(),
            name: name.to_owned(),
            problem,
        };
        let outermost = info.dims.iter().rposition(|dim| *dim != 1).unwrap_or(0);
        if outermost == 0 || !info.dims[outermost].is_multiple_of(count) {
            return Err(damaged(format!("shape {:?} cannot be cut into {count}", info.dims)));
        }
        let mut part = info.clone();
        part.dims[outermost] /= count;
        part.bytes /= count;
        part.offset = 0;
        let range = index * part.bytes..(index + 1) * part.bytes;
        match source.part(index, count) {
            Some(source) => self.read(Cow::Owned(part), &source),
            None => {
                let whole = source.read(self.files()).map_err(damaged)?;
                Ok(Tensor { info: Cow::Owned(part), data: Cow::Owned(whole[range].to_vec()), place: None })
            }
        }
    }

    fn read<'a>(&'a self, info: Cow<'a, TensorInfo>, source: &Source) -> Result<Tensor<'a>, CheckpointError> {
        let damaged = |problem| CheckpointError::Tensor {
            path: self.path().to_owned(),
            name: info.name.clone(),
            problem,
        };
        let data = source.read(self.files()).map_err(damaged)?;
        if data.len() != info.bytes {
            return Err(damaged(format!("{} bytes where {} are needed", data.len(), info.bytes)));
        }
        if let Some((file, range)) = source.encoded().and_then(Source::place) {
            self.release(file, range);
        }
        let place = source.place().map(|(file, range)| (self, file, range.start));
        Ok(Tensor { info, data, place })
    }

    fn missing(&self, name: &str) -> CheckpointError {
        match self.unsupported().iter().find(|tensor| tensor.name == name) {
            Some(tensor) => self.unsupported_format(tensor),
            None => CheckpointError::MissingTensor {
                path: self.path().to_owned(),
                name: self.original_name(name).unwrap_or_else(|| name.to_owned()),
            },
        }
    }

    fn unsupported_format(&self, tensor: &UnsupportedTensor) -> CheckpointError {
        CheckpointError::UnsupportedFormat {
            path: self.path().to_owned(),
            tensor: tensor.name.clone(),
            format: tensor.format,
        }
    }

    /// Tells the system that the files will be read from front to back, as a loader does.
    pub fn advise_sequential(&self) {
        #[cfg(unix)]
        for file in self.files() {
            if let Bytes::Mapped(map) = &**file {
                // Advice only: without it, reading is slower and nothing else.
                let _ = map.advise(memmap2::Advice::Sequential);
            }
        }
    }

    /// Gives back the memory of all files. Reading them again is possible and goes to the disk.
    pub fn advise_dontneed(&self) {
        (0..self.files().len()).for_each(|file| self.release(file, 0..usize::MAX));
    }

    /// The same of a range of one file, once a loader has copied it.
    pub(super) fn release(&self, file: usize, range: Range<usize>) {
        #[cfg(unix)]
        if let Bytes::Mapped(map) = &*self.files()[file] {
            // Linux maps the 16 pages around one that is read, so those around the range go as well.
            const AROUND: usize = 64 << 10;
            let start = range.start / AROUND * AROUND;
            let end = range.end.min(map.len()).next_multiple_of(AROUND).min(map.len());
            if start < end {
                // SAFETY: the mapping is read-only and backed by the file, so dropped pages come back
                // with the same contents; only private anonymous or written pages would be lost.
                let _ = unsafe {
                    map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start)
                };
            }
        }
        #[cfg(not(unix))]
        let _ = (file, range);
    }
}
