//! gpt-oss (OpenAI 2025): experts whose gate and up rows lie in turns, in MXFP4 or plain.

use super::family::Family;
use super::item::Item;
use super::json::Json;
use super::names::filled;
use super::quantised::mxfp4;
use super::settings::Settings;
use super::weights::Weights;
use crate::weights::CheckpointError;

pub(super) const FAMILY: Family = Family {
    architecture: "gpt-oss",
    model_types: &["gpt_oss"],
    settings,
    names: &[
        ("model.layers.*.post_attention_layernorm", "blk.*.post_attention_norm"),
        ("model.layers.*.self_attn.sinks", "blk.*.attn_sinks.weight"),
        ("model.layers.*.mlp.router", "blk.*.ffn_gate_inp"),
    ],
    recipes: experts,
    ignored: &[],
};

fn settings(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    if let Some(width) = config.u64("intermediate_size")? {
        super::config::put_whole(settings, "expert_feed_forward_length", Some(width));
    }
    settings.put_some("swiglu_limit", config.f32("swiglu_limit")?);
    Ok(())
}

/// `gate_up_proj` and `down_proj` of all experts of a layer, with their biases.
fn experts(_: &Json, weights: &mut Weights) -> Result<(), CheckpointError> {
    for stem in ["gate_up_proj", "down_proj"] {
        let whole = format!("model.layers.*.mlp.experts.{stem}");
        for (blocks, layer) in weights.matching(&format!("{whole}_blocks")) {
            let name = filled(&whole, &layer);
            if let Some(rows) = mxfp4::take(weights, &name)? {
                place(weights, stem, &layer, blocks, rows, ".weight")?;
            }
        }
        // Plain ones are stored turned: [experts, columns, rows].
        for (name, layer) in weights.matching(&whole) {
            let parts = weights.require(&name)?.parts();
            let turned = parts
                .and_then(|parts| Item::stack(parts.iter().map(Item::transposed).collect::<Result<_, _>>()?));
            let rows = turned.map_err(|problem| weights.wrong(&name, problem))?;
            place(weights, stem, &layer, name, rows, ".weight")?;
        }
        for (name, layer) in weights.matching(&format!("{whole}_bias")) {
            let rows = weights.require(&name)?;
            place(weights, stem, &layer, name, rows, ".bias")?;
        }
    }
    Ok(())
}

/// `rows` is `[experts, rows, ...]`; those of `gate_up_proj` are gate, up, gate, up.
fn place(
    weights: &mut Weights,
    stem: &str,
    layer: &[usize],
    original: String,
    rows: Item,
    ending: &str,
) -> Result<(), CheckpointError> {
    let ours = |part: &str| format!("{}{ending}", filled(&format!("blk.*.ffn_{part}_exps"), layer));
    if stem == "down_proj" {
        weights.place(ours("down"), original, rows);
        return Ok(());
    }
    for (first, part) in ["gate", "up"].into_iter().enumerate() {
        let every = |expert: &Item| expert.every(2, first);
        let half = rows
            .parts()
            .and_then(|experts| Item::stack(experts.iter().map(every).collect::<Result<_, _>>()?));
        let half = half.map_err(|problem| weights.wrong(&original, problem))?;
        weights.place(ours(part), original.clone(), half);
    }
    Ok(())
}
