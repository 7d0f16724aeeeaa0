//! Settings that some families share and most do not have.

use super::config::{head_dim, put_whole};
use super::json::Json;
use super::settings::Settings;
use crate::weights::CheckpointError;

/// The activation of the feed-forward parts, in a key of ours: in GGUF a family has one.
pub(super) fn activation(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    const NAMES: [&str; 3] = ["hidden_activation", "hidden_act", "activation_function"];
    let said = NAMES.into_iter().find(|name| config.has(name));
    settings.put_some("hidden_activation", said.map_or(Ok(None), |name| config.str(name))?);
    Ok(())
}

/// Only a part of each head turns: that of the configuration, or the family's, one of so many.
pub(super) fn partial_rotary(config: &Json, of: u64, settings: &mut Settings) -> Result<(), CheckpointError> {
    let says = |json: &Json| json.has("partial_rotary_factor") || json.has("rotary_pct");
    if !says(config) && !config.object("rope_parameters")?.is_some_and(|rope| says(&rope)) {
        put_whole(settings, "rope.dimension_count", head_dim(config)?.map(|len| len / of));
    }
    Ok(())
}
