//! GPT-2, whose matrices are stored turned: `[in, out]`. Its first release has names without `transformer.`

use super::family::Family;
use super::item::Item;
use super::json::Json;
use super::settings::Settings;
use super::usual;
use super::weights::Weights;
use crate::weights::CheckpointError;

pub(super) const FAMILY: Family = Family {
    architecture: "gpt2",
    model_types: &["gpt2"],
    settings,
    names: &[
        ("transformer.wte", "token_embd"),
        ("transformer.wpe", "position_embd"),
        ("transformer.ln_f", "output_norm"),
        ("transformer.h.*.ln_1", "blk.*.attn_norm"),
        ("transformer.h.*.ln_2", "blk.*.ffn_norm"),
        ("transformer.h.*.attn.c_attn", "blk.*.attn_qkv"),
        ("transformer.h.*.attn.c_proj", "blk.*.attn_output"),
        ("transformer.h.*.mlp.c_fc", "blk.*.ffn_up"),
        ("transformer.h.*.mlp.c_proj", "blk.*.ffn_down"),
    ],
    recipes,
    ignored: &[("*h.*.attn.bias", "masks are computed")],
};

fn settings(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    for (field, usual) in [
        ("scale_attn_weights", true),
        ("scale_attn_by_inverse_layer_idx", false),
        ("add_cross_attention", false),
    ] {
        if config.bool(field)?.is_some_and(|said| said != usual) {
            return Err(config.wrong(field, format!("is {}, which is not supported", !usual)));
        }
    }
    if let Some(width) = config.u64_of(&["n_embd", "hidden_size"])? {
        settings.put_default("feed_forward_length", width.saturating_mul(4));
    }
    settings.put_default("attention.layer_norm_epsilon", 1e-5f32);
    usual::activation(config, settings)
}

fn recipes(_: &Json, weights: &mut Weights) -> Result<(), CheckpointError> {
    weights.rename(|name| {
        (!name.contains("transformer.") && name != "lm_head.weight").then(|| format!("transformer.{name}"))
    })?;
    for (part, ours) in [
        ("attn.c_attn", "attn_qkv"),
        ("attn.c_proj", "attn_output"),
        ("mlp.c_fc", "ffn_up"),
        ("mlp.c_proj", "ffn_down"),
    ] {
        let theirs = format!("transformer.h.*.{part}.weight");
        weights.map(&theirs, &format!("blk.*.{ours}.weight"), Item::transposed)?;
    }
    Ok(())
}
