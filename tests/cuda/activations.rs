//! The slow twins of what `kernels/activation.cuh` has, in f64.

use glassbox::compute::Activation;
use std::f64::consts::{PI, SQRT_2};

pub const ALL: [Activation; 4] =
    [Activation::Silu, Activation::GeluTanh, Activation::Gelu, Activation::ClampedSwiglu];

/// 2 / sqrt(pi) exp(-x^2) sum of 2^n x^(2n + 1) / (2n + 1)!!: all terms of one sign.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, 0.0);
    for n in 0..200 {
        sum += term;
        term *= 2.0 * x * x / f64::from(2 * n + 3);
    }
    2.0 / PI.sqrt() * (-x * x).exp() * sum
}

pub fn activated(x: f64, activation: Activation) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => 0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()),
        Activation::Gelu => 0.5 * x * (1.0 + erf(x / SQRT_2)),
        Activation::ClampedSwiglu => panic!("it takes two"),
    }
}

pub fn gated(gate: f64, up: f64, activation: Activation) -> f64 {
    if activation != Activation::ClampedSwiglu {
        return activated(gate, activation) * up;
    }
    let (gate, up) = (gate.min(7.0), up.clamp(-7.0, 7.0));
    gate / (1.0 + (-1.702 * gate).exp()) * (up + 1.0)
}
