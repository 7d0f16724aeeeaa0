use super::bytes::Bytes;
use super::error::GgufError;
use super::parse::{MAGIC, PREAMBLE_BYTES, parse};
use super::split::{self, Part};
use super::tensor::{Tensor, TensorInfo, UnsupportedTensor};
use super::value::Value;
use crate::weights::BlockFormat;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open GGUF file: metadata, and tensors mapped into memory. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct Gguf {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    file: Arc<Bytes>,
    version: u32,
    metadata: BTreeMap<String, Value>,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
    unsupported: Vec<UnsupportedTensor>,
}

impl Gguf {
    /// Opens a model to compute with: every tensor is in a format we can decode.
    pub fn open(path: &Path) -> Result<Gguf, GgufError> {
        let file = Gguf::inspect(path)?;
        match file.unsupported().first() {
            None => Ok(file),
            Some(tensor) => Err(file.unsupported_format(tensor)),
        }
    }

    /// Opens a file to look at it. Tensors in formats we cannot compute are in
    /// [`Gguf::unsupported`] and nowhere else.
    pub fn inspect(path: &Path) -> Result<Gguf, GgufError> {
        let file = Bytes::map(path).map_err(|source| GgufError::Open { path: path.to_owned(), source })?;
        Gguf::read(path, file)
    }

    /// As [`Gguf::inspect`] for bytes in memory; `path` is what errors call them.
    pub fn from_bytes(path: &Path, bytes: Vec<u8>) -> Result<Gguf, GgufError> {
        Gguf::read(path, Bytes::Owned(bytes))
    }

    fn read(path: &Path, file: Bytes) -> Result<Gguf, GgufError> {
        let read = read_version(path, &file).and_then(|version| Gguf::read_version(path, file, version));
        match (read, Part::from_name(path)) {
            (Ok(file), _) => file.refuse_part(),
            // A part that was cut off by bytes looks damaged, and its name tells why.
            (Err(GgufError::NotGguf { .. } | GgufError::Damaged { .. }), Some(part)) => {
                Err(GgufError::Split { path: path.to_owned(), problem: part.explain(path) })
            }
            (Err(error), _) => Err(error),
        }
    }

    fn read_version(path: &Path, file: Bytes, version: u32) -> Result<Gguf, GgufError> {
        let file = Arc::new(file);
        let header = parse(&file).map_err(|damage| damage.in_file(path))?;
        let mut tensors = Vec::with_capacity(header.tensors.len());
        let mut unsupported = Vec::new();
        for (described, offset) in header.tensors {
            let (name, dims, bytes) = (described.name, described.dims, described.bytes);
            match BlockFormat::from_ggml_type(described.kind.number) {
                Some(format) => tensors.push(TensorInfo { name, dims, format, offset, bytes }),
                None => {
                    unsupported.push(UnsupportedTensor { name, dims, format: described.kind.name, bytes });
                }
            }
        }
        let by_name = tensors.iter().enumerate().map(|(index, info)| (info.name.clone(), index)).collect();
        let metadata = header.metadata;
        let path = path.to_owned();
        Ok(Gguf { inner: Arc::new(Inner { path, file, version, metadata, tensors, by_name, unsupported }) })
    }

    /// One part of a split model has only some of the tensors.
    fn refuse_part(self) -> Result<Gguf, GgufError> {
        let count = self.u64("split.count")?.unwrap_or(1);
        if count <= 1 {
            return Ok(self);
        }
        let number = self.u64("split.no")?.unwrap_or(0).saturating_add(1);
        let problem = match Part::from_name(self.path()) {
            Some(part) => part.explain(self.path()),
            None => split::explain_unnamed(number, count),
        };
        Err(GgufError::Split { path: self.path().to_owned(), problem })
    }

    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// All of the file.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.inner.file
    }

    pub fn file_bytes(&self) -> u64 {
        self.inner.file.len() as u64
    }

    /// Of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.inner.version
    }

    pub fn value(&self, key: &str) -> Option<&Value> {
        self.inner.metadata.get(key)
    }

    /// All metadata, by key.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.inner.metadata.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// In the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.inner.tensors
    }

    /// Tensors we cannot compute; none in a file from [`Gguf::open`].
    pub fn unsupported(&self) -> &[UnsupportedTensor] {
        &self.inner.unsupported
    }

    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let info = &self.inner.tensors[*self.inner.by_name.get(name)?];
        Some(Tensor { info, data: &self.inner.file[info.range()], file: self })
    }

    pub fn require_tensor(&self, name: &str) -> Result<Tensor<'_>, GgufError> {
        self.tensor(name).ok_or_else(|| match self.unsupported().iter().find(|tensor| tensor.name == name) {
            Some(tensor) => self.unsupported_format(tensor),
            None => GgufError::MissingTensor { path: self.path().to_owned(), name: name.to_owned() },
        })
    }

    fn unsupported_format(&self, tensor: &UnsupportedTensor) -> GgufError {
        GgufError::UnsupportedFormat {
            path: self.path().to_owned(),
            tensor: tensor.name.clone(),
            format: tensor.format,
        }
    }

    /// Tells the system that the file will be read from front to back, as a loader does.
    pub fn advise_sequential(&self) {
        #[cfg(unix)]
        if let Bytes::Mapped(map) = &*self.inner.file {
            // Advice only: without it, reading is slower and nothing else.
            let _ = map.advise(memmap2::Advice::Sequential);
        }
    }

    /// Gives back the memory of a range of the file (see [`TensorInfo::range`]) once a loader has
    /// copied it. Reading it again is possible and goes to the disk.
    pub fn advise_dontneed(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Bytes::Mapped(map) = &*self.inner.file {
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
        let _ = range;
    }
}

/// Checks magic and byte order, and gives the version.
fn read_version(path: &Path, file: &[u8]) -> Result<u32, GgufError> {
    let not_gguf = |problem: String| GgufError::NotGguf { path: path.to_owned(), problem };
    if !file.starts_with(MAGIC) {
        return Err(not_gguf(match file {
            [] => "it is empty".to_owned(),
            file if file.starts_with(b"version https://git-lfs") => {
                "it is a Git LFS pointer, and the file it points to was not downloaded".to_owned()
            }
            file => format!("it starts with \"{}\"", file[..file.len().min(8)].escape_ascii()),
        }));
    }
    let Some(version) = file.get(MAGIC.len()..PREAMBLE_BYTES) else {
        return Err(not_gguf(format!("it ends after {} bytes", file.len())));
    };
    let version = u32::from_le_bytes(version.try_into().expect("four bytes"));
    match version {
        2 | 3 => Ok(version),
        swapped if swapped != 0 && swapped & 0xFFFF == 0 => {
            Err(GgufError::BigEndian { path: path.to_owned() })
        }
        version => Err(GgufError::Version { path: path.to_owned(), version }),
    }
}
