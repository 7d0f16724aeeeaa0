use super::cursor::Cursor;
use super::described::{Described, key_name, tensor_bytes, tensor_name};
use super::ggml::GgmlType;
use super::value::Value;
use crate::weights::bytes::Bytes;
use crate::weights::checkpoint::Damage;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

pub(super) const MAGIC: &[u8; 4] = b"GGUF";
/// Magic and version; counts follow.
pub(super) const PREAMBLE_BYTES: usize = 8;

const MAX_DIMS: u32 = 4;
const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_ALIGNMENT: u64 = 1 << 20;
/// A key takes a length, a type and one byte of value; a tensor a length, counts, a type and an offset.
const LEAST_PAIR_BYTES: usize = 8 + 4 + 1;
const LEAST_TENSOR_BYTES: usize = 8 + 4 + 4 + 8;

/// What the header says, every place checked.
pub(super) struct Header {
    pub metadata: BTreeMap<String, Value>,
    /// In the order of the file, each with the place of its data from the start of the file.
    pub tensors: Vec<(Described, usize)>,
}

/// Reads the header that follows magic and version, in the layout that versions 2 and 3 share:
/// counts, key-value pairs, tensor descriptions, padding, data.
pub(super) fn parse(file: &Arc<Bytes>) -> Result<Header, Damage> {
    let mut cursor = Cursor::new(file, PREAMBLE_BYTES.min(file.len()));
    let num_tensors = cursor.count(LEAST_TENSOR_BYTES).map_err(|d| d.of(|| "the tensor count".to_owned()))?;
    let num_pairs = cursor.count(LEAST_PAIR_BYTES).map_err(|d| d.of(|| "the key count".to_owned()))?;
    let metadata = read_metadata(&mut cursor, num_pairs, file)?;
    let alignment = alignment(&metadata, cursor.position())?;
    let described = read_tensors(&mut cursor, num_tensors)?;
    let data_start = cursor.position().next_multiple_of(alignment);
    Ok(Header { metadata, tensors: place(described, data_start, alignment, file.len())? })
}

fn read_metadata(
    cursor: &mut Cursor<'_>,
    count: usize,
    file: &Arc<Bytes>,
) -> Result<BTreeMap<String, Value>, Damage> {
    let mut metadata = BTreeMap::new();
    for index in 0..count {
        let start = cursor.position();
        let key = cursor.name().map_err(|d| d.of(|| format!("the name of key {} of {count}", index + 1)))?;
        let value = Value::read(cursor, file).map_err(|d| d.of(|| key_name(key)))?;
        if metadata.insert(key.to_owned(), value).is_some() {
            return Err(Damage::at(start, "it appears twice".to_owned()).of(|| key_name(key)));
        }
    }
    Ok(metadata)
}

fn alignment(metadata: &BTreeMap<String, Value>, offset: usize) -> Result<usize, Damage> {
    const KEY: &str = "general.alignment";
    let Some(value) = metadata.get(KEY) else { return Ok(DEFAULT_ALIGNMENT as usize) };
    match value.as_u64() {
        Some(alignment) if alignment.is_power_of_two() && (8..=MAX_ALIGNMENT).contains(&alignment) => {
            Ok(alignment as usize)
        }
        _ => Err(Damage::at(offset, format!("{} is no power of two from 8 to 1 MiB", value.describe()))
            .of(|| key_name(KEY))),
    }
}

fn read_tensors(cursor: &mut Cursor<'_>, count: usize) -> Result<Vec<Described>, Damage> {
    let mut names = HashSet::new();
    let mut tensors = Vec::new();
    for index in 0..count {
        let start = cursor.position();
        let name =
            cursor.name().map_err(|d| d.of(|| format!("the name of tensor {} of {count}", index + 1)))?;
        let tensor = read_tensor(cursor, name, start).map_err(|d| d.of(|| tensor_name(name)))?;
        if !names.insert(name) {
            return Err(tensor.damage("it appears twice".to_owned()));
        }
        tensors.push(tensor);
    }
    Ok(tensors)
}

fn read_tensor(cursor: &mut Cursor<'_>, name: &str, header_offset: usize) -> Result<Described, Damage> {
    let damage = |problem: String| Damage::at(header_offset, problem);
    let num_dims = cursor.u32()?;
    if num_dims > MAX_DIMS {
        return Err(damage(format!("it has {num_dims} dimensions, at most {MAX_DIMS} are possible")));
    }
    let mut dims = Vec::with_capacity(MAX_DIMS as usize);
    for _ in 0..num_dims {
        let dim = cursor.u64()?;
        match usize::try_from(dim) {
            Ok(dim) if dim > 0 => dims.push(dim),
            _ => return Err(damage(format!("a dimension of {dim}"))),
        }
    }
    if dims.is_empty() {
        dims.push(1); // a scalar
    }
    let number = cursor.u32()?;
    let kind = GgmlType::from_number(number)
        .ok_or_else(|| damage(format!("its type is {number}, which no version of ggml we know has")))?;
    let offset = cursor.u64()?;
    let bytes = tensor_bytes(&dims, kind).map_err(damage)?;
    Ok(Described { name: name.to_owned(), dims, kind, offset, bytes, header_offset })
}

/// Finds every tensor's data: aligned, inside the file, and apart from the others'.
fn place(
    described: Vec<Described>,
    data_start: usize,
    alignment: usize,
    file_len: usize,
) -> Result<Vec<(Described, usize)>, Damage> {
    let mut placed = Vec::with_capacity(described.len());
    for tensor in described {
        if tensor.offset % alignment as u64 != 0 {
            let problem = format!("its offset {} is not a multiple of {alignment}", tensor.offset);
            return Err(tensor.damage(problem));
        }
        let start = usize::try_from(tensor.offset).ok().and_then(|offset| data_start.checked_add(offset));
        let end = start.and_then(|start| start.checked_add(tensor.bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= file_len => placed.push((tensor, start)),
            _ => {
                let problem = format!(
                    "its {} bytes at {data_start} + {} are not all in the file, which ends at {file_len}",
                    tensor.bytes, tensor.offset
                );
                return Err(tensor.damage(problem));
            }
        }
    }
    refuse_overlaps(&placed)?;
    Ok(placed)
}

fn refuse_overlaps(placed: &[(Described, usize)]) -> Result<(), Damage> {
    let mut by_place: Vec<&(Described, usize)> = placed.iter().collect();
    by_place.sort_by_key(|(_, start)| *start);
    for pair in by_place.windows(2) {
        let ((first, first_start), (second, second_start)) = (pair[0], pair[1]);
        if first_start + first.bytes > *second_start {
            return Err(second.damage(format!("its data overlaps that of {}", tensor_name(&first.name))));
        }
    }
    Ok(())
}
