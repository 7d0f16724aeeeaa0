use crate::harness::{Numbers, close, get, in_every_order, put, room};
use glassbox::compute::cuda::rows::{self, Norm, Rows};
use glassbox::compute::{Columns, NormKind};
use half::{bf16, f16};

/// Sums in another order than the twin's, in f32.
const SUMS: f32 = 2e-6;
const EPS: f32 = 1e-5;

/// What rows are normalised by, on the host.
struct By {
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
    kind: NormKind,
}

/// The twin of every kernel's first half.
fn normed(x: &[f32], by: Option<&By>) -> Vec<f32> {
    let Some(By { weight, bias, kind }) = by else { return x.to_vec() };
    let n = weight.len();
    let row = |x: &[f32]| {
        let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let mean = if *kind == NormKind::Layer { x.iter().sum::<f64>() / n as f64 } else { 0.0 };
        let square = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        let scale = 1.0 / (square + f64::from(EPS)).sqrt();
        let bias = |i: usize| bias.as_ref().map_or(0.0, |bias| f64::from(bias[i]));
        let one = |(i, x): (usize, f64)| ((x - mean) * scale * f64::from(weight[i]) + bias(i)) as f32;
        x.into_iter().enumerate().map(one).collect::<Vec<_>>()
    };
    x.chunks_exact(n).flat_map(row).collect()
}

/// Rows as narrow as a warp, as wide as no power of two, wider than a block; with every norm and none. Rows
/// lie beside zero: a mean that is not taken off shows.
const WIDTHS: [usize; 4] = [32, 96, 576, 1056];
const ROWS: usize = 3;

fn each(test: impl Fn(&glassbox::compute::cuda::Gpu, &[f32], Option<&By>, usize)) {
    in_every_order(|gpu| {
        for (i, n) in WIDTHS.into_iter().enumerate() {
            let mut numbers = Numbers::new(n as u64);
            let x: Vec<f32> = numbers.units(ROWS * n).iter().map(|x| x + 0.3).collect();
            let (weight, bias) = (numbers.units(n), numbers.units(n));
            test(gpu, &x, None, n);
            for (kind, with) in [(NormKind::Rms, i % 2 == 0), (NormKind::Layer, i % 2 == 1)] {
                let bias = with.then(|| bias.clone());
                test(gpu, &x, Some(&By { weight: weight.clone(), bias, kind }), n);
            }
        }
    });
}

macro_rules! norm {
    ($gpu:expr, $by:expr, $held:ident) => {{
        $held = $by.map(|by| (put($gpu, &by.weight), by.bias.as_ref().map(|bias| put($gpu, bias)), by.kind));
        $held.as_ref().map(|(weight, bias, kind)| Norm { weight, bias: bias.as_ref(), eps: EPS, kind: *kind })
    }};
}

#[test]
fn rows_are_normalised() {
    each(|gpu, x, by, n| {
        let held;
        let norm = norm!(gpu, by, held);
        let (d, out) = (put(gpu, x), room::<f32>(gpu, x.len()));
        rows::norm(gpu, &out, &d, ROWS, n, norm).unwrap();
        close("norm", &get(gpu, &out, x.len()), &normed(x, by), SUMS);
        rows::norm(gpu, &d, &d, ROWS, n, norm).unwrap();
        close("norm in place", &get(gpu, &d, x.len()), &normed(x, by), SUMS);
    });
}

/// Queries of all heads together, keys and values beside them.
#[test]
fn columns_are_normalised_alone() {
    in_every_order(|gpu| {
        let columns = Columns { first: 40, len: 96, stride: 200 };
        let mut numbers = Numbers::new(8);
        let x = numbers.units(ROWS * columns.stride);
        let by = Some(By { weight: numbers.units(columns.len), bias: None, kind: NormKind::Rms });
        let held;
        let norm = norm!(gpu, by.as_ref(), held);
        let d = put(gpu, &x);
        rows::norm_columns(gpu, &d, ROWS, columns, norm.unwrap()).unwrap();
        let mut wanted = x;
        for row in wanted.chunks_exact_mut(columns.stride) {
            let at = &mut row[columns.first..][..columns.len];
            let normed = normed(at, by.as_ref());
            at.copy_from_slice(&normed);
        }
        close("columns", &get(gpu, &d, wanted.len()), &wanted, SUMS);
    });
}

#[test]
fn rows_are_added() {
    each(|gpu, x, by, n| {
        let held;
        let norm = norm!(gpu, by, held);
        let y: Vec<f32> = x.iter().rev().copied().collect();
        let (d, e) = (put(gpu, x), put(gpu, &y));
        rows::add(gpu, &d, &e, ROWS, n, norm).unwrap();
        let wanted: Vec<f32> = x.iter().zip(normed(&y, by)).map(|(x, y)| x + y).collect();
        close("add", &get(gpu, &d, x.len()), &wanted, SUMS);
    });
}

/// Rounding may go the other way where the twin's value lies on the edge: one step of the scale.
#[test]
fn bytes_come_with_their_scale_and_sum() {
    each(|gpu, x, by, n| {
        let held;
        let norm = norm!(gpu, by, held);
        let mut x = x.to_vec();
        x[..32].fill(0.0);
        let d = put(gpu, &x);
        let (q, ds) = (room::<i8>(gpu, x.len()), room::<[f32; 2]>(gpu, x.len() / 32));
        rows::to_bytes(gpu, (&q, &ds), &d, ROWS, n, norm).unwrap();
        let (q, ds): (Vec<i8>, Vec<[f32; 2]>) = (get(gpu, &q, x.len()), get(gpu, &ds, x.len() / 32));
        let wanted = normed(&x, by);
        for ((q, [scale, sum]), wanted) in q.chunks_exact(32).zip(ds).zip(wanted.chunks_exact(32)) {
            let most = wanted.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            assert!((scale - most / 127.0).abs() <= SUMS * most, "scale {scale} for {most}");
            let bytes: f32 = q.iter().map(|q| f32::from(*q)).sum();
            close("sum", &[sum], &[scale * bytes], SUMS);
            for (q, x) in q.iter().zip(wanted) {
                assert!((f32::from(*q) * scale - x).abs() <= 0.501 * scale, "{q} x {scale} for {x}");
            }
        }
    });
}

#[test]
fn halves_keep_their_range_by_a_scale_of_each_row() {
    each(|gpu, x, by, n| {
        let held;
        let norm = norm!(gpu, by, held);
        // Without a norm the first row is far beyond f16 and the third far below; the second is nothing.
        let mut x = x.to_vec();
        x[n - 1] *= 60.0; // beyond all others: the scale is the row's, not each warp's
        x[n..2 * n].fill(0.0);
        if by.is_none() {
            x[..n].iter_mut().for_each(|x| *x *= 1e30);
            x[2 * n..].iter_mut().for_each(|x| *x *= 1e-30);
        }
        let wanted = normed(&x, by);
        let d = put(gpu, &x);
        let (h, scale) = (room::<f16>(gpu, x.len()), room::<f32>(gpu, ROWS));
        rows::to_f16(gpu, (&h, &scale), &d, ROWS, n, norm).unwrap();
        let (h, scale): (Vec<f16>, Vec<f32>) = (get(gpu, &h, x.len()), get(gpu, &scale, ROWS));
        for ((h, scale), wanted) in h.chunks_exact(n).zip(scale).zip(wanted.chunks_exact(n)) {
            assert_eq!(scale.to_bits() & 0x7f_ffff, 0, "{scale} is a power of two");
            let most = wanted.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            for (h, x) in h.iter().zip(wanted) {
                // Half a step of f16 relative to the value, or of its smallest numbers.
                let off = (h.to_f32() * scale - x).abs();
                assert!(off <= x.abs() / 2000.0 + most * 1e-9, "{h} x {scale} for {x}");
            }
        }
        if norm.is_none() {
            let d = put(gpu, &x);
            let h = room::<bf16>(gpu, x.len());
            rows::to_bf16(gpu, &h, &d, ROWS, n, norm).unwrap();
            let got: Vec<bf16> = get(gpu, &h, x.len());
            assert_eq!(got, x.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>());
        }
    });
}

/// NaN must reach the logits, where a row is refused for it.
#[test]
fn what_is_no_number_stays_none() {
    in_every_order(|gpu| {
        let mut x = Numbers::new(1).units(64);
        x[40] = f32::NAN;
        let d = put(gpu, &x);
        let (q, ds) = (room::<i8>(gpu, 64), room::<[f32; 2]>(gpu, 2));
        rows::to_bytes(gpu, (&q, &ds), &d, 1, 64, None).unwrap();
        let ds: Vec<[f32; 2]> = get(gpu, &ds, 2);
        assert!(ds[0][0].is_finite() && ds[1].iter().all(|x| x.is_nan()), "{ds:?}");
        let (h, scale) = (room::<f16>(gpu, 64), room::<f32>(gpu, 1));
        rows::to_f16(gpu, (&h, &scale), &d, 1, 64, None).unwrap();
        assert!(get::<f16>(gpu, &h, 64)[40].is_nan());
    });
}

#[test]
fn rows_are_gathered() {
    in_every_order(|gpu| {
        let x = Numbers::new(3).units(5 * 96);
        let (d, out) = (put(gpu, &x), room::<f32>(gpu, 4 * 96));
        rows::gather(gpu, &out, &d, Rows::Of(&put(gpu, &[4, 0, 0, 2]), 4), 96).unwrap();
        let wanted: Vec<f32> = [4, 0, 0, 2].iter().flat_map(|row| x[row * 96..][..96].to_vec()).collect();
        assert_eq!(get::<f32>(gpu, &out, 4 * 96), wanted);
    });
}
