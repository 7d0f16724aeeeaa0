//! Calls of tools and budgets for thoughts, from the token to the end of an answer.

use crate::harness::*;
use glassbox::model::Scripted;
use glassbox::protocol::*;
use serde_json::json;

const CALL: &str = "<tool_call>{\"name\": \"time\", \"arguments\": {\"zone\": \"UTC\"}}</tool_call>";

fn tools(names: &[&str], choice: ToolChoice) -> Tools {
    let tool = |name: &&str| Tool {
        name: (*name).into(),
        description: String::new(),
        parameters: json!({ "type": "object" }),
    };
    Tools { tools: names.iter().map(tool).collect(), choice, ..Tools::default() }
}

fn saying(reply: &str) -> Bench {
    Bench::new(Scripted::saying(Scripted::limits(64, 4), reply))
}

/// Asks with these tools; what was said, called, and why it ended.
fn answer(reply: &str, tools: Tools, params: SamplingParams) -> (String, Vec<ToolCall>, FinishReason) {
    let mut bench = saying(reply);
    let request = bench.request("hi", params);
    let id = bench.submit(Request { tools, ..request });
    bench.run();
    let mut calls = Vec::new();
    for event in &bench.events {
        if let Event::Delta { part: Part::ToolCall(piece), .. } = event {
            piece.add_to(&mut calls);
        }
    }
    (bench.text(id), calls, bench.reason(id).clone())
}

#[test]
fn an_answer_that_ends_with_a_call_says_so() {
    let (text, calls, reason) = answer(&format!("Hm. {CALL}"), tools(&["time"], ToolChoice::Auto), greedy());
    assert_eq!((text.as_str(), reason), ("Hm. ", FinishReason::ToolCalls));
    assert_eq!((&*calls[0].name, &*calls[0].arguments), ("time", "{\"zone\": \"UTC\"}"));
    assert_eq!(calls[0].id.len(), 9);
    let (text, calls, reason) = answer(CALL, tools(&["time"], ToolChoice::None), greedy());
    assert_eq!((text.as_str(), calls.len(), reason), (CALL, 0, FinishReason::Stop));
}

#[test]
fn a_call_that_is_cut_off_is_text() {
    let params = SamplingParams { max_tokens: Some(50), ..greedy() };
    let (text, calls, reason) = answer(CALL, tools(&["time"], ToolChoice::Auto), params);
    assert_eq!((calls.len(), reason), (0, FinishReason::Length));
    assert!(CALL.starts_with(&text) && text.len() == 50, "{text}");
}

#[test]
fn tools_that_cannot_be_are_refused_by_name() {
    for (tools, wanted) in [
        (tools(&["a b"], ToolChoice::Auto), "tools[0].name"),
        (tools(&["f", "f"], ToolChoice::Auto), "tools[1].name: f is there twice"),
        (tools(&["f"], ToolChoice::Named("g".into())), "no tool \"g\""),
        (tools(&[], ToolChoice::Required), "needs tools"),
    ] {
        let (_, _, reason) = answer("x", tools, greedy());
        let FinishReason::Error(failure) = reason else { panic!("{reason:?}") };
        assert_eq!(failure.kind, FailureKind::BadRequest);
        assert!(failure.message.contains(wanted), "{failure}");
    }
}

fn thinking(async_scheduling: bool, budget: Option<u32>) -> (String, String, Vec<TokenId>) {
    let settings = settings().tuned(|s| s.async_scheduling = async_scheduling);
    let script = Scripted::saying(Scripted::limits(64, 4), "<think>abcdefghijklmnop</think>yes");
    let mut bench = Bench::with(settings, script);
    let request = bench.request("hi", greedy());
    let id = bench.submit(Request { thinking: Thinking { budget, ..Thinking::default() }, ..request });
    bench.run();
    let thoughts = bench.events.iter().filter_map(|event| match event {
        Event::Delta { part: Part::Reasoning(text), .. } => Some(text.as_str()),
        _ => None,
    });
    (thoughts.collect(), bench.text(id), bench.tokens(first(id)))
}

#[test]
fn thoughts_over_their_budget_are_closed_by_force() {
    let (thoughts, ..) = thinking(false, None);
    assert_eq!(thoughts, "abcdefghijklmnop");
    let (thoughts, answer, tokens) = thinking(false, Some(5));
    assert!(thoughts.trim_end() == "abcde" && !answer.is_empty(), "{thoughts} {answer}");
    assert!(tokens.contains(&258), "the closing tag is one of its tokens");
    // A step that is under way when the tag is forced changes nothing.
    assert_eq!(thinking(true, Some(5)), (thoughts, answer, tokens));
}
