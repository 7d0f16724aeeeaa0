//! Tensor names: hubs' to GGUF's, and back for errors.
//!
//! A table's row is a pattern of each. `*` stands for a number: of the layer, then of the expert. A row
//! without `.weight` or `.bias` at its end is for both. Where the hub's side has a `*` more, ours is
//! a stack: all experts of a layer in one tensor, the expert outermost.

use super::item::Item;
use super::weights::Weights;
use crate::weights::CheckpointError;
use std::collections::BTreeMap;

/// Rows of (hub's pattern, ours).
pub(in crate::weights) type Table = &'static [(&'static str, &'static str)];

/// What most families call their tensors. A family's own rows come before these.
pub(super) const COMMON: Table = &[
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("model.layers.*.input_layernorm", "blk.*.attn_norm"),
    ("model.layers.*.self_attn.q_proj", "blk.*.attn_q"),
    ("model.layers.*.self_attn.k_proj", "blk.*.attn_k"),
    ("model.layers.*.self_attn.v_proj", "blk.*.attn_v"),
    ("model.layers.*.self_attn.o_proj", "blk.*.attn_output"),
    ("model.layers.*.self_attn.q_norm", "blk.*.attn_q_norm"),
    ("model.layers.*.self_attn.k_norm", "blk.*.attn_k_norm"),
    ("model.layers.*.post_attention_layernorm", "blk.*.ffn_norm"),
    ("model.layers.*.mlp.gate_proj", "blk.*.ffn_gate"),
    ("model.layers.*.mlp.up_proj", "blk.*.ffn_up"),
    ("model.layers.*.mlp.down_proj", "blk.*.ffn_down"),
    ("model.layers.*.mlp.gate", "blk.*.ffn_gate_inp"),
    ("model.layers.*.mlp.gate.e_score_correction_bias", "blk.*.exp_probs_b.bias"),
    ("model.layers.*.mlp.experts.*.gate_proj", "blk.*.ffn_gate_exps"),
    ("model.layers.*.mlp.experts.*.up_proj", "blk.*.ffn_up_exps"),
    ("model.layers.*.mlp.experts.*.down_proj", "blk.*.ffn_down_exps"),
    ("model.layers.*.mlp.shared_experts.gate_proj", "blk.*.ffn_gate_shexp"),
    ("model.layers.*.mlp.shared_experts.up_proj", "blk.*.ffn_up_shexp"),
    ("model.layers.*.mlp.shared_experts.down_proj", "blk.*.ffn_down_shexp"),
    ("model.layers.*.mlp.shared_expert.gate_proj", "blk.*.ffn_gate_shexp"),
    ("model.layers.*.mlp.shared_expert.up_proj", "blk.*.ffn_up_shexp"),
    ("model.layers.*.mlp.shared_expert.down_proj", "blk.*.ffn_down_shexp"),
    ("model.layers.*.mlp.shared_expert_gate", "blk.*.ffn_gate_inp_shexp"),
];

const ENDINGS: [&str; 2] = [".weight", ".bias"];

/// Places every tensor that a table has a row for. Others keep their names, so that a loader can say
/// that it has no place for them.
pub(super) fn place(weights: &mut Weights, tables: &[Table]) -> Result<(), CheckpointError> {
    let mut stacks: BTreeMap<String, Vec<(usize, String, Item)>> = BTreeMap::new();
    for (name, item) in weights.take_all() {
        match translated(tables, &name) {
            None => weights.place(name.clone(), name, item),
            Some((ours, None)) => weights.place(ours, name, item),
            Some((ours, Some(expert))) => stacks.entry(ours).or_default().push((expert, name, item)),
        }
    }
    for (ours, mut experts) in stacks {
        experts.sort_by_key(|(expert, ..)| *expert);
        let (first, count) = (experts[0].1.clone(), experts.len());
        if let Some((missing, _)) = experts.iter().enumerate().find(|(i, (expert, ..))| i != expert) {
            return Err(weights.wrong(&first, format!("expert {missing} of at least {count} is missing")));
        }
        let items = experts.into_iter().map(|(.., item)| item).collect();
        let stack =
            Item::stack(items).map_err(|problem| weights.wrong(&first, format!("experts: {problem}")))?;
        weights.place(ours, first, stack);
    }
    Ok(())
}

/// Our name, and the expert's number where the tensor is one of a stack.
fn translated(tables: &[Table], name: &str) -> Option<(String, Option<usize>)> {
    let rows = || tables.iter().copied().flatten();
    let found = rows().find_map(|(theirs, ours)| Some((*ours, "", matched(theirs, name)?)));
    let (ours, ending, numbers) = found.or_else(|| {
        let ending = ENDINGS.into_iter().find(|ending| name.ends_with(ending))?;
        let stem = &name[..name.len() - ending.len()];
        rows().find_map(|(theirs, ours)| Some((*ours, ending, matched(theirs, stem)?)))
    })?;
    let expert = numbers.get(ours.matches('*').count()).copied();
    Some((format!("{}{ending}", filled(ours, &numbers)), expert))
}

/// What a hub calls one of our tensors, whether it is there or not; of a stack, with `*` for the expert.
pub(in crate::weights) fn original(tables: &[Table], name: &str) -> Option<String> {
    let rows = || tables.iter().copied().flatten();
    let whole = rows().find_map(|(theirs, ours)| Some(filled(theirs, &matched(ours, name)?)));
    whole.or_else(|| {
        let ending = ENDINGS.into_iter().find(|ending| name.ends_with(ending))?;
        let stem = &name[..name.len() - ending.len()];
        rows().find_map(|(theirs, ours)| Some(format!("{}{ending}", filled(theirs, &matched(ours, stem)?))))
    })
}

/// The numbers of a name that fits a pattern.
pub(super) fn matched(pattern: &str, name: &str) -> Option<Vec<usize>> {
    let (mut numbers, mut words) = (Vec::new(), name.split('.'));
    for wanted in pattern.split('.') {
        let word = words.next()?;
        match wanted {
            "*" if word.len() <= 9 && word.bytes().all(|b| b.is_ascii_digit()) => {
                numbers.push(word.parse().ok()?);
            }
            same if same == word => {}
            _ => return None,
        }
    }
    words.next().is_none().then_some(numbers)
}

/// Whether a name is of a glob: here `*` is any text.
pub(super) fn fits(glob: &str, name: &str) -> bool {
    let Some((first, rest)) = glob.split_once('*') else { return glob == name };
    let Some(tail) = name.strip_prefix(first) else { return false };
    rest.is_empty() || tail.char_indices().any(|(at, _)| fits(rest, &tail[at..]))
}

/// A pattern with numbers for its first stars.
pub(super) fn filled(pattern: &str, numbers: &[usize]) -> String {
    let mut numbers = numbers.iter();
    let words = pattern.split('.').map(|word| match word {
        "*" => numbers.next().map_or("*".to_owned(), usize::to_string),
        word => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_star_of_a_glob_is_any_text() {
        let name = "model.layers.3.self_attn.rotary_emb.inv_freq";
        for glob in ["*rotary_emb.inv_freq", "model.*", "*", "*.3.*", "model.layers.*.inv_freq", name] {
            assert!(fits(glob, name), "{glob}");
        }
        for glob in ["rotary_emb.inv_freq", "model", "*.4.*", "mtp.*", "*.inv_fre"] {
            assert!(!fits(glob, name), "{glob}");
        }
    }

    #[test]
    fn names_are_translated_and_back() {
        let there = |name: &str| translated(&[COMMON], name);
        assert_eq!(there("model.layers.11.self_attn.q_proj.bias"), Some(("blk.11.attn_q.bias".into(), None)));
        assert_eq!(
            there("model.layers.3.mlp.experts.7.up_proj.weight"),
            Some(("blk.3.ffn_up_exps.weight".into(), Some(7)))
        );
        assert_eq!(
            there("model.layers.3.mlp.gate.e_score_correction_bias"),
            Some(("blk.3.exp_probs_b.bias".into(), None))
        );
        assert_eq!(there("model.layers.x.self_attn.q_proj.weight"), None);
        assert_eq!(there("model.layers.1.self_attn.q_proj.lora"), None);
        let back = |name: &str| original(&[COMMON], name).unwrap();
        assert_eq!(back("blk.11.attn_q.bias"), "model.layers.11.self_attn.q_proj.bias");
        assert_eq!(back("blk.3.ffn_up_exps.weight"), "model.layers.3.mlp.experts.*.up_proj.weight");
        assert_eq!(back("blk.3.exp_probs_b.bias"), "model.layers.3.mlp.gate.e_score_correction_bias");
    }
}
