//! Every family and every format of weights against transformers, on tiny random checkpoints: the same
//! logits, the same tokens, and the same to the bit however a prompt is cut and whoever else is there.
//!
//! `cargo test --test golden -- --nocapture` prints a line of a table for each case:
//! name, files, formats of the matrices, worst error of the logits' range and the bound, greedy tokens equal.
#![allow(clippy::unwrap_used)]

mod case;
mod check;
mod drive;
#[path = "../support/mod.rs"]
mod support;

use case::{Case, Kind};
use glassbox::weights::Checkpoint;

fn passes(name: &str, kind: Kind) {
    let Some(case) = Case::find(name, kind) else { return };
    let problems = check::check(&case).problems;
    assert!(problems.is_empty(), "{name}:\n{}", problems.join("\n"));
}

/// A test for each case, and a list of them.
macro_rules! cases {
    ($module:ident, $kind:expr, $($name:ident),* $(,)?) => {
        mod $module {
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];
            $(
                #[test]
                fn $name() {
                    super::passes(stringify!($name), $kind);
                }
            )*
        }
    };
}

cases!(
    hub,
    crate::Kind::Hub,
    cohere,
    deepseek_v2,
    deepseek_v3,
    gemma,
    gemma2,
    gemma2_std,
    gemma3_text,
    gemma3_text_std,
    glm4,
    glm4_moe,
    gpt2,
    gpt_neox,
    gpt_oss,
    gpt_oss_mxfp4,
    gpt_oss_std,
    granite,
    lfm2,
    llama,
    llama_awq,
    llama_dynamic_ntk,
    llama_f16_linear_rope,
    llama_gptq,
    llama_gptq_8bit,
    llama_gptq_actorder,
    llama_sharded,
    llama_yarn,
    mamba2,
    mistral,
    mixtral,
    olmo2,
    phi,
    phi3,
    phi3_longrope,
    phi3_shortrope,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_5_text,
    qwen3_fp8,
    qwen3_moe,
    qwen3_next,
    smollm3,
    spec_draft,
    spec_target,
    starcoder2,
);

cases!(
    gguf,
    crate::Kind::Gguf,
    deepseek_v3,
    gemma,
    gemma2_std,
    gemma3_text_std,
    glm4,
    glm4_moe,
    gpt2,
    gpt_oss_mxfp4,
    gpt_oss_std,
    granite,
    lfm2,
    llama,
    llama_f16_linear_rope,
    llama_sharded,
    llama_yarn,
    mamba2,
    mixtral,
    olmo2,
    phi,
    qwen2,
    qwen2_moe,
    qwen3,
    smollm3,
    spec_draft,
    spec_target,
    starcoder2,
);

/// A folder that nobody tests would be golden data in vain.
#[test]
fn every_case_on_disk_has_a_test() {
    for folder in case::folders() {
        let cases = std::fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        let names = cases.filter(|path| path.join("golden.json").exists());
        let unknown: Vec<_> =
            names.filter(|path| !hub::NAMES.contains(&path.file_name().unwrap().to_str().unwrap())).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
    for folder in case::gguf_folders() {
        let files = std::fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        let models = files.filter(|path| path.extension().is_some_and(|e| e == "gguf"));
        let unknown: Vec<_> = models
            .filter(|path| !gguf::NAMES.contains(&path.file_stem().unwrap().to_str().unwrap()))
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}

/// A comparison that nothing fails would prove nothing: one weight of a matrix, or of a norm, a little off.
#[test]
fn a_nudged_weight_is_noticed() {
    let case = Case::find("llama", Kind::Gguf).expect("a fixture");
    let bytes = std::fs::read(&case.path).unwrap();
    let file = case.open();
    assert_eq!(check::compare(&case, &file).problems, [""; 0]);
    for tensor in ["blk.0.attn_q.weight", "blk.1.ffn_down.weight", "blk.2.attn_norm.weight", "output.weight"]
    {
        let at = file.info(tensor).unwrap().offset;
        let weight = f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let mut nudged = bytes.clone();
        nudged[at..at + 4].copy_from_slice(&(weight + 0.1).to_le_bytes());
        let nudged = Checkpoint::from_bytes(&case.path, nudged).unwrap();
        let outcome = check::compare(&case, &nudged);
        assert!(!outcome.problems.is_empty(), "{tensor}: {:e}", outcome.worst);
    }
}
