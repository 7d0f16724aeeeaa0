use crate::activations::activated;
use crate::harness::{Numbers, close, get, in_every_order, put};
use glassbox::compute::cuda::elements;
use glassbox::compute::{Activation, By, Columns};

/// An exponential and a division of a few units in the last place, and erf to 1.5e-7.
const CLOSE: f32 = 1e-6;
/// More than a block, and no multiple of one; what lies behind is not ours.
const LEN: usize = 517;

fn values(seed: u64, most: f32) -> Vec<f32> {
    Numbers::new(seed).units(LEN + 3).iter().map(|x| x * most).collect()
}

#[test]
fn values_are_added_by_a_scale() {
    in_every_order(|gpu| {
        let (x, y) = (values(1, 1.0), values(2, 3.0));
        let d = put(gpu, &x);
        elements::add(gpu, &d, &put(gpu, &y), LEN, 0.25).unwrap();
        let got = get::<f32>(gpu, &d, x.len());
        let wanted: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y * 0.25).collect();
        close("add", &got[..LEN], &wanted[..LEN], CLOSE);
        assert_eq!(got[LEN..], x[LEN..]);
    });
}

#[test]
fn values_are_activated() {
    in_every_order(|gpu| {
        for activation in [Activation::Silu, Activation::GeluTanh, Activation::Gelu] {
            let mut x = values(3, 8.0);
            x[7] = f32::NAN;
            x[8] = -40.0;
            let d = put(gpu, &x);
            elements::activate(gpu, &d, LEN, activation).unwrap();
            let got = get::<f32>(gpu, &d, x.len());
            let wanted: Vec<f32> = x.iter().map(|x| activated(f64::from(*x), activation) as f32).collect();
            assert!(got[7].is_nan(), "{activation:?}");
            close(&format!("{activation:?}"), &got[8..LEN], &wanted[8..LEN], CLOSE);
            assert_eq!(got[LEN..], x[LEN..]);
        }
    });
}

#[test]
fn values_are_scaled_and_capped() {
    in_every_order(|gpu| {
        for cap in [None, Some(2.5f32)] {
            let mut x = values(4, 50.0);
            x[7] = f32::NAN;
            x[8] = 1e30;
            let d = put(gpu, &x);
            elements::scale(gpu, &d, LEN, 0.3, cap).unwrap();
            let got = get::<f32>(gpu, &d, x.len());
            let one = |x: &f32| cap.map_or(x * 0.3, |cap| cap * (x * 0.3 / cap).tanh());
            let wanted: Vec<f32> = x.iter().map(one).collect();
            assert!(got[7].is_nan());
            close(&format!("{cap:?}"), &got[8..LEN], &wanted[8..LEN], CLOSE);
            assert_eq!(got[LEN..], x[LEN..]);
        }
    });
}

const ROWS: usize = 3;
const TO: Columns = Columns { first: 2, len: 300, stride: 310 };
const FROM: Columns = Columns { first: 5, len: 300, stride: 305 };

#[test]
fn columns_are_copied() {
    in_every_order(|gpu| {
        let (out, x) = (Numbers::new(5).units(ROWS * TO.stride), Numbers::new(6).units(ROWS * FROM.stride));
        let d = put(gpu, &out);
        elements::copy_columns(gpu, (&d, TO), (&put(gpu, &x), FROM), ROWS).unwrap();
        let mut wanted = out;
        for t in 0..ROWS {
            let from = &x[t * FROM.stride + FROM.first..][..FROM.len];
            wanted[t * TO.stride + TO.first..][..TO.len].copy_from_slice(from);
        }
        assert_eq!(get::<f32>(gpu, &d, wanted.len()), wanted);
    });
}

#[test]
fn columns_are_multiplied_by_others_or_by_one() {
    in_every_order(|gpu| {
        for (by, len) in [(By::Value, 300), (By::Sigmoid, 300), (By::Silu, 300), (By::Sigmoid, 1)] {
            let from = Columns { len, ..FROM };
            let x = Numbers::new(7).units(ROWS * TO.stride);
            let gate: Vec<f32> = Numbers::new(8).units(ROWS * from.stride).iter().map(|x| x * 6.0).collect();
            let d = put(gpu, &x);
            elements::multiply_columns(gpu, (&d, TO), (&put(gpu, &gate), from), ROWS, by).unwrap();
            let mut wanted = x;
            for (t, i) in (0..ROWS).flat_map(|t| (0..TO.len).map(move |i| (t, i))) {
                let g = f64::from(gate[t * from.stride + from.first + if len == 1 { 0 } else { i }]);
                let by = match by {
                    By::Value => g,
                    By::Sigmoid => 1.0 / (1.0 + (-g).exp()),
                    By::Silu => activated(g, Activation::Silu),
                };
                wanted[t * TO.stride + TO.first + i] *= by as f32;
            }
            close(&format!("{by:?} {len}"), &get(gpu, &d, wanted.len()), &wanted, CLOSE);
        }
    });
}
