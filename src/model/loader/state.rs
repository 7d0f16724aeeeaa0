use super::Loader;
use crate::compute::Backend;
use crate::model::layers::Kernel;
use crate::model::load::LoadError;

/// Tensors of layers that keep a state.
impl<B: Backend> Loader<'_, B> {
    /// `{name}.weight` `[channels, width]`, and `{name}.bias` where there is one.
    pub(in crate::model) fn kernel(
        &mut self,
        name: &str,
        channels: usize,
        width: usize,
        silu: bool,
    ) -> Result<Kernel<B>, LoadError> {
        let weight = self.values_of(&format!("{name}.weight"), &[width, channels])?;
        Ok(Kernel {
            weight: self.backend.upload(&weight)?,
            bias: self.bias(name, channels)?,
            channels,
            width,
            silu,
        })
    }

    /// How fast each head forgets: `-exp(a_log)`. Folders of hubs store the logarithm.
    pub(in crate::model) fn decay(&mut self, name: &str, heads: usize) -> Result<B::Buf, LoadError> {
        let mut values = self.flat_values(name, heads)?;
        if self.file.is_hub() {
            values.iter_mut().for_each(|a| *a = -a.exp());
        }
        Ok(self.backend.upload(&values)?)
    }

    /// So many numbers in any shape.
    pub(in crate::model) fn flat_vector(&mut self, name: &str, len: usize) -> Result<B::Buf, LoadError> {
        let values = self.flat_values(name, len)?;
        Ok(self.backend.upload(&values)?)
    }

    fn flat_values(&mut self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        let dims = self.file.require_info(name)?.dims.clone();
        match dims.iter().product::<usize>() == len {
            true => self.values_of(name, &dims),
            // Which says what is wrong.
            false => self.values_of(name, &[len]),
        }
    }
}
