//! Matrices of bytes with one scale for each row ("channel"), as hubs have them.

use super::FolderFormat;
use crate::weights::encode::e4m3;
use crate::weights::{BlockFormat, Loss, decode};

/// A matrix in bytes.
pub(super) struct Channels {
    /// `[rows, cols]`: int8 or e4m3.
    pub bytes: Vec<u8>,
    /// `[rows]`, f32.
    pub scales: Vec<u8>,
    pub loss: Loss,
}

/// The extreme weight of a row becomes the largest number of the format.
///
/// # Errors
/// A weight is infinite or NaN.
pub(super) fn encode_channels(
    rows: &[u8],
    cols: usize,
    from: BlockFormat,
    to: FolderFormat,
) -> Result<Channels, String> {
    let mut out = Channels { bytes: Vec::new(), scales: Vec::new(), loss: Loss::default() };
    let mut weights = vec![0.0; cols];
    let mut decoded = vec![0.0; cols];
    for (index, row) in rows.chunks_exact(cols * from.block_bytes()).enumerate() {
        decode(from, row, &mut weights);
        if let Some(weight) = weights.iter().find(|weight| !weight.is_finite()) {
            return Err(format!("row {index} has {weight}, and bytes hold finite numbers only"));
        }
        let most = weights.iter().fold(0f32, |most, weight| most.max(weight.abs()));
        let scale = most / to.largest();
        for (weight, decoded) in weights.iter().zip(&mut decoded) {
            let byte = to.byte(if scale == 0.0 { 0.0 } else { weight / scale });
            *decoded = to.value(byte) * scale;
            out.bytes.push(byte);
        }
        out.scales.extend(scale.to_le_bytes());
        out.loss.add(&weights, &decoded);
    }
    Ok(out)
}

impl FolderFormat {
    fn largest(self) -> f32 {
        match self {
            FolderFormat::Int8 => 127.0,
            FolderFormat::Fp8 => 448.0,
        }
    }

    fn byte(self, x: f32) -> u8 {
        match self {
            FolderFormat::Int8 => x.round_ties_even().clamp(-127.0, 127.0) as i8 as u8,
            FolderFormat::Fp8 => e4m3(x),
        }
    }

    fn value(self, byte: u8) -> f32 {
        match self {
            FolderFormat::Int8 => f32::from(byte as i8),
            FolderFormat::Fp8 => crate::weights::decode::e4m3(byte),
        }
    }
}
