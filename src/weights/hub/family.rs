use super::json::Json;
use super::names::Table;
use super::settings::Settings;
use super::weights::Weights;
use super::{
    cohere, deepseek, gemma, gemma3, glm4, gpt_neox, gpt_oss, gpt2, granite, lfm2, llama, mamba2, mixture,
    olmo2, phi, phi3, qwen, qwen_next, smollm3, starcoder2,
};
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
#[rustfmt::skip] // a line for each
const FAMILIES: &[&Family] = &[
    &cohere::FAMILY,
    &deepseek::FAMILY,
    &gemma3::FAMILY,
    &gemma::GEMMA,
    &gemma::GEMMA2,
    &glm4::FAMILY,
    &gpt2::FAMILY,
    &gpt_neox::FAMILY,
    &gpt_oss::FAMILY,
    &granite::FAMILY,
    &lfm2::FAMILY,
    &llama::FAMILY,
    &llama::MISTRAL,
    &mamba2::FAMILY,
    &mixture::GLM4,
    &mixture::MIXTRAL,
    &mixture::QWEN2,
    &mixture::QWEN3,
    &olmo2::FAMILY,
    &phi3::FAMILY,
    &phi::FAMILY,
    &qwen::QWEN2,
    &qwen::QWEN3,
    &qwen_next::QWEN3_5,
    &qwen_next::QWEN3_NEXT,
    &smollm3::FAMILY,
    &starcoder2::FAMILY,
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
