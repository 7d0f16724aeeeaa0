use super::{Buffers, Normalisation, Pass};
use crate::compute::{Backend, Result, Write};

/// `x = embedding[tokens] * scale (+ positions)`
pub(in crate::model) struct Embedding<B: Backend> {
    pub(in crate::model) table: B::Table,
    pub(in crate::model) scale: f32,
    /// Learned, one row for each position (GPT-2).
    pub(in crate::model) positions: Option<B::Table>,
}

impl<B: Backend> Embedding<B> {
    pub(super) fn forward(&self, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        pass.backend.embed(&mut buffers.x, &self.table, pass.tokens, self.scale)?;
        match &self.positions {
            Some(table) => pass.backend.add_positions(&mut buffers.x, table, &pass.spans[0]),
            None => Ok(()),
        }
    }
}

/// Final normalisation and the projection to the vocabulary.
pub(in crate::model) struct Head<B: Backend> {
    pub(in crate::model) norm: Normalisation<B>,
    pub(in crate::model) weight: B::Matrix,
    pub(in crate::model) bias: Option<B::Buf>,
    /// Multiplies logits (Cohere, Granite).
    pub(in crate::model) scale: f32,
    /// Logits become `cap * tanh(logit / cap)` (Gemma 2).
    pub(in crate::model) soft_cap: Option<f32>,
    pub(in crate::model) vocab: usize,
}

impl<B: Backend> Head<B> {
    pub(in crate::model) fn forward(
        &self,
        backend: &mut B,
        logits: &mut B::Buf,
        hidden: &B::Buf,
        rows: usize,
    ) -> Result<()> {
        let (norm, write) = (Some(self.norm.as_op()), Write::Store { bias: self.bias.as_ref() });
        backend.project(logits, hidden, rows, norm, &self.weight, write)?;
        if self.scale == 1.0 && self.soft_cap.is_none() {
            return Ok(());
        }
        backend.scale(logits, rows * self.vocab, self.scale, self.soft_cap)
    }
}
