//! A matrix in tiles of 16 rows.

use super::arena::{Arena, Region};
use super::format::{TILE, pack_tile, tile_bytes};
use super::pool::Pool;
use super::shared::Slots;
use crate::compute::{DeviceError, Result};
use crate::weights::{BlockFormat, Tensor, TensorInfo};

/// Tensors with the same columns, stacked: queries, keys and values are one matrix.
pub struct Matrix {
    pub(super) rows: usize,
    pub(super) cols: usize,
    parts: Vec<Part>,
    tiles: usize,
    bytes: Region,
}

struct Part {
    format: BlockFormat,
    rows: usize,
    first_row: usize,
    first_tile: usize,
    tile_bytes: usize,
    /// Of its first tile in `bytes`.
    offset: usize,
}

pub(super) struct Tile<'a> {
    pub(super) format: BlockFormat,
    pub(super) bytes: &'a [u8],
    pub(super) first_row: usize,
    /// 16, or fewer in a part's last tile.
    pub(super) rows: usize,
}

impl Matrix {
    pub(super) fn pack(pool: &Pool, arena: &mut Arena, tensors: &[Tensor]) -> Result<Matrix> {
        let cols = tensors[0].info.dims[0];
        let (mut parts, mut first_row, mut first_tile, mut offset) = (Vec::new(), 0, 0, 0);
        for tensor in tensors {
            let info = tensor.info;
            if info.dims[0] != cols {
                return Err(DeviceError(format!(
                    "{} has rows of {} weights where {cols} are needed",
                    info.name, info.dims[0]
                )));
            }
            let rows: usize = info.dims[1..].iter().product();
            let tile_bytes = tile_bytes(info.format, cols);
            parts.push(Part { format: info.format, rows, first_row, first_tile, tile_bytes, offset });
            let tiles = rows.div_ceil(TILE);
            first_row += rows;
            first_tile += tiles;
            offset += tiles * tile_bytes;
        }
        let mut matrix =
            Matrix { rows: first_row, cols, parts, tiles: first_tile, bytes: arena.take(offset)? };
        matrix.fill(pool, tensors);
        Ok(matrix)
    }

    fn fill(&mut self, pool: &Pool, tensors: &[Tensor]) {
        let slots = Slots::new(self.bytes.bytes_mut());
        for (part, tensor) in self.parts.iter().zip(tensors) {
            let row_bytes = self.cols / part.format.block_len() * part.format.block_bytes();
            pool.run(part.rows.div_ceil(TILE), |i, _| {
                let start = part.offset + i * part.tile_bytes;
                // SAFETY: tiles do not overlap.
                let tile = unsafe { slots.take(start..start + part.tile_bytes) };
                let rows = i * TILE..(i * TILE + TILE).min(part.rows);
                pack_tile(
                    part.format,
                    &tensor.data[rows.start * row_bytes..rows.end * row_bytes],
                    self.cols,
                    tile,
                );
            });
        }
    }

    /// Bytes that a tensor takes as (a part of) a matrix.
    pub(super) fn bytes_of(tensor: &TensorInfo) -> usize {
        tensor.rows().div_ceil(TILE) * tile_bytes(tensor.format, tensor.row_len())
    }

    pub(super) fn tiles(&self) -> usize {
        self.tiles
    }

    pub(super) fn tile(&self, index: usize) -> Tile<'_> {
        let part = self.parts.iter().rfind(|p| p.first_tile <= index).expect("the first part starts at 0");
        let i = index - part.first_tile;
        Tile {
            format: part.format,
            bytes: &self.bytes.bytes()[part.offset + i * part.tile_bytes..][..part.tile_bytes],
            first_row: part.first_row + i * TILE,
            rows: (part.rows - i * TILE).min(TILE),
        }
    }

    /// Some part is multiplied with the activations' bytes.
    pub(super) fn wants_bytes(&self) -> bool {
        self.parts.iter().any(|p| p.format.block_len() > 1)
    }

    /// Bytes read by one multiplication.
    pub fn bytes(&self) -> usize {
        self.bytes.bytes().len()
    }
}
