//! Configurations and indexes that are wrong in one way each.

use super::small::{LLAMA_TENSORS, file, folder, llama};
use super::{ONE, bounded};
use glassbox::weights::Checkpoint;
use serde_json::{Value, json};

/// Fields that are read, and the kind of what they hold.
const NUMBERS: [&str; 12] = [
    "num_hidden_layers",
    "max_position_embeddings",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "head_dim",
    "num_experts",
    "num_experts_per_tok",
    "sliding_window",
    "num_nextn_predict_layers",
];
const FLOATS: [&str; 4] = ["rms_norm_eps", "rope_theta", "partial_rotary_factor", "final_logit_softcapping"];
const OTHERS: [&str; 4] = ["tie_word_embeddings", "model_type", "rope_scaling", "quantization_config"];

/// One field of a good configuration with something else in it.
fn with(name: &str, value: Value) -> String {
    let mut config = llama();
    config[name] = value;
    config.to_string()
}

/// Every field with values of every wrong kind.
fn wrong_fields() -> Vec<(String, String)> {
    let no_numbers = [json!("x"), json!(true), json!([1]), json!({ "a": 1 })];
    let no_counts = [json!(-1), json!(1.5), json!(1e300)];
    let mut cases = Vec::new();
    for name in NUMBERS {
        for value in no_numbers.iter().chain(&no_counts) {
            cases.push((format!("{name} is {value}"), with(name, value.clone())));
        }
    }
    for name in FLOATS {
        for value in no_numbers.iter().chain([&json!(1e300)]) {
            cases.push((format!("{name} is {value}"), with(name, value.clone())));
        }
    }
    for name in OTHERS {
        for value in [json!("x"), json!(1), json!([1])] {
            cases.push((format!("{name} is {value}"), with(name, value)));
        }
    }
    cases
}

/// Whole files, and fields inside fields.
fn wrong_wholes() -> Vec<(String, String)> {
    let good = llama().to_string();
    let text = |text: &str| (text.chars().take(30).collect::<String>(), text.to_owned());
    let mut cases: Vec<(String, String)> = [
        "",
        " ",
        "{",
        "}",
        "null",
        "1",
        "\"x\"",
        "[]",
        "[{}]",
        "{}",
        "{\"a\":}",
        "{a:1}",
        "{'a':1}",
        "tru",
        "NaN",
        "\u{feff}{}",
        "{} {}",
        "{\"model_type\":\"llama\"",
        "{\"model_type\":null}",
        "{\"model_type\":\"\"}",
        "{\"model_type\":\"llama\",\"model_type\":\"llama\"}",
        "{\"model_type\":\"llama\"}//",
        "\0",
        "{\"\\u\":1}",
    ]
    .into_iter()
    .map(text)
    .collect();
    for cut in (1..good.len()).step_by(23) {
        cases.push((format!("cut at {cut}"), good[..cut].to_owned()));
    }
    cases.push(("deep".into(), format!("{{\"a\":{}}}", "[".repeat(100_000))));
    cases.push(("long".into(), format!("{{\"a\":\"{}\"}}", "x".repeat(5 << 20))));
    for (name, value) in [
        ("rope_scaling", json!({ "rope_type": "ntk", "factor": 2.0 })),
        ("rope_scaling", json!({ "type": 1 })),
        ("rope_scaling", json!({ "type": "linear", "factor": "2" })),
        ("rope_scaling", json!({ "type": "longrope", "short_factor": [1, "x"] })),
        ("rope_parameters", json!({ "rope_theta": [] })),
        ("rope_parameters", json!({ "full_attention": 1 })),
        ("text_config", json!(1)),
        ("text_config", json!({ "model_type": 1 })),
        ("partial_rotary_factor", json!(-0.5)),
        ("partial_rotary_factor", json!(2)),
        ("quantization_config", json!({})),
        ("quantization_config", json!({ "quant_method": 1 })),
        ("quantization_config", json!({ "quant_method": "fp8", "weight_block_size": [0, 0] })),
        ("quantization_config", json!({ "quant_method": "fp8", "fmt": "e5m2" })),
        ("quantization_config", json!({ "quant_method": "gptq" })),
        ("quantization_config", json!({ "quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin" })),
    ] {
        cases.push((format!("{name}: {value}"), with(name, value)));
    }
    let mut layers = llama();
    layers["sliding_window"] = json!(8);
    layers["layer_types"] = json!(["sliding_attention", "full_attention"]);
    cases.push(("more kinds than layers".into(), layers.to_string()));
    layers["layer_types"] = json!([1]);
    cases.push(("a number for a kind".into(), layers.to_string()));
    layers["layer_types"] = Value::Null;
    (layers["use_sliding_window"], layers["max_window_layers"]) = (json!(true), json!(1));
    layers["num_hidden_layers"] = json!(1u64 << 40);
    cases.push(("a list of 2^40 layers".into(), layers.to_string()));
    cases
}

#[test]
fn each_malformed_configuration_is_refused_by_its_field() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let weights = file(&LLAMA_TENSORS);
    let cases = [wrong_fields(), wrong_wholes()].concat();
    assert!(cases.len() >= 100, "{}", cases.len());
    for (case, config) in &cases {
        let weights = weights.clone();
        let opened = bounded(case, || Checkpoint::from_hub_bytes("m".as_ref(), config.as_bytes(), weights));
        let error = opened.expect_err(case).to_string();
        assert!(error.starts_with("m/config.json: "), "{case}: {error}");
        let field = case.split([' ', ':']).next().unwrap();
        let named = !case.contains(" is ") || error.contains(field);
        assert!(named, "{case}: {error}");
    }
    println!("{} malformed configurations", cases.len());
}

/// Claims that no tensor answers cost nothing; whoever loads compares them with the tensors.
#[test]
fn large_claims_cost_nothing() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for name in NUMBERS {
        let config = with(name, json!(u64::MAX));
        let weights = file(&LLAMA_TENSORS);
        let _ = bounded(name, || Checkpoint::from_hub_bytes("m".as_ref(), config.as_bytes(), weights));
    }
}

/// Indexes, each beside one good shard.
fn indexes() -> Vec<(&'static str, String, &'static str)> {
    let map = |value: &str| format!("{{\"weight_map\":{value}}}");
    let all = |shard: &str| {
        let pairs: Vec<String> =
            LLAMA_TENSORS.iter().map(|(name, _)| format!("\"{name}\":\"{shard}\"")).collect();
        pairs.join(",")
    };
    vec![
        ("empty", String::new(), "not an index: EOF"),
        ("no object", "[]".into(), "not an index"),
        ("no JSON", "{weight_map}".into(), "not an index"),
        ("nothing", "{}".into(), "missing field `weight_map`"),
        ("no map", map("null"), "not an index"),
        ("a list", map("[]"), "invalid type: sequence, expected an object"),
        ("an empty map", map("{}"), "it lists no tensors"),
        ("a number for a file", map("{\"a\":1}"), "expected a string"),
        ("null for a file", map("{\"a\":null}"), "expected a string"),
        ("a list for a file", map("{\"a\":[\"s.safetensors\"]}"), "expected a string"),
        ("a name twice", map("{\"a\":\"s.safetensors\",\"a\":\"s.safetensors\"}"), "\"a\" appears twice"),
        ("the map twice", "{\"weight_map\":{},\"weight_map\":{}}".into(), "duplicate field"),
        ("cut off", map("{\"a\":\"s.saf"), "not an index: EOF"),
        ("a file that is not there", map("{\"a\":\"t.safetensors\"}"), "not in the folder: t.safetensors"),
        ("no name", map("{\"a\":\"\"}"), "no name of a file"),
        ("this folder", map("{\"a\":\".\"}"), "no name of a file"),
        ("the folder above", map("{\"a\":\"..\"}"), "no name of a file"),
        ("a path above", map("{\"a\":\"../s.safetensors\"}"), "no name of a file"),
        ("a whole path", map("{\"a\":\"/etc/passwd\"}"), "no name of a file"),
        ("a path of another system", map("{\"a\":\"..\\\\s.safetensors\"}"), "no name of a file"),
        ("a drive", map("{\"a\":\"c:s.safetensors\"}"), "no name of a file"),
        ("NUL in a name", map("{\"a\":\"s\\u0000.safetensors\"}"), "no name of a file"),
        ("a folder for a file", map("{\"a\":\"sub\"}"), "not in the folder: sub"),
        ("a file of text", map("{\"a\":\"config.json\"}"), "damaged or no safetensors file"),
        (
            "a tensor that is nowhere",
            map(&format!("{{\"a\":\"s.safetensors\",{}}}", all("s.safetensors"))),
            "tensor \"a\" should be in s.safetensors",
        ),
        ("a pickle", map(&format!("{{{},\"a\":\"p.bin\"}}", all("s.safetensors"))), "Python pickle"),
        ("deep", map(&"[".repeat(100_000)), "not an index"),
    ]
}

#[test]
fn each_malformed_index_is_refused() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (config, shard) = (llama().to_string(), file(&LLAMA_TENSORS));
    let cases = indexes();
    for (case, index, said) in &cases {
        let folder = folder(&[
            ("config.json", config.as_bytes()),
            ("model.safetensors.index.json", index.as_bytes()),
            ("s.safetensors", &shard),
            ("p.bin", b"\x80\x02}q\0."),
        ]);
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        let error = bounded(case, || Checkpoint::open(folder.path())).expect_err(case).to_string();
        assert!(error.contains(said), "{case}: {error}");
    }
    // A tensor in two files.
    let folder = folder(&[
        ("config.json", config.as_bytes()),
        ("model-00001-of-00002.safetensors", &shard),
        ("model-00002-of-00002.safetensors", &shard),
    ]);
    let error = bounded("twice", || Checkpoint::open(folder.path())).unwrap_err().to_string();
    assert!(error.contains("is in another file too"), "{error}");
    std::fs::remove_file(folder.path().join("model-00002-of-00002.safetensors")).unwrap();
    let error = bounded("a part", || Checkpoint::open(folder.path())).unwrap_err().to_string();
    assert!(error.contains("model-00002-of-00002.safetensors is missing"), "{error}");
    println!("{} malformed indexes", cases.len() + 2);
}
