//! Rows that are looked up: embeddings of tokens, and of positions.

use crate::compute::{DeviceError, Result};
use crate::weights::{Checkpoint, TensorInfo, decode};
use std::borrow::Cow;

/// Rows are decoded from the file's own bytes as they are asked for.
pub struct Table {
    file: Checkpoint,
    info: TensorInfo,
    /// Where no file has it as it is.
    made: Option<Vec<u8>>,
}

/// A table that can be read.
pub(super) struct Rows<'a> {
    info: &'a TensorInfo,
    data: Cow<'a, [u8]>,
}

fn failed(error: impl std::fmt::Display) -> DeviceError {
    DeviceError(error.to_string())
}

impl Table {
    pub(super) fn new(file: &Checkpoint, tensor: &str) -> Result<Table> {
        let info = file.require_info(tensor).map_err(failed)?;
        let made = match file.tensor(tensor).map_err(failed)?.data {
            Cow::Borrowed(_) => None,
            Cow::Owned(blocks) => Some(blocks),
        };
        Ok(Table { file: file.clone(), info: info.clone(), made })
    }

    pub(super) fn rows(&self) -> Result<Rows<'_>> {
        let data = match &self.made {
            Some(made) => Cow::Borrowed(&made[..]),
            None => self.file.tensor(&self.info.name).map_err(failed)?.data,
        };
        Ok(Rows { info: &self.info, data })
    }
}

impl Rows<'_> {
    pub(super) fn columns(&self) -> usize {
        self.info.dims[0]
    }

    /// Fails where there is no such row.
    pub(super) fn decode(&self, row: usize, out: &mut [f32]) -> Result<()> {
        let bytes = self.info.row_bytes();
        let Some(data) = self.data.get(row * bytes..(row + 1) * bytes) else {
            return Err(DeviceError(format!(
                "{} has {} rows: there is none for {row}",
                self.info.name,
                self.info.rows()
            )));
        };
        decode(self.info.format, data, out);
        Ok(())
    }
}
