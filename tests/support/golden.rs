//! What transformers said of the tiny checkpoints.

use super::fixture;
use safetensors::SafeTensors;

pub struct Golden(Vec<u8>);

impl Golden {
    pub fn read(case: &str) -> Self {
        Self(std::fs::read(fixture(&format!("golden/{case}.safetensors"))).unwrap())
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
