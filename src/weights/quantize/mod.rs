//! Making a model smaller: which tensors are encoded as what, what that loses, and writing the outcome.
//!
//! Encoded are the matrices of the layers, and the head (the embedding where it is the head too). What is small or
//! decides much stays: vectors, norms, routers, convolutions, embeddings that are only looked up.

mod carried;
mod channels;
mod error;
mod folder;
mod from_hub;
mod gguf;
mod losses;
mod safetensors;

pub use error::QuantizeError;
pub use folder::{FolderFormat, write_folder};
pub use gguf::{measure, write_gguf};
pub use losses::{LayerLoss, Losses, TensorLoss};

use super::BlockFormat;
use super::checkpoint::{Checkpoint, Source, TensorInfo};
use std::sync::Arc;

/// A model whose matrices are encoded as they are read.
pub struct Quantized {
    pub checkpoint: Checkpoint,
    /// Fills as tensors are read.
    pub losses: Arc<Losses>,
    /// Matrices that will be encoded.
    pub encoded: usize,
    /// Matrices that take no more bits already, and stay.
    pub small: usize,
}

impl Checkpoint {
    /// The same model with its matrices as `to`, or as [`fallback`] where their rows are no whole blocks of that.
    pub fn quantized(&self, to: BlockFormat) -> Quantized {
        let losses = Arc::new(Losses::default());
        let tied = self.info("output.weight").is_none();
        let (mut encoded, mut small) = (0, 0);
        let checkpoint = self.mapped(|info, source| {
            let format = wanted(info, to, tied)?;
            if bits(info.format) <= bits(format) {
                small += 1;
                return None;
            }
            encoded += 1;
            let wanted = info.in_format(format)?;
            let source = Source::Quantized {
                of: Box::new(source.clone()),
                from: info.format,
                to: format,
                losses: losses.clone(),
                name: info.name.as_str().into(),
            };
            Some((wanted, source))
        });
        Quantized { checkpoint, losses, encoded, small }
    }
}

/// For rows that are no multiple of 256: blocks of 32 with the nearest number of bits.
pub fn fallback(to: BlockFormat) -> BlockFormat {
    match to {
        BlockFormat::Q4_K => BlockFormat::Q5_0,
        BlockFormat::Q5_K => BlockFormat::Q5_1,
        BlockFormat::Q6_K => BlockFormat::Q8_0,
        other => other,
    }
}

/// What a tensor becomes, if it is one to be encoded and some blocks fit its rows.
fn wanted(info: &TensorInfo, to: BlockFormat, tied: bool) -> Option<BlockFormat> {
    let fits = |format: &BlockFormat| info.row_len().is_multiple_of(format.block_len());
    (info.rows() > 1 && is_matrix(&info.name, tied)).then_some(())?;
    [to, fallback(to)].into_iter().find(fits)
}

/// Whether activations are multiplied with it, and it is no small part that decides much.
fn is_matrix(name: &str, tied: bool) -> bool {
    const STAYS: [&str; 8] =
        ["norm", "gate_inp", "conv", "sinks", "ssm_a", "ssm_dt", "ssm_alpha", "ssm_beta"];
    match name {
        "output.weight" => true,
        "token_embd.weight" => tied,
        name => {
            let part = name.strip_prefix("blk.").and_then(|rest| rest.strip_suffix(".weight"));
            part.is_some_and(|part| !STAYS.iter().any(|stays| part.contains(stays)))
        }
    }
}

/// Of 256 weights, in bytes: to compare formats.
fn bits(format: BlockFormat) -> usize {
    256 / format.block_len() * format.block_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_are_encoded_and_what_decides_much_is_not() {
        for (name, tied, right) in [
            ("blk.0.attn_q.weight", false, true),
            ("blk.11.ffn_down_exps.weight", false, true),
            ("blk.0.ffn_gate_inp.weight", false, false),
            ("blk.0.attn_norm.weight", false, false),
            ("blk.0.ssm_conv1d.weight", false, false),
            ("blk.0.attn_q.bias", false, false),
            ("output.weight", false, true),
            ("output_norm.weight", false, false),
            ("token_embd.weight", false, false),
            ("token_embd.weight", true, true),
            ("position_embd.weight", true, false),
        ] {
            assert_eq!(is_matrix(name, tied), right, "{name}");
        }
    }
}
