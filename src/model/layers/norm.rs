use crate::compute::{Backend, Norm, NormKind};

/// The weights of a normalisation.
pub(in crate::model) struct Normalisation<B: Backend> {
    pub(in crate::model) weight: B::Buf,       // [dim]
    pub(in crate::model) bias: Option<B::Buf>, // [dim]
    pub(in crate::model) eps: f32,
    pub(in crate::model) kind: NormKind,
}

impl<B: Backend> Normalisation<B> {
    pub(super) fn as_op(&self) -> Norm<'_, B> {
        Norm { weight: &self.weight, bias: self.bias.as_ref(), eps: self.eps, kind: self.kind }
    }
}
