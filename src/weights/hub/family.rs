use super::json::Json;
use super::names::Table;
use super::settings::Settings;
use super::weights::Weights;
use super::{deepseek, gemma3, lfm2, llama, mamba2, mixture, qwen, qwen_next};
use crate::weights::CheckpointError;

/// How a family's folders are told in GGUF's keys and names, beyond what they have in common with most.
pub(in crate::weights) struct Family {
    /// `general.architecture`: llama.cpp's name.
    pub architecture: &'static str,
    /// Values of `model_type` in config.json.
    pub model_types: &'static [&'static str],
    /// Keys beyond [`config::common`](super::config), which has run.
    pub settings: fn(&Json, &mut Settings) -> Result<(), CheckpointError>,
    /// Rows that come before those of [`names::COMMON`](super::names).
    pub names: Table,
    /// Makes tensors of others, before the tables place the rest.
    pub recipes: fn(&Json, &mut Weights) -> Result<(), CheckpointError>,
    /// Tensors that the model does not need: a glob of hub's names, and why.
    pub ignored: &'static [(&'static str, &'static str)],
}

/// For families without one.
pub(super) fn no_recipes(_: &Json, _: &mut Weights) -> Result<(), CheckpointError> {
    Ok(())
}

/// All that we read, by model type.
const FAMILIES: &[&Family] = &[
    &deepseek::FAMILY,
    &mixture::MIXTRAL,
    &mixture::QWEN2,
    &mixture::QWEN3,
    &mixture::GLM4,
    &gemma3::FAMILY,
    &llama::FAMILY,
    &llama::MISTRAL,
    &qwen::QWEN2,
    &qwen::QWEN3,
    &lfm2::FAMILY,
    &mamba2::FAMILY,
    &qwen_next::QWEN3_NEXT,
    &qwen_next::QWEN3_5,
];

/// The family that a configuration names.
pub(super) fn family(config: &Json) -> Result<&'static Family, CheckpointError> {
    let name = config.require_str("model_type")?;
    let found = FAMILIES.iter().copied().find(|family| family.model_types.contains(&name));
    found.ok_or_else(|| {
        let mut known: Vec<&str> = FAMILIES.iter().flat_map(|family| family.model_types).copied().collect();
        known.sort_unstable();
        config.wrong("model_type", format!("is {name:?}; supported are {}", known.join(", ")))
    })
}
