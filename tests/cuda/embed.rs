use crate::blocks::matrix;
use crate::harness::{Numbers, get, in_every_order, put, room};
use glassbox::compute::cuda::weights::FORMATS;
use glassbox::compute::cuda::weights::Matrix;
use glassbox::compute::cuda::{Gpu, embed};
use glassbox::weights::BlockFormat;

/// `struct Step` up to the tables that nobody looks at here, and the tokens behind it.
fn step(tokens: &[u32]) -> Vec<u32> {
    const HEADER: u32 = 29;
    let mut words = vec![u32::MAX; HEADER as usize];
    words[0] = tokens.len() as u32;
    words[3] = HEADER;
    words.extend(tokens);
    words
}

/// Rows of a table, launched for `rows` of them.
pub fn embedded(gpu: &Gpu, table: &Matrix, tokens: &[u32], rows: usize, scale: f32) -> Vec<f32> {
    let out = room::<f32>(gpu, rows * table.cols);
    embed::embed(gpu, &out, table, &put(gpu, &step(tokens)), rows, scale).unwrap();
    get(gpu, &out, rows * table.cols)
}

/// Rows narrower and wider than a block of threads; more rows launched than the step has.
#[test]
fn tokens_become_rows() {
    in_every_order(|gpu| {
        for format in FORMATS {
            for cols in [format.block_len().max(32), 512] {
                let (table, weights) = matrix(gpu, format, 9, cols);
                let tokens = [8, 0, 3, 3];
                let got = embedded(gpu, &table, &tokens, 6, 12.5);
                let wanted = tokens.iter().flat_map(|t| &weights[*t as usize * cols..][..cols]);
                let wanted: Vec<f32> = wanted.map(|w| w * 12.5).collect();
                assert_eq!(got[..4 * cols], wanted, "{} of {cols}", format.name());
                assert!(
                    untouched(&got[4 * cols..]),
                    "{}: rows that the step does not have were written",
                    format.name()
                );
            }
        }
    });
}

/// A row for each position, onto what is there.
#[test]
fn positions_are_added() {
    in_every_order(|gpu| {
        for format in [BlockFormat::F32, BlockFormat::F16, BlockFormat::Q8_0] {
            let cols = 96;
            let (table, weights) = matrix(gpu, format, 9, cols);
            let positions = [5u32, 6, 0];
            // The tokens are others.
            let mut words = step(&[8, 8, 8]);
            words[4] = words.len() as u32;
            words.extend(positions);
            let before = Numbers::new(4).units(5 * cols);
            let out = put(gpu, &before);
            embed::add_positions(gpu, &out, &table, &put(gpu, &words), 5).unwrap();
            let mut wanted = before;
            for (row, position) in wanted.chunks_exact_mut(cols).zip(positions) {
                let of = &weights[position as usize * cols..][..cols];
                row.iter_mut().zip(of).for_each(|(x, w)| *x += w);
            }
            assert_eq!(get::<f32>(gpu, &out, wanted.len()), wanted, "{}", format.name());
        }
    });
}

/// What the emulator fills memory with; a GPU with anything.
fn untouched(values: &[f32]) -> bool {
    crate::harness::on_gpu() || values.iter().all(|x| x.is_nan())
}
