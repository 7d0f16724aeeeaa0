//! Matrices of 4-bit and 8-bit codes with a scale, and a zero, for each group of columns of a row:
//! `weight = scale * (code - zero)`. Where groups are whole blocks they become blocks of ggml's, bit for bit the
//! same codes; otherwise halves.

use super::super::dtype::Dtype;
use super::super::item::Item;
use super::rows::in_parallel;
use super::{decoded, fit_f16, is_float};
use crate::weights::BlockFormat;
use crate::weights::checkpoint::{Files, Source};
use half::f16;
use std::sync::Arc;

/// Columns of a block.
const BLOCK: usize = 32;
/// Rows that are unpacked together, so that each cache line of words is read once.
const TILE: usize = 128;
/// Nibble i of a word of AWQ's holds column `ORDER[i]` of eight.
const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// Where the code of a row and column lies. Words are 32 bits, and the first codes are in the low ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// GPTQ: `[columns / codes of a word, rows]`.
    Columns,
    /// AWQ: `[columns, rows / 8]`, eight rows of a word out of order.
    Awq,
    /// compressed-tensors: `[rows, columns / codes of a word]`.
    Rows,
    /// A signed byte each, `[rows, columns]`.
    Bytes,
}

/// What is taken from codes, a number for each group of each row.
#[derive(Clone, Debug)]
pub(super) enum Zeros {
    Same(i32),
    /// Of GPTQ: `[groups, rows / codes of a word]`; `add` is 1 where files hold one less.
    Words {
        item: Item,
        add: i32,
    },
    /// Of AWQ: `[groups, rows / 8]`, out of order as codes are.
    Awq(Item),
    /// Of compressed-tensors: `[rows / codes of a word, groups]`, and they count from half as codes do.
    Rows(Item),
    /// A signed byte each, `[rows, groups]`.
    Bytes(Item),
}

/// The group of each column.
#[derive(Clone, Debug)]
pub(super) enum Groups {
    Even { size: usize },
    Listed(Arc<[u32]>),
}

#[derive(Clone, Debug)]
pub(super) struct Packed {
    /// Of the matrix that comes out: `[rows, columns]`.
    pub rows: usize,
    pub columns: usize,
    pub bits: usize,
    pub layout: Layout,
    pub codes: Item,
    /// Floats: `[groups, rows]`, or `[rows, groups]` for the layouts that go by rows.
    pub scales: Item,
    pub zeros: Zeros,
    pub groups: Groups,
}

impl Groups {
    /// Groups of `size` columns, or of as many as give the number that there is.
    pub fn even(columns: usize, num_groups: usize, size: Option<usize>) -> Groups {
        let fits = |size: &usize| columns.div_ceil(*size) == num_groups;
        let size = size.filter(|size| *size > 0).filter(fits);
        Groups::Even { size: size.unwrap_or(columns.div_ceil(num_groups.max(1))).max(1) }
    }

    /// As a list says; even where the list is.
    pub fn listed(list: Vec<u32>, even: Groups) -> Groups {
        let in_order = list.iter().enumerate().all(|(column, group)| even.of(column) == *group as usize);
        if in_order { even } else { Groups::Listed(list.into()) }
    }

    fn of(&self, column: usize) -> usize {
        match self {
            Groups::Even { size } => column / size,
            Groups::Listed(groups) => groups[column] as usize,
        }
    }
}

/// Scales and zeros, unpacked: of group g and row r at `g * rows + r`.
struct Unpacked {
    scales: Vec<f32>,
    zeros: Vec<i32>,
}

impl Packed {
    /// Checks all sizes, and makes the matrix: `[rows, columns]`, in the format that keeps the codes.
    pub fn into_item(self, files: &Files) -> Result<Item, String> {
        self.check()?;
        let unpacked = self.unpacked(files)?;
        let format = self.format(&unpacked);
        let (shape, dtype) = (vec![self.rows, self.columns], Dtype::Weights(format));
        let make = move |files: &Files| self.make(files, format);
        Ok(Item { shape, dtype, source: Source::Made(Arc::new(make)) })
    }

    fn check(&self) -> Result<(), String> {
        let (rows, columns, per) = (self.rows, self.columns, 32 / self.bits);
        let groups = self.num_groups();
        let (words, codes) = match self.layout {
            Layout::Columns => (Dtype::I32, [columns.div_ceil(per), rows]),
            Layout::Awq => (Dtype::I32, [columns, rows / 8]),
            Layout::Rows => (Dtype::I32, [rows, columns.div_ceil(per)]),
            Layout::Bytes => (Dtype::I8, [rows, columns]),
        };
        expect("codes", &self.codes, Some(words), &codes)?;
        let by_row = matches!(self.layout, Layout::Rows | Layout::Bytes);
        expect("scales", &self.scales, None, &if by_row { [rows, groups] } else { [groups, rows] })?;
        match &self.zeros {
            Zeros::Same(_) => {}
            Zeros::Words { item, .. } => {
                expect("zeros", item, Some(Dtype::I32), &[groups, rows.div_ceil(per)])?
            }
            Zeros::Awq(item) => expect("zeros", item, Some(Dtype::I32), &[groups, rows / 8])?,
            Zeros::Rows(item) => expect("zeros", item, Some(Dtype::I32), &[rows.div_ceil(per), groups])?,
            Zeros::Bytes(item) => expect("zeros", item, Some(Dtype::I8), &[rows, groups])?,
        }
        if self.layout == Layout::Awq && !rows.is_multiple_of(8) {
            return Err(format!("{rows} rows are no whole words"));
        }
        Ok(())
    }

    fn num_groups(&self) -> usize {
        match &self.groups {
            Groups::Even { size } => self.columns.div_ceil(*size),
            Groups::Listed(groups) => groups.iter().max().map_or(0, |most| *most as usize + 1),
        }
    }

    /// Q4_0 and Q8_0 have the zero in the middle, Q4_1 has any; 8 bits with others have no such format.
    fn format(&self, unpacked: &Unpacked) -> BlockFormat {
        let in_one_group = |block: usize| {
            let first = self.groups.of(block * BLOCK);
            (block * BLOCK..(block + 1) * BLOCK).all(|column| self.groups.of(column) == first)
        };
        let whole = self.columns.is_multiple_of(BLOCK) && (0..self.columns / BLOCK).all(in_one_group);
        if !whole || !fit_f16(&unpacked.scales) {
            return BlockFormat::F16;
        }
        let middle = self.middle();
        match (self.bits, unpacked.zeros.iter().all(|zero| *zero == middle)) {
            (4, true) => BlockFormat::Q4_0,
            (4, false) => BlockFormat::Q4_1,
            (8, true) => BlockFormat::Q8_0,
            _ => BlockFormat::F16,
        }
    }

    /// The code that stands for zero where codes are symmetric.
    fn middle(&self) -> i32 {
        if self.layout == Layout::Bytes { 0 } else { 1 << (self.bits - 1) }
    }

    fn unpacked(&self, files: &Files) -> Result<Unpacked, String> {
        let (rows, groups) = (self.rows, self.num_groups());
        let format = self.scales.dtype.format().filter(|format| is_float(*format));
        let format = format.ok_or_else(|| format!("scales are {}", self.scales.dtype.name()))?;
        let mut scales = decoded(format, &self.scales.source.read(files)?);
        if matches!(self.layout, Layout::Rows | Layout::Bytes) {
            scales = (0..groups * rows).map(|i| scales[i % rows * groups + i / rows]).collect();
        }
        Ok(Unpacked { scales, zeros: self.unpacked_zeros(files)? })
    }

    fn unpacked_zeros(&self, files: &Files) -> Result<Vec<i32>, String> {
        let (rows, groups, bits) = (self.rows, self.num_groups(), self.bits);
        let each = |zero: &dyn Fn(usize, usize) -> i32| {
            (0..groups * rows).map(|i| zero(i / rows, i % rows)).collect::<Vec<i32>>()
        };
        let per = 32 / bits;
        Ok(match &self.zeros {
            Zeros::Same(zero) => vec![*zero; groups * rows],
            Zeros::Words { item, add } => {
                let (data, width) = (item.source.read(files)?, rows.div_ceil(per));
                // Zero 16 of four bits was written as 15 by some and read back as 0.
                let most = if bits == 4 { 15 } else { i32::MAX };
                each(&|g, r| (code(word(&data, g * width + r / per), r % per, bits) + add) & most)
            }
            Zeros::Awq(item) => {
                let data = item.source.read(files)?;
                each(&|g, r| code(word(&data, g * (rows / 8) + r / 8), place(r % 8), 4))
            }
            Zeros::Rows(item) => {
                let data = item.source.read(files)?;
                each(&|g, r| code(word(&data, r / per * groups + g), r % per, bits))
            }
            Zeros::Bytes(item) => {
                let data = item.source.read(files)?;
                each(&|g, r| i32::from(data[r * groups + g] as i8))
            }
        })
    }

    fn make(&self, files: &Files, format: BlockFormat) -> Result<Vec<u8>, String> {
        let unpacked = self.unpacked(files)?;
        let data = self.codes.source.read(files)?;
        let (rows, columns, bits) = (self.rows, self.columns, self.bits);
        let per = 32 / bits;
        Ok(match (self.layout, bits) {
            (Layout::Columns, 4) => self.blocks(format, &unpacked, |r, first, codes| {
                eights(codes, |at| word(&data, (first / 8 + at) * rows + r));
            }),
            (Layout::Columns, _) => self.blocks(format, &unpacked, |r, first, codes| {
                let words = |c: usize| word(&data, c / per * rows + r);
                each(codes, |at| code(words(first + at), (first + at) % per, bits));
            }),
            (Layout::Awq, _) => {
                let width = rows / 8;
                self.blocks(format, &unpacked, |r, first, codes| {
                    let (start, place) = (first * width + r / 8, place(r % 8));
                    each(codes, |at| code(word(&data, start + at * width), place, 4));
                })
            }
            (Layout::Rows, _) => {
                let width = columns.div_ceil(per);
                self.blocks(format, &unpacked, |r, first, codes| {
                    let words = |c: usize| word(&data, r * width + c / per);
                    each(codes, |at| code(words(first + at), (first + at) % per, bits));
                })
            }
            (Layout::Bytes, _) => self.blocks(format, &unpacked, |r, first, codes| {
                let bytes = &data[r * columns + first..][..codes.len()];
                each(codes, |at| i32::from(bytes[at] as i8));
            }),
        })
    }

    /// All rows, a tile of them at a time, block after block. `codes` gives those of a row from a column on.
    fn blocks(
        &self,
        format: BlockFormat,
        unpacked: &Unpacked,
        codes: impl Fn(usize, usize, &mut [i32]) + Sync,
    ) -> Vec<u8> {
        let bytes = |columns: usize| match format {
            BlockFormat::F16 => 2 * columns,
            blocks => columns / blocks.block_len() * blocks.block_bytes(),
        };
        let row_bytes = bytes(self.columns);
        in_parallel(self.rows, row_bytes, |range, out| {
            let mut room = [0; BLOCK];
            for tile in range.clone().step_by(TILE) {
                for first in (0..self.columns).step_by(BLOCK) {
                    let some = &mut room[..BLOCK.min(self.columns - first)];
                    for row in tile..range.end.min(tile + TILE) {
                        codes(row, first, some);
                        let start = (row - range.start) * row_bytes + bytes(first);
                        let block = &mut out[start..start + bytes(some.len())];
                        match format {
                            BlockFormat::F16 => self.halves(unpacked, row, first, some, block),
                            _ => self.block(format, unpacked, row, first, some, block),
                        }
                    }
                }
            }
        })
    }

    /// One block of Q4_0, Q4_1 or Q8_0.
    fn block(
        &self,
        format: BlockFormat,
        unpacked: &Unpacked,
        row: usize,
        first: usize,
        codes: &[i32],
        out: &mut [u8],
    ) {
        let at = self.groups.of(first) * self.rows + row;
        let (scale, zero) = (unpacked.scales[at], unpacked.zeros[at]);
        let (head, rest) = out.split_at_mut(2);
        head.copy_from_slice(&f16::from_f32(scale).to_le_bytes());
        match format {
            BlockFormat::Q4_0 => pairs(codes, rest),
            BlockFormat::Q4_1 => {
                let (least, rest) = rest.split_at_mut(2);
                least.copy_from_slice(&f16::from_f32(-scale * zero as f32).to_le_bytes());
                pairs(codes, rest);
            }
            _ => rest.iter_mut().zip(codes).for_each(|(out, code)| *out = (code - zero) as i8 as u8),
        }
    }

    fn halves(&self, unpacked: &Unpacked, row: usize, first: usize, codes: &[i32], out: &mut [u8]) {
        for (at, (code, out)) in codes.iter().zip(out.chunks_exact_mut(2)).enumerate() {
            let group = self.groups.of(first + at) * self.rows + row;
            let weight = unpacked.scales[group] * (code - unpacked.zeros[group]) as f32;
            out.copy_from_slice(&f16::from_f32(weight).to_le_bytes());
        }
    }
}

/// ggml's nibbles: byte j holds code j low and code j + 16 high.
fn pairs(codes: &[i32], out: &mut [u8]) {
    let (low, high) = codes.split_at(BLOCK / 2);
    out.iter_mut().zip(low.iter().zip(high)).for_each(|(out, (low, high))| *out = (low | high << 4) as u8);
}

#[inline]
fn each(codes: &mut [i32], code: impl Fn(usize) -> i32) {
    codes.iter_mut().enumerate().for_each(|(at, out)| *out = code(at));
}

/// Codes of four bits, eight from each word.
#[inline]
fn eights(codes: &mut [i32], word: impl Fn(usize) -> u32) {
    for (at, eight) in codes.chunks_mut(8).enumerate() {
        let word = word(at);
        each(eight, |i| code(word, i, 4));
    }
}

fn expect(what: &str, item: &Item, dtype: Option<Dtype>, shape: &[usize]) -> Result<(), String> {
    let same = item.shape == shape || (item.shape.len() == 1 && shape[1] == 1 && item.shape[0] == shape[0]);
    match (dtype, same) {
        (Some(dtype), _) if dtype != item.dtype => {
            Err(format!("its {what} are {}, {} is needed", item.dtype.name(), dtype.name()))
        }
        (_, false) => Err(format!("its {what} have shape {:?}, {shape:?} is needed", item.shape)),
        _ => Ok(()),
    }
}

#[inline]
fn word(data: &[u8], index: usize) -> u32 {
    let bytes = &data[4 * index..4 * index + 4];
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Code `index` of a word, from its low bits.
#[inline]
fn code(word: u32, index: usize, bits: usize) -> i32 {
    (word >> (bits * index) & ((1 << bits) - 1)) as i32
}

/// Where a word of AWQ's has column `column` of its eight.
#[inline]
fn place(column: usize) -> usize {
    const PLACES: [usize; 8] = {
        let mut places = [0; 8];
        let mut i = 0;
        while i < 8 {
            places[ORDER[i]] = i;
            i += 1;
        }
        places
    };
    PLACES[column]
}
