use crate::blocks::Made;
use crate::harness::{Numbers, get, in_every_order, put, room};
use glassbox::compute::Activation;
use glassbox::compute::cuda::gemm::{self, Plan, Ready, Tile};
use glassbox::compute::cuda::matmul::{Gate, Out};
use glassbox::compute::cuda::weights::Matrix;
use glassbox::compute::cuda::{Gpu, Memory, rows};
use glassbox::weights::BlockFormat;
use half::{bf16, f16};

/// Sums in another order than the twin's, in f32: relative to the sum of what is summed up, without signs.
const SUMS: f64 = 3e-6;
/// Scale, minimum and weight are each rounded to f16, a step of which is 2^-10 of a number; a minimum may be
/// as large as the weights that are left after it.
const HALVES: f64 = 1.0 / 1024.0;

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
    let exact = one_scale || matches!(format, B::F32 | B::F16 | B::BF16);
    // d * q, rounded once: what the kernel has.
    let seen = |w: f32| if one_scale && kind == Kind::F16 { f16::from_f32(w).to_f32() } else { w };
    let weights: Vec<f64> = weights.iter().map(|w| f64::from(seen(*w))).collect();
    let most = |row: &[f64]| row.iter().fold(0.0f64, |most, w| most.max(w.abs()));
    let mut wanted = Vec::new();
    for x in x.chunks_exact(cols) {
        for w in weights.chunks_exact(cols) {
            let value = w.iter().zip(x).map(|(w, x)| w * f64::from(*x)).sum();
            let sizes: f64 = x.iter().map(|x| f64::from(x.abs())).sum::<f64>() * most(w);
            // Roundings of many weights partly even out: a quarter of the worst is never reached.
            let off = if exact { SUMS * sizes } else { HALVES / 4.0 * sizes };
            wanted.push(Wanted { value, off });
        }
    }
    wanted
}

#[track_caller]
fn check(what: &str, got: &[f32], wanted: &[Wanted]) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    let worst =
        got.iter().zip(wanted).map(|(got, wanted)| (f64::from(*got) - wanted.value).abs() / wanted.off);
    let worst = worst.map(|off| if off.is_nan() { f64::INFINITY } else { off }).enumerate();
    let (at, off) = worst.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert!(off <= 1.0, "{what}: {off} of what is allowed at {at}: {} for {}", got[at], wanted[at].value);
}

fn work(gpu: &Gpu) -> Memory {
    room::<f32>(gpu, 1 << 20)
}

fn run(gpu: &Gpu, plan: Plan, matrix: &Matrix, x: &X, count: usize, out: Out) {
    for part in &matrix.parts {
        gemm::project_by(gpu, plan, out, x.ready(), count, part, &work(gpu)).unwrap();
    }
}

fn store(to: &Memory, columns: usize) -> Out<'_> {
    Out { to, columns, add: false, bias: None }
}

/// Columns of a format's matrix: not a multiple of a step where the format allows it.
fn cols_of(format: BlockFormat, steps: usize) -> usize {
    if format.block_len() == 256 { 256 * steps.div_ceil(4) } else { 64 * steps - 32 }
}

fn all() -> impl Iterator<Item = (BlockFormat, Kind)> {
    BlockFormat::ALL
        .into_iter()
        .map(|format| (format, kind_of(format)))
        .chain([(BlockFormat::Q8_0, Kind::Bytes)])
}

/// Rows beyond a tile, columns beyond a tile and an odd number of them, in every format and tile.
#[test]
fn every_format_is_multiplied_in_every_tile() {
    in_every_order(|gpu| {
        for (format, kind) in all() {
            for tile in Tile::ALL {
                let (count, n, cols) = (tile as usize + 3, 131, cols_of(format, 5));
                let made = Made::new(&[(format, n)], cols, 1);
                let x = X::new(gpu, kind, &Numbers::new(2).units(count * cols), cols);
                let out = room::<f32>(gpu, count * n);
                let plan = Plan { tile, splits: 1 };
                run(gpu, plan, &made.load(gpu), &x, count, store(&out, n));
                let wanted = product(format, kind, &made.weights, &x.values, cols);
                let what = format!("{} x {kind:?}, {tile:?}", format.name());
                check(&what, &get(gpu, &out, count * n), &wanted);
            }
        }
    });
}
