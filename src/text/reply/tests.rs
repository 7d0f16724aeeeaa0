//! The transcripts of tests/fixtures/transcripts: what models write, and what it means.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::protocol::{Part, REASONING_PARSERS, TOOL_CALL_PARSERS, Tool, ToolCall};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

#[derive(Debug, Deserialize)]
struct Transcript {
    text: String,
    reasoning: Option<String>,
    tools: Option<String>,
    #[serde(default)]
    opened: bool,
    /// No tool was offered: the model's calls are text.
    #[serde(default)]
    unoffered: bool,
    /// Markers that are tokens of the vocabulary; in the text such a token stands in ⟦⟧.
    #[serde(default)]
    marks: Vec<String>,
    #[serde(default)]
    thoughts: String,
    #[serde(default)]
    answer: String,
    #[serde(default)]
    calls: Vec<Call>,
}

#[derive(Debug, Deserialize)]
struct Call {
    id: Option<String>,
    name: String,
    arguments: Json,
}

/// A character, or a token that is a marker.
#[derive(Clone, Debug)]
enum Piece {
    Char(char),
    Mark(String),
}

fn transcripts() -> Vec<Transcript> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/transcripts");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let text = read("generated.jsonl") + &read("handwritten.jsonl");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

fn tools() -> Arc<[Tool]> {
    let tool = |name: &str, properties: Json| Tool {
        name: name.into(),
        description: String::new(),
        parameters: json!({ "type": "object", "properties": properties }),
    };
    let text = json!({ "type": "string" });
    [
        tool("get_weather", json!({ "city": text })),
        tool("get_time", json!({})),
        tool(
            "search",
            json!({ "query": text, "limit": { "type": "number" }, "exact": { "type": "boolean" } }),
        ),
        tool("note", json!({ "text": text, "tags": { "type": "array" }, "meta": { "type": "object" } })),
    ]
    .into()
}

impl Transcript {
    fn families(&self, marks: &[String]) -> Families {
        let mark = |(id, text): (usize, &String)| {
            let silent = !text.contains("think") && !text.ends_with("tool_call>");
            (id as u32, Mark { text: text.as_str().into(), silent })
        };
        Families {
            reasoning: self.reasoning.as_deref().map(|name| Reasoning::named(name).unwrap()),
            tools: self.tools.as_deref().map(|name| ToolFormat::named(name).unwrap()),
            marks: marks.iter().enumerate().map(mark).collect(),
        }
    }

    fn reader(&self, families: &Families) -> Reader {
        let reasoning = self.reasoning.is_some();
        let tools = if self.unoffered { Arc::default() } else { tools() };
        Reader::new(families, Reading { reasoning, opened: self.opened, tools, seed: 7 })
    }

    /// The text with those markers as tokens that stand in brackets; `all`: wherever they stand.
    fn pieces(&self, marks: &[String], all: bool) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut rest = self.text.as_str();
        while let Some(c) = rest.chars().next() {
            let bracketed = rest.strip_prefix('⟦').and_then(|inside| inside.split_once('⟧'));
            let longest =
                marks.iter().filter(|mark| all && rest.starts_with(mark.as_str())).max_by_key(|m| m.len());
            match (bracketed, longest) {
                (Some((mark, behind)), _) => {
                    pieces.push(Piece::Mark(mark.into()));
                    rest = behind;
                }
                (None, Some(mark)) => {
                    pieces.push(Piece::Mark(mark.clone()));
                    rest = &rest[mark.len()..];
                }
                (None, None) => {
                    pieces.push(Piece::Char(c));
                    rest = &rest[c.len_utf8()..];
                }
            }
        }
        pieces
    }

    fn check(&self, parts: &[Part], how: &str) {
        let (thoughts, answer, calls) = sums(parts);
        let what = format!("{how}: {self:#?}\n{parts:#?}");
        assert_eq!(thoughts, self.thoughts, "{what}");
        assert_eq!(answer, self.answer, "{what}");
        assert_eq!(calls.len(), self.calls.len(), "{what}");
        for (call, expected) in calls.iter().zip(&self.calls) {
            assert_eq!(call.name, expected.name, "{what}");
            let arguments: Json =
                serde_json::from_str(&call.arguments).unwrap_or_else(|e| panic!("{e}: {what}"));
            assert_eq!(arguments, expected.arguments, "{what}");
            match &expected.id {
                Some(id) => assert_eq!(&call.id, id, "{what}"),
                None => assert_eq!(call.id.len(), 9, "{what}"),
            }
        }
    }
}

fn sums(parts: &[Part]) -> (String, String, Vec<ToolCall>) {
    let (mut thoughts, mut answer, mut calls) = (String::new(), String::new(), Vec::new());
    for part in parts {
        match part {
            Part::Reasoning(text) => thoughts += text,
            Part::Text(text) => answer += text,
            Part::ToolCall(piece) => piece.add_to(&mut calls),
        }
    }
    (thoughts, answer, calls)
}

/// Neighbours of one kind as one; of a call that was taken back nothing is left.
fn joined(parts: Vec<Part>) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    for part in parts {
        match (all.last_mut(), part) {
            (Some(Part::Text(before)), Part::Text(text)) => before.push_str(&text),
            (Some(Part::Reasoning(before)), Part::Reasoning(text)) => before.push_str(&text),
            (_, Part::ToolCall(piece)) if piece.retracted => {
                all.retain(|part| !matches!(part, Part::ToolCall(before) if before.index == piece.index));
            }
            (Some(Part::ToolCall(before)), Part::ToolCall(piece)) if before.index == piece.index => {
                before.arguments.push_str(&piece.arguments);
            }
            (_, part) => all.push(part),
        }
    }
    // What was taken back may have stood between two texts.
    let texts = |part: &Part| matches!(part, Part::Text(_));
    match all.windows(2).any(|pair| texts(&pair[0]) && texts(&pair[1])) {
        true => joined(all),
        false => all,
    }
}

/// Reads runs of pieces: cut before each of these places.
fn read(mut reader: Reader, pieces: &[Piece], cuts: &[usize]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut text = String::new();
    for (at, piece) in pieces.iter().enumerate() {
        if cuts.contains(&at) {
            reader.push(&std::mem::take(&mut text), &mut parts);
        }
        match piece {
            Piece::Char(c) => text.push(*c),
            Piece::Mark(mark) => {
                reader.push(&std::mem::take(&mut text), &mut parts);
                let silent = !mark.contains("think") && !mark.ends_with("tool_call>");
                reader.mark(&Mark { text: mark.as_str().into(), silent }, &mut parts);
            }
        }
    }
    reader.push(&text, &mut parts);
    reader.finish(&mut parts);
    joined(parts)
}

#[test]
fn every_transcript_means_what_it_should_however_it_is_cut() {
    let all = transcripts();
    assert!(all.len() >= 300, "{}", all.len());
    let mut splits = 0;
    for transcript in &all {
        let families = transcript.families(&transcript.marks);
        let pieces = transcript.pieces(&transcript.marks, false);
        let reader = transcript.reader(&families);
        let whole = read(reader.clone(), &pieces, &[]);
        transcript.check(&whole, "whole");
        for at in 1..pieces.len() {
            assert_eq!(read(reader.clone(), &pieces, &[at]), whole, "cut at {at}: {transcript:#?}");
        }
        splits += pieces.len();
        let each: Vec<usize> = (0..pieces.len()).collect();
        assert_eq!(read(reader.clone(), &pieces, &each), whole, "one by one: {transcript:#?}");
        if pieces.len() <= 70 {
            for at in 1..pieces.len() {
                for then in at + 1..pieces.len() {
                    assert_eq!(
                        read(reader.clone(), &pieces, &[at, then]),
                        whole,
                        "{at} {then}: {transcript:#?}"
                    );
                    splits += 1;
                }
            }
        }
    }
    println!("{} transcripts, {splits} splits", all.len());
}

/// The same texts from a vocabulary that has the families' markers as tokens.
#[test]
fn markers_that_are_tokens_mean_the_same() {
    for transcript in transcripts().iter().filter(|transcript| transcript.marks.is_empty()) {
        let plain = transcript.families(&[]);
        let markers = plain.reasoning.iter().flat_map(|family| family.markers().map(str::to_owned));
        let calls = plain.tools.into_iter().flat_map(|format| format.markers().map(str::to_owned));
        let is_tag = |text: &String| {
            text.starts_with(['<', '[']) && text.ends_with(['>', ']']) && !text.ends_with('\n')
        };
        let marks: Vec<String> = markers.chain(calls).filter(is_tag).collect();
        let families = transcript.families(&marks);
        // Literal tags in answers would be tokens here.
        if transcript.text.contains('`') || transcript.text.contains("say <") {
            continue;
        }
        let pieces = transcript.pieces(&marks, true);
        let parts = read(transcript.reader(&families), &pieces, &[]);
        let typed = read(transcript.reader(&plain), &transcript.pieces(&[], false), &[]);
        let (ours, theirs) = (sums(&parts), sums(&typed));
        assert_eq!((ours.0, ours.2), (theirs.0, theirs.2), "{transcript:#?}");
    }
}

/// Every beginning of a call gives arguments that only grow, and a finished call gives all of them.
// BUGLOG F04.
#[test]
fn arguments_grow_towards_the_whole() {
    for transcript in transcripts().iter().filter(|transcript| !transcript.calls.is_empty()) {
        let families = transcript.families(&transcript.marks);
        let mut reader = transcript.reader(&families);
        let (mut parts, mut before) = (Vec::new(), HashMap::new());
        for piece in transcript.pieces(&transcript.marks, false) {
            match piece {
                Piece::Char(c) => reader.push(c.encode_utf8(&mut [0; 4]), &mut parts),
                Piece::Mark(mark) => {
                    reader.mark(&Mark { text: mark.as_str().into(), silent: false }, &mut parts)
                }
            };
            for (index, call) in sums(&parts).2.into_iter().enumerate() {
                let last = before.insert(index, call.arguments.clone()).unwrap_or_default();
                assert!(call.arguments.starts_with(&last), "{last} then {}", call.arguments);
            }
        }
    }
}

/// Nothing that a model wrote is lost: of what became no call, every letter is shown.
#[test]
fn what_is_no_call_is_all_shown() {
    for format in
        ["hermes", "kimi", "mistral", "qwen3-coder", "glm", "deepseek-v3", "gemma4", "pythonic", "minimax"]
    {
        let families = Families { tools: ToolFormat::named(format), ..Families::default() };
        for text in [
            "<tool_call>{\"name\": \"f\", ",
            "[TOOL_CALLS]f[ARGS]{\"a\": [",
            "<function=f><parameter=a>x",
            "[get_time(",
        ] {
            let reading = Reading { tools: tools(), ..Reading::default() };
            let mut reader = Reader::new(&families, reading);
            let mut parts = Vec::new();
            reader.push(text, &mut parts);
            reader.finish(&mut parts);
            assert_eq!(sums(&parts), (String::new(), text.to_owned(), vec![]), "{format}");
        }
    }
}

proptest! {
    /// Whatever is put together of markers and beginnings: it is read alike however it is cut, no text is
    /// lost where nothing was found, and what is left as a call is one.
    #[test]
    fn noise_is_read_alike_however_it_is_cut(
        reasoning in 0..REASONING_PARSERS.len(),
        format in 0..TOOL_CALL_PARSERS.len(),
        opened: bool,
        picks in prop::collection::vec((0usize..40, "(\\{\"name\": \"get_time\", \"arguments\": |\\{\\}|[a-c{}\\[\\]\"', :=\n<>/\\\\]){0,3}"), 0..8),
    ) {
        let transcript = Transcript {
            text: String::new(),
            reasoning: Some(REASONING_PARSERS[reasoning].into()),
            tools: Some(TOOL_CALL_PARSERS[format].into()),
            opened,
            unoffered: false,
            marks: vec![],
            thoughts: String::new(),
            answer: String::new(),
            calls: vec![],
        };
        let families = transcript.families(&[]);
        let mut markers: Vec<String> = vec!["get_time".into(), "(".into(), "function".into()];
        markers.extend(families.reasoning.iter().flat_map(|family| family.markers().map(str::to_owned)));
        markers.extend(families.tools.into_iter().flat_map(|format| format.markers().map(str::to_owned)));
        let text: String = picks.iter().map(|(at, text)| format!("{}{text}", markers[at % markers.len()])).collect();
        let pieces: Vec<Piece> = text.chars().map(Piece::Char).collect();
        let whole = read(transcript.reader(&families), &pieces, &[]);
        let each: Vec<usize> = (0..pieces.len()).collect();
        prop_assert_eq!(read(transcript.reader(&families), &pieces, &each), whole.clone());
        for call in sums(&whole).2 {
            prop_assert!(!call.name.is_empty() && !call.id.is_empty(), "{:?} of {}", call, text);
            let json = serde_json::from_str::<Json>(&call.arguments);
            prop_assert!(json.is_ok_and(|json| json.is_object()), "{:?} of {}", call, text);
        }
    }
}
