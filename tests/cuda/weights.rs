use crate::blocks::{Made, random_blocks};
use crate::embed::embedded;
use crate::harness::{Numbers, in_every_order};
use glassbox::compute::cuda::Staging;
use glassbox::compute::cuda::weights::FORMATS;
use glassbox::compute::cuda::weights::{Matrix, matrix_bytes};
use glassbox::weights::BlockFormat;

/// Bit for bit, whatever is no number apart.
#[track_caller]
fn same(what: &str, got: &[f32], wanted: &[f32]) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (at, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        let same = got.to_bits() == wanted.to_bits() || got.is_nan() && wanted.is_nan();
        assert!(same, "{what}: {got} for {wanted} at {at}");
    }
}

/// Rows of one block and of several; more rows than are loaded at a time.
#[test]
fn planes_hold_what_the_file_held() {
    in_every_order(|gpu| {
        for format in FORMATS {
            let block = format.block_len().max(32);
            for (rows, cols) in [(1, block), (37, 3 * block)] {
                let made = Made::new(&[(format, rows)], cols, rows as u64);
                let matrix = made.load(gpu);
                assert_eq!(matrix.bytes(), matrix_bytes(made.file.info("w0").unwrap()));
                let tokens: Vec<u32> = (0..rows as u32).collect();
                same(format.name(), &embedded(gpu, &matrix, &tokens, rows, 1.0), &made.weights);
            }
        }
    });
}

/// More than one thread copies at a time.
#[test]
fn large_stretches_are_shared() {
    in_every_order(|gpu| {
        let (rows, cols) = (1201, 512);
        let made = Made::new(&[(BlockFormat::F16, rows)], cols, 1);
        let tensor = made.file.tensor("w0").unwrap();
        let mut staging = Staging::new(gpu, 1100 * tensor.info.row_bytes()).unwrap();
        let matrix = Matrix::load(gpu, &mut staging, &[tensor], &mut |_| {}).unwrap();
        let tokens: Vec<u32> = (0..rows as u32).step_by(100).collect();
        let got = embedded(gpu, &matrix, &tokens, tokens.len(), 1.0);
        let wanted: Vec<f32> =
            tokens.iter().flat_map(|row| made.weights[*row as usize * cols..][..cols].to_vec()).collect();
        same("large", &got, &wanted);
    });
}

/// Scales of any bits: negative, infinite, below f16's normal numbers, no number.
#[test]
fn scales_may_be_anything() {
    in_every_order(|gpu| {
        for format in FORMATS.into_iter().filter(|format| format.block_len() > 1) {
            let (rows, cols) = (8, 256);
            let mut numbers = Numbers::new(5);
            let mut blocks = random_blocks(format, rows * cols / format.block_len(), &mut numbers);
            blocks.iter_mut().for_each(|byte| *byte = numbers.bits() as u8);
            let at = if format == BlockFormat::Q6_K { 208 } else { 0 };
            let bytes = format.block_bytes();
            for (block, bits) in [0x7e00u16, 0x7c00, 0x0001, 0x8003, 0x0000, 0xfbff].into_iter().enumerate() {
                blocks[block * bytes + at..][..2].copy_from_slice(&bits.to_le_bytes());
            }
            let made = Made::of(&[(format, rows)], cols, vec![blocks]);
            let tokens: Vec<u32> = (0..rows as u32).collect();
            let got = embedded(gpu, &made.load(gpu), &tokens, rows, 1.0);
            same(format.name(), &got, &made.weights);
        }
    });
}

#[test]
fn tensors_are_stacked() {
    in_every_order(|gpu| {
        let made = Made::new(&[(BlockFormat::Q5_K, 5), (BlockFormat::Q5_K, 3)], 256, 1);
        let matrix = made.load(gpu);
        same("stacked", &embedded(gpu, &matrix, &[0, 1, 2, 3, 4, 5, 6, 7], 8, 1.0), &made.weights);
        let made = Made::new(
            &[(BlockFormat::Q4_K, 5), (BlockFormat::Q4_K, 3), (BlockFormat::Q6_K, 3), (BlockFormat::Q4_K, 1)],
            256,
            1,
        );
        let matrix = made.load(gpu);
        let parts: Vec<_> =
            matrix.parts.iter().map(|part| (part.format, part.first_row, part.rows, part.cols)).collect();
        let (four, six) = (BlockFormat::Q4_K, BlockFormat::Q6_K);
        assert_eq!(parts, [(four, 0, 8, 256), (six, 8, 3, 256), (four, 11, 1, 256)]);
        assert_eq!((matrix.rows, matrix.cols), (12, 256));
    });
}

#[test]
fn what_cannot_be_computed_is_named() {
    in_every_order(|gpu| {
        let refused = |cols: &[usize], staging: usize| {
            let files: Vec<_> =
                cols.iter().map(|cols| Made::new(&[(BlockFormat::F32, 2)], *cols, 1).file).collect();
            let tensors: Vec<_> = files.iter().map(|file| file.tensor("w0").unwrap()).collect();
            let mut staging = Staging::new(gpu, staging).unwrap();
            Matrix::load(gpu, &mut staging, &tensors, &mut |_| {}).err().unwrap().0
        };
        assert_eq!(
            refused(&[40], 4096),
            "CUDA: w0 has rows of 40 weights, and only multiples of 32 can be computed"
        );
        assert_eq!(refused(&[64, 32], 4096), "CUDA: w0 has rows of 32 weights where 64 are needed");
        assert_eq!(refused(&[64], 255), "CUDA: w0 has rows of 256 bytes, more than the 255 to load with");
    });
}
