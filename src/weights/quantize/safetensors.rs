//! Safetensors files for [`write_folder`](super::write_folder): which tensors a file has and where, and the header of
//! another. Format: <https://github.com/huggingface/safetensors>, an 8-byte length, JSON, data.

use crate::weights::BlockFormat;
use crate::weights::bytes::Bytes;
use crate::weights::hub;
use serde_json::{Map, Value, json};
use std::ops::Range;

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub name: String,
    pub dtype: String,
    /// Outermost first.
    pub shape: Vec<usize>,
    /// In the file that is read; from the start of the data in one that is written.
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

/// The tensors of a file, in the order of their data.
pub(super) fn entries(file: &Bytes) -> Result<Vec<Entry>, String> {
    let read = |hub::Entry { name, dtype, shape, range }| Entry {
        name,
        dtype: dtype.name().to_owned(),
        shape,
        place: range,
    };
    Ok(hub::entries(file)?.into_iter().map(read).collect())
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
