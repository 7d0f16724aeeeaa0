//! Matrices of every format for tests: a file's blocks, and what they are.

use crate::harness::Numbers;
use glassbox::compute::cuda::weights::Matrix;
use glassbox::compute::cuda::{Gpu, Staging};
use glassbox::weights::{BlockFormat, Checkpoint, GgufWriter, decode};
use half::f16;
use std::path::Path;

/// Every bit of the weights used, scales as real files have them.
pub fn random_blocks(format: BlockFormat, count: usize, numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = numbers.bytes(count * format.block_bytes());
    let mut half = |at: &mut [u8]| {
        let value = f16::from_f32(0.01 + 0.02 * (numbers.unit() + 1.0));
        at[..2].copy_from_slice(&value.to_le_bytes());
    };
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        match format {
            BlockFormat::F32 => {
                let value = f32::from(block[0]) / 1000.0 - f32::from(block[1]) / 900.0;
                block.copy_from_slice(&value.to_le_bytes());
            }
            BlockFormat::F16 => {
                let sign = block[1] & 0x80;
                half(block);
                block[1] |= sign;
            }
            BlockFormat::BF16 => block[1] = 0x3d | block[1] & 0x80,
            BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 => half(block),
            BlockFormat::Q6_K => half(&mut block[208..]),
            _ => {
                half(&mut block[..2]);
                half(&mut block[2..]);
            }
        }
    }
    bytes
}

/// Tensors of these formats and rows, all of `cols` columns, and their weights.
pub struct Made {
    pub file: Checkpoint,
    /// [rows of all, cols]
    pub weights: Vec<f32>,
    names: Vec<String>,
}

impl Made {
    pub fn new(tensors: &[(BlockFormat, usize)], cols: usize, seed: u64) -> Self {
        let mut numbers = Numbers::new(seed);
        let blocks = |(format, rows): &(BlockFormat, usize)| {
            random_blocks(*format, rows * cols / format.block_len(), &mut numbers)
        };
        let blocks = tensors.iter().map(blocks).collect();
        Self::of(tensors, cols, blocks)
    }

    pub fn of(tensors: &[(BlockFormat, usize)], cols: usize, blocks: Vec<Vec<u8>>) -> Self {
        let (mut writer, mut weights) = (GgufWriter::new("test"), Vec::new());
        let names: Vec<String> = (0..tensors.len()).map(|i| format!("w{i}")).collect();
        for ((name, (format, rows)), blocks) in names.iter().zip(tensors).zip(blocks) {
            let mut decoded = vec![0.0; rows * cols];
            decode(*format, &blocks, &mut decoded);
            weights.extend(decoded);
            writer = writer.tensor(name, &[cols, *rows], *format, blocks);
        }
        let file = Checkpoint::from_bytes(Path::new("test.gguf"), writer.to_bytes()).unwrap();
        Self { file, weights, names }
    }

    pub fn load(&self, gpu: &Gpu) -> Matrix {
        let tensors: Vec<_> = self.names.iter().map(|name| self.file.tensor(name).unwrap()).collect();
        // Room for five rows: most come in several stretches, and the last of them is shorter.
        let row = tensors.iter().map(|tensor| tensor.info.row_bytes()).max().unwrap();
        let mut staging = Staging::new(gpu, 5 * row + 1).unwrap();
        let mut taken = 0;
        let matrix = Matrix::load(gpu, &mut staging, &tensors, &mut |bytes| taken += bytes).unwrap();
        assert_eq!(taken, tensors.iter().map(|tensor| tensor.info.bytes).sum::<usize>(), "progress");
        matrix
    }
}

pub fn matrix(gpu: &Gpu, format: BlockFormat, rows: usize, cols: usize) -> (Matrix, Vec<f32>) {
    let made = Made::new(&[(format, rows)], cols, (rows * cols) as u64);
    (made.load(gpu), made.weights)
}
