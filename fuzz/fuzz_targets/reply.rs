//! Any tokens as a reply, read by any pair of parsers: no panic, and every call that is left at the end
//! has a name and a JSON object.
#![no_main]

use glassbox::protocol::{Part, REASONING_PARSERS, TOOL_CALL_PARSERS, Tool};
use glassbox::text::{OutputOptions, TextModel};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, bool, Vec<u16>)| {
    let (reasoning, format, opens_reasoning, ids) = input;
    let reasoning = REASONING_PARSERS[reasoning as usize % REASONING_PARSERS.len()];
    let format = TOOL_CALL_PARSERS[format as usize % TOOL_CALL_PARSERS.len()];
    let model = TextModel::bytes().with_parsers(reasoning, format).expect("names of the tables");
    let tool = Tool { name: "f".into(), description: String::new(), parameters: serde_json::json!({}) };
    let mut parser = model.output(OutputOptions {
        parse_reasoning: true,
        opens_reasoning,
        tools: [tool].into(),
        ..OutputOptions::default()
    });
    let mut parts: Vec<Part> = ids.iter().flat_map(|id| parser.push(u32::from(*id % 262)).parts).collect();
    parts.extend(parser.finish());
    let mut calls = Vec::new();
    for part in parts {
        if let Part::ToolCall(piece) = part {
            piece.add_to(&mut calls);
        }
    }
    for call in calls {
        assert!(!call.name.is_empty() && !call.id.is_empty(), "{call:?}");
        let arguments: serde_json::Value = serde_json::from_str(&call.arguments).expect("JSON");
        assert!(arguments.is_object(), "{call:?}");
    }
});
