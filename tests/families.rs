//! What a family's configuration can ask for and cannot have is refused with the field's name.
#![allow(clippy::unwrap_used)]

mod support;

use glassbox::model::{LoadOptions, load};
use glassbox::weights::Checkpoint;
use serde_json::{Value, json};
use support::{cpu, fixture};

/// What is said of a golden case with one field of its configuration changed.
fn refused(case: &str, field: &str, value: Value) -> String {
    let folder = fixture(&format!("checkpoints/{case}"));
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
    config[field] = value;
    let weights = std::fs::read(folder.join("model.safetensors")).unwrap();
    let file = match Checkpoint::from_hub_bytes("model".as_ref(), config.to_string().as_bytes(), weights) {
        Ok(file) => file,
        Err(error) => return error.to_string(),
    };
    match load(&file, cpu(1), &LoadOptions::default(), &|_, _| ()) {
        Ok(_) => panic!("{case} with another {field} loads"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_family_that_is_not_there_is_refused_by_name() {
    let said = refused("phi", "model_type", json!("phimoe"));
    assert!(said.contains("model_type is \"phimoe\"; supported are "), "{said}");
}

#[test]
fn attention_that_is_scaled_in_another_way_is_refused() {
    for (field, value) in [("scale_attn_by_inverse_layer_idx", true), ("scale_attn_weights", false)] {
        let said = refused("gpt2", field, json!(value));
        assert!(said.ends_with(&format!("{field} is {value}, which is not supported")), "{said}");
    }
}

/// Positions past the table's end have nothing to be told by.
#[test]
fn a_context_longer_than_the_learned_positions_is_refused() {
    assert_eq!(
        refused("gpt2", "n_positions", json!(512)),
        "model: gpt2.context_length is 512: position_embd.weight has shape [64, 256]"
    );
}

#[test]
fn an_activation_that_is_not_there_is_refused() {
    assert_eq!(
        refused("gpt_neox", "hidden_act", json!("relu")),
        "model: gptneox.hidden_activation is relu: only silu and forms of gelu are supported"
    );
}

#[test]
fn heads_that_do_not_fit_the_rows_are_refused() {
    let said = refused("gpt_neox", "num_attention_heads", json!(5));
    assert!(said.contains("query_key_value") && said.contains("5 heads"), "{said}");
}

#[test]
fn windows_of_other_layers_than_there_are_are_refused() {
    let said = refused("gemma2", "layer_types", json!(["sliding_attention", "full_attention"]));
    assert!(said.contains("layer_types has 2 layers"), "{said}");
}
