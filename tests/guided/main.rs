//! Guided decoding with models: what they say is valid, by a validator that knows nothing of grammars
//! (Python's `jsonschema`), and how much of JSON Schema can be held.
//!
//! The ordinary run says a little with a committed checkpoint. In full:
//!
//! ```text
//! cargo test --release --test guided -- --ignored --nocapture --test-threads 1
//! ```
//!
//! `GLASSBOX_OUTPUTS` is how many answers (2000), `GLASSBOX_MODEL` the model's file, and
//! `GLASSBOX_SCHEMA_SUITE` the folder of drafts of the JSON-Schema-Test-Suite (`json/tests` in the
//! source package of Python's `jsonschema`).

#![allow(clippy::unwrap_used)]

#[path = "../support/cpu.rs"]
mod cpu;
mod schemas;

use cpu::cpu;
use glassbox::base::Clock;
use glassbox::config::EngineSettings;
use glassbox::engine::Engine;
use glassbox::grammar::{Compiler, State};
use glassbox::model::{LoadOptions, load};
use glassbox::open::text_model;
use glassbox::protocol::*;
use glassbox::text::TextModel;
use glassbox::weights::{Catalogue, Checkpoint, ModelDirs, find};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::time::Instant;

const VALIDATOR: &str = r#"
import json, sys
from jsonschema import Draft202012Validator, FormatChecker
bad = 0
for line in sys.stdin:
    case = json.loads(line)
    try:
        answer = json.loads(case["text"])
        Draft202012Validator(case["schema"], format_checker=FormatChecker()).validate(answer)
    except Exception as e:
        bad += 1
        print(json.dumps(case)[:500], str(e)[:200])
sys.exit(1 if bad else 0)
"#;

struct Said {
    schema: Value,
    text: String,
    reason: FinishReason,
}

/// Answers of one model, so many to each schema, all of them in one engine.
fn say(path: &Path, schemas: &[Value], each: u32, max_tokens: u32) -> Vec<Said> {
    let file = Checkpoint::open(path).unwrap();
    let text = Arc::new(text_model(&file, None).unwrap());
    let runner = load(&file, cpu(2), &LoadOptions::default(), &|_, _| ()).unwrap().runner;
    // The committed checkpoints have no room for a schema in the prompt.
    let chats = text.has_chat_template() && runner.limits().max_model_len >= 1024;
    let mut engine = Engine::new(&EngineSettings::default(), runner, text, Clock::wall());
    let (intake, mut events) = (engine.intake(), Vec::new());
    for (id, schema) in (0..).zip(schemas) {
        let ask = format!("Write a JSON object that follows this JSON schema: {schema}");
        let prompt = match chats {
            true => Prompt::Chat(vec![Message::new(Role::User, ask)]),
            false => Prompt::Text("{}".into()),
        };
        let params = SamplingParams { seed: Some(id), max_tokens: Some(max_tokens), ..Default::default() };
        let grammar = Grammar::JsonSchema(schema.to_string());
        let request = Request {
            n: each,
            guided: Some(Guided { grammar, in_reasoning: false }),
            ..Request::new(RequestId(id), prompt, params)
        };
        engine.apply(intake.take(Command::Submit(Box::new(request))), &mut events);
    }
    let mut texts: BTreeMap<SeqId, String> = BTreeMap::new();
    let mut said = Vec::new();
    while engine.can_step() {
        engine.tick(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Delta { seq, part: Part::Text(text) } => texts.entry(seq).or_default().push_str(&text),
                Event::Finished { seq, outcome } => said.push(Said {
                    schema: schemas[seq.request.0 as usize].clone(),
                    text: texts.remove(&seq).unwrap_or_default(),
                    reason: outcome.reason,
                }),
                _ => {}
            }
        }
    }
    let counters = engine.snapshot().counters;
    println!(
        "{} tokens, {} of them forced; grammars {:.0} ms of {:.0} ms in steps",
        counters.generated_tokens, counters.forced_tokens, counters.grammar_ms, counters.busy_ms
    );
    said
}

/// Every finished answer is valid; gives back how many there were. `None` without a validator.
fn validate(said: &[Said]) -> Option<usize> {
    let checks = Process::new("python3").args(["-c", "import jsonschema"]).stderr(Stdio::null()).status();
    if !checks.is_ok_and(|status| status.success()) {
        eprintln!("skipped: python3 has no jsonschema");
        return None;
    }
    let mut python = Process::new("python3")
        .args(["-c", VALIDATOR])
        .stdin(Stdio::piped())
        .stdout(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut finished = 0;
    let mut stdin = python.stdin.take().unwrap();
    for one in said {
        match &one.reason {
            FinishReason::Stop => finished += 1,
            FinishReason::Length => continue,
            other => panic!("{other:?}: {} -> {}", one.schema, one.text),
        }
        writeln!(stdin, "{}", serde_json::json!({ "schema": one.schema, "text": one.text })).unwrap();
    }
    drop(stdin);
    assert!(python.wait().unwrap().success(), "the answers above are not valid");
    Some(finished)
}

#[test]
fn a_model_without_sense_says_only_what_schemas_allow() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf/llama.gguf");
    let schemas: Vec<Value> = (0..12).map(schemas::schema).collect();
    let said = say(&path, &schemas, 2, 400);
    assert_eq!(said.len(), 24);
    if let Some(finished) = validate(&said) {
        assert!(finished > 12, "{finished} of 24 came to an end");
    }
}

#[test]
#[ignore = "takes many minutes, and a model"]
fn real_answers_to_two_hundred_schemas_are_valid() {
    let named = std::env::var_os("GLASSBOX_MODEL").map(PathBuf::from);
    let found = || Some(find("smollm2-135m", &ModelDirs::from_env(), &Catalogue::builtin()).ok()?.path);
    let Some(path) = named.or_else(found) else { return eprintln!("skipped: no model on disk") };
    let outputs: usize = std::env::var("GLASSBOX_OUTPUTS").map_or(2000, |n| n.parse().unwrap());
    let schemas: Vec<Value> = (0..200.min(outputs as u64)).map(schemas::schema).collect();
    let begun = Instant::now();
    let said = say(&path, &schemas, (outputs / schemas.len()) as u32, 400);
    let finished = validate(&said).unwrap();
    println!(
        "{} answers to {} schemas, {finished} finished, all of them valid; {:.0} s",
        said.len(),
        schemas.len(),
        begun.elapsed().as_secs_f64()
    );
    assert!(finished * 10 >= said.len() * 9, "too many never end");
}

/// How a group of the suite went.
#[derive(Default)]
struct Score {
    groups: usize,
    compiled: usize,
    valid: (usize, usize),
    invalid: (usize, usize),
}

#[test]
#[ignore = "takes the JSON-Schema-Test-Suite"]
fn the_public_schema_suite() {
    let Some(folder) = std::env::var_os("GLASSBOX_SCHEMA_SUITE").map(PathBuf::from) else {
        return eprintln!("skipped: GLASSBOX_SCHEMA_SUITE is not set");
    };
    let compiler = Compiler::new(Arc::new(TextModel::bytes()));
    let (mut all, mut refused) = (Score::default(), BTreeMap::<String, usize>::new());
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder.join("draft2020-12")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files.iter().filter(|path| path.is_file()) {
        let groups: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let mut score = Score::default();
        for group in &groups {
            score.groups += 1;
            let grammar = Grammar::JsonSchema(group["schema"].to_string());
            match compiler.compile(&grammar) {
                Ok(_) => score.judge(&compiler, &grammar, group),
                Err(why) => {
                    let why = why.to_string();
                    *refused.entry(why.rsplit(": ").next().unwrap().to_owned()).or_default() += 1;
                }
            }
        }
        println!("{:<28} {}", path.file_stem().unwrap().to_string_lossy(), score.words());
        all.add(&score);
    }
    println!("{:<28} {}", "all", all.words());
    refused.iter().for_each(|(why, times)| println!("{times:>4} refused: {why}"));
    assert_eq!(all.invalid.0, all.invalid.1, "nothing invalid is taken");
    assert!(all.compiled * 2 > all.groups);
}

impl Score {
    fn judge(&mut self, compiler: &Compiler, grammar: &Grammar, group: &Value) {
        self.compiled += 1;
        for test in group["tests"].as_array().unwrap() {
            let takes = takes(compiler, grammar, &test["data"].to_string());
            let (right, of) =
                if test["valid"] == true { (&mut self.valid, true) } else { (&mut self.invalid, false) };
            right.0 += usize::from(takes == of);
            right.1 += 1;
            if takes && !of {
                println!("  takes {} for {}", test["data"], group["schema"]);
            }
        }
    }

    fn add(&mut self, other: &Score) {
        self.groups += other.groups;
        self.compiled += other.compiled;
        self.valid = (self.valid.0 + other.valid.0, self.valid.1 + other.valid.1);
        self.invalid = (self.invalid.0 + other.invalid.0, self.invalid.1 + other.invalid.1);
    }

    fn words(&self) -> String {
        format!(
            "{}/{} compiled, {}/{} valid taken, {}/{} invalid refused",
            self.compiled, self.groups, self.valid.0, self.valid.1, self.invalid.0, self.invalid.1
        )
    }
}

/// Whether the text, byte by byte, is an answer.
fn takes(compiler: &Compiler, grammar: &Grammar, text: &str) -> bool {
    let mut guide = compiler.compile(grammar).unwrap();
    let bytes: Vec<TokenId> = text.bytes().map(TokenId::from).collect();
    guide.try_commit(&bytes).is_ok_and(|taken| taken == bytes.len()) && guide.state().unwrap() != State::Open
}
