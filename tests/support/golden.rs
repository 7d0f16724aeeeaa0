//! What transformers said of the tiny checkpoints.

use super::fixture;
use safetensors::SafeTensors;
use std::path::Path;

pub struct Golden(Vec<u8>);

impl Golden {
    pub fn read(case: &str) -> Self {
        Self::read_file(&fixture(&format!("golden/{case}.safetensors")))
    }
    pub fn read_file(path: &Path) -> Self {
        Self(std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
    }
    pub fn has(&self, name: &str) -> bool {
        SafeTensors::deserialize(&self.0).unwrap().tensor(name).is_ok()
    }
    pub fn ids(&self, name: &str) -> Vec<u32> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let data = tensors.tensor(name).unwrap().data().to_vec();
        data.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as u32).collect()
    }
    pub fn rows(&self, name: &str) -> Vec<Vec<f32>> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let view = tensors.tensor(name).unwrap();
        let values: Vec<f32> =
            view.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        values.chunks_exact(view.shape()[1]).map(<[f32]>::to_vec).collect()
    }
}
