//! What a grammar costs beside a step: eight answers to a JSON schema at once, on a model.
//!
//! ```text
//! GLASSBOX_MODEL=MODEL.gguf cargo bench --bench grammar
//! ```
//!
//! Prints, for each kind of grammar, with forced tokens and without: steps, milliseconds a step, and
//! the share that masks and followed tokens take of the time in steps.

use glassbox::base::Clock;
use glassbox::compute::cpu::{Cpu, Isa};
use glassbox::config::EngineSettings;
use glassbox::engine::Engine;
use glassbox::model::{LoadOptions, load};
use glassbox::open::text_model;
use glassbox::protocol::{
    Command, Counters, Grammar, Guided, Message, Prompt, Request, RequestId, Role, SamplingParams,
};
use glassbox::weights::{Catalogue, Checkpoint, ModelDirs, find};
use std::path::PathBuf;
use std::sync::Arc;

const BATCH: u64 = 8;
const TOKENS: u32 = 200;

const SCHEMA: &str = r#"{"type": "object", "properties": {
    "title": {"type": "string", "maxLength": 200},
    "people": {"type": "array", "items": {"type": "object", "properties": {
        "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "role": {"enum": ["author", "editor", "reader"]}}, "required": ["name", "age", "role"],
        "additionalProperties": false}, "minItems": 6, "maxItems": 12}},
    "required": ["title", "people"], "additionalProperties": false}"#;

fn main() {
    let named = std::env::var_os("GLASSBOX_MODEL").map(PathBuf::from);
    let found = || Some(find("smollm2-135m", &ModelDirs::from_env(), &Catalogue::builtin()).ok()?.path);
    let Some(path) = named.or_else(found) else { return eprintln!("skipped: no model on disk") };
    let grammars = [
        ("none", None),
        ("json object", Some(Grammar::Json)),
        ("json schema", Some(Grammar::JsonSchema(SCHEMA.into()))),
        ("regex", Some(Grammar::Regex(r"([A-Z][a-z]{2,8} ){50,90}\.".into()))),
    ];
    println!("{:<12} forced  steps  tokens/step  ms/step  grammar ms/step  share", "grammar");
    for (name, grammar) in grammars {
        for fast_forward in [false, true] {
            let (steps, c) = run(&path, grammar.clone(), fast_forward);
            let share = 100.0 * c.grammar_ms / c.busy_ms;
            println!(
                "{name:<12} {:>6} {steps:>6} {:>12.2} {:>8.2} {:>16.3} {share:>5.2}%",
                c.forced_tokens,
                c.generated_tokens as f64 / steps as f64,
                c.busy_ms / steps as f64,
                c.grammar_ms / steps as f64,
            );
        }
    }
}

/// Steps and counters of the decoding, prompts left out.
fn run(path: &std::path::Path, grammar: Option<Grammar>, fast_forward: bool) -> (u64, Counters) {
    let file = Checkpoint::open(path).expect("a model's file");
    let text = Arc::new(text_model(&file, None).expect("its vocabulary"));
    let cpu = Cpu::with_isa(None, Isa::detect());
    let options = LoadOptions { max_model_len: Some(512), ..LoadOptions::default() };
    let runner = load(&file, cpu, &options, &|_, _| ()).expect("its weights").runner;
    let settings = EngineSettings { fast_forward, ..EngineSettings::default() };
    let mut engine = Engine::new(&settings, runner, text, Clock::wall());
    let (intake, mut events) = (engine.intake(), Vec::new());
    for id in 0..BATCH {
        let params = SamplingParams {
            seed: Some(id),
            max_tokens: Some(TOKENS),
            ignore_eos: true,
            ..Default::default()
        };
        let prompt =
            Prompt::Chat(vec![Message::new(Role::User, format!("Describe the people of book {id}."))]);
        let guided = grammar.clone().map(|grammar| Guided { grammar, in_reasoning: false });
        let request = Request { guided, ..Request::new(RequestId(id), prompt, params) };
        engine.apply(intake.take(Command::Submit(Box::new(request))), &mut events);
    }
    while engine.snapshot().counters.generated_tokens < BATCH {
        engine.tick(&mut events);
    }
    let (begun, first) = (engine.snapshot().counters, engine.snapshot().step);
    while engine.can_step() {
        engine.tick(&mut events);
        events.clear();
    }
    let end = engine.snapshot();
    let c = Counters {
        grammar_ms: end.counters.grammar_ms - begun.grammar_ms,
        busy_ms: end.counters.busy_ms - begun.busy_ms,
        generated_tokens: end.counters.generated_tokens - begun.generated_tokens,
        ..end.counters
    };
    (end.step - first, c)
}
