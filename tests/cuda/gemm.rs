use crate::activations::{ALL, activated, gated};
use crate::blocks::{Made, random_blocks};
use crate::harness::{Numbers, get, in_every_order, put, room};
use glassbox::compute::Activation;
use glassbox::compute::cuda::gemm::{self, Fp8, Plan, Ready, Tile};
use glassbox::compute::cuda::matmul::{Gate, Out};
use glassbox::compute::cuda::weights::FORMATS;
use glassbox::compute::cuda::weights::Matrix;
use glassbox::compute::cuda::{Gpu, Memory, Shape, rows};
use glassbox::weights::BlockFormat;
use half::{bf16, f16};
use std::cell::RefCell;
use std::collections::HashMap;

/// Sums in another order than the twin's, in f32: relative to the sum of what is summed up, without signs.
const SUMS: f64 = 3e-6;
/// Scale, minimum and weight are each rounded to f16, by 2^-11 of a number; a minimum may be as large as the
/// largest weight that is left after it. Of many roundings half are the other way: a quarter of the worst.
const HALVES: f64 = 4.0 / 2048.0 / 4.0;

/// Activations as they are on the device, and the numbers that they are there.
struct X {
    held: [Memory; 2],
    kind: Kind,
    values: Vec<f32>, // [rows, cols]
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    F32,
    F16,
    Bf16,
    Bytes,
}

fn kind_of(format: BlockFormat) -> Kind {
    match format {
        BlockFormat::F32 => Kind::F32,
        BlockFormat::BF16 => Kind::Bf16,
        _ => Kind::F16,
    }
}

impl X {
    fn new(gpu: &Gpu, kind: Kind, x: &[f32], cols: usize) -> Self {
        let count = x.len() / cols;
        let d = put(gpu, x);
        match kind {
            Kind::F32 => Self { held: [d, room::<f32>(gpu, 1)], kind, values: x.to_vec() },
            Kind::F16 => {
                let (h, scale) = (room::<f16>(gpu, x.len()), room::<f32>(gpu, count));
                rows::to_f16(gpu, (&h, &scale), &d, count, cols, None).unwrap();
                let (halves, scales): (Vec<f16>, Vec<f32>) = (get(gpu, &h, x.len()), get(gpu, &scale, count));
                let values = halves.iter().enumerate().map(|(i, h)| h.to_f32() * scales[i / cols]).collect();
                Self { held: [h, scale], kind, values }
            }
            Kind::Bf16 => {
                let h = room::<bf16>(gpu, x.len());
                rows::to_bf16(gpu, &h, &d, count, cols, None).unwrap();
                let values = get::<bf16>(gpu, &h, x.len()).iter().map(|h| h.to_f32()).collect();
                Self { held: [h, room::<f32>(gpu, 1)], kind, values }
            }
            Kind::Bytes => {
                let (q, ds) = (room::<i8>(gpu, x.len()), room::<[f32; 2]>(gpu, x.len() / 32));
                rows::to_bytes(gpu, (&q, &ds), &d, count, cols, None).unwrap();
                let (bytes, pairs): (Vec<i8>, Vec<[f32; 2]>) =
                    (get(gpu, &q, x.len()), get(gpu, &ds, x.len() / 32));
                let values =
                    bytes.iter().enumerate().map(|(i, q)| f32::from(*q) * pairs[i / 32][0]).collect();
                Self { held: [q, ds], kind, values }
            }
        }
    }

    fn ready(&self) -> Ready<'_> {
        let [a, b] = &self.held;
        match self.kind {
            Kind::F32 => Ready::F32(a),
            Kind::F16 => Ready::F16 { h: a, scale: b },
            Kind::Bf16 => Ready::Bf16(a),
            Kind::Bytes => Ready::Bytes { q: a, ds: b },
        }
    }
}

/// A sum, and how far off it may be.
#[derive(Clone, Copy)]
struct Wanted {
    value: f64,
    off: f64,
}

/// The slow twin: weights [n, cols] of a format times activations [rows, cols], to [rows, n].
fn product(format: BlockFormat, kind: Kind, weights: &[f32], x: &[f32], cols: usize) -> Vec<Wanted> {
    use BlockFormat as B;
    let one_scale = matches!(format, B::Q4_0 | B::Q5_0 | B::Q8_0);
    // d * q rounded once is what the kernel has.
    let seen = |w: &f32| if one_scale && kind == Kind::F16 { f16::from_f32(*w).to_f32() } else { *w };
    let weights: Vec<f32> = weights.iter().map(seen).collect();
    let exact = one_scale || matches!(format, B::F32 | B::F16 | B::BF16);
    sums(&weights, x, cols, if exact { SUMS } else { HALVES })
}

fn sums(weights: &[f32], x: &[f32], cols: usize, tolerance: f64) -> Vec<Wanted> {
    let most = |row: &[f32]| row.iter().fold(0.0f32, |most, w| most.max(w.abs()));
    let most: Vec<f32> = weights.chunks_exact(cols).map(most).collect();
    let mut wanted = Vec::new();
    for x in x.chunks_exact(cols) {
        let size: f32 = x.iter().map(|x| x.abs()).sum();
        for (w, most) in weights.chunks_exact(cols).zip(&most) {
            let mut value = 0.0;
            for i in 0..cols {
                value += f64::from(w[i]) * f64::from(x[i]);
            }
            wanted.push(Wanted { value, off: tolerance * f64::from(size * most) });
        }
    }
    wanted
}

#[track_caller]
fn check(what: &str, got: &[f32], wanted: &[Wanted]) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    let off = |(got, wanted): (&f32, &Wanted)| (f64::from(*got) - wanted.value).abs() / wanted.off;
    let worst = got.iter().zip(wanted).map(off).map(|off| if off.is_nan() { f64::INFINITY } else { off });
    let (at, off) = worst.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert!(off <= 1.0, "{what}: {off} of what is allowed at {at}: {} for {}", got[at], wanted[at].value);
}

/// What came out of the first order that threads took turns in: compared with the twin once, and bit for bit
/// with what comes out of the others.
#[derive(Default)]
struct Seen(RefCell<HashMap<String, Vec<u32>>>);

impl Seen {
    #[track_caller]
    fn check(&self, what: &str, got: &[f32], wanted: impl FnOnce() -> Vec<Wanted>) {
        let bits: Vec<u32> = got.iter().map(|x| x.to_bits()).collect();
        let mut seen = self.0.borrow_mut();
        match seen.get(what) {
            Some(before) => assert!(*before == bits, "{what}: other bits in another order"),
            None => {
                check(what, got, &wanted());
                seen.insert(what.to_owned(), bits);
            }
        }
    }
}

fn work(gpu: &Gpu) -> Memory {
    room::<f32>(gpu, 1 << 17)
}

fn run(gpu: &Gpu, plan: Plan, matrix: &Matrix, x: &X, count: usize, out: Out) {
    for part in &matrix.parts {
        gemm::project_by(gpu, plan, out, x.ready(), count, part, &work(gpu)).unwrap();
    }
}

fn store(to: &Memory, columns: usize) -> Out<'_> {
    Out { to, columns, add: false, bias: None }
}

const fn whole(tile: Tile) -> Plan {
    Plan { tile, splits: 1 }
}

/// More steps than stages, the last of them half, where the format allows it.
fn cols_of(format: BlockFormat, kind: Kind) -> usize {
    match (format.block_len(), kind) {
        (256, _) => 512,
        (_, Kind::Bytes) => 4 * 128 + 96,
        _ => 4 * 64 + 32,
    }
}

fn all() -> impl Iterator<Item = (BlockFormat, Kind)> {
    FORMATS.into_iter().map(|format| (format, kind_of(format))).chain([(BlockFormat::Q8_0, Kind::Bytes)])
}

/// Tiles that are not full, and an odd number of columns, in every format and tile.
#[test]
fn every_format_is_multiplied_in_every_tile() {
    let seen = Seen::default();
    in_every_order(|gpu| {
        for (format, kind) in all() {
            let (n, cols) = (67, cols_of(format, kind));
            let made = Made::new(&[(format, n)], cols, 1);
            let matrix = made.load(gpu);
            for tile in Tile::ALL {
                let count = tile as usize - 13;
                let x = X::new(gpu, kind, &Numbers::new(2).units(count * cols), cols);
                let out = room::<f32>(gpu, count * n);
                run(gpu, whole(tile), &matrix, &x, count, store(&out, n));
                seen.check(
                    &format!("{} {kind:?} {tile:?}", format.name()),
                    &get(gpu, &out, count * n),
                    || product(format, kind, &made.weights, &x.values, cols),
                );
            }
        }
    });
}

/// More rows of tiles than are taken at one time, and two columns of them.
#[test]
fn tiles_cover_the_product() {
    let seen = Seen::default();
    in_every_order(|gpu| {
        let (format, n, cols) = (BlockFormat::Q4_0, 131, 32);
        let made = Made::new(&[(format, n)], cols, 1);
        for (tile, count) in [(Tile::Rows16, 18 * 16 - 3), (Tile::Rows128, 131)] {
            let x = X::new(gpu, Kind::F16, &Numbers::new(2).units(count * cols), cols);
            let out = room::<f32>(gpu, count * n);
            run(gpu, whole(tile), &made.load(gpu), &x, count, store(&out, n));
            seen.check(&format!("{tile:?}"), &get(gpu, &out, count * n), || {
                product(format, Kind::F16, &made.weights, &x.values, cols)
            });
        }
    });
}

/// Sums of splits, of which the last is shorter, with a bias and on top of what is there; several parts.
#[test]
fn splits_are_summed_up() {
    let seen = Seen::default();
    let parts = [(BlockFormat::Q4_K, 5), (BlockFormat::Q6_K, 67), (BlockFormat::Q5_K, 4)];
    in_every_order(|gpu| {
        for (parts, kind) in [(&parts[..], Kind::F16), (&[(BlockFormat::Q8_0, 12)], Kind::Bytes)] {
            let (cols, count) = (512, 9);
            let n: usize = parts.iter().map(|(_, rows)| rows).sum();
            let made = Made::new(parts, cols, 1);
            let x = X::new(gpu, kind, &Numbers::new(2).units(count * cols), cols);
            let (bias, before) = (Numbers::new(3).units(n), Numbers::new(4).units(count * n));
            for (tile, splits, add) in
                [(Tile::Rows16, 3, true), (Tile::Rows64, 1, true), (Tile::Rows32, 2, false)]
            {
                let (out, bias_there) = (put(gpu, &before), put(gpu, &bias));
                let to = Out { to: &out, columns: n, add, bias: Some(&bias_there) };
                run(gpu, Plan { tile, splits }, &made.load(gpu), &x, count, to);
                seen.check(&format!("{kind:?} {splits} splits"), &get(gpu, &out, count * n), || {
                    let mut wanted = product(parts[0].0, kind, &made.weights, &x.values, cols);
                    for (i, wanted) in wanted.iter_mut().enumerate() {
                        wanted.value += f64::from(bias[i % n]) + f64::from(if add { before[i] } else { 0.0 });
                    }
                    wanted
                });
            }
        }
    });
}

/// How far off an activation's output may be, for all that its inputs may be off.
fn gate_twin(activation: Activation, gate: Wanted, up: Wanted) -> Wanted {
    let value = gated(gate.value, up.value, activation);
    // Neither is steeper than 1.13; exp and the division are approximate on a GPU, and erf to 1.5e-7.
    let opened = match activation {
        Activation::ClampedSwiglu => gated(gate.value, 0.0, activation),
        _ => activated(gate.value, activation),
    };
    let off = 1.13 * gate.off * (1.0 + up.value.abs() + up.off) + opened.abs() * up.off;
    Wanted { value, off: off + 1e-6 * (1.0 + value.abs()) }
}

#[test]
fn gates_meet_what_they_open() {
    use BlockFormat as B;
    let seen = Seen::default();
    let pairs = [
        (B::Q4_0, B::Q4_0, Kind::F16),
        (B::Q4_K, B::Q6_K, Kind::F16),
        (B::Q8_0, B::Q8_0, Kind::Bytes),
        (B::BF16, B::BF16, Kind::Bf16),
        (B::F32, B::F32, Kind::F32),
    ];
    in_every_order(|gpu| {
        for (i, (gate, up, kind)) in pairs.into_iter().enumerate() {
            let (n, cols, count) = (67, 256, 19);
            let (gates, ups) = (Made::new(&[(gate, n)], cols, 1), Made::new(&[(up, n)], cols, 2));
            let (g, u) = (gates.load(gpu), ups.load(gpu));
            let x: Vec<f32> = Numbers::new(2).units(count * cols).iter().map(|x| x * 0.1).collect();
            let x = X::new(gpu, kind, &x, cols);
            let (bias, up_bias) = (Numbers::new(3).units(n), Numbers::new(4).units(n));
            let (b, c) = (put(gpu, &bias), put(gpu, &up_bias));
            for (j, (tile, splits)) in
                [(Tile::Rows16, 2), (Tile::Rows32, 1), (Tile::Rows128, 1)].into_iter().enumerate()
            {
                let activation = ALL[(i + j) % 4];
                let with = Gate {
                    gate: &g.parts[0],
                    up: &u.parts[0],
                    gate_bias: (i % 2 == 0).then_some(&b),
                    up_bias: (i % 2 == 0).then_some(&c),
                    activation,
                };
                let out = room::<f32>(gpu, count * n);
                let plan = Plan { tile, splits };
                gemm::gated_by(gpu, plan, &out, x.ready(), count, &with, &work(gpu)).unwrap();
                let what = format!("{} x {} {tile:?}", gate.name(), up.name());
                seen.check(&what, &get(gpu, &out, count * n), || {
                    let biased = |format, weights: &[f32], bias: &[f32]| {
                        let mut sums = product(format, kind, weights, &x.values, cols);
                        let bias = |at: usize| if i % 2 == 0 { f64::from(bias[at % n]) } else { 0.0 };
                        sums.iter_mut().enumerate().for_each(|(at, sum)| sum.value += bias(at));
                        sums
                    };
                    let gates = biased(gate, &gates.weights, &bias);
                    let ups = biased(up, &ups.weights, &up_bias);
                    gates.into_iter().zip(ups).map(|(g, u)| gate_twin(activation, g, u)).collect()
                });
            }
        }
    });
}

/// What is no number stays in its row of activations or its row of weights; all else is bit for bit what it
/// is beside other rows, and at another place.
#[test]
fn rows_know_nothing_of_each_other() {
    in_every_order(|gpu| {
        for (format, kind) in all() {
            let (n, cols, count) = (20, 256, 18);
            let blocks = random_blocks(format, n * cols / format.block_len(), &mut Numbers::new(1));
            let mut broken = blocks.clone();
            let scale = if format == BlockFormat::Q6_K { 208 } else { 0 };
            let of_row = 7 * cols / format.block_len() * format.block_bytes();
            let none: &[u8] = if format == BlockFormat::F32 { &[0, 0, 0xc0, 0x7f] } else { &[0xff, 0x7f] };
            broken[of_row + scale..][..none.len()].copy_from_slice(none);
            let product = |blocks: Vec<u8>, x: &[f32], tile: Tile| {
                let made = Made::of(&[(format, n)], cols, vec![blocks]);
                let (x, out) = (X::new(gpu, kind, x, cols), room::<f32>(gpu, count * n));
                run(gpu, whole(tile), &made.load(gpu), &x, count, store(&out, n));
                get::<f32>(gpu, &out, count * n)
            };
            let x = Numbers::new(2).units(count * cols);
            let before = product(blocks, &x, Tile::Rows32);
            let mut other = Numbers::new(3).units(count * cols);
            // The second row of before is the last one now, and the first is no number.
            other[17 * cols..].copy_from_slice(&x[cols..2 * cols]);
            other[40] = f32::NAN;
            let after = product(broken, &other, Tile::Rows32);
            assert!(before.iter().all(|x| x.is_finite()), "{}", format.name());
            for (i, after) in after.iter().enumerate() {
                let (row, column) = (i / n, i % n);
                assert_eq!(
                    after.is_nan(),
                    row == 0 || column == 7,
                    "{} {kind:?} {row} {column}",
                    format.name()
                );
                if row == 17 && column != 7 {
                    assert_eq!(after.to_bits(), before[n + column].to_bits(), "{} {kind:?}", format.name());
                }
            }
        }
    });
}

#[test]
fn e4m3_is_multiplied() {
    let seen = Seen::default();
    in_every_order(|gpu| {
        let (n, cols, count) = (67, 4 * 128 + 32, 20);
        let mut numbers = Numbers::new(1);
        let mut x = numbers.units(count * cols);
        x[..cols].fill(0.0);
        x[cols..2 * cols].iter_mut().for_each(|x| *x *= 1e-20);
        // Every byte but those that are no number.
        let w: Vec<u8> =
            numbers.bytes(n * cols).iter().map(|b| if b & 0x7f == 0x7f { 0x30 } else { *b }).collect();
        let scales: Vec<f32> = numbers.units(n).iter().map(|x| 0.01 * (1.5 + x)).collect();
        let (q, scale) = (room::<u8>(gpu, x.len()), room::<f32>(gpu, count));
        gemm::to_e4m3(gpu, (&q, &scale), &put(gpu, &x), count, cols, None).unwrap();
        let (bytes, x_scales): (Vec<u8>, Vec<f32>) = (get(gpu, &q, x.len()), get(gpu, &scale, count));
        let values: Vec<f32> = bytes.iter().enumerate().map(|(i, b)| e4m3(*b) * x_scales[i / cols]).collect();
        for (i, (got, x)) in values.iter().zip(&x).enumerate() {
            // Half of the last of three bits, or of the smallest number.
            let most = x_scales[i / cols] * 448.0;
            assert!((got - x).abs() <= x.abs() / 15.9 + most / 448.0 / 1000.0, "{got} for {x}");
        }
        for (tile, splits, scale_of_rows) in [
            (Tile::Rows16, 1, true),
            (Tile::Rows32, 2, false),
            (Tile::Rows64, 1, true),
            (Tile::Rows128, 1, false),
        ] {
            let (q_of_w, scale_of_w) = (put(gpu, &w), put(gpu, &scales));
            let matrix = Fp8 { q: q_of_w, scale: scale_of_w, scale_of_rows, rows: n, cols };
            let out = room::<f32>(gpu, count * n);
            let ready = Ready::E4m3 { q: &q, scale: &scale };
            let plan = Plan { tile, splits };
            gemm::project_fp8_by(gpu, plan, store(&out, n), ready, count, &matrix, &work(gpu)).unwrap();
            seen.check(&format!("e4m3 {tile:?}"), &get(gpu, &out, count * n), || {
                let scale = |i: usize| scales[if scale_of_rows { i / cols } else { 0 }];
                let weights: Vec<f32> = w.iter().enumerate().map(|(i, b)| e4m3(*b) * scale(i)).collect();
                let mut wanted = sums(&weights, &values, cols, SUMS);
                wanted[..n].iter_mut().for_each(|wanted| wanted.off = f64::MIN_POSITIVE);
                wanted
            });
        }
        x[3 * cols + 9] = f32::NAN;
        gemm::to_e4m3(gpu, (&q, &scale), &put(gpu, &x), count, cols, None).unwrap();
        let got: Vec<u8> = get(gpu, &q, x.len());
        assert_eq!((0..x.len()).filter(|i| e4m3(got[*i]).is_nan()).collect::<Vec<_>>(), [3 * cols + 9]);
    });
}

/// Sign, four bits of exponent, three of mantissa; all ones is no number.
fn e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let value = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-9),
        _ => (8.0 + mantissa) * 2f32.powi(exponent - 10),
    };
    if byte & 0x80 == 0 { value } else { -value }
}

#[test]
fn shapes_alone_decide_the_plan() {
    // (rows, tiles of columns, steps) on a GPU of 132 multiprocessors.
    let plan = |rows, tiles, steps| {
        let Plan { tile, splits } = Plan::new(rows, tiles, steps, 132);
        (tile as usize, splits)
    };
    assert_eq!(plan(9, 32, 64), (16, 8));
    assert_eq!(plan(17, 112, 64), (32, 4));
    assert_eq!(plan(40, 32, 64), (64, 8));
    assert_eq!(plan(9, 1200, 64), (16, 1), "enough columns");
    assert_eq!(plan(9, 32, 9), (16, 2), "few steps");
    assert_eq!(plan(512, 32, 64), (64, 1), "128 large tiles are too few");
    assert_eq!(plan(2048, 32, 64), (128, 1));
    assert_eq!(plan(130, 1200, 64), (64, 1), "126 rows of nothing");
}

/// Work that is said to be enough is, for every number of rows.
#[test]
fn work_is_enough_for_every_number_of_rows() {
    in_every_order(|gpu| {
        let made = Made::new(&[(BlockFormat::Q4_0, 130)], 1024, 1);
        let matrix = made.load(gpu);
        let part = &matrix.parts[0];
        let (gate_bias, up_bias) = (None, None);
        let gate = Gate { gate: part, up: part, gate_bias, up_bias, activation: Activation::Silu };
        for count in [1, 16, 17, 33, 70, 129] {
            let x = X::new(gpu, Kind::F16, &vec![1.0; count * 1024], 1024);
            let out = room::<f32>(gpu, count * 130);
            let most = [gemm::work_bytes(gpu, part, 129), gemm::gated_work_bytes(gpu, &gate, 129)];
            let [one, two] = most.map(|bytes| room::<u8>(gpu, bytes));
            gemm::project(gpu, store(&out, 130), x.ready(), count, part, &one).unwrap();
            gemm::gated(gpu, &out, x.ready(), count, &gate, &two).unwrap();
            assert!(get::<f32>(gpu, &out, count * 130).iter().all(|x| x.is_finite()));
        }
    });
}

#[test]
fn shared_memory_is_as_the_kernels_have_it() {
    in_every_order(|gpu| {
        let wanted = gemm::shared_of_kernels();
        let out = room::<i32>(gpu, wanted.len());
        gpu.launch("gemm", "gemm_shared", Shape::new([1, 1, 1], 1), &[(&out).into()]).unwrap();
        let got: Vec<usize> =
            get::<i32>(gpu, &out, wanted.len()).iter().map(|bytes| *bytes as usize).collect();
        assert_eq!(got, wanted);
        assert!(wanted.iter().all(|bytes| *bytes <= 101_376), "more than every GPU from Ampere on has");
    });
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    in_every_order(|gpu| {
        let made = Made::new(&[(BlockFormat::BF16, 4)], 64, 1);
        let x = X::new(gpu, Kind::F16, &[1.0; 64], 64);
        let (matrix, out) = (made.load(gpu), room::<f32>(gpu, 4));
        let refused = gemm::project(gpu, store(&out, 4), x.ready(), 1, &matrix.parts[0], &work(gpu));
        assert_eq!(refused.unwrap_err().0, "CUDA: rows were not made ready for BF16");
    });
}
