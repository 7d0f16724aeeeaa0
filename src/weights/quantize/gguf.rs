//! Writes a model as a GGUF file, one tensor at a time.

use super::carried::carry;
use super::from_hub::as_gguf;
use super::{QuantizeError, Quantized};
use crate::weights::checkpoint::{Checkpoint, TensorInfo};
use crate::weights::{BlockFormat, GgufWriter, Value};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Of the way blocks are laid out (ggml's `GGML_QNT_VERSION`).
const QUANTIZATION_VERSION: u32 = 2;

/// Writes `file` with its matrices as `to` to `path`: beside it as `.part` first, and renamed when it is whole. At
/// any time one tensor is in memory. `progress(done, total)` counts bytes, and may end it.
///
/// # Errors
/// What cannot be read, does not go into such a file, or cannot be written; a file that is there stays.
pub fn write_gguf(
    file: &Checkpoint,
    to: BlockFormat,
    path: &Path,
    overwrite: bool,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Quantized, QuantizeError> {
    if to.to_ggml_type().is_none() {
        return Err(QuantizeError::NotInGguf { path: path.to_owned(), format: to });
    }
    if path.exists() && !overwrite {
        return Err(QuantizeError::Exists(path.to_owned()));
    }
    let quantized = worth_it(as_gguf(file)?.quantized(to), to)?;
    let part = part_path(path);
    let failed = |source| QuantizeError::Write { path: path.to_owned(), source };
    let written = write_parts(&quantized.checkpoint, to, &part, progress)
        .and_then(|()| fs::rename(&part, path).map_err(failed));
    if written.is_err() {
        // It may not have been made at all.
        let _ = fs::remove_file(&part);
    }
    written.map(|()| quantized)
}

/// Encodes every matrix of `file` as `to` and keeps only what that loses.
///
/// # Errors
/// As [`write_gguf`], but for what is about files.
pub fn measure(
    file: &Checkpoint,
    to: BlockFormat,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Quantized, QuantizeError> {
    let quantized = worth_it(file.quantized(to), to)?;
    let (before, after) = (file.tensors(), quantized.checkpoint.tensors());
    let changed: Vec<&TensorInfo> = before
        .zip(after)
        .filter(|(before, after)| before.format != after.format)
        .map(|(_, info)| info)
        .collect();
    let total = changed.iter().map(|info| info.bytes as u64).sum();
    let mut done = 0;
    for info in changed {
        quantized.checkpoint.tensor(&info.name)?;
        done += info.bytes as u64;
        if progress(done, total).is_break() {
            return Err(QuantizeError::Interrupted);
        }
    }
    Ok(quantized)
}

/// Refused where nothing would become smaller.
fn worth_it(quantized: Quantized, to: BlockFormat) -> Result<Quantized, QuantizeError> {
    let path = || quantized.checkpoint.path().to_owned();
    if let Some(tensor) = quantized.checkpoint.unsupported().first() {
        let (tensor, format) = (tensor.name.clone(), tensor.format);
        return Err(QuantizeError::Unread { path: path(), tensor, format });
    }
    match (quantized.encoded, quantized.small) {
        (0, 0) => Err(QuantizeError::NoMatrix { path: path(), to }),
        (0, _) => Err(QuantizeError::Nothing { path: path(), to }),
        _ => Ok(quantized),
    }
}

pub(super) fn part_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

fn write_parts(
    file: &Checkpoint,
    to: BlockFormat,
    part: &Path,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<(), QuantizeError> {
    let failed = |source: io::Error| QuantizeError::Write { path: part.to_owned(), source };
    if let Some(tensor) = file.tensors().find(|tensor| tensor.format.to_ggml_type().is_none()) {
        return Err(QuantizeError::NotInGguf { path: part.to_owned(), format: tensor.format });
    }
    let writer = head(file, to)?;
    let describe =
        |tensor: &'_ TensorInfo| (tensor.name.clone(), tensor.dims.clone(), tensor.format, tensor.bytes);
    let tensors: Vec<_> = file.tensors().map(describe).collect();
    let total = tensors.iter().map(|(.., bytes)| *bytes as u64).sum();
    let mut out = Counted { to: BufWriter::new(File::create(part).map_err(failed)?), written: 0 };
    let sizes = tensors.iter().map(|(name, dims, format, bytes)| (&**name, &**dims, *format, *bytes));
    out.write(&writer.head(sizes)).map_err(failed)?;
    let mut done = 0;
    for (name, ..) in &tensors {
        let tensor = file.tensor(name)?;
        out.write(&vec![0; writer.padding(out.written)]).map_err(failed)?;
        out.write(&tensor.data).map_err(failed)?;
        tensor.release(0..tensor.info.rows());
        done += tensor.info.bytes as u64;
        if progress(done, total).is_break() {
            return Err(QuantizeError::Interrupted);
        }
    }
    let file = out.to.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)
}

struct Counted {
    to: BufWriter<File>,
    written: usize,
}

impl Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len();
        self.to.write_all(bytes)
    }
}

/// All keys of the model, but for those that are of one file: how it was aligned, split and encoded.
fn head(file: &Checkpoint, to: BlockFormat) -> Result<GgufWriter, QuantizeError> {
    let of_the_file = |key: &str| {
        matches!(key, "general.alignment" | "general.file_type" | "general.quantization_version")
            || key.starts_with("split.")
    };
    let mut writer = GgufWriter::default();
    for (key, value) in file.metadata().filter(|(key, _)| !of_the_file(key)) {
        writer = writer.put(key, value.clone());
    }
    if let Some(number) = file_type(to) {
        writer = writer.put("general.file_type", number);
    }
    writer = writer.put("general.quantization_version", QUANTIZATION_VERSION);
    carry(file, writer)
}

/// llama.cpp's number for a file that is mostly of one format, as `general.file_type` has it.
fn file_type(to: BlockFormat) -> Option<u32> {
    match to {
        BlockFormat::Q8_0 => Some(7),
        BlockFormat::Q4_K => Some(14),
        BlockFormat::Q5_K => Some(16),
        BlockFormat::Q6_K => Some(18),
        _ => None,
    }
}

impl From<Value> for crate::weights::MetaValue {
    fn from(value: Value) -> Self {
        Self::Copied(value)
    }
}
