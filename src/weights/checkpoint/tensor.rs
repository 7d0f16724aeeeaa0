use super::Checkpoint;
use crate::weights::{BlockFormat, decode, encode};
use std::borrow::Cow;
use std::ops::Range;

/// What a tensor is. Where it lies in a file, that was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// As GGUF has it: `blk.0.attn_q.weight`.
    pub name: String,
    /// ggml's order: `dims[0]` is the row length and varies fastest. One to four of them, none zero.
    pub dims: Vec<usize>,
    pub format: BlockFormat,
    /// Of its file; 0 for what is made from other tensors.
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
#[derive(Clone, Debug)]
pub struct Tensor<'a> {
    pub info: Cow<'a, TensorInfo>,
    /// `info.bytes` of whole blocks, row after row.
    pub data: Cow<'a, [u8]>,
    /// Where `data` lies as it is: a file of the checkpoint, and its first byte there.
    pub(super) place: Option<(&'a Checkpoint, usize, usize)>,
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

    /// The same tensor in another format; `None` where its rows are no whole blocks of that.
    pub fn in_format(&self, format: BlockFormat) -> Option<TensorInfo> {
        let whole = self.row_len().is_multiple_of(format.block_len());
        let bytes = self.elements() / format.block_len() * format.block_bytes();
        whole.then(|| TensorInfo { format, bytes, offset: 0, ..self.clone() })
    }
}

impl<'a> Tensor<'a> {
    /// One that was made: values of that shape.
    pub fn of_values(name: &str, dims: &[usize], format: BlockFormat, values: &[f32]) -> Self {
        let data = encode(format, values);
        let dims = dims.to_vec();
        let info = TensorInfo { name: name.to_owned(), dims, format, offset: 0, bytes: data.len() };
        Tensor { info: Cow::Owned(info), data: Cow::Owned(data), place: None }
    }

    /// Some of its rows, as a matrix.
    #[must_use]
    pub fn rows(&self, rows: Range<usize>) -> Tensor<'a> {
        let len = self.info.row_bytes();
        let bytes = rows.start * len..rows.end * len;
        let data = match &self.data {
            Cow::Borrowed(data) => Cow::Borrowed(&data[bytes.clone()]),
            Cow::Owned(data) => Cow::Owned(data[bytes.clone()].to_vec()),
        };
        let mut info = self.info.clone().into_owned();
        (info.dims, info.bytes) = (vec![info.dims[0], rows.len()], bytes.len());
        let place = self.place.map(|(checkpoint, file, start)| (checkpoint, file, start + bytes.start));
        Tensor { info: Cow::Owned(info), data, place }
    }

    /// Blocks of one row.
    pub fn row(&self, index: usize) -> &[u8] {
        let len = self.info.row_bytes();
        &self.data[index * len..][..len]
    }

    /// Gives back the memory of some rows once they are copied: [`Checkpoint::advise_dontneed`].
    pub fn release(&self, rows: Range<usize>) {
        if let Some((checkpoint, file, start)) = self.place {
            let len = self.info.row_bytes();
            checkpoint.release(file, start + rows.start * len..start + rows.end * len);
        }
    }

    /// All weights, decoded.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.info.elements()];
        decode(self.info.format, &self.data, &mut out);
        out
    }
}
