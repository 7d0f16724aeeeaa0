use super::family::{Family, family};
use super::index::Shard;
use super::json::Json;
use super::names::{COMMON, place};
use super::settings::Settings;
use super::weights::{Placed, Weights};
use super::{about, config, quantised};
use crate::weights::checkpoint::{Contents, Kind, Origin, UnsupportedTensor};
use crate::weights::{Checkpoint, CheckpointError};
use std::collections::HashSet;
use std::path::Path;

/// Left out of every family's files.
const IGNORED: [(&str, &str); 4] = [
    ("*rotary_emb.inv_freq", "frequencies are computed"),
    ("*.masked_bias", "masks are computed"),
    ("mtp.*", "it is for predicting several tokens at once, which is not supported"),
    ("model.mtp.*", "it is for predicting several tokens at once, which is not supported"),
];

/// Parts of models that see and hear.
const SENSES: [&str; 7] = [
    "vision_tower.*",
    "vision_model.*",
    "visual.*",
    "model.visual.*",
    "model.vision_tower.*",
    "multi_modal_projector.*",
    "model.multi_modal_projector.*",
];

/// The text model inside one with more senses has names that start so.
const INNER: [(&str, &str); 4] = [
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("text_model.", "model."),
];

/// The configuration of the text model: its own part, over what stands outside of it.
pub(super) fn text_part(config: &Json) -> Result<Json, CheckpointError> {
    Ok(match config.object("text_config")? {
        Some(text) => config.overlaid(&text),
        None => config.clone(),
    })
}

pub(super) fn translate(
    folder: &Path,
    config: &Json,
    shards: Vec<Shard>,
) -> Result<Checkpoint, CheckpointError> {
    let config = &text_part(config)?;
    let family = family(config)?;
    let mut settings = Settings::new(family.architecture);
    about::put(folder, config, &mut settings);
    config::common(config, &mut settings)?;
    (family.settings)(config, &mut settings)?;

    let mut weights = Weights::new(folder, shards)?;
    weights.rename(|name| {
        INNER.iter().find_map(|(theirs, plain)| Some(format!("{plain}{}", name.strip_prefix(theirs)?)))
    })?;
    leave_out(config, family, &mut weights)?;
    quantised::unpack(config, &mut weights)?;
    (family.recipes)(config, &mut weights)?;
    place(&mut weights, &[family.names, COMMON])?;
    check_head(config, &weights)?;
    contents(folder, family, settings, weights)
}

fn leave_out(config: &Json, family: &Family, weights: &mut Weights) -> Result<(), CheckpointError> {
    for (pattern, why) in IGNORED.iter().chain(family.ignored) {
        weights.leave_out(pattern, why);
    }
    for pattern in SENSES {
        weights.leave_out(pattern, "only text is supported");
    }
    if let Some(next) = config.u64("num_nextn_predict_layers")?.filter(|next| *next > 0) {
        let layers = config::layers(config)?;
        let layer = |name: &str| name.strip_prefix("model.layers.")?.split_once('.')?.0.parse::<u64>().ok();
        let is_next = |name: &str| {
            layer(name).is_some_and(|layer| (layers..layers.saturating_add(next)).contains(&layer))
        };
        weights
            .leave_out_where(is_next, "it is for predicting several tokens at once, which is not supported");
    }
    if config.bool("tie_word_embeddings")? == Some(true) && weights.has("model.embed_tokens.weight") {
        weights.leave_out("lm_head.weight", "the embedding is the head: tie_word_embeddings");
    }
    Ok(())
}

/// Without a head of its own a model uses its embedding; unless the configuration says that it has one.
fn check_head(config: &Json, weights: &Weights) -> Result<(), CheckpointError> {
    let tied = config.bool("tie_word_embeddings")? != Some(false);
    match tied || weights.is_placed("output.weight") || !weights.is_placed("token_embd.weight") {
        true => Ok(()),
        false => Err(weights
            .wrong("lm_head.weight", "it is not there, and tie_word_embeddings is false in config.json")),
    }
}

fn contents(
    folder: &Path,
    family: &'static Family,
    settings: Settings,
    weights: Weights,
) -> Result<Checkpoint, CheckpointError> {
    let metadata = settings.finish(folder)?;
    let (files, mut placed, notes) = weights.finish();
    placed.sort_by(|a, b| place_of(a).cmp(&place_of(b)));
    let mut names = HashSet::new();
    let (mut tensors, mut unsupported) = (Vec::new(), Vec::new());
    for Placed { name, original, item } in &placed {
        let wrong = |problem: String| CheckpointError::Tensor {
            path: folder.to_owned(),
            name: original.clone(),
            problem,
        };
        if !names.insert(name) {
            return Err(wrong(format!("another tensor is {name} too")));
        }
        match item.info(name).filter(|info| info.dims.len() <= 4) {
            Some(info) => tensors.push((info, item.source.clone())),
            None => unsupported.push(UnsupportedTensor {
                name: name.clone(),
                dims: item.dims(),
                format: item.dtype.name(),
                bytes: item.bytes(),
            }),
        }
    }
    let originals = Weights::originals(&placed);
    Ok(Checkpoint::new(Contents {
        path: folder.to_owned(),
        kind: Kind::Hub,
        files,
        metadata,
        tensors,
        unsupported,
        origin: Origin { names: originals, tables: vec![family.names, COMMON], notes },
    }))
}

/// Where a tensor lies; those that are made go by their names, after the others.
fn place_of(placed: &Placed) -> (usize, usize, &str) {
    let (file, range) = placed.item.source.place().unwrap_or((usize::MAX, 0..0));
    (file, range.start, &placed.name)
}
