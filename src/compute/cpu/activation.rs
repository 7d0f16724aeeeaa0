//! Activation functions, 16 values at a time.

use super::simd::{Simd, simd_fn};
use crate::compute::{Activation, By};

/// `activation(x)`; what is not a number stays so. Not for those that need a gate.
#[inline(always)]
pub(super) unsafe fn activated<S: Simd>(activation: Activation, x: S::F) -> S::F {
    // SAFETY: no memory is touched; the instruction set is the caller's.
    unsafe {
        match activation {
            Activation::Silu => times_sigmoid::<S>(x, x),
            // tanh(z) = 2 sigmoid(2z) - 1.
            Activation::GeluTanh => {
                let cubic = S::mul(S::mul(x, x), S::splat(0.044_715));
                times_sigmoid::<S>(x, S::mul(S::mul(x, S::add(cubic, S::splat(1.0))), S::splat(1.595_769)))
            }
            Activation::Gelu => gelu::<S>(x),
            Activation::ClampedSwiglu => unreachable!("an activation of a gate alone"),
        }
    }
}

/// `activation(gate) * up`
#[inline(always)]
pub(super) unsafe fn gated<S: Simd>(activation: Activation, gate: S::F, up: S::F) -> S::F {
    // SAFETY: no memory is touched; the instruction set is the caller's.
    unsafe {
        if activation != Activation::ClampedSwiglu {
            return S::mul(activated::<S>(activation, gate), up);
        }
        // The second operand is what comes out where one is not a number.
        let gate = S::min(S::splat(7.0), gate);
        let up = S::max(S::splat(-7.0), S::min(S::splat(7.0), up));
        let opened = times_sigmoid::<S>(gate, S::mul(gate, S::splat(1.702)));
        S::mul(opened, S::add(up, S::splat(1.0)))
    }
}

/// `x * sigmoid(y)`
#[inline(always)]
unsafe fn times_sigmoid<S: Simd>(x: S::F, y: S::F) -> S::F {
    // SAFETY: no memory is touched; the instruction set is the caller's.
    unsafe { S::div(x, S::add(S::splat(1.0), S::exp(S::sub(S::splat(0.0), y)))) }
}

/// Of `e^(t^2) erfc(t)`, by powers of `2 / (2 + t)`: fitted to the smallest relative error (3e-8) for t from 0
/// to 9.4.
const ERFCX: [f32; 10] = [
    -8.279_076e-6,
    0.282_269_7,
    0.280_662_4,
    0.251_985_76,
    0.174_472_39,
    0.030_472_538,
    0.204_220_01,
    -0.428_147_64,
    0.257_996_38,
    -0.053_923_22,
];

/// `x (1 + erf(x / sqrt 2)) / 2`, as `max(x, 0) - |x| erfc(|x| / sqrt 2) / 2`: nothing cancels where x is far
/// below zero.
#[inline(always)]
unsafe fn gelu<S: Simd>(x: S::F) -> S::F {
    // SAFETY: no memory is touched; the instruction set is the caller's.
    unsafe {
        let size = S::abs(x);
        let t = S::mul(size, S::splat(std::f32::consts::FRAC_1_SQRT_2));
        let s = S::div(S::splat(2.0), S::add(t, S::splat(2.0)));
        let mut p = S::splat(ERFCX[9]);
        for c in ERFCX[..9].iter().rev() {
            p = S::fma(p, s, S::splat(*c));
        }
        let tail = S::mul(p, S::exp(S::sub(S::splat(0.0), S::mul(t, t))));
        let tail = S::mul(S::mul(size, S::splat(0.5)), tail);
        S::sub(S::max(S::splat(0.0), x), tail)
    }
}

/// `tanh(x)`, relative error below 1e-6 also near zero.
#[inline(always)]
pub(super) unsafe fn tanh<S: Simd>(x: S::F) -> S::F {
    // SAFETY: no memory is touched; the instruction set is the caller's.
    unsafe {
        // Beyond, the result is 1. The second operand is what comes out where one is not a number.
        let x = S::max(S::splat(-16.0), S::min(S::splat(16.0), x));
        let e = S::exp_m1(S::add(x, x));
        S::div(e, S::add(e, S::splat(2.0)))
    }
}

/// Calls `each` with a vector of values and stores what comes back. The last one may be filled up.
///
/// # Safety
/// The instruction set is there.
#[inline(always)]
unsafe fn map<S: Simd>(x: &mut [f32], each: impl Fn(S::F) -> S::F) {
    let (whole, rest) = x.as_chunks_mut::<16>();
    // SAFETY: every array has 16 elements.
    unsafe {
        for x in whole {
            S::store(x.as_mut_ptr(), each(S::load(x.as_ptr())));
        }
        if !rest.is_empty() {
            let mut last = [0.0; 16];
            last[..rest.len()].copy_from_slice(rest);
            S::store(last.as_mut_ptr(), each(S::load(last.as_ptr())));
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }
}

simd_fn! {
    /// `x = activation(x)`
    pub(super) fn activate(x: &mut [f32], activation: Activation) = activate_kernel;
}

#[inline(always)]
unsafe fn activate_kernel<S: Simd>(x: &mut [f32], activation: Activation) {
    // SAFETY: the instruction set is the caller's.
    unsafe {
        match activation {
            Activation::Silu => map::<S>(x, |x| activated::<S>(Activation::Silu, x)),
            Activation::GeluTanh => map::<S>(x, |x| activated::<S>(Activation::GeluTanh, x)),
            other => map::<S>(x, |x| activated::<S>(other, x)),
        }
    }
}

simd_fn! {
    /// `x = cap * tanh(x * scale / cap)`
    pub(super) fn cap(x: &mut [f32], scale: f32, cap: f32) = cap_kernel;
}

#[inline(always)]
unsafe fn cap_kernel<S: Simd>(x: &mut [f32], scale: f32, cap: f32) {
    // SAFETY: the instruction set is the caller's.
    unsafe { map::<S>(x, |x| capped::<S>(S::mul(x, S::splat(scale)), cap)) }
}

/// `cap * tanh(x / cap)`
#[inline(always)]
pub(super) unsafe fn capped<S: Simd>(x: S::F, cap: f32) -> S::F {
    // SAFETY: no memory is touched; the instruction set is the caller's.
    unsafe { S::mul(tanh::<S>(S::div(x, S::splat(cap))), S::splat(cap)) }
}

simd_fn! {
    /// `x *= by(gate)`, value by value.
    pub(super) fn multiply(x: &mut [f32], gate: &[f32], by: By) = multiply_kernel;
}

#[inline(always)]
unsafe fn multiply_kernel<S: Simd>(x: &mut [f32], gate: &[f32], by: By) {
    assert_eq!(x.len(), gate.len());
    let mut factors = [0.0; 16];
    for (x, gate) in x.chunks_mut(16).zip(gate.chunks(16)) {
        factors[..gate.len()].copy_from_slice(gate);
        // SAFETY: 16 factors, the last of which may be old.
        unsafe { S::store(factors.as_mut_ptr(), factor::<S>(S::load(factors.as_ptr()), by)) };
        x.iter_mut().zip(&factors).for_each(|(x, factor)| *x *= factor);
    }
}

simd_fn! {
    /// `x *= by(gate)`
    pub(super) fn multiply_by_one(x: &mut [f32], gate: f32, by: By) = multiply_by_one_kernel;
}

#[inline(always)]
unsafe fn multiply_by_one_kernel<S: Simd>(x: &mut [f32], gate: f32, by: By) {
    let mut factors = [0.0; 16];
    // SAFETY: there are 16 factors.
    unsafe { S::store(factors.as_mut_ptr(), factor::<S>(S::splat(gate), by)) };
    x.iter_mut().for_each(|x| *x *= factors[0]);
}

#[inline(always)]
unsafe fn factor<S: Simd>(gate: S::F, by: By) -> S::F {
    // SAFETY: no memory is touched; the instruction set is the caller's.
    unsafe {
        match by {
            By::Value => gate,
            By::Sigmoid => {
                let e = S::exp(S::sub(S::splat(0.0), gate));
                S::div(S::splat(1.0), S::add(S::splat(1.0), e))
            }
            By::Silu => times_sigmoid::<S>(gate, gate),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::simd::Isa;
    use super::*;

    unsafe fn gated_kernel<S: Simd>(activation: Activation, gate: &[f32; 16], up: &[f32; 16]) -> [f32; 16] {
        let mut out = [0.0; 16];
        // SAFETY: every array has 16 elements.
        unsafe {
            let result = gated::<S>(activation, S::load(gate.as_ptr()), S::load(up.as_ptr()));
            S::store(out.as_mut_ptr(), result);
        }
        out
    }
    simd_fn! { fn gate(activation: Activation, gate: &[f32; 16], up: &[f32; 16]) -> [f32; 16] = gated_kernel; }

    /// A series of positive terms (Abramowitz and Stegun 7.1.6).
    fn erf(x: f64) -> f64 {
        if x.abs() > 6.0 {
            return x.signum();
        }
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
    }

    fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    fn twin(activation: Activation, x: f64) -> f64 {
        match activation {
            Activation::Silu => x * sigmoid(x),
            Activation::GeluTanh => {
                0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044715 * x.powi(3))).tanh())
            }
            Activation::Gelu => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
            Activation::ClampedSwiglu => unreachable!(),
        }
    }

    /// `activation(g) * u`, and how large the error of it may be.
    pub(in super::super) fn gated_twin(activation: Activation, g: f64, u: f64) -> (f64, f64) {
        if activation != Activation::ClampedSwiglu {
            return (twin(activation, g) * u, 4e-7 * g.abs().max(0.01) * u.abs());
        }
        let (g, u) = (g.min(7.0), u.clamp(-7.0, 7.0));
        (g * sigmoid(1.702 * g) * (u + 1.0), 4e-7 * (g * (u + 1.0)).abs().max(0.01))
    }

    pub(in super::super) const ACTIVATIONS: [Activation; 4] =
        [Activation::Silu, Activation::GeluTanh, Activation::Gelu, Activation::ClampedSwiglu];

    /// From -9 to 9 and far beyond, lengths that are no multiple of 16.
    fn values() -> Vec<f32> {
        (-9000..9001).map(|i| i as f32 * 1e-3 + 1.7e-4).chain([-1e4, -60.0, -13.2, 13.2, 60.0, 1e4]).collect()
    }

    #[test]
    fn activations_equal_their_formulas() {
        for activation in [Activation::Silu, Activation::GeluTanh, Activation::Gelu] {
            for isa in Isa::available() {
                let x = values();
                let mut out = x.clone();
                activate(isa, &mut out, activation);
                for (x, out) in x.iter().zip(&out) {
                    // A few roundings of f32 in a product with x; the argument of an exponential is rounded
                    // too, an error that grows with it.
                    let most = 4e-7 * f64::from(x.abs().max(0.01));
                    let error = (f64::from(*out) - twin(activation, f64::from(*x))).abs();
                    assert!(error <= most, "{activation:?} of {x}, {isa}: off by {error}");
                }
            }
        }
    }

    #[test]
    fn gates_equal_their_formulas() {
        let values = values();
        for (isa, activation) in Isa::available().into_iter().flat_map(|isa| ACTIVATIONS.map(|a| (isa, a))) {
            for (gates, ups) in values.as_chunks::<16>().0.iter().zip(values.as_rchunks::<16>().1) {
                for ((out, g), u) in gate(isa, activation, gates, ups).iter().zip(gates).zip(ups) {
                    let (expected, most) = gated_twin(activation, f64::from(*g), f64::from(*u));
                    let error = (f64::from(*out) - expected).abs();
                    assert!(error <= most + 1e-7, "{activation:?} {g}, {u}, {isa}: off by {error}");
                }
            }
        }
    }

    /// Relative to the result, which near zero is as small as x.
    #[test]
    fn caps_equal_their_formula_and_keep_small_values_exact() {
        for isa in Isa::available() {
            for limit in [1.0f32, 30.0, 50.0] {
                let x: Vec<f32> = values().into_iter().chain([1e-6, -1e-6, 1e-30, f32::INFINITY]).collect();
                let mut out = x.clone();
                cap(isa, &mut out, 0.5, limit);
                for (x, out) in x.iter().zip(&out) {
                    let limit = f64::from(limit);
                    let expected = limit * (f64::from(*x) * 0.5 / limit).tanh();
                    let error = (f64::from(*out) - expected).abs();
                    assert!(error <= 1e-6 * expected.abs(), "{x} within {limit}, {isa}: off by {error}");
                }
            }
        }
    }

    #[test]
    fn columns_are_multiplied_by_what_a_gate_says() {
        let gates: Vec<f32> = (0..37).map(|i| (i as f32 - 18.0) * 0.7).collect();
        for isa in Isa::available() {
            for by in [By::Value, By::Sigmoid, By::Silu] {
                let mut out = vec![3.0; gates.len()];
                multiply(isa, &mut out, &gates, by);
                for (gate, out) in gates.iter().zip(&out) {
                    let g = f64::from(*gate);
                    let expected = match by {
                        By::Value => 3.0 * g,
                        By::Sigmoid => 3.0 * sigmoid(g),
                        By::Silu => 3.0 * g * sigmoid(g),
                    };
                    let error = (f64::from(*out) - expected).abs();
                    assert!(error <= 1e-6 * g.abs().max(1.0), "{by:?} {gate}, {isa}: off by {error}");
                    let mut alone = [3.0; 5];
                    multiply_by_one(isa, &mut alone, *gate, by);
                    assert_eq!(alone, [*out; 5], "{by:?} {gate}, {isa}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_a_number_stays_so() {
        for isa in Isa::available() {
            for activation in [Activation::Silu, Activation::GeluTanh, Activation::Gelu] {
                let mut x = [f32::NAN; 16];
                activate(isa, &mut x, activation);
                assert!(x.iter().all(|x| x.is_nan()), "{activation:?}, {isa}");
            }
            for by in [By::Value, By::Sigmoid, By::Silu] {
                let mut x = [1.0; 3];
                multiply(isa, &mut x, &[f32::NAN; 3], by);
                assert!(x.iter().all(|x| x.is_nan()), "{by:?}, {isa}");
            }
            let mut x = [f32::NAN; 3];
            cap(isa, &mut x, 1.0, 30.0);
            assert!(x.iter().all(|x| x.is_nan()), "{isa}");
            for (g, u) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
                let out = gate(isa, Activation::ClampedSwiglu, &[g; 16], &[u; 16]);
                assert!(out.iter().all(|x| x.is_nan()), "{g} {u}, {isa}");
            }
        }
    }
}
