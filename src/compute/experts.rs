//! Mixtures of experts.

use super::{Activation, Backend};

/// How a router's logits become experts and weights (Shazeer et al. 2017; DeepSeek-AI 2024, 2.1.2).
pub struct Routing<'a, B: Backend> {
    pub experts: usize,
    /// Experts of a row.
    pub top: usize,
    pub score: Score,
    /// `[experts]`, added to scores for the choice and not for the weight.
    pub bias: Option<&'a B::Buf>,
    pub groups: Option<ExpertGroups>,
    /// Weights of the chosen add up to 1: also where a softmax comes after the choice.
    pub renormalise: bool,
    /// On all weights, at last.
    pub scale: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// Over all experts.
    Softmax,
    Sigmoid,
}

/// Experts are chosen from the `chosen` best of `all` groups of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertGroups {
    pub all: usize,
    pub chosen: usize,
    /// A group counts as much as its two best experts together (DeepSeek-V3), not as its best (V2).
    pub by_two: bool,
}

/// The feed-forward parts of a layer, one for each expert. Each matrix holds all experts' rows, one expert
/// after the other, made of as many tensors ([`Backend::matrix`]).
pub struct Experts<'a, B: Backend> {
    pub count: usize,
    pub gate: &'a B::Matrix,           // [count * width, dim]
    pub up: &'a B::Matrix,             // [count * width, dim]
    pub down: &'a B::Matrix,           // [count * dim, width]
    pub gate_bias: Option<&'a B::Buf>, // [count * width]
    pub up_bias: Option<&'a B::Buf>,   // [count * width]
    pub down_bias: Option<&'a B::Buf>, // [count * dim]
    pub activation: Activation,
}
