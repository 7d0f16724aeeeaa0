//! FP8 weights (e4m3) with a scale for the whole, for each row, or for each square of rows and columns.
//! Squares are laid as DeepSeek-V3 does: as many as it takes to cover the matrix, the last ones ragged.

use super::super::dtype::Dtype;
use super::super::item::Item;
use super::super::json::Json;
use super::super::weights::Weights;
use super::rows::in_parallel;
use super::{decoded, is_float};
use crate::weights::checkpoint::{Files, Source};
use crate::weights::decode::e4m3;
use crate::weights::{BlockFormat, CheckpointError};
use half::f16;
use std::sync::Arc;

const BLOCK: usize = BlockFormat::F8.block_len();

pub(super) fn unpack(said: &Json, weights: &mut Weights) -> Result<(), CheckpointError> {
    if let Some(format) = said.str("fmt")?.filter(|format| *format != "e4m3") {
        return Err(said.wrong("fmt", format!("is {format:?}; e4m3 is supported")));
    }
    let square = square(said, "weight_block_size")?;
    unpack_all(weights, square)
}

/// A field with the rows and columns that share a scale.
pub(super) fn square(said: &Json, name: &str) -> Result<Option<(usize, usize)>, CheckpointError> {
    match said.u64s(name)?.as_deref() {
        None => Ok(None),
        Some(&[rows, columns]) if rows > 0 && columns > 0 => Ok(Some((rows as usize, columns as usize))),
        Some(_) => Err(said.wrong(name, "needs two whole numbers from 1")),
    }
}

/// Every e4m3 matrix that has scales.
pub(super) fn unpack_all(
    weights: &mut Weights,
    square: Option<(usize, usize)>,
) -> Result<(), CheckpointError> {
    for ending in ["_scale_inv", "_scale"] {
        for name in weights.ending(ending) {
            let of = name.trim_end_matches(ending).to_owned();
            if weights.get(&of).is_none_or(|item| item.dtype != Dtype::E4m3) {
                continue;
            }
            let (scales, codes) = (weights.require(&name)?, weights.require(&of)?);
            let made = matrices(codes, scales, square).map_err(|problem| weights.wrong(&of, problem))?;
            weights.put(of, made);
        }
    }
    Ok(())
}

/// One matrix, or a stack of them, each with its scales.
fn matrices(codes: Item, scales: Item, square: Option<(usize, usize)>) -> Result<Item, String> {
    match codes.shape.len() {
        2 => matrix(codes, scales, square),
        3 if scales.shape.first() == codes.shape.first() => {
            let parts = codes.parts()?.into_iter().zip(scales.parts()?);
            Item::stack(parts.map(|(codes, scales)| matrix(codes, scales, square)).collect::<Result<_, _>>()?)
        }
        _ => Err(format!("shape {:?} with scales of {:?}", codes.shape, scales.shape)),
    }
}

/// Rows and columns that share a scale.
fn square_of(
    (rows, columns): (usize, usize),
    scales: &[usize],
    said: Option<(usize, usize)>,
) -> Result<(usize, usize), String> {
    match (scales, said) {
        ([] | [1] | [1, 1], _) => Ok((rows, columns)),
        ([down, across], Some((height, width)))
            if *down == rows.div_ceil(height) && *across == columns.div_ceil(width) =>
        {
            Ok((height, width))
        }
        ([each] | [each, 1], _) if *each == rows => Ok((1, columns)),
        _ => Err(format!("scales of shape {scales:?} fit no way to scale {rows} rows of {columns}")),
    }
}

fn matrix(codes: Item, scales: Item, square: Option<(usize, usize)>) -> Result<Item, String> {
    let [rows, columns] = *codes.shape.as_slice() else { return Err("it is no matrix".to_owned()) };
    let (height, width) = square_of((rows, columns), &scales.shape, square)?;
    let Some(of_scales) = scales.dtype.format().filter(|format| is_float(*format)) else {
        return Err(format!("its scales are {}", scales.dtype.name()));
    };
    // A block has one scale, so it must lie in one square.
    let whole = columns.is_multiple_of(BLOCK) && (width >= columns || width.is_multiple_of(BLOCK));
    let format = if whole { BlockFormat::F8 } else { BlockFormat::F16 };
    let across = columns.div_ceil(width);
    let make = move |files: &Files| -> Result<Vec<u8>, String> {
        let (codes, scales) = (codes.source.read(files)?, scales.source.read(files)?);
        let scales = decoded(of_scales, &scales);
        let scale = |row: usize, column: usize| scales[row / height * across + column / width];
        let row_bytes = if whole { columns / BLOCK * BlockFormat::F8.block_bytes() } else { 2 * columns };
        Ok(in_parallel(rows, row_bytes, |range, out| {
            for (row, out) in range.zip(out.chunks_exact_mut(row_bytes)) {
                let codes = &codes[row * columns..][..columns];
                match whole {
                    true => blocks(codes, |column| scale(row, column), out),
                    false => halves(codes, |column| scale(row, column), out),
                }
            }
        }))
    };
    let (shape, dtype) = (vec![rows, columns], Dtype::Weights(format));
    Ok(Item { shape, dtype, source: Source::Made(Arc::new(make)) })
}

fn blocks(codes: &[u8], scale: impl Fn(usize) -> f32, out: &mut [u8]) {
    for (i, (codes, out)) in codes.chunks_exact(BLOCK).zip(out.chunks_exact_mut(BLOCK + 4)).enumerate() {
        out[..BLOCK].copy_from_slice(codes);
        out[BLOCK..].copy_from_slice(&scale(i * BLOCK).to_le_bytes());
    }
}

fn halves(codes: &[u8], scale: impl Fn(usize) -> f32, out: &mut [u8]) {
    for (column, (code, out)) in codes.iter().zip(out.chunks_exact_mut(2)).enumerate() {
        out.copy_from_slice(&f16::from_f32(e4m3(*code) * scale(column)).to_le_bytes());
    }
}
