use super::dtype::Dtype;
use crate::weights::checkpoint::{Source, TensorInfo};
use std::ops::Range;
use std::sync::Arc;

/// A tensor of a hub, on its way to a name of ours: from a file, or made of some that are.
/// The functions here make others of it; nothing is read before the loader asks.
#[derive(Clone, Debug)]
pub(in crate::weights) struct Item {
    /// Outermost first, as hubs write it.
    pub shape: Vec<usize>,
    pub dtype: Dtype,
    pub source: Source,
}

impl Item {
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    pub fn bytes(&self) -> usize {
        let len = self.shape.last().copied().unwrap_or(1);
        self.dtype.row_bytes(len).unwrap_or(0) * (self.elements() / len.max(1))
    }

    /// As a tensor of GGUF; `None` where we do not compute with such numbers.
    pub fn info(&self, name: &str) -> Option<TensorInfo> {
        let format = self.dtype.format()?;
        let offset = match &self.source {
            Source::Plain { offset, .. } => *offset,
            _ => 0,
        };
        Some(TensorInfo { name: name.to_owned(), dims: self.dims(), format, offset, bytes: self.bytes() })
    }

    /// ggml's order: row length first.
    pub fn dims(&self) -> Vec<usize> {
        if self.shape.is_empty() { vec![1] } else { self.shape.iter().rev().copied().collect() }
    }

    /// The same numbers in another shape of as many.
    pub fn reshaped(self, shape: Vec<usize>) -> Result<Item, String> {
        match shape.iter().product::<usize>() == self.elements() {
            true => Ok(Item { shape, ..self }),
            false => Err(format!("shape {:?} cannot be read as {shape:?}", self.shape)),
        }
    }

    /// A range of the outermost dimension: some rows of a matrix, some elements of a vector.
    pub fn rows(&self, range: Range<usize>) -> Result<Item, String> {
        let count = self.outermost();
        if range.end > count || range.start > range.end {
            return Err(format!("{range:?} of its {count} rows are needed"));
        }
        let one = self.bytes() / count.max(1);
        let (start, bytes) = (range.start * one, range.len() * one);
        let source = match &self.source {
            Source::Plain { file, offset, .. } => {
                Source::Plain { file: *file, offset: offset + start, bytes }
            }
            other => {
                let of = other.clone();
                Source::Made(Arc::new(move |files| Ok(of.read(files)?[start..start + bytes].to_vec())))
            }
        };
        Ok(Item { shape: self.with_outermost(range.len()), source, dtype: self.dtype })
    }

    /// Cut along the outermost dimension into as many as it has: experts of `[experts, rows, columns]`.
    pub fn parts(&self) -> Result<Vec<Item>, String> {
        let inner = self.shape.get(1..).unwrap_or_default();
        (0..self.outermost()).map(|i| self.rows(i..i + 1)?.reshaped(inner.to_vec())).collect()
    }

    /// Several of one shape along a new outermost dimension: the other direction of [`Item::parts`].
    pub fn stack(items: Vec<Item>) -> Result<Item, String> {
        let first = items.first().ok_or("nothing to stack")?;
        if let Some(other) =
            items.iter().find(|item| (&item.shape, item.dtype) != (&first.shape, first.dtype))
        {
            return Err(format!(
                "one is {:?} of {}, another {:?} of {}",
                first.shape,
                first.dtype.name(),
                other.shape,
                other.dtype.name()
            ));
        }
        let shape = [&[items.len()], first.shape.as_slice()].concat();
        let dtype = first.dtype;
        Ok(Item { shape, dtype, source: Source::Stack(items.into_iter().map(|item| item.source).collect()) })
    }

    /// The rows of several ranges, one after the other, of any sizes: heads that lie between others.
    pub fn gathered(&self, ranges: Vec<Range<usize>>) -> Result<Item, String> {
        let (count, one) = (self.outermost(), self.bytes() / self.outermost().max(1));
        if let Some(range) = ranges.iter().find(|range| range.end > count || range.start > range.end) {
            return Err(format!("{range:?} of its {count} rows are needed"));
        }
        let rows = ranges.iter().map(ExactSizeIterator::len).sum();
        let of = self.source.clone();
        let source = Source::Made(Arc::new(move |files| {
            let all = of.read(files)?;
            let mut out = Vec::with_capacity(rows * one);
            ranges.iter().for_each(|range| out.extend_from_slice(&all[range.start * one..range.end * one]));
            Ok(out)
        }));
        Ok(Item { shape: self.with_outermost(rows), source, dtype: self.dtype })
    }

    /// Every `step`-th row, from `first` on: gate and up of a matrix that has them in turns.
    pub fn every(&self, step: usize, first: usize) -> Result<Item, String> {
        let count = self.outermost();
        if !count.is_multiple_of(step) {
            return Err(format!("{count} rows are no multiple of {step}"));
        }
        self.gathered((0..count / step).map(|i| i * step + first..i * step + first + 1).collect())
    }

    /// A matrix `[columns, rows]` turned.
    pub fn transposed(&self) -> Result<Item, String> {
        let [columns, rows] = *self.shape.as_slice() else {
            return Err(format!("shape {:?} is no matrix", self.shape));
        };
        let size = self.dtype.file_bytes(1).ok_or("a matrix of blocks cannot be turned")?;
        let of = self.source.clone();
        let source =
            Source::Made(Arc::new(move |files| Ok(transpose(&of.read(files)?, columns, rows, size))));
        Ok(Item { shape: vec![rows, columns], source, dtype: self.dtype })
    }

    fn outermost(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    fn with_outermost(&self, count: usize) -> Vec<usize> {
        [&[count], self.shape.get(1..).unwrap_or_default()].concat()
    }
}

/// In squares, so that neither side leaves the cache.
fn transpose(from: &[u8], columns: usize, rows: usize, size: usize) -> Vec<u8> {
    const SIDE: usize = 32;
    let mut out = vec![0; from.len()];
    for square in (0..columns).step_by(SIDE) {
        for top in (0..rows).step_by(SIDE) {
            for column in square..columns.min(square + SIDE) {
                for row in top..rows.min(top + SIDE) {
                    let (to, at) = ((row * columns + column) * size, (column * rows + row) * size);
                    out[to..to + size].copy_from_slice(&from[at..at + size]);
                }
            }
        }
    }
    out
}
