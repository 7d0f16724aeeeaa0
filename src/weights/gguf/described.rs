use super::ggml::GgmlType;
use crate::weights::checkpoint::Damage;

/// A tensor as the header describes it, before its place is checked.
pub(super) struct Described {
    pub name: String,
    pub dims: Vec<usize>,
    pub kind: &'static GgmlType,
    /// From the start of the data.
    pub offset: u64,
    pub bytes: usize,
    /// Of its description, for errors.
    pub header_offset: usize,
}

impl Described {
    pub fn damage(&self, problem: String) -> Damage {
        Damage::at(self.header_offset, problem).of(|| tensor_name(&self.name))
    }
}

pub(super) fn tensor_name(name: &str) -> String {
    format!("tensor {}", quoted(name))
}

pub(super) fn key_name(key: &str) -> String {
    format!("key {}", quoted(key))
}

/// A name of a damaged file may be as long as the file: its beginning will do.
fn quoted(name: &str) -> String {
    const MOST: usize = 100;
    match name.char_indices().nth(MOST) {
        None => format!("{name:?}"),
        Some((end, _)) => format!("{:?}... of {} bytes", &name[..end], name.len()),
    }
}

/// Bytes of a tensor of that shape.
pub(super) fn tensor_bytes(dims: &[usize], kind: &GgmlType) -> Result<usize, String> {
    let row = dims[0];
    if !row.is_multiple_of(kind.block_len) {
        return Err(format!("rows of {row} weights cannot be {} blocks of {}", kind.name, kind.block_len));
    }
    (dims[1..].iter())
        .try_fold(row, |elements, dim| elements.checked_mul(*dim))
        .and_then(|elements| (elements / kind.block_len).checked_mul(kind.block_bytes))
        // Pointer offsets are signed; also keeps every later sum of two of these from wrapping.
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or_else(|| format!("its shape {dims:?} overflows"))
}
