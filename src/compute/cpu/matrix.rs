//! A matrix in tiles of 16 rows.

use super::arena::{Arena, Region};
use super::format::{TILE, pack_tile, takes_bytes, tile_bytes};
use super::pool::Pool;
use super::shared::Slots;
use crate::compute::{DeviceError, Result};
use crate::weights::{BlockFormat, Tensor, TensorInfo};

/// Bytes that a thread packs at a time.
const STRETCH: usize = 1 << 20;

/// The bytes of a tensor above this are given back a stretch at a time. Each time interrupts the other
/// threads, for their address translation.
const LARGE: usize = 16 << 20;

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

impl Part {
    fn tile<'a>(&self, index: usize, bytes: &'a [u8]) -> Tile<'a> {
        Tile {
            format: self.format,
            bytes: &bytes[self.offset + index * self.tile_bytes..][..self.tile_bytes],
            first_row: self.first_row + index * TILE,
            rows: (self.rows - index * TILE).min(TILE),
        }
    }
}

impl Matrix {
    pub(super) fn pack(pool: &Pool, arena: &mut Arena, tensors: &[Tensor]) -> Result<Matrix> {
        let cols = tensors[0].info.dims[0];
        let (mut parts, mut first_row, mut first_tile, mut offset) = (Vec::new(), 0, 0, 0);
        for tensor in tensors {
            let info = &*tensor.info;
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

    /// The file's bytes leave our memory as they are packed, so that no large tensor takes its memory
    /// twice.
    fn fill(&mut self, pool: &Pool, tensors: &[Tensor]) {
        let slots = Slots::new(self.bytes.bytes_mut());
        for (part, tensor) in self.parts.iter().zip(tensors) {
            let (tiles, row_bytes) = (part.rows.div_ceil(TILE), tensor.info.row_bytes());
            let stretch = (STRETCH / part.tile_bytes).min(tiles / (2 * pool.threads())).max(1);
            pool.run(tiles.div_ceil(stretch), |i, _| {
                let first = i * stretch;
                let last = (first + stretch).min(tiles);
                // SAFETY: stretches do not overlap.
                let packed = unsafe {
                    slots.take(part.offset + first * part.tile_bytes..part.offset + last * part.tile_bytes)
                };
                let rows = first * TILE..(last * TILE).min(part.rows);
                let source = &tensor.data[rows.start * row_bytes..rows.end * row_bytes];
                let tiles = packed.chunks_exact_mut(part.tile_bytes);
                for (rows, tile) in source.chunks(TILE * row_bytes).zip(tiles) {
                    pack_tile(part.format, rows, self.cols, tile);
                }
                if tensor.data.len() > LARGE {
                    tensor.release(rows);
                }
            });
            tensor.release(0..part.rows);
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
        part.tile(index - part.first_tile, self.bytes.bytes())
    }

    /// Tensors that it was made of.
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    pub(super) fn part_tiles(&self, part: usize) -> usize {
        self.parts[part].rows.div_ceil(TILE)
    }

    /// Tile `index` of one part.
    pub(super) fn part_tile(&self, part: usize, index: usize) -> Tile<'_> {
        self.parts[part].tile(index, self.bytes.bytes())
    }

    /// Some part is multiplied with the activations as they are.
    pub(super) fn wants_numbers(&self) -> bool {
        self.parts.iter().any(|p| !takes_bytes(p.format))
    }

    /// Some part is multiplied with the activations' bytes.
    pub(super) fn wants_bytes(&self) -> bool {
        self.parts.iter().any(|p| takes_bytes(p.format))
    }

    /// Bytes read by one multiplication.
    pub fn bytes(&self) -> usize {
        self.bytes.bytes().len()
    }
}
