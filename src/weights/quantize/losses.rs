use crate::weights::{BlockFormat, Loss};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What the tensors of a model lost as they were encoded: filled by whoever reads them.
#[derive(Debug, Default)]
pub struct Losses {
    by_name: Mutex<BTreeMap<String, (BlockFormat, BlockFormat, Loss)>>,
}

/// Of one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorLoss {
    pub name: String,
    pub from: BlockFormat,
    pub to: BlockFormat,
    /// |W - Q(W)| / |W|, root mean square.
    pub error: f64,
}

/// Of the matrices of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerLoss {
    /// `None` for what is in no layer: the head.
    pub layer: Option<usize>,
    pub matrices: usize,
    pub mean: f64,
    pub worst: TensorLoss,
}

impl Losses {
    /// Of tensors that were encoded already.
    pub fn of(tensors: Vec<TensorLoss>) -> Self {
        let losses = Self::default();
        for TensorLoss { name, from, to, error } in tensors {
            losses.add(&name, from, to, Loss { error: error * error, square: 1.0 });
        }
        losses
    }

    /// Adds what one reading lost: of a whole tensor, or of a part of it.
    pub(in crate::weights) fn add(&self, name: &str, from: BlockFormat, to: BlockFormat, loss: Loss) {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        by_name.entry(name.to_owned()).or_insert((from, to, Loss::default())).2 += loss;
    }

    /// Of every tensor that was read, by layer and name.
    pub fn tensors(&self) -> Vec<TensorLoss> {
        let by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tensors: Vec<_> = (by_name.iter())
            .map(|(name, (from, to, loss))| TensorLoss {
                name: name.clone(),
                from: *from,
                to: *to,
                error: loss.relative(),
            })
            .collect();
        // Numbers as numbers; what is in no layer comes last.
        tensors.sort_by_key(|tensor| layer_of(&tensor.name).unwrap_or(usize::MAX));
        tensors
    }

    /// The same, layer by layer.
    pub fn layers(&self) -> Vec<LayerLoss> {
        let mut layers: Vec<LayerLoss> = Vec::new();
        for tensor in self.tensors() {
            let layer = layer_of(&tensor.name);
            match layers.last_mut().filter(|last| last.layer == layer) {
                None => layers.push(LayerLoss { layer, matrices: 1, mean: tensor.error, worst: tensor }),
                Some(last) => {
                    last.mean += (tensor.error - last.mean) / (last.matrices + 1) as f64;
                    last.matrices += 1;
                    if tensor.error > last.worst.error {
                        last.worst = tensor;
                    }
                }
            }
        }
        layers
    }
}

/// Also of a hub's names: `model.layers.3.mlp.up_proj.weight`.
fn layer_of(name: &str) -> Option<usize> {
    let layer = |start: &str| name.split_once(start)?.1.split_once('.')?.0.parse().ok();
    ["blk.", ".layers.", ".h.", ".blocks."].into_iter().find_map(layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_in_order_with_their_mean_and_worst() {
        let losses = Losses::default();
        let add = |name: &str, error: f64| {
            losses.add(
                name,
                BlockFormat::BF16,
                BlockFormat::Q4_K,
                Loss { error: error * error, square: 1.0 },
            );
        };
        add("output.weight", 0.5);
        add("blk.10.attn_q.weight", 0.1);
        add("blk.2.attn_q.weight", 0.1);
        add("blk.2.ffn_up.weight", 0.3);
        let layers = losses.layers();
        let found: Vec<_> = layers.iter().map(|layer| (layer.layer, layer.matrices)).collect();
        assert_eq!(found, [(Some(2), 2), (Some(10), 1), (None, 1)]);
        assert!((layers[0].mean - 0.2).abs() < 1e-12);
        assert_eq!(layers[0].worst.name, "blk.2.ffn_up.weight");
        // The second half of a tensor that was read in two.
        losses.add("output.weight", BlockFormat::BF16, BlockFormat::Q4_K, Loss { error: 0.0, square: 1.0 });
        assert!((losses.layers()[2].mean - 0.125f64.sqrt()).abs() < 1e-12);
    }
}
