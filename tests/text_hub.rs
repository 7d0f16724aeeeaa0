//! Text of a hub's folder: `tokenizer.json` and the files beside it, against what the `tokenizers` library
//! makes of the same bytes.
#![allow(clippy::unwrap_used)]

use glassbox::protocol::{Message, Prompt, Role};
use glassbox::text::{HubError, HubFiles, OutputOptions, Specials, TextModel, VocabSpec};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokenizers::Tokenizer;

const TOKENIZER: &[u8] = include_bytes!("fixtures/hub/tokenizer.json");
const CONFIG: &[u8] = include_bytes!("fixtures/hub/tokenizer_config.json");
const GENERATION: &[u8] = include_bytes!("fixtures/hub/generation_config.json");

fn fixture() -> HubFiles {
    HubFiles {
        tokenizer: TOKENIZER.to_vec(),
        tokenizer_config: Some(CONFIG.to_vec()),
        generation_config: Some(GENERATION.to_vec()),
        ..HubFiles::default()
    }
}

fn files(tokenizer: &Value) -> HubFiles {
    HubFiles { tokenizer: tokenizer.to_string().into_bytes(), ..HubFiles::default() }
}

fn model(files: &HubFiles) -> TextModel {
    TextModel::new(VocabSpec::from_hub(files).unwrap()).unwrap()
}

#[test]
fn a_folder_says_how_text_begins_and_ends_and_what_a_chat_looks_like() {
    let spec = VocabSpec::from_hub(&fixture()).unwrap();
    assert_eq!((spec.bos, spec.eos, &spec.extra_end[..]), (Some(380), Some(381), &[381, 383][..]));
    let model = TextModel::new(spec).unwrap();
    assert_eq!(model.vocab_size(), 384);
    assert!(model.end_tokens().contains(&381) && model.end_tokens().contains(&383));
    let chat = Prompt::Chat(vec![Message::new(Role::User, "hi")]);
    let built = model.prompt(&chat).unwrap();
    assert_eq!(built.rendered, "<|bos|><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    // BUGLOG E01: the template writes BOS, and there is one.
    assert_eq!(built.ids.iter().filter(|id| **id == 380).count(), 1);
    assert_eq!(fixture().sampling().unwrap(), [("temperature", 0.0)]);
}

#[test]
fn ids_and_text_equal_those_of_the_library() {
    let (model, library) = (model(&fixture()), Tokenizer::from_bytes(TOKENIZER).unwrap());
    let source = include_str!("text_hub.rs");
    for text in source.lines().chain(["<|im_start|>user\n", "e\u{301} 日本語 👨‍👩‍👧", "  \n\n x", source])
    {
        let expected = library.encode(text, false).unwrap();
        assert_eq!(model.encode(text, Specials::Parse), expected.get_ids(), "{text:?}");
        let bytes: Vec<u8> = expected.get_ids().iter().flat_map(|&id| model.piece(id).into_owned()).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
    }
}

/// Characters and what comes of merging them, in this order.
fn bpe(merges: &[(&str, &str)], more: Value) -> Value {
    let alphabet = "abcdeé.,!1 ▁<>/s²Ġ\n".chars().map(String::from);
    let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    let merged = merges.iter().map(|(left, right)| format!("{left}{right}"));
    let tokens = ["<unk>".to_owned()].into_iter().chain(alphabet).chain(bytes).chain(merged);
    let mut vocab = serde_json::Map::new();
    for token in tokens {
        let id = vocab.len();
        vocab.entry(token).or_insert(json!(id));
    }
    let mut model = json!({ "type": "BPE", "vocab": vocab, "merges": merges, "unk_token": "<unk>" });
    for (key, value) in more.as_object().unwrap() {
        model[key] = value.clone();
    }
    model
}

fn merges() -> Vec<(&'static str, &'static str)> {
    vec![
        ("▁", "a"),
        ("b", "c"),
        ("▁", "b"),
        ("a", "b"),
        ("▁a", "bc"),
        ("▁", "▁"),
        ("d", "e"),
        ("1", "1"),
        (".", "."),
        ("c", "▁"),
        ("Ġ", "a"),
        ("é", "a"),
    ]
}

fn added(content: &str, id: usize, flags: &[&str]) -> Value {
    let has = |flag: &str| flags.contains(&flag);
    json!({
        "id": id, "content": content, "special": has("special"), "lstrip": has("lstrip"),
        "rstrip": has("rstrip"), "single_word": has("single_word"), "normalized": has("normalized"),
    })
}

/// Every kind of step that there is, in the combinations that models have.
fn recipes() -> Vec<(&'static str, Value)> {
    let fallback = json!({ "byte_fallback": true, "fuse_unk": true });
    let bars = json!({ "type": "Replace", "pattern": { "String": " " }, "content": "▁" });
    let prepend = json!({ "type": "Prepend", "prepend": "▁" });
    let metaspace = |scheme: &str, split: bool| json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split });
    let plain = bpe(&merges(), json!({}));
    let recipe = |model: &Value, normalizer: Value, pre: Value| {
        let count = model["vocab"].as_object().unwrap().len();
        json!({
            "version": "1.0",
            "added_tokens": [
                added("<s>", count, &["special"]), added("<left>", count + 1, &["lstrip"]),
                added("<right>", count + 2, &["rstrip"]), added("<ab>", count + 3, &["normalized"]),
                added("abc", count + 4, &["single_word"]),
            ],
            "normalizer": normalizer, "pre_tokenizer": pre, "post_processor": null, "decoder": null,
            "model": model,
        })
    };
    let sequence = |steps: &[&Value]| json!({ "type": "Sequence", "normalizers": steps });
    let cuts = |steps: &[Value]| json!({ "type": "Sequence", "pretokenizers": steps });
    let falling = bpe(&merges(), fallback);
    let fusing = bpe(&merges(), json!({ "fuse_unk": true }));
    let whole = bpe(&merges(), json!({ "ignore_merges": true }));
    let split = |pattern: &str, behaviour: &str| json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": behaviour, "invert": false });
    let spelt = |regex: bool, prefix: bool| json!({ "type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": regex });
    vec![
        ("Llama 2", recipe(&falling, sequence(&[&prepend, &bars]), Value::Null)),
        (
            "Gemma",
            recipe(
                &falling,
                bars.clone(),
                json!({
                    "type": "Split", "pattern": { "String": " " }, "behavior": "MergedWithPrevious", "invert": false
                }),
            ),
        ),
        ("Mistral 3", recipe(&falling, Value::Null, metaspace("first", false))),
        ("Metaspace", recipe(&fusing, Value::Null, metaspace("always", true))),
        ("without a prefix", recipe(&plain, Value::Null, metaspace("never", true))),
        ("composed", recipe(&plain, json!({ "type": "NFC" }), Value::Null)),
        (
            "digits",
            recipe(
                &plain,
                Value::Null,
                cuts(&[
                    json!({ "type": "Digits", "individual_digits": false }),
                    json!({ "type": "Punctuation", "behavior": "Contiguous" }),
                ]),
            ),
        ),
        (
            "whole words",
            recipe(
                &whole,
                Value::Null,
                cuts(&[
                    json!({ "type": "WhitespaceSplit" }),
                    json!({ "type": "Digits", "individual_digits": true }),
                ]),
            ),
        ),
        ("words", recipe(&plain, Value::Null, json!({ "type": "Whitespace" }))),
        (
            "lower case",
            recipe(
                &plain,
                json!({ "type": "Lowercase" }),
                json!({
                    "type": "CharDelimiterSplit", "delimiter": "b"
                }),
            ),
        ),
        ("GPT-2", recipe(&plain, Value::Null, spelt(true, true))),
        (
            "Falcon",
            recipe(
                &plain,
                Value::Null,
                cuts(&[
                    json!({ "type": "Punctuation", "behavior": "Contiguous" }),
                    spelt(true, false),
                    json!({ "type": "Digits", "individual_digits": false }),
                    split("[0-9][0-9][0-9]", "Isolated"),
                ]),
            ),
        ),
        (
            "Llama 3",
            recipe(
                &whole,
                Value::Null,
                cuts(&[
                    split(
                        r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                        "Isolated",
                    ),
                    spelt(false, false),
                ]),
            ),
        ),
    ]
}

fn check(name: &str, json: &Value, text: &str) {
    let library = Tokenizer::from_bytes(json.to_string()).unwrap();
    let expected = library.encode(text, false).unwrap();
    let found = model(&files(json)).encode(text, Specials::Parse);
    assert_eq!(found, expected.get_ids(), "{name}: {text:?}: {:?}", expected.get_tokens());
}

// BUGLOG T10, T13.
#[test]
fn words_beside_added_tokens_get_the_ids_of_the_library() {
    let texts = [
        "",
        " ",
        "abc",
        " abc",
        "a<s>b",
        "<s>abc",
        "a <s> b",
        " a <left> b ",
        "a<right>  b",
        "a  <left>b",
        "<ab>",
        "a <ab>b",
        "xabc abc. abcd",
        "<s><s>a",
        "é字<s>字字x",
        "11 1²1 1111",
        "\n\n a\n",
        "  ▁▁a",
        "<0x0A>",
        "ĠaĠ",
    ];
    for (name, json) in recipes() {
        texts.iter().for_each(|text| check(name, &json, text));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn every_recipe_gives_the_ids_of_the_library(
        which in 0..13_usize,
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "a", "b", "bc", " ", "  ", "é", "e\u{301}", "1", "11", ".", "\n", "<s>", "<left>", "<right>", "<ab>", "abc",
                "字", "▁", "Ab", "²",
            ]),
            0..10,
        ),
    ) {
        let recipes = recipes();
        let (name, json) = &recipes[which % recipes.len()];
        check(name, json, &parts.concat());
    }
}

fn refused(files: &HubFiles) -> String {
    match VocabSpec::from_hub(files) {
        Err(error) => error.to_string(),
        Ok(spec) => TextModel::new(spec).err().unwrap().to_string(),
    }
}

fn changed(pointer: &str, value: Value) -> HubFiles {
    let mut json: Value = serde_json::from_slice(TOKENIZER).unwrap();
    *json.pointer_mut(pointer).unwrap() = value;
    files(&json)
}

#[test]
fn what_is_wrong_is_named_by_file_and_field() {
    let cases = [
        (
            changed("/model/type", json!("Unigram")),
            "tokenizer.json: model.type: \"Unigram\" is not supported",
        ),
        (changed("/model/vocab", json!([])), "tokenizer.json: model.vocab: invalid type: sequence"),
        (changed("/model/vocab", json!({})), "is no token"),
        (
            changed("/model/vocab", json!({ "a": -1 })),
            "model.vocab: the token \"a\": invalid value: integer `-1`",
        ),
        (
            changed("/model/vocab", json!({ "a": 4_000_000_000_u32 })),
            "the id 4000000000 is too high for 5 tokens",
        ),
        (changed("/model/vocab", json!({ "a": 1, "b": 1 })), "\"a\" and \"b\" both have the id 1"),
        (changed("/model/merges", json!(["a"])), "model.merges: the merge \"a\" is not two tokens"),
        (changed("/model/merges", json!([["a"]])), "model.merges: a merge is not a list of two"),
        (changed("/model/merges", json!(["x yz"])), "merge 0 \"x yz\": \"xyz\" is no token"),
        (
            changed("/model/end_of_word_suffix", json!("</w>")),
            "model.end_of_word_suffix: \"</w>\" is not supported",
        ),
        (changed("/model/byte_fallback", json!(3)), "tokenizer.json: model: invalid type: integer `3`"),
        (
            changed("/pre_tokenizer/type", json!("Bert")),
            "pre_tokenizer.type: \"Bert\" is not supported; ByteLevel, ",
        ),
        (
            changed("/pre_tokenizer/use_regex", json!("x")),
            "pre_tokenizer.use_regex: \"x\" is neither true nor false",
        ),
        (
            changed("/normalizer", json!({ "type": "Precompiled" })),
            "normalizer.type: \"Precompiled\" is not supported",
        ),
        (changed("/decoder", json!({ "type": "CTC" })), "decoder: {\"type\":\"CTC\"} is not supported"),
        (changed("/added_tokens/0/id", json!("x")), "tokenizer.json: added_tokens: invalid type: string"),
        (
            changed(
                "/pre_tokenizer",
                json!({ "type": "Sequence", "pretokenizers": [
                { "type": "Split", "pattern": { "Regex": "a(?=b)" }, "behavior": "Isolated" } ] }),
            ),
            "the pattern \"a(?=b)\" that cuts text into words cannot be used: look-around",
        ),
        (files(&json!([])), "tokenizer.json: it is no tokenizer"),
        (HubFiles { tokenizer: b"\xFF".to_vec(), ..HubFiles::default() }, "tokenizer.json: it is no UTF-8"),
        (
            HubFiles { tokenizer: TOKENIZER[..900].to_vec(), ..HubFiles::default() },
            "tokenizer.json: it is no tokenizer: EOF",
        ),
        (
            HubFiles { tokenizer_config: Some(b"[]".to_vec()), ..fixture() },
            "tokenizer_config.json: it is no JSON object",
        ),
        (
            HubFiles { tokenizer_config: Some(br#"{"bos_token":3}"#.to_vec()), ..fixture() },
            "tokenizer_config.json: bos_token: 3 is",
        ),
        (
            HubFiles { tokenizer_config: Some(br#"{"chat_template":[3]}"#.to_vec()), ..fixture() },
            "tokenizer_config.json: chat_template: a list",
        ),
        (
            HubFiles { generation_config: Some(br#"{"eos_token_id":"x"}"#.to_vec()), ..fixture() },
            "generation_config.json: eos_token_id: \"x\" is no token id",
        ),
        (HubFiles { chat_template: Some(vec![0xC3]), ..fixture() }, "chat_template.jinja: it is no UTF-8"),
    ];
    for (files, expected) in cases {
        let start = Instant::now();
        let error = refused(&files);
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
        assert!(start.elapsed() < Duration::from_secs(1), "{error}");
    }
}

#[test]
fn deep_nesting_is_refused_and_takes_no_stack() {
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let of = |field: &str| {
        let source = std::str::from_utf8(TOKENIZER).unwrap();
        let changed = source.replace(&format!("\"{field}\": null"), &format!("\"{field}\": {nested}"));
        assert_ne!(changed, source);
        VocabSpec::from_hub(&HubFiles { tokenizer: changed.into_bytes(), ..HubFiles::default() })
    };
    let HubError { problem, .. } = of("normalizer").unwrap_err();
    assert!(problem.starts_with("normalizer: recursion limit exceeded"), "{problem}");
    // What is not looked into is skipped, without a stack.
    assert!(of("truncation").is_ok());
}

fn with_config(config: Value) -> VocabSpec {
    let files = HubFiles { tokenizer_config: Some(config.to_string().into_bytes()), ..fixture() };
    VocabSpec::from_hub(&files).unwrap()
}

#[test]
fn tokens_are_named_by_text_or_by_object_and_the_config_decides_on_bos() {
    let spec = with_config(
        json!({ "bos_token": { "content": "<|eos|>" }, "pad_token": "<|bos|>", "unk_token": null }),
    );
    assert_eq!((spec.bos, spec.pad, spec.unk, spec.add_bos), (Some(381), Some(380), None, Some(false)));
    assert_eq!(with_config(json!({ "add_bos_token": true })).add_bos, Some(true));
    // No token of that name: the generation config knows one.
    assert_eq!(with_config(json!({ "bos_token": "<none>" })).bos, Some(380));
}

// BUGLOG C13.
#[test]
fn of_several_chat_templates_the_one_for_the_occasion_is_used() {
    let named = json!([
        { "name": "tool_use", "template": "tools {{ tools | length }}" },
        { "name": "default", "template": "chat" },
    ]);
    let text = TextModel::new(with_config(json!({ "chat_template": named }))).unwrap();
    let input = json!({ "messages": [] });
    assert_eq!(text.render(&input).unwrap(), "chat");
    assert_eq!(text.render(&json!({ "messages": [], "tools": [{}] })).unwrap(), "tools 1");
    let jinja = HubFiles { chat_template: Some(b"own".to_vec()), ..fixture() };
    assert_eq!(model(&jinja).render(&input).unwrap(), "own");
    let beside = br#"{"chat_template":"beside"}"#.to_vec();
    let beside = HubFiles { chat_template_json: Some(beside), tokenizer_config: None, ..fixture() };
    assert_eq!(model(&beside).render(&input).unwrap(), "beside");
    let none = HubFiles { tokenizer_config: None, ..fixture() };
    assert!(!model(&none).has_chat_template());
}

#[test]
fn sampling_is_the_models_own_where_it_has_some() {
    let of = |json: &str| {
        HubFiles { generation_config: Some(json.as_bytes().to_vec()), ..HubFiles::default() }.sampling()
    };
    let own = of(r#"{"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,"eos_token_id":1}"#).unwrap();
    assert_eq!(own, [("temperature", 0.6), ("top_k", 20.0), ("top_p", 0.95)]);
    assert_eq!(of("{}").unwrap(), []);
    let error = of(r#"{"top_p":"high"}"#).unwrap_err().to_string();
    assert_eq!(error, "generation_config.json: top_p: \"high\" is no number");
}

// BUGLOG T08: the library's decoder of single tokens would glue words together.
#[test]
fn streamed_one_by_one_words_keep_their_spaces() {
    let (_, mut json) = recipes().swap_remove(0);
    json["decoder"] = json!({ "type": "Sequence", "decoders": [
        { "type": "Replace", "pattern": { "String": "▁" }, "content": " " },
        { "type": "ByteFallback" }, { "type": "Fuse" },
        { "type": "Strip", "content": " ", "start": 1, "stop": 0 },
    ] });
    let (model, text) = (model(&files(&json)), "a b  字é a");
    let mut output = model.output(OutputOptions::default());
    let ids = model.encode(text, Specials::Text);
    let mut shown: Vec<_> = ids.iter().flat_map(|id| output.push(*id).parts).collect();
    shown.extend(output.finish());
    let shown: String = shown
        .into_iter()
        .map(|part| match part {
            glassbox::protocol::Part::Text(text) => text,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(shown, text);
}
