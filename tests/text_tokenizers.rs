//! Tokenizers of real models, against what the `tokenizers` and SentencePiece libraries make of the
//! same strings. The vocabularies are read from model files; where there is none the test says so.

use glassbox::protocol::{Message, Part, Prompt, Role};
use glassbox::text::{HubFiles, OutputOptions, Specials, TextModel, VocabSpec};
use glassbox::weights::{self, Catalogue, Checkpoint, ModelDirs};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn golden(name: &str) -> Option<Value> {
    let root = std::env::var_os("GLASSBOX_GOLDEN")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/golden"), PathBuf::from);
    let path = root.join("tokenizers").join(name);
    let Ok(json) = std::fs::read(&path) else {
        eprintln!("skipped: no golden data at {}", path.display());
        return None;
    };
    Some(serde_json::from_slice(&json).expect("golden data is JSON"))
}

/// The vocabulary of a model of the catalogue, where its file is on disk.
fn vocabulary(name: &str) -> Option<VocabSpec> {
    let found = weights::find(name, &ModelDirs::from_env(), &Catalogue::builtin()).ok()?;
    let file = Checkpoint::open(&found.path).expect("a model of the catalogue");
    Some(glassbox::open::vocabulary(&file).expect("its vocabulary"))
}

/// `agrees`: whether an id of the golden data means the same token in this vocabulary.
fn check(model: &str, golden_name: &str, agrees: impl Fn(u32) -> bool) {
    let Some(golden) = golden(golden_name) else { return };
    let Some(spec) = vocabulary(model) else {
        eprintln!("skipped: {model} is not on disk; `glassbox models pull {model}` fetches it");
        return;
    };
    check_spec(model, &golden, spec, agrees);
}

fn check_spec(model: &str, golden: &Value, spec: VocabSpec, agrees: impl Fn(u32) -> bool) {
    let adds_space = match &spec.recipe {
        Some(recipe) => recipe.strips_space,
        None => spec.model == "llama" && spec.add_space_prefix != Some(false),
    };
    let start = std::time::Instant::now();
    let text = TextModel::new(spec).expect("a usable vocabulary");
    println!("{model}: {} tokens loaded in {:?}", text.vocab_size(), start.elapsed());
    let (mut wrong, mut total) = (Vec::new(), 0);
    for case in golden["cases"].as_array().expect("cases") {
        let source = case["text"].as_str().expect("a text");
        let expected = ids(&case["ids"]);
        if !expected.iter().all(|&id| agrees(id)) {
            continue;
        }
        total += 1;
        let found = text.encode(source, Specials::Parse);
        if found != expected {
            wrong.push(format!("{source:?}\n  expected {expected:?}\n  found    {found:?}"));
        }
        let bytes: Vec<u8> = found.iter().flat_map(|&id| text.piece(id).into_owned()).collect();
        let read_back = String::from_utf8_lossy(&bytes);
        let read_back =
            if adds_space { read_back.strip_prefix(' ').unwrap_or(&read_back) } else { &read_back };
        if read_back != case["decoded"].as_str().unwrap_or(source) {
            wrong.push(format!("{source:?} reads back as {read_back:?}"));
        }
    }
    for case in golden["streams"].as_array().into_iter().flatten() {
        let chunks: Vec<Option<String>> = streamed(&text, &ids(&case["ids"]));
        let expected: Vec<Option<String>> = case["chunks"]
            .as_array()
            .expect("chunks")
            .iter()
            .map(|chunk| chunk.as_str().map(str::to_owned))
            .collect();
        if chunks != expected {
            wrong.push(format!("stream {}\n  expected {expected:?}\n  found    {chunks:?}", case["text"]));
        }
    }
    println!("{model}: {} of {total} strings agree", total - wrong.len());
    assert!(wrong.is_empty(), "{model}: {} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// What is shown token by token; nothing where a character is not whole. The library then holds back all
/// that the token says, and so do we here; a reply shows what is whole at once.
fn streamed(text: &TextModel, ids: &[u32]) -> Vec<Option<String>> {
    let mut parser = text.output(OutputOptions::default());
    let mut waiting = String::new();
    let mut next = |id: &u32| {
        let pushed = parser.push(*id);
        for part in pushed.parts {
            match part {
                Part::Text(text) | Part::Reasoning(text) => waiting += &text,
                Part::ToolCall(_) => unreachable!("no tools"),
            }
        }
        (pushed.held.is_empty() && !waiting.is_empty()).then(|| std::mem::take(&mut waiting))
    };
    ids.iter().map(&mut next).collect()
}

/// Vocabularies that are not ours to copy: `GLASSBOX_TOKENIZERS`, or `../shared/tokenizers`. It has
/// `NAME/tokenizer.json` for names of the golden data, and GGUF vocabularies with `.inp` and `.out`.
fn vocabularies() -> Option<PathBuf> {
    let folder = std::env::var_os("GLASSBOX_TOKENIZERS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/tokenizers"), PathBuf::from);
    if !folder.is_dir() {
        eprintln!("skipped: no vocabularies at {}; GLASSBOX_TOKENIZERS names a folder", folder.display());
        return None;
    }
    Some(folder)
}

fn hub_files(folder: &Path) -> Option<HubFiles> {
    let read = |name: &str| std::fs::read(folder.join(name)).ok();
    Some(HubFiles {
        tokenizer: read("tokenizer.json")?,
        tokenizer_config: read("tokenizer_config.json"),
        chat_template: read("chat_template.jinja"),
        ..HubFiles::default()
    })
}

const HUB: [&str; 8] = ["llama3", "llama3_1", "qwen3", "gemma3", "deepseek_v3", "gptoss", "gpt4o", "llama2"];

fn check_hub(name: &str) {
    let (Some(folder), Some(golden)) = (vocabularies(), golden(&format!("{name}.json"))) else { return };
    let Some(files) = hub_files(&folder.join(name)) else {
        return eprintln!("skipped: no {name}/tokenizer.json in {}", folder.display());
    };
    let start = std::time::Instant::now();
    let spec = VocabSpec::from_hub(&files).expect("a usable tokenizer.json");
    println!("{name}: read in {:?}", start.elapsed());
    let bos = spec.recipe.is_some().then_some(spec.bos).flatten();
    for case in golden["cases"].as_array().expect("cases") {
        // What the post-processor adds is one BOS, in all of them.
        if let Some(special) = case.get("ids_special") {
            let expected: Vec<u32> = bos.into_iter().chain(ids(&case["ids"])).collect();
            assert_eq!(ids(special), expected, "{name}");
            assert_eq!(spec.add_bos, Some(true), "{name}");
        }
    }
    check_spec(name, &golden, spec, |_| true);
}

#[test]
fn every_tokenizer_json_gives_the_ids_of_the_tokenizers_library() {
    HUB.iter().for_each(|name| check_hub(name));
}

/// Texts of a `.inp` file, and ids of the `.out` file beside it, one line each.
fn expected_ids(vocabulary: &Path) -> Option<Vec<(String, Vec<u32>)>> {
    let beside = |end: &str| std::fs::read_to_string(format!("{}{end}", vocabulary.display())).ok();
    let (texts, ids) = (beside(".inp")?, beside(".out")?);
    let texts = texts.split("\n__ggml_vocab_test__\n").map(str::to_owned);
    let ids = ids.lines().map(|line| line.split_whitespace().map(|id| id.parse().expect("an id")).collect());
    Some(texts.zip(ids).collect())
}

#[test]
fn every_gguf_vocabulary_gives_the_ids_that_come_with_it() {
    let Some(folder) = vocabularies() else { return };
    let entries = std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "gguf")).collect();
    files.sort();
    if files.is_empty() {
        eprintln!("skipped: no GGUF vocabularies in {}", folder.display());
    }
    let mut wrong = Vec::new();
    for path in files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let file = Checkpoint::inspect(&path).expect("a GGUF file");
        let made = glassbox::open::vocabulary(&file).map_err(|error| error.to_string());
        let made = made.and_then(|spec| TextModel::new(spec).map_err(|error| error.to_string()));
        let (text, cases) = match (made, expected_ids(&path)) {
            (Err(error), _) => {
                println!("{name}: refused: {error}");
                continue;
            }
            (Ok(_), None) => {
                println!("{name}: loads; nothing comes with it");
                continue;
            }
            (Ok(text), Some(cases)) => (text, cases),
        };
        let differ = cases.iter().filter(|(source, ids)| text.encode(source, Specials::Text) != *ids);
        let differ: Vec<String> = differ
            .map(|(source, ids)| {
                let found = text.encode(source, Specials::Text);
                format!("{name} {source:?}\n  expected {ids:?}\n  found    {found:?}")
            })
            .collect();
        println!("{name}: {} of {} strings agree", cases.len() - differ.len(), cases.len());
        wrong.extend(differ);
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn ids(list: &Value) -> Vec<u32> {
    list.as_array().expect("a list of ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

#[test]
fn smollm2() {
    check("smollm2-135m", "smollm2_gguf.json", |_| true);
}

#[test]
fn qwen2() {
    // Qwen3 added tokens from 151665 on; the rest is the same.
    check("qwen2.5-coder-0.5b", "qwen3.json", |id| id < 151_665);
}

#[test]
fn gemma3() {
    check("gemma-3-270m", "gemma3.json", |_| true);
}

fn models() -> impl Iterator<Item = (&'static str, TextModel)> {
    ["smollm2-135m", "qwen2.5-coder-0.5b", "gemma-3-270m"]
        .into_iter()
        .filter_map(|name| Some((name, TextModel::new(vocabulary(name)?).expect("a usable vocabulary"))))
}

// BUGLOG Z02, on whole vocabularies.
#[test]
fn no_control_token_of_a_real_vocabulary_can_be_typed() {
    for (name, model) in models() {
        let controls: Vec<u32> = (0..model.vocab_size() as u32).filter(|&id| model.is_control(id)).collect();
        assert!(!controls.is_empty());
        let all: String = controls.iter().map(|&id| model.piece_text(id)).collect::<Vec<_>>().join(" x");
        let model =
            model.with_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}").expect("valid");
        let chat = Prompt::Chat(vec![Message::new(Role::User, all.clone())]);
        for prompt in [chat, Prompt::Text(all)] {
            let ids = model.prompt(&prompt).expect("a prompt").ids;
            let bos = usize::from(model.is_control(ids[0]));
            assert!(!ids[bos..].iter().any(|&id| model.is_control(id)), "{name}");
        }
    }
}

// BUGLOG T15, T16, on whole vocabularies.
#[test]
fn a_megabyte_without_a_break_takes_no_more_than_a_moment() {
    for (name, model) in models() {
        for text in ["^", "_", " ", "é"].map(|c| c.repeat(1_000_000 / c.len())) {
            let start = std::time::Instant::now();
            let ids = model.encode(&text, Specials::Text);
            let taken = start.elapsed();
            println!("{name} {:?}: {} tokens in {taken:?}", &text.chars().next(), ids.len());
            assert!(taken.as_secs() < 10, "{name}: {taken:?}");
            let bytes: usize = ids.iter().map(|&id| model.piece(id).len()).sum();
            assert_eq!(bytes, text.len(), "{name}");
        }
    }
}
