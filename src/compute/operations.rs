//! What the operations of a [`Backend`] are told, but for attention, experts and states.

use super::Backend;

/// Normalisation of a row, fused in front of a projection or on its own.
pub struct Norm<'a, B: Backend> {
    pub weight: &'a B::Buf,       // [columns]
    pub bias: Option<&'a B::Buf>, // [columns]
    pub eps: f32,
    pub kind: NormKind,
}

impl<B: Backend> Clone for Norm<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Norm<'_, B> {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// `x / sqrt(mean(x^2) + eps) * weight + bias` (Zhang and Sennrich 2019).
    Rms,
    /// `(x - mean(x)) / sqrt(var(x) + eps) * weight + bias` (Ba et al. 2016).
    Layer,
}

/// What a projection does with its result.
pub enum Write<'a, B: Backend> {
    /// `out = W x (+ bias)`
    Store { bias: Option<&'a B::Buf> },
    /// `out += W x (+ bias)`
    Add { bias: Option<&'a B::Buf> },
}

/// The two matrices of a gated feed-forward part, of one shape.
pub struct Gate<'a, B: Backend> {
    pub gate: &'a B::Matrix,
    pub up: &'a B::Matrix,
    pub gate_bias: Option<&'a B::Buf>,
    pub up_bias: Option<&'a B::Buf>,
    pub activation: Activation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`
    Silu,
    /// The tanh form of GELU (Hendrycks and Gimpel 2016).
    GeluTanh,
    /// `x * (1 + erf(x / sqrt 2)) / 2`
    Gelu,
    /// gpt-oss, gated only: `g * sigmoid(1.702 g) * (u + 1)`, g at most 7 and u from -7 to 7.
    ClampedSwiglu,
}

/// What columns are multiplied by: `x * f(gate)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Value,
    Sigmoid,
    Silu,
}

/// Some columns of every row of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    pub first: usize,
    pub len: usize,
    /// Values from one row to the next; 0 where one row serves for all that are read.
    pub stride: usize,
}

impl Columns {
    /// All columns of rows of `len`.
    pub fn all(len: usize) -> Self {
        Self { first: 0, len, stride: len }
    }
}

/// A part of every head in every row of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadColumns {
    pub first: usize,
    /// Values of a head's part.
    pub len: usize,
    /// Values from one head to the next, and from one row to the next.
    pub step: usize,
    pub stride: usize,
}
