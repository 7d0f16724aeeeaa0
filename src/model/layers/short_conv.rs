use super::{Buffers, Kernel, Normalisation, Pass, RowParallel};
use crate::compute::{Backend, By, Columns, Result, Write};

/// A short convolution between two gates (Liquid AI 2025, LFM2): of three projections b, c and h of the
/// normalised x, `x += out (c * convolution(b * h))`.
pub(in crate::model) struct ShortConv<B: Backend> {
    pub(in crate::model) norm: Normalisation<B>,
    pub(in crate::model) input: B::Matrix, // [3 dim, dim]: b, c, h
    pub(in crate::model) bias: Option<B::Buf>,
    pub(in crate::model) kernel: Kernel<B>, // of dim channels
    pub(in crate::model) output: RowParallel<B>,
}

impl<B: Backend> ShortConv<B> {
    pub(super) fn forward(&self, layer: usize, pass: &mut Pass<B>, buffers: &mut Buffers<B>) -> Result<()> {
        let (rows, dim) = (pass.tokens.len(), self.output.dim);
        let Buffers { x, qkv, projected, side, .. } = buffers;
        let third = |i: usize| Columns { first: i * dim, len: dim, stride: 3 * dim };
        let (b, c, h, all) = (third(0), third(1), third(2), Columns::all(dim));
        let write = Write::Store { bias: self.bias.as_ref() };
        pass.backend.project(qkv, x, rows, Some(self.norm.as_op()), &self.input, write)?;
        pass.backend.copy_columns((side, all), (qkv, h), rows)?;
        pass.backend.multiply_columns((side, all), (qkv, b), rows, By::Value)?;
        self.kernel.forward(layer, pass, (side, all))?;
        pass.backend.multiply_columns((side, all), (qkv, c), rows, By::Value)?;
        self.output.forward(pass, x, side, projected)
    }
}
