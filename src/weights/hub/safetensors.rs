//! The safetensors reader: eight bytes with the header's length, a JSON header, data. The header is
//! parsed once with every length, offset, type and shape checked; after that nothing can go out of
//! bounds. As the format asks, data leave no hole, do not overlap and end where the file does.
//!
//! The format: <https://huggingface.co/docs/safetensors/index#format>

use super::dtype::Dtype;
use super::unique::Unique;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

const LENGTH_BYTES: usize = 8;
/// As in the reference implementation.
const MOST_HEADER_BYTES: u64 = 100_000_000;
const MOST_DIMS: usize = 8;

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::weights) struct Entry {
    pub name: String,
    pub dtype: Dtype,
    /// Outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// In the file.
    pub range: Range<usize>,
}

/// Whether it starts as a safetensors file does: a length that fits, then an object.
pub(super) fn looks_like(file: &[u8]) -> bool {
    header_len(file).is_ok() && file.get(LENGTH_BYTES) == Some(&b'{')
}

/// All tensors, in the order of their data.
///
/// # Errors
/// What is wrong with the file.
pub(in crate::weights) fn parse(file: &[u8]) -> Result<Vec<Entry>, String> {
    let len = header_len(file)?;
    let (header, data_start) = (&file[LENGTH_BYTES..][..len], LENGTH_BYTES + len);
    if header.first() != Some(&b'{') {
        return Err("its header does not start with {".to_owned());
    }
    let Header(mut described) =
        serde_json::from_slice(header).map_err(|error| format!("its header: {error}"))?;
    described.sort_by_key(|(_, tensor)| tensor.data_offsets);
    let mut end = 0;
    let mut entries = Vec::with_capacity(described.len());
    for (name, tensor) in described {
        let entry = tensor.check(&name, end, data_start, file.len());
        let entry = entry.map_err(|problem| format!("tensor {name:?}: {problem}"))?;
        end = entry.range.end - data_start;
        entries.push(entry);
    }
    match file.len() - data_start - end {
        0 => Ok(entries),
        left => Err(format!("{left} bytes after the last tensor belong to none")),
    }
}

fn header_len(file: &[u8]) -> Result<usize, String> {
    let Some((len, rest)) = file.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(format!("it ends after {} bytes", file.len()));
    };
    match u64::from_le_bytes(*len) {
        len if len > MOST_HEADER_BYTES => {
            Err(format!("its header is {len} bytes long, at most {MOST_HEADER_BYTES} are possible"))
        }
        len if len > rest.len() as u64 => {
            Err(format!("its header is {len} bytes long, and {} follow", rest.len()))
        }
        len => Ok(len as usize),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl Described {
    /// `end` is where the data before it stopped.
    fn check(self, name: &str, end: usize, data_start: usize, file_len: usize) -> Result<Entry, String> {
        let Some(dtype) = Dtype::from_name(&self.dtype) else {
            return Err(format!("its type {:?} is none that we know", self.dtype));
        };
        if self.shape.len() > MOST_DIMS {
            return Err(format!("{} dimensions, at most {MOST_DIMS} are possible", self.shape.len()));
        }
        let shape: Option<Vec<usize>> = self.shape.iter().map(|dim| usize::try_from(*dim).ok()).collect();
        let elements =
            shape.as_ref().and_then(|shape| shape.iter().try_fold(1usize, |n, dim| n.checked_mul(*dim)));
        let (Some(shape), Some(bytes)) = (shape, elements.and_then(|n| dtype.file_bytes(n))) else {
            return Err(format!("{:?} of {} is no size a file can have", self.shape, self.dtype));
        };
        let (from, to) = self.data_offsets;
        if to.checked_sub(from) != Some(bytes as u64) {
            return Err(format!("its data lie at {from}..{to}, and its shape needs {bytes} bytes"));
        }
        match from.cmp(&(end as u64)) {
            std::cmp::Ordering::Less => return Err(format!("its data at {from} overlap those before")),
            std::cmp::Ordering::Greater => {
                return Err(format!("a hole of {} bytes before it", from - end as u64));
            }
            std::cmp::Ordering::Equal => {}
        }
        let stop = bytes.checked_add(end + data_start).filter(|stop| *stop <= file_len);
        match stop {
            Some(stop) => Ok(Entry { name: name.to_owned(), dtype, shape, range: end + data_start..stop }),
            None => {
                Err(format!("its data end at {to}, and the file has {} bytes of data", file_len - data_start))
            }
        }
    }
}

/// In the order of the header.
struct Header(Vec<(String, Described)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let (mut tensors, mut names) = (Vec::new(), HashSet::new());
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("{name:?} appears twice")));
            }
            if name == "__metadata__" {
                map.next_value::<Unique<String>>()?;
            } else {
                tensors.push((name, map.next_value()?));
            }
        }
        Ok(Header(tensors))
    }
}
