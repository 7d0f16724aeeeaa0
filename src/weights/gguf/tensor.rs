use super::error::Damage;
use super::file::Gguf;
use super::ggml::GgmlType;
use crate::weights::{BlockFormat, decode};
use std::ops::Range;

/// Where a tensor lies, all of it checked against the file.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    pub name: String,
    /// ggml's order: `dims[0]` is the row length and varies fastest. One to four of them, none zero.
    pub dims: Vec<usize>,
    pub format: BlockFormat,
    /// From the start of the file; a multiple of 8.
    pub offset: usize,
    pub bytes: usize,
}

/// A tensor in one of ggml's formats that we can name but not compute.
#[derive(Clone, Debug, PartialEq)]
pub struct UnsupportedTensor {
    pub name: String,
    pub dims: Vec<usize>,
    pub format: &'static str,
    pub bytes: usize,
}

/// A tensor and its blocks.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    pub info: &'a TensorInfo,
    /// `info.bytes` of whole blocks, row after row.
    pub data: &'a [u8],
    pub(super) file: &'a Gguf,
}

impl TensorInfo {
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    pub fn row_len(&self) -> usize {
        self.dims[0]
    }

    /// Rows of all outer dimensions together.
    pub fn rows(&self) -> usize {
        self.dims[1..].iter().product()
    }

    pub fn row_bytes(&self) -> usize {
        self.row_len() / self.format.block_len() * self.format.block_bytes()
    }

    /// Its bytes in the file.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.bytes
    }
}

impl<'a> Tensor<'a> {
    /// Blocks of one row.
    pub fn row(&self, index: usize) -> &'a [u8] {
        let len = self.info.row_bytes();
        &self.data[index * len..][..len]
    }

    /// Gives back the memory of some rows once they are copied: [`Gguf::advise_dontneed`].
    pub fn release(&self, rows: Range<usize>) {
        let (start, len) = (self.info.offset, self.info.row_bytes());
        self.file.advise_dontneed(start + rows.start * len..start + rows.end * len);
    }

    /// All weights, decoded.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.info.elements()];
        decode(self.info.format, self.data, &mut out);
        out
    }
}

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
    format!("tensor {name:?}")
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
