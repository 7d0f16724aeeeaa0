//! What the fake engine says, and how it says that it chose it.

use super::{BLOCK, BLOCKS, Sequence, VOCAB};
use glassbox::protocol::*;

pub const THOUGHTS: &str = "The user asks about the sky. Rayleigh scattering: short wavelengths scatter more, \
as the inverse fourth power of the wavelength. I should say it briefly and show a small example.";

pub const ANSWER: &str = "The sky is blue because air scatters **short wavelengths** more than long ones.\n\n\
- Blue light (450 nm) scatters about *four times* as much as red (650 nm).\n\
- At sunset the light's path is longer, so mostly red is left.\n\n\
```rust\n/// Rayleigh: the inverse fourth power of the wavelength.\n\
fn scattering(nm: f64) -> f64 {\n    (550.0 / nm).powi(4) // relative to green\n}\n```\n\n\
| colour | nm | relative |\n|---|---:|---:|\n| blue | 450 | 2.23 |\n| red | 650 | 0.51 |\n\n\
So `scattering(450.0)` is larger: the sky looks blue.\n";

/// All of markdown, said when asked about `markdown`.
pub const TORTURE: &str = include_str!("torture.md");

pub fn torture() -> Vec<(Channel, String)> {
    TORTURE.split_inclusive([' ', '\n']).map(|w| (Channel::Content, w.to_owned())).collect()
}

pub fn model_info() -> ModelInfo {
    ModelInfo {
        name: "smollm2-135m".into(),
        path: "/models/SmolLM2-135M-Instruct.Q4_1.gguf".into(),
        architecture: "llama".into(),
        parameters: 134_515_008,
        quantization: "Q4_1".into(),
        quantized: None,
        file_bytes: 98_362_432,
        layers: 30,
        vocab_size: VOCAB,
        context_length: 8192,
        trained_context_length: 8192,
        has_chat_template: true,
        reasoning_parser: Some("think".into()),
        tool_call_parser: Some("hermes".into()),
        device: "CPU (2 threads, AVX2)".into(),
        device_reason: "no CUDA device found".into(),
        kv_blocks: BLOCKS,
        block_size: BLOCK,
        kv_bytes_per_token: 23_040,
        state_bytes: 0,
        weights_bytes: 96_400_000,
        load_ms: 212.0,
    }
}

/// What a choice says: thoughts between their tags, then the answer.
pub fn script(choice: u32, think: bool) -> Vec<(Channel, String)> {
    let words = |channel, text: &str| -> Vec<(Channel, String)> {
        text.split_inclusive(' ').map(|w| (channel, w.to_owned())).collect()
    };
    let mut all = Vec::new();
    if think {
        all.push((Channel::Marker, "<think>".into()));
        all.extend(words(Channel::Reasoning, THOUGHTS));
        all.push((Channel::Marker, "</think>".into()));
    }
    let start = ["", "In short: ", "Physics says this. ", "Look up: "][choice as usize % 4];
    all.extend(words(Channel::Content, &format!("{start}{ANSWER}")));
    all
}

/// Thoughts, then a call of a tool.
pub fn call() -> Vec<(Channel, String)> {
    let mut all = script(0, true);
    all.truncate(1 + THOUGHTS.split_inclusive(' ').count());
    all.push((Channel::Marker, "</think>".into()));
    all.push((Channel::Marker, "<tool_call>".into()));
    let tokens =
        ["{\"name\": \"get_weather\", \"arguments\": ", "{\"city\"", ": \"Par", "is\", ", "\"days\": ", "3}"];
    all.extend(tokens.map(|text| (Channel::Tool, text.to_owned())));
    all.push((Channel::Marker, "}\n</tool_call>".into()));
    all
}

const CALL: &str = "{\"name\": \"";

/// What is said where there are tools: asked about the weather it calls `get_weather` (of two places,
/// asked about `two`), and after that it says what came back; asked for it `forever`, it calls again.
pub fn with_tools(request: &Request) -> Option<Vec<(Channel, String)>> {
    let Prompt::Chat(messages) = &request.prompt else { return None };
    let last = messages.last()?;
    let asked = messages.iter().rev().find(|m| m.role == Role::User)?.content.to_lowercase();
    if request.tools.tools.is_empty() || !asked.contains("weather") {
        return None;
    }
    if last.role == Role::Tool && !asked.contains("forever") {
        let words = format!("The tool says: {}", last.content);
        return Some(words.split_inclusive(' ').map(|w| (Channel::Content, w.to_owned())).collect());
    }
    let cities: &[&str] = if asked.contains("two") { &["Oslo", "New York; rm -rf ~"] } else { &["Oslo"] };
    let call = |city: &&str| {
        vec![
            (Channel::Marker, "<tool_call>".to_owned()),
            (Channel::Tool, format!("{CALL}get_weather\", \"arguments\": ")),
            (Channel::Tool, "{\"city\": ".to_owned()),
            (Channel::Tool, format!("\"{city}\"}}")),
            (Channel::Marker, "}</tool_call>".to_owned()),
        ]
    };
    Some(cities.iter().flat_map(call).collect())
}

/// A token's text as a part of the answer, after those `before`.
pub fn part(before: &[(Channel, String)], channel: Channel, text: &str) -> Option<Part> {
    match channel {
        Channel::Content => Some(Part::Text(text.to_owned())),
        Channel::Reasoning => Some(Part::Reasoning(text.to_owned())),
        Channel::Tool => {
            let begun = before.iter().filter(|(c, t)| *c == Channel::Tool && t.starts_with(CALL)).count();
            Some(Part::ToolCall(match text.strip_prefix(CALL) {
                Some(rest) => ToolCallDelta {
                    index: begun,
                    id: Some(format!("call_{begun}")),
                    name: rest.split('"').next().map(str::to_owned),
                    ..ToolCallDelta::default()
                },
                None => {
                    ToolCallDelta { index: begun - 1, arguments: text.to_owned(), ..ToolCallDelta::default() }
                }
            }))
        }
        Channel::Marker => None,
    }
}

pub fn trace(s: &Sequence, drawn: u32, text: &str) -> SamplingTrace {
    let others = [" the", " a", " light", "\n", " scattering", "\u{1b}[31m", " 空", " it", " of"];
    let share = [0.712, 0.124, 0.059, 0.041, 0.021, 0.012, 0.008, 0.005, 0.003, 0.002];
    let cut = [
        None,
        None,
        None,
        None,
        Some(Stage::MinP),
        Some(Stage::MinP),
        Some(Stage::TopP),
        Some(Stage::TopP),
        Some(Stage::TopK),
        Some(Stage::TopK),
    ];
    let names = std::iter::once(text.to_owned()).chain(others.map(str::to_owned));
    let candidates = names.zip(share).zip(cut).enumerate().map(|(i, ((text, raw), cut_by))| Candidate {
        id: if i == 0 { drawn } else { i as u32 },
        text,
        logit: 18.0 - i as f32,
        raw_probability: raw,
        probability: if cut_by.is_some() { 0.0 } else { raw / 0.936 },
        cut_by,
    });
    let p = &s.params;
    let entropy = |stage| match stage {
        Stage::Raw | Stage::Repetition => 0.91,
        Stage::Temperature => 0.82,
        Stage::TopK => 0.80,
        Stage::TopP => 0.74,
        _ => 0.71,
    };
    let stage = |stage, survivors, active: bool| StageView {
        stage,
        survivors,
        active,
        entropy: active.then(|| entropy(stage)),
    };
    let top_k = if p.top_k == 0 { VOCAB } else { p.top_k as usize };
    SamplingTrace {
        seq: s.seq,
        index: s.said.saturating_sub(1),
        params: p.clone(),
        stages: vec![
            stage(Stage::Raw, VOCAB, true),
            stage(Stage::Repetition, VOCAB, p.repetition_penalty != 1.0),
            stage(Stage::Temperature, VOCAB, p.temperature != 1.0),
            stage(Stage::TopK, top_k, p.top_k > 0),
            stage(Stage::TopP, top_k.min(6), p.top_p < 1.0),
            stage(Stage::MinP, 4, p.min_p > 0.0),
        ],
        candidates: candidates.collect(),
        vocab_size: VOCAB,
        entropy: 0.91,
        final_entropy: 0.71,
        drawn,
        grammar: None,
    }
}
