use crate::activations::{ALL, gated};
use crate::blocks::{Made, matrix};
use crate::harness::{Numbers, close, get, in_every_order, put, room};
use glassbox::compute::Activation;
use glassbox::compute::cuda::gemv::{self, MOST_ROWS, Ready};
use glassbox::compute::cuda::matmul::{Gate, Out};
use glassbox::compute::cuda::weights::FORMATS;
use glassbox::compute::cuda::weights::{Matrix, Part};
use glassbox::compute::cuda::{Gpu, Memory, rows};
use glassbox::weights::BlockFormat;

/// Of the sum of all products' sizes: those are summed in f32 and another order than the twin's, and
/// minima of weights apart from their scales.
const SUMS: f64 = 2e-6;

/// Activations on the device as all formats want them, and what they are worth to each.
struct Activations {
    cols: usize,
    floats: Memory,
    bytes: (Memory, Memory),
    of_floats: Vec<f32>,
    of_bytes: Vec<f32>,
}

impl Activations {
    fn new(gpu: &Gpu, x: Vec<f32>, cols: usize) -> Self {
        let (floats, n) = (put(gpu, &x), x.len());
        let bytes = (room::<i8>(gpu, n), room::<[f32; 2]>(gpu, n / 32));
        rows::to_bytes(gpu, (&bytes.0, &bytes.1), &floats, n / cols, cols, None).unwrap();
        let (q, ds) = (get::<i8>(gpu, &bytes.0, n), get::<[f32; 2]>(gpu, &bytes.1, n / 32));
        let of_bytes = q.iter().enumerate().map(|(i, q)| f32::from(*q) * ds[i / 32][0]).collect();
        Self { cols, floats, bytes, of_floats: x, of_bytes }
    }

    fn random(gpu: &Gpu, cols: usize) -> Self {
        Self::new(gpu, Numbers::new(cols as u64).units(MOST_ROWS * cols), cols)
    }

    fn ready(&self, format: BlockFormat) -> Ready<'_> {
        match format.block_len() {
            1 => Ready::Floats(&self.floats),
            _ => Ready::Bytes { q: &self.bytes.0, ds: &self.bytes.1 },
        }
    }

    /// `W x[t]` and the sum of its products' sizes.
    fn times(&self, format: BlockFormat, weights: &[f32], t: usize) -> Vec<(f64, f64)> {
        let x = if format.block_len() == 1 { &self.of_floats } else { &self.of_bytes };
        let x = &x[t * self.cols..][..self.cols];
        let row = |w: &[f32]| {
            let products = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
            products.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()))
        };
        weights.chunks_exact(self.cols).map(row).collect()
    }
}

fn multiplied(gpu: &Gpu, x: &Activations, rows: usize, matrix: &Matrix) -> Vec<f32> {
    let out = room::<f32>(gpu, rows * matrix.rows);
    for part in &matrix.parts {
        let out = Out { to: &out, columns: matrix.rows, add: false, bias: None };
        gemv::project(gpu, out, x.ready(part.format), rows, part).unwrap();
    }
    get(gpu, &out, rows * matrix.rows)
}

#[track_caller]
fn right(what: &str, got: &[f32], wanted: &[(f64, f64)]) {
    assert_eq!(got.len(), wanted.len());
    for (at, (got, (wanted, size))) in got.iter().zip(wanted).enumerate() {
        let off = (f64::from(*got) - wanted).abs();
        assert!(off <= SUMS * size + 1e-30, "{what}: {got} for {wanted} at {at}, of products of {size}");
    }
}

/// Every format with every number of rows: rows of W that are no whole lot, one sub a row, and more
/// than lanes. A row of x comes out the same, bit for bit, whatever others there are.
#[test]
fn rows_are_multiplied() {
    in_every_order(|gpu| {
        for format in FORMATS {
            let block = format.block_len().max(32);
            for (wide, cols) in [(1, block), (7, 3 * block), (10, 5 * 256)] {
                let (matrix, weights) = matrix(gpu, format, wide, cols);
                let x = Activations::random(gpu, cols);
                let all = multiplied(gpu, &x, MOST_ROWS, &matrix);
                for (t, got) in all.chunks_exact(wide).enumerate() {
                    let what = format!("{} {wide} x {cols}, row {t}", format.name());
                    right(&what, got, &x.times(format, &weights, t));
                }
                for rows in 1..MOST_ROWS {
                    let got = multiplied(gpu, &x, rows, &matrix);
                    assert_eq!(got, all[..rows * wide], "{} with {rows} rows", format.name());
                }
            }
        }
    });
}

/// Teams of every size: few rows and many, over a wide range of columns.
#[test]
fn teams_of_every_size_come_to_the_same() {
    in_every_order(|gpu| {
        for (format, wide, cols) in [
            (BlockFormat::Q4_K, 1540, 512),  // teams of 8
            (BlockFormat::Q4_K, 800, 512),   // 16
            (BlockFormat::Q5_0, 30, 576),    // 32 and 14 idle
            (BlockFormat::Q6_K, 30, 1536),   // 64
            (BlockFormat::Q4_0, 5, 4096),    // 128
            (BlockFormat::BF16, 5, 1120),    // 128 and idle ones in a second turn
            (BlockFormat::Q8_0, 1541, 1024), // 8, eight turns
        ] {
            let (matrix, weights) = matrix(gpu, format, wide, cols);
            let x = Activations::random(gpu, cols);
            for (t, got) in multiplied(gpu, &x, 2, &matrix).chunks_exact(wide).enumerate() {
                right(&format!("{} {wide} x {cols}", format.name()), got, &x.times(format, &weights, t));
            }
        }
    });
}

/// Parts of several formats beside each other, onto what is there, with a bias.
#[test]
fn parts_are_columns() {
    in_every_order(|gpu| {
        let formats = [(BlockFormat::Q4_K, 6), (BlockFormat::Q6_K, 3), (BlockFormat::F16, 5)];
        let (wide, cols) = (14, 256);
        let made = Made::new(&formats, cols, 3);
        let matrix = made.load(gpu);
        let x = Activations::random(gpu, cols);
        let mut numbers = Numbers::new(4);
        let (bias, before) = (numbers.units(wide), numbers.units(3 * wide));
        let held = put(gpu, &bias);
        for (add, bias) in [(false, None), (false, Some(&bias)), (true, None), (true, Some(&bias))] {
            let out = put(gpu, &before);
            for part in &matrix.parts {
                let to = Out { to: &out, columns: wide, add, bias: bias.map(|_| &held) };
                gemv::project(gpu, to, x.ready(part.format), 3, part).unwrap();
            }
            let got = get::<f32>(gpu, &out, 3 * wide);
            for t in 0..3 {
                let row = |part: &Part| {
                    let weights = &made.weights[part.first_row * cols..][..part.rows * cols];
                    x.times(part.format, weights, t)
                };
                let mut wanted: Vec<_> = matrix.parts.iter().flat_map(row).collect();
                for (n, (sum, size)) in wanted.iter_mut().enumerate() {
                    let more = bias.map_or(0.0, |bias| f64::from(bias[n]));
                    let there = if add { f64::from(before[t * wide + n]) } else { 0.0 };
                    *sum += more + there;
                    *size += more.abs() + there.abs();
                }
                right("parts", &got[t * wide..][..wide], &wanted);
            }
        }
    });
}

/// Products in f32, and an exponential of a few units in its last place.
const GATED: f32 = 2e-5;

#[test]
fn gate_and_up_are_one() {
    in_every_order(|gpu| {
        for format in FORMATS {
            let (wide, cols) = (7, 512);
            let load = |seed: u64| {
                let made = Made::new(&[(format, wide)], cols, seed);
                (made.load(gpu), made.weights)
            };
            let ((gate, gate_weights), (up, up_weights)) = (load(9), load(10));
            // Small, so that the activation bends.
            let scale = gate_weights.iter().fold(0.0f32, |most, w| most.max(w.abs())) * 8.0;
            let x = Numbers::new(5).units(MOST_ROWS * cols).iter().map(|x| x / scale).collect();
            let x = Activations::new(gpu, x, cols);
            let mut numbers = Numbers::new(6);
            let biases = [numbers.units(wide), numbers.units(wide)];
            let held = biases.clone().map(|bias| put(gpu, &bias));
            for (rows, activation, with) in [
                (1, Activation::Silu, false),
                (2, Activation::GeluTanh, true),
                (3, Activation::Gelu, true),
                (8, Activation::ClampedSwiglu, true),
                (5, Activation::Silu, true),
            ] {
                let out = room::<f32>(gpu, rows * wide);
                let w = Gate {
                    gate: &gate.parts[0],
                    up: &up.parts[0],
                    gate_bias: with.then_some(&held[0]),
                    up_bias: with.then_some(&held[1]),
                    activation,
                };
                gemv::gated(gpu, &out, x.ready(format), rows, w).unwrap();
                let wanted: Vec<f32> = (0..rows)
                    .flat_map(|t| {
                        let gate = x.times(format, &gate_weights, t);
                        let up = x.times(format, &up_weights, t);
                        let bias = |i: usize, n: usize| if with { f64::from(biases[i][n]) } else { 0.0 };
                        let one = |n: usize| gated(gate[n].0 + bias(0, n), up[n].0 + bias(1, n), activation);
                        (0..wide).map(|n| one(n) as f32).collect::<Vec<_>>()
                    })
                    .collect();
                let what = format!("{} {activation:?} {rows}", format.name());
                close(&what, &get(gpu, &out, rows * wide), &wanted, GATED);
            }
        }
    });
}

#[test]
fn gates_of_two_formats_meet_later() {
    in_every_order(|gpu| {
        let (a, b) = (matrix(gpu, BlockFormat::Q4_K, 5, 256).0, matrix(gpu, BlockFormat::Q6_K, 5, 256).0);
        assert!(!gemv::can_gate(&a.parts[0], &b.parts[0]) && gemv::can_gate(&a.parts[0], &a.parts[0]));
        let mut numbers = Numbers::new(2);
        let x: Vec<f32> = numbers.units(300).iter().map(|x| x * 12.0).collect();
        let y: Vec<f32> = numbers.units(300).iter().map(|y| y * 9.0).collect();
        for activation in ALL {
            let (gate, up) = (put(gpu, &x), put(gpu, &y));
            gemv::gate(gpu, &gate, &up, 300, activation).unwrap();
            let one = |(x, y): (&f32, &f32)| gated(f64::from(*x), f64::from(*y), activation) as f32;
            let wanted: Vec<f32> = x.iter().zip(&y).map(one).collect();
            close("gate", &get(gpu, &gate, 300), &wanted, 2e-6);
        }
    });
}

/// In one row of x, all of its results and no other's; in one row of W, its results.
#[test]
fn what_is_no_number_stays_none() {
    in_every_order(|gpu| {
        for format in FORMATS {
            let (wide, cols, rows) = (6, 256, 3);
            let (matrix, _) = matrix(gpu, format, wide, cols);
            let mut x = Numbers::new(1).units(rows * cols);
            x[cols + 77] = f32::NAN;
            let got = multiplied(gpu, &Activations::new(gpu, x, cols), rows, &matrix);
            for (i, got) in got.iter().enumerate() {
                assert_eq!(got.is_nan(), i / wide == 1, "{}: {got} at {i}", format.name());
            }
            let mut blocks =
                crate::blocks::random_blocks(format, wide * cols / format.block_len(), &mut Numbers::new(2));
            let (block, at) = (format.block_bytes(), if format == BlockFormat::Q6_K { 208 } else { 0 });
            let no_number = match format {
                BlockFormat::F32 => vec![0, 0, 0xc0, 0x7f],
                BlockFormat::BF16 => vec![0xc0, 0x7f],
                _ => vec![0, 0x7e],
            };
            let third = 2 * cols / format.block_len() * block + at;
            blocks[third..third + no_number.len()].copy_from_slice(&no_number);
            let matrix = Made::of(&[(format, wide)], cols, vec![blocks]).load(gpu);
            for (i, got) in multiplied(gpu, &Activations::random(gpu, cols), rows, &matrix).iter().enumerate()
            {
                assert_eq!(got.is_nan(), i % wide == 2, "{}: {got} at {i}", format.name());
            }
        }
    });
}

#[test]
fn rows_must_be_ready_for_the_format() {
    in_every_order(|gpu| {
        let (matrix, _) = matrix(gpu, BlockFormat::Q4_0, 1, 32);
        let (x, out) = (put(gpu, &[0.0f32; 32]), room::<f32>(gpu, 1));
        let out = Out { to: &out, columns: 1, add: false, bias: None };
        let error = gemv::project(gpu, out, Ready::Floats(&x), 1, &matrix.parts[0]).unwrap_err();
        assert_eq!(error.0, "CUDA: rows were not made ready for Q4_0");
    });
}
