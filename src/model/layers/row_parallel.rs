use super::{Normalisation, Pass};
use crate::compute::{Backend, Result, Write};

/// A matrix whose columns are spread over the ranks: each computes a part of the sum.
pub(in crate::model) struct RowParallel<B: Backend> {
    pub(in crate::model) weight: B::Matrix,
    pub(in crate::model) bias: Option<B::Buf>,
    pub(in crate::model) dim: usize,
    /// Gemma, GLM-4 and OLMo 2 normalise a part's output before it joins the residual stream.
    pub(in crate::model) post_norm: Option<Normalisation<B>>,
    /// Multiplies what joins the residual stream (Granite).
    pub(in crate::model) scale: f32,
}

impl<B: Backend> RowParallel<B> {
    /// `x += scale * norm(sum over ranks of W input (+ bias, once))`
    pub(super) fn forward(
        &self,
        pass: &mut Pass<B>,
        x: &mut B::Buf,
        input: &B::Buf,
        projected: &mut B::Buf,
    ) -> Result<()> {
        let rows = pass.tokens.len();
        let bias = self.bias.as_ref().filter(|_| pass.group.shard().rank == 0);
        if pass.group.shard().is_whole() && self.post_norm.is_none() && self.scale == 1.0 {
            return pass.backend.project(x, input, rows, None, &self.weight, Write::Add { bias });
        }
        pass.backend.project(projected, input, rows, None, &self.weight, Write::Store { bias })?;
        pass.group.all_reduce(pass.backend, projected, rows * self.dim)?;
        match &self.post_norm {
            Some(norm) => pass.backend.add_norm(x, projected, rows, norm.as_op()),
            None => pass.backend.add(x, projected, rows * self.dim, self.scale),
        }
    }
}
