//! MXFP4 as gpt-oss has it: for each matrix of experts `*_blocks` `[experts, rows, blocks, 16]` and
//! `*_scales` `[experts, rows, blocks]`. A byte has two neighbours, the first in its low half; ggml's blocks
//! begin with the scale, and byte j has weights j and j + 16.

use super::super::dtype::Dtype;
use super::super::item::Item;
use super::super::weights::Weights;
use super::rows::in_parallel;
use crate::weights::checkpoint::{Files, Source};
use crate::weights::{BlockFormat, CheckpointError};
use std::sync::Arc;

/// Bytes of a block's codes.
const CODES: usize = 16;
const BLOCK_BYTES: usize = BlockFormat::MXFP4.block_bytes();

/// Takes `{stem}_blocks` and `{stem}_scales`, where they are: `[experts, rows, columns]`.
pub(in crate::weights::hub) fn take(
    weights: &mut Weights,
    stem: &str,
) -> Result<Option<Item>, CheckpointError> {
    let Some(blocks) = weights.take(&format!("{stem}_blocks")) else { return Ok(None) };
    let scales = weights.require(&format!("{stem}_scales"))?;
    experts(&blocks, &scales).map(Some).map_err(|problem| weights.wrong(stem, problem))
}

fn experts(blocks: &Item, scales: &Item) -> Result<Item, String> {
    if (blocks.dtype, scales.dtype) != (Dtype::U8, Dtype::U8) {
        return Err(format!(
            "blocks are {}, scales {}; U8 is needed",
            blocks.dtype.name(),
            scales.dtype.name()
        ));
    }
    match (blocks.shape.as_slice(), scales.shape.as_slice()) {
        ([shape @ .., CODES], same) if shape == same && shape.len() == 3 => {}
        (blocks, scales) => return Err(format!("blocks of shape {blocks:?} with scales of {scales:?}")),
    }
    let pairs = blocks.parts()?.into_iter().zip(scales.parts()?);
    Item::stack(pairs.map(|(blocks, scales)| matrix(blocks, scales)).collect())
}

fn matrix(blocks: Item, scales: Item) -> Item {
    let (rows, each) = (scales.shape[0], scales.shape[1]);
    let shape = vec![rows, each * BlockFormat::MXFP4.block_len()];
    let make = move |files: &Files| -> Result<Vec<u8>, String> {
        let (codes, scales) = (blocks.source.read(files)?, scales.source.read(files)?);
        Ok(in_parallel(rows, each * BLOCK_BYTES, |range, out| {
            for (i, out) in (range.start * each..).zip(out.chunks_exact_mut(BLOCK_BYTES)) {
                out[0] = scales[i];
                block(&codes[i * CODES..][..CODES], &mut out[1..]);
            }
        }))
    };
    Item { shape, dtype: Dtype::Weights(BlockFormat::MXFP4), source: Source::Made(Arc::new(make)) }
}

/// Neighbours 2j and 2j + 1 of a byte to halves j and j + 16 of another.
fn block(from: &[u8], to: &mut [u8]) {
    let code = |weight: usize| from[weight / 2] >> (4 * (weight % 2)) & 0xF;
    for (j, out) in to.iter_mut().enumerate() {
        *out = code(j) | code(j + CODES) << 4;
    }
}
