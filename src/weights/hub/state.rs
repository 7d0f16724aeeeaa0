//! What families with states have in common.

use super::config::layers;
use super::item::Item;
use super::json::Json;
use super::settings::Settings;
use crate::weights::CheckpointError;

/// The weights of a convolution of each channel alone, `[channels, 1, width]`.
pub(super) fn kernel(item: &Item) -> Result<Item, String> {
    match *item.shape.as_slice() {
        [channels, 1, width] => item.clone().reshaped(vec![channels, width]),
        _ => Err(format!("shape {:?} is no convolution of single channels", item.shape)),
    }
}

/// Key heads of each layer: none where it keeps a state instead of keys and values. `attends` where the
/// configuration has no `layer_types`.
pub(super) fn put_key_heads(
    config: &Json,
    settings: &mut Settings,
    attends: Option<Vec<bool>>,
) -> Result<(), CheckpointError> {
    let attends = match config.strs("layer_types")? {
        Some(types) if types.len() as u64 != layers(config)? => {
            return Err(config.wrong("layer_types", format!("has {} layers", types.len())));
        }
        Some(types) => types.iter().map(|kind| kind == "full_attention").collect(),
        None => attends.ok_or_else(|| config.wrong("layer_types", "is missing, a list is needed"))?,
    };
    let heads = config.u64_of(&["num_key_value_heads", "num_attention_heads"])?.unwrap_or(0);
    let heads = u32::try_from(heads)
        .map_err(|_| config.wrong("num_key_value_heads", format!("is {heads}, which is too many")))?;
    let heads: Vec<u32> = attends.into_iter().map(|attends| if attends { heads } else { 0 }).collect();
    settings.put("attention.head_count_kv", heads);
    Ok(())
}
