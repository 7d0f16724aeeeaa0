//! Every kernel against its slow twin, on every instruction set this machine has.
#![allow(clippy::unwrap_used)]

use super::activation::tests::{ACTIVATIONS, gated_twin};
use super::format::takes_bytes;
use super::*;
use crate::compute::NormKind;
use crate::weights::{BlockFormat, GgufWriter, decode};
use half::f16;
use std::path::Path;

/// A small generator, so that tests need no seed from outside.
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
    pub(super) fn real(&mut self) -> f32 {
        self.bits() as f32 / (1u64 << 30) as f32 - 1.0
    }
    pub(super) fn reals(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.real()).collect()
    }
}

/// Random blocks with scales as real files have them: every bit of the weights used.
pub(super) fn random_blocks(format: BlockFormat, count: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..count * format.block_bytes()).map(|_| random.bits() as u8).collect();
    let mut half = |at: &mut [u8]| {
        let value = f16::from_f32(0.01 + 0.02 * (random.real() + 1.0));
        at[..2].copy_from_slice(&value.to_le_bytes());
    };
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        match format {
            BlockFormat::F32 => block.copy_from_slice(&random_f32(block)),
            BlockFormat::F16 => half(block),
            BlockFormat::BF16 => block[1] = 0x3d | block[1] & 0x80,
            BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 => half(block),
            BlockFormat::IQ4_NL | BlockFormat::IQ4_XS => half(block),
            BlockFormat::Q6_K => half(&mut block[208..]),
            BlockFormat::Q3_K => half(&mut block[108..]),
            BlockFormat::Q2_K => {
                half(&mut block[80..]);
                half(&mut block[82..]);
            }
            BlockFormat::MXFP4 => block[0] = 118 + block[0] % 8,
            BlockFormat::F8 => {
                // Not what is no number; as it is encoded: the largest is 448.
                block[..32].iter_mut().filter(|byte| **byte & 0x7f == 0x7f).for_each(|byte| *byte ^= 1);
                block[usize::from(block[32] % 32)] = 0x7e;
                let scale = 2f32.powi(-14 + i32::from(block[33] % 4));
                block[32..].copy_from_slice(&scale.to_le_bytes());
            }
            _ => {
                half(&mut block[..2]);
                half(&mut block[2..]);
            }
        }
    }
    bytes
}

fn random_f32(bits: &[u8]) -> [u8; 4] {
    (f32::from(bits[0]) / 1000.0 - f32::from(bits[1]) / 900.0).to_le_bytes()
}

/// A file with one tensor `w` of the given rows.
pub(super) fn file(format: BlockFormat, rows: usize, cols: usize, blocks: Vec<u8>) -> Checkpoint {
    if format.to_ggml_type().is_none() {
        // No file has it: it is made of others.
        let values = rows_of(format, &blocks, rows, cols).concat();
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        return file(BlockFormat::F32, rows, cols, bytes).converted(|_| Some(format));
    }
    let writer = GgufWriter::new("test").tensor("w", &[cols, rows], format, blocks);
    Checkpoint::from_bytes(Path::new("test.gguf"), writer.to_bytes()).unwrap()
}

pub(super) fn rows_of(format: BlockFormat, blocks: &[u8], rows: usize, cols: usize) -> Vec<Vec<f32>> {
    blocks
        .chunks_exact(cols / format.block_len() * format.block_bytes())
        .map(|row| {
            let mut out = vec![0.0; cols];
            decode(format, row, &mut out);
            out
        })
        .take(rows)
        .collect()
}

/// What the activations are once they are bytes: the twin multiplies these, so that what remains is
/// the kernel's own rounding.
pub(super) fn as_bytes(x: &[f32]) -> Vec<f64> {
    x.chunks(32)
        .flat_map(|block| {
            let largest = block.iter().fold(0f32, |m, x| m.max(x.abs()));
            let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            block.iter().map(move |x| f64::from((x * inverse).round_ties_even()) * f64::from(largest / 127.0))
        })
        .collect()
}

pub(super) fn dot(a: &[f32], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * b).sum()
}

/// The largest weights times the largest activations: nothing saturates.
#[test]
fn extreme_weights_and_activations_do_not_overflow() {
    for format in super::FORMATS.into_iter().filter(|f| takes_bytes(*f)) {
        let cols = 256;
        for (fill, sign) in [(0xff, 1.0), (0xff, -1.0), (0x00, 1.0), (0x80, 1.0), (0x7f, -1.0)] {
            let mut blocks = vec![fill; 16 * cols / format.block_len() * format.block_bytes()];
            for block in blocks.chunks_exact_mut(format.block_bytes()) {
                let one = f16::ONE.to_le_bytes();
                let at = match format {
                    BlockFormat::Q6_K => 208,
                    BlockFormat::Q3_K => 108,
                    BlockFormat::Q2_K => 80,
                    _ => 0,
                };
                if format == BlockFormat::MXFP4 {
                    block[0] = 127;
                    continue;
                }
                block[at..at + 2].copy_from_slice(&one);
                if format == BlockFormat::Q2_K {
                    block[82..84].copy_from_slice(&one);
                }
                if matches!(
                    format,
                    BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4_K | BlockFormat::Q5_K
                ) {
                    block[2..4].copy_from_slice(&one);
                }
            }
            let weights = rows_of(format, &blocks, 16, cols);
            let gguf = file(format, 16, cols, blocks);
            let x = vec![sign; cols];
            for isa in Isa::available() {
                let mut cpu = Cpu::with_isa(Some(1), isa);
                let w = cpu.matrix(&[gguf.tensor("w").unwrap()]).unwrap();
                let mut out = vec![0.0; 16];
                cpu.project(&mut out, &x, 1, None, &w, Write::Store { bias: None }).unwrap();
                let expected = dot(&weights[0], &as_bytes(&x));
                let error = (f64::from(out[0]) - expected).abs();
                assert!(
                    error <= 1e-5 * expected.abs().max(1.0),
                    "{} {fill:x} on {}",
                    format.name(),
                    isa.name()
                );
            }
        }
    }
}

#[test]
fn gating_normalising_and_adding_equal_their_formulas() {
    let mut random = Random(5);
    let (rows, cols, tokens) = (32, 64, 5);
    let gate = file(BlockFormat::F32, rows, cols, random_blocks(BlockFormat::F32, rows * cols, &mut random));
    let up = file(BlockFormat::F32, rows, cols, random_blocks(BlockFormat::F32, rows * cols, &mut random));
    let (x, norm) = (random.reals(tokens * cols), random.reals(cols));
    let (gate_rows, up_rows) = (
        rows_of(BlockFormat::F32, &gate.tensor("w").unwrap().data, rows, cols),
        rows_of(BlockFormat::F32, &up.tensor("w").unwrap().data, rows, cols),
    );
    let normalised: Vec<Vec<f64>> = x
        .chunks_exact(cols)
        .map(|x| {
            let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / cols as f64;
            x.iter().zip(&norm).map(|(x, w)| f64::from(*x) / (mean + 1e-6).sqrt() * f64::from(*w)).collect()
        })
        .collect();
    for isa in Isa::available() {
        for activation in ACTIVATIONS {
            let mut cpu = Cpu::with_isa(Some(2), isa);
            let (g, u) = (
                cpu.matrix(&[gate.tensor("w").unwrap()]).unwrap(),
                cpu.matrix(&[up.tensor("w").unwrap()]).unwrap(),
            );
            let mut out = vec![0.0; tokens * rows];
            let op = Gate { gate: &g, up: &u, gate_bias: None, up_bias: None, activation };
            cpu.gated(
                &mut out,
                &x,
                tokens,
                Some(Norm { weight: &norm, bias: None, eps: 1e-6, kind: NormKind::Rms }),
                op,
            )
            .unwrap();
            for t in 0..tokens {
                for r in 0..rows {
                    let (g, u) = (dot(&gate_rows[r], &normalised[t]), dot(&up_rows[r], &normalised[t]));
                    let (expected, _) = gated_twin(activation, g, u);
                    let error = (f64::from(out[t * rows + r]) - expected).abs();
                    assert!(error < 1e-5, "{activation:?} on {}: off by {error}", isa.name());
                }
            }
            let (mut sum, y) = (x.clone(), random.reals(tokens * cols));
            cpu.add_norm(
                &mut sum,
                &y,
                tokens,
                Norm { weight: &norm, bias: None, eps: 1e-6, kind: NormKind::Rms },
            )
            .unwrap();
            let mean = y[..cols].iter().map(|y| f64::from(*y).powi(2)).sum::<f64>() / cols as f64;
            let expected = f64::from(x[3]) + f64::from(y[3]) / (mean + 1e-6).sqrt() * f64::from(norm[3]);
            assert!((f64::from(sum[3]) - expected).abs() < 1e-6);
        }
    }
}
