//! Mamba-2: state-space layers only.

use super::config::put_whole;
use super::family::Family;
use super::json::Json;
use super::settings::Settings;
use super::state;
use super::weights::Weights;
use crate::weights::CheckpointError;

pub(super) const FAMILY: Family = Family {
    architecture: "mamba2",
    model_types: &["mamba2"],
    settings,
    names: &[
        ("backbone.embeddings", "token_embd"),
        ("backbone.norm_f", "output_norm"),
        ("backbone.layers.*.norm", "blk.*.attn_norm"),
        ("backbone.layers.*.mixer.in_proj", "blk.*.ssm_in"),
        ("backbone.layers.*.mixer.out_proj", "blk.*.ssm_out"),
        ("backbone.layers.*.mixer.conv1d", "blk.*.ssm_conv1d"),
        ("backbone.layers.*.mixer.norm", "blk.*.ssm_norm"),
        ("backbone.layers.*.mixer.dt_bias", "blk.*.ssm_dt.bias"),
        ("backbone.layers.*.mixer.A_log", "blk.*.ssm_a"),
        ("backbone.layers.*.mixer.D", "blk.*.ssm_d"),
    ],
    recipes,
    ignored: &[],
};

fn settings(config: &Json, settings: &mut Settings) -> Result<(), CheckpointError> {
    // Of a root mean square norm, whatever its name says.
    settings.remove("attention.layer_norm_epsilon");
    settings.put("attention.layer_norm_rms_epsilon", config.f32("layer_norm_epsilon")?.unwrap_or(1e-5));
    // It has no positions; this is what GGUF says of it.
    settings.put_default("context_length", 1u32 << 20);
    let whole = |name: &str, or: u64| Ok::<_, CheckpointError>(config.u64(name)?.unwrap_or(or));
    let heads = whole("num_heads", 128)?;
    let inner = whole("expand", 2)?.saturating_mul(config.require_u64("hidden_size")?);
    if heads.checked_mul(whole("head_dim", 64)?) != Some(inner) {
        let problem =
            format!("is {heads}: heads of head_dim do not make the {inner} columns of expand * hidden_size");
        return Err(config.wrong("num_heads", problem));
    }
    put_whole(settings, "ssm.inner_size", Some(inner));
    put_whole(settings, "ssm.time_step_rank", Some(heads));
    put_whole(settings, "ssm.state_size", Some(whole("state_size", 128)?));
    put_whole(settings, "ssm.group_count", Some(whole("n_groups", 8)?));
    put_whole(settings, "ssm.conv_kernel", Some(whole("conv_kernel", 4)?));
    settings.put_some("ssm.time_step_limit", config.f32s("time_step_limit")?);
    settings.remove("attention.key_length");
    settings.remove("attention.value_length");
    settings.remove("rope.dimension_count");
    Ok(())
}

fn recipes(_: &Json, weights: &mut Weights) -> Result<(), CheckpointError> {
    weights.map("backbone.layers.*.mixer.conv1d.weight", "blk.*.ssm_conv1d.weight", state::kernel)
}
