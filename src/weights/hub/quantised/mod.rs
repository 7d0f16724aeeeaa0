//! Quantised checkpoints: packed weights become blocks of a format that we compute with, under the name
//! that plain weights have. `quantization_config` of `config.json` says which way they are packed.

use super::json::Json;
use super::weights::Weights;
use crate::weights::CheckpointError;

pub(super) fn unpack(config: &Json, weights: &mut Weights) -> Result<(), CheckpointError> {
    let _ = weights;
    let Some(said) = config.object("quantization_config")? else { return Ok(()) };
    let method = said.require_str("quant_method")?;
    Err(said.wrong("quant_method", format!("is {method:?}, which is not supported")))
}
