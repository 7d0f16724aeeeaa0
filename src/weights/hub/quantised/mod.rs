//! Quantised checkpoints: packed weights become blocks of a format that we compute with, under the name
//! that plain weights have. `quantization_config` of `config.json` says which way they are packed; sizes
//! and which tensors are packed at all are read from the tensors themselves.

mod awq;
mod compressed;
mod fp8;
mod gptq;
pub(super) mod mxfp4;
mod packed;
mod rows;

use super::item::Item;
use super::json::Json;
use super::weights::Weights;
use crate::weights::{BlockFormat, CheckpointError, decode};

/// For errors.
const SUPPORTED: &str = "gptq, awq, fp8, compressed-tensors and mxfp4 are supported";

/// Scales of activations and of the cache: ours are computed as they come.
const ACTIVATIONS: [&str; 6] =
    ["*.input_scale", "*.input_zero_point", "*.activation_scale", "*.k_scale", "*.v_scale", "*.output_scale"];

pub(super) fn unpack(config: &Json, weights: &mut Weights) -> Result<(), CheckpointError> {
    let said = match config.object("quantization_config")? {
        Some(said) => said,
        None => match config.object("compression_config")? {
            Some(said) => said,
            None => return Ok(()),
        },
    };
    match said.require_str("quant_method")? {
        "gptq" => gptq::unpack(&said, weights),
        "awq" => awq::unpack(&said, weights),
        "fp8" | "fbgemm_fp8" => fp8::unpack(&said, weights),
        "compressed-tensors" => compressed::unpack(&said, weights),
        "mxfp4" => Ok(()), // the family asks for it: `mxfp4::take`
        other => Err(said.wrong("quant_method", format!("is {other:?}; {SUPPORTED}"))),
    }?;
    for pattern in ACTIVATIONS {
        weights.leave_out(pattern, "activations are scaled as they come");
    }
    Ok(())
}

/// Numbers of a small tensor of plain floats: scales.
fn floats(weights: &Weights, name: &str, item: &Item) -> Result<Vec<f32>, CheckpointError> {
    let Some(format) = item.dtype.format().filter(|format| is_float(*format)) else {
        return Err(weights.wrong(name, format!("it is {}, floats are needed", item.dtype.name())));
    };
    let bytes = weights.read(name, item)?;
    Ok(decoded(format, &bytes))
}

fn is_float(format: BlockFormat) -> bool {
    matches!(format, BlockFormat::F32 | BlockFormat::F16 | BlockFormat::BF16)
}

fn decoded(format: BlockFormat, bytes: &[u8]) -> Vec<f32> {
    let mut numbers = vec![0.0; bytes.len() / format.block_bytes()];
    decode(format, bytes, &mut numbers);
    numbers
}

/// Whether all can be a block's f16 scale with 11 bits of their own.
fn fit_f16(scales: &[f32]) -> bool {
    const LEAST_NORMAL: f32 = 6.103_515_6e-5;
    scales.iter().all(|scale| *scale == 0.0 || (LEAST_NORMAL..=65504.0).contains(&scale.abs()))
}
