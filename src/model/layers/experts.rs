use super::{Buffers, Gated, Normalisation, Pass, RowParallel};
use crate::compute::{
    Activation, Backend, By, Columns, ExpertGroups, Experts, Result, Routing, Score, Write,
};

/// A mixture of experts (Shazeer et al. 2017), with one that every token sees beside it where there is one
/// (DeepSeek-AI 2024): `x += sum over the chosen of w_e expert_e(h) + shared(h)`, h being the normalised x.
pub(in crate::model) struct Mixture<B: Backend> {
    pub(in crate::model) norm: Normalisation<B>,
    pub(in crate::model) router: B::Matrix,           // [experts, dim]
    pub(in crate::model) router_bias: Option<B::Buf>, // [experts]
    pub(in crate::model) rule: Rule,
    pub(in crate::model) choice_bias: Option<B::Buf>, // [experts]
    pub(in crate::model) gate: B::Matrix,             // [experts * width, dim]
    pub(in crate::model) up: B::Matrix,               // [experts * width, dim]
    pub(in crate::model) down: B::Matrix,             // [experts * dim, width]
    pub(in crate::model) gate_bias: Option<B::Buf>,
    pub(in crate::model) up_bias: Option<B::Buf>,
    pub(in crate::model) down_bias: Option<B::Buf>,
    pub(in crate::model) activation: Activation,
    pub(in crate::model) shared: Option<Shared<B>>,
}

/// How a router chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::model) struct Rule {
    pub(in crate::model) experts: usize,
    /// Experts of a token.
    pub(in crate::model) top: usize,
    pub(in crate::model) score: Score,
    pub(in crate::model) groups: Option<ExpertGroups>,
    pub(in crate::model) renormalise: bool,
    pub(in crate::model) scale: f32,
}

/// The expert of every token.
pub(in crate::model) struct Shared<B: Backend> {
    pub(in crate::model) part: Gated<B>,
    /// Columns between gate and down.
    pub(in crate::model) width: usize,
    /// `[1, dim]`: what it finds is multiplied by the sigmoid of this (Qwen2-MoE).
    pub(in crate::model) gate: Option<B::Matrix>,
}

impl<B: Backend> Mixture<B> {
    pub(super) fn forward_normalised(&self, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        let rows = pass.tokens.len();
        let Buffers { x, normed, router, .. } = buffers;
        let write = Write::Store { bias: self.router_bias.as_ref() };
        pass.backend.project(router, normed, rows, None, &self.router, write)?;
        pass.backend.experts(x, normed, rows, router, &self.routing(), &self.experts())?;
        self.shared.as_ref().map_or(Ok(()), |shared| shared.forward(pass, buffers))
    }

    fn routing(&self) -> Routing<'_, B> {
        let Rule { experts, top, score, groups, renormalise, scale } = self.rule;
        Routing { experts, top, score, bias: self.choice_bias.as_ref(), groups, renormalise, scale }
    }

    fn experts(&self) -> Experts<'_, B> {
        Experts {
            count: self.rule.experts,
            gate: &self.gate,
            up: &self.up,
            down: &self.down,
            gate_bias: self.gate_bias.as_ref(),
            up_bias: self.up_bias.as_ref(),
            down_bias: self.down_bias.as_ref(),
            activation: self.activation,
        }
    }
}

impl<B: Backend> Shared<B> {
    /// The matrix `down` is linear: its input is multiplied rather than its output.
    fn forward(&self, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        let rows = pass.tokens.len();
        let Buffers { x, normed, gated, side, projected, .. } = buffers;
        self.part.inner(pass, gated, normed, None)?;
        if let Some(gate) = &self.gate {
            pass.backend.project(side, normed, rows, None, gate, Write::Store { bias: None })?;
            let (all, one) = (Columns::all(self.width), Columns::all(1));
            pass.backend.multiply_columns((gated, all), (side, one), rows, By::Sigmoid)?;
        }
        let down: &RowParallel<B> = &self.part.down;
        down.forward(pass, x, gated, projected)
    }
}
