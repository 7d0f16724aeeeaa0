//! Weights that are encoded while they are loaded.

use crate::protocol::WeightFormat;
use crate::weights::{BlockFormat, Checkpoint, Losses};
use std::sync::Arc;

/// The blocks that a format's weights are held in.
pub fn block_format(format: WeightFormat) -> BlockFormat {
    match format {
        WeightFormat::Q4K => BlockFormat::Q4_K,
        WeightFormat::Q5K => BlockFormat::Q5_K,
        WeightFormat::Q6K => BlockFormat::Q6_K,
        WeightFormat::Q8_0 | WeightFormat::Int8 => BlockFormat::Q8_0,
        WeightFormat::Fp8 => BlockFormat::F8,
    }
}

/// The model as it was asked for, and what its matrices lose: told as they are read.
pub(super) fn quantized(file: &Checkpoint, to: Option<WeightFormat>) -> (Checkpoint, Option<Arc<Losses>>) {
    match to {
        None => (file.clone(), None),
        Some(format) => {
            let quantized = file.quantized(block_format(format));
            (quantized.checkpoint, Some(quantized.losses))
        }
    }
}
