//! Safetensors files for [`write_folder`](super::write_folder): which tensors a file has and where, and the header of
//! another. Format: <https://github.com/huggingface/safetensors>, an 8-byte length, JSON, data.

use crate::weights::BlockFormat;
use crate::weights::bytes::Bytes;
use serde_json::{Map, Value, json};
use std::ops::Range;

/// Of one file; larger headers are refused, as the format says.
const MAX_HEADER_BYTES: usize = 100_000_000;

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub name: String,
    pub dtype: String,
    /// Outermost first.
    pub shape: Vec<usize>,
    /// From the start of the data.
    pub place: Range<usize>,
}

impl Entry {
    pub fn format(&self) -> Option<BlockFormat> {
        match self.dtype.as_str() {
            "F32" => Some(BlockFormat::F32),
            "F16" => Some(BlockFormat::F16),
            "BF16" => Some(BlockFormat::BF16),
            _ => None,
        }
    }
}

/// The tensors of a file, in the order of their data, and where the data starts.
pub(super) fn entries(file: &Bytes) -> Result<(Vec<Entry>, usize), String> {
    let len = file.first_chunk::<8>().ok_or("it ends within the length of its header")?;
    let len = usize::try_from(u64::from_le_bytes(*len)).ok().filter(|len| *len <= MAX_HEADER_BYTES);
    let start = len.ok_or("its header would be too long")? + 8;
    let header = file.get(8..start).ok_or("it ends within its header")?;
    let header: Map<String, Value> =
        serde_json::from_slice(header).map_err(|e| format!("its header: {e}"))?;
    let data = file.len() - start;
    let described = header.iter().filter(|(name, _)| *name != "__metadata__");
    let mut entries =
        described.map(|(name, value)| entry(name, value, data)).collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(|entry| entry.place.start);
    Ok((entries, start))
}

fn entry(name: &str, value: &Value, data: usize) -> Result<Entry, String> {
    let wrong = |what: &str| format!("tensor {name:?}: {what}");
    let numbers = |key: &str| -> Option<Vec<usize>> {
        value[key].as_array()?.iter().map(|n| usize::try_from(n.as_u64()?).ok()).collect()
    };
    let shape = numbers("shape").ok_or_else(|| wrong("no shape"))?;
    let dtype = value["dtype"].as_str().ok_or_else(|| wrong("no dtype"))?.to_owned();
    let place = match numbers("data_offsets").as_deref() {
        Some(&[start, end]) if start <= end && end <= data => start..end,
        _ => return Err(wrong("its data is not in the file")),
    };
    let entry = Entry { name: name.to_owned(), dtype, shape, place };
    if let Some(format) = entry.format() {
        let bytes = entry.shape.iter().try_fold(format.block_bytes(), |bytes, dim| bytes.checked_mul(*dim));
        if bytes != Some(entry.place.len()) {
            return Err(wrong("its shape and its bytes do not agree"));
        }
    }
    Ok(entry)
}

/// Length and header of a file with these tensors one after the other; a multiple of 8 bytes.
pub(super) fn header(tensors: &[Entry]) -> Vec<u8> {
    let mut map = Map::new();
    map.insert("__metadata__".into(), json!({ "format": "pt" }));
    for Entry { name, dtype, shape, place } in tensors {
        let offsets = [place.start, place.end];
        map.insert(name.clone(), json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets }));
    }
    let mut text = Value::Object(map).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    [(text.len() as u64).to_le_bytes().as_slice(), &text].concat()
}
