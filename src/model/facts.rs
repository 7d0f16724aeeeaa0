//! What a checkpoint is, told without loading it.

use super::load::{LoadError, configured};
use crate::compute::CacheDtype;
use crate::compute::cpu::Cpu;
use crate::kv::CacheSpec;
use crate::weights::Checkpoint;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub layers: usize,
    /// Of these, layers that see a window of the past (and how many tokens), and those with a state of it.
    pub windowed: usize,
    pub window: Option<usize>,
    pub recurrent: usize,
    /// One key for all heads, from which values are made.
    pub latent: bool,
    /// Bytes of one token's keys and values in f16, over all layers.
    pub kv_bytes_per_token: usize,
    /// Of one sequence, over all layers that keep a state.
    pub state_bytes: usize,
    /// Experts of a layer, and those that a token sees.
    pub experts: Option<(usize, usize)>,
    pub context: usize,
}

/// # Errors
/// Why the model cannot be run, as [`load`](super::load) would say.
pub fn facts(file: &Checkpoint) -> Result<Facts, LoadError> {
    let (_, config) = configured::<Cpu>(file)?;
    let count = |fits: fn(&CacheSpec) -> bool| config.caches.iter().filter(|spec| fits(spec)).count();
    let recurrent = count(|spec| *spec == CacheSpec::Recurrent);
    let number = |name: &str| {
        let value = file.u64(&format!("{}.{name}", config.architecture)).ok().flatten()?;
        usize::try_from(value).ok().filter(|value| *value > 0)
    };
    Ok(Facts {
        layers: config.layers,
        windowed: count(|spec| matches!(spec, CacheSpec::Sliding { .. })),
        window: config.caches.iter().find_map(|spec| match spec {
            CacheSpec::Sliding { window } => Some(*window),
            _ => None,
        }),
        recurrent,
        latent: config.latent.is_some(),
        kv_bytes_per_token: config.kv_bytes_per_token(CacheDtype::F16),
        state_bytes: recurrent * config.state_len * size_of::<f32>(),
        experts: number("expert_count").zip(number("expert_used_count")),
        context: config.context_length,
    })
}
