//! Says hostile text through every channel of an engine: `hostile answer 3` is answered with the
//! third payload as the answer, `hostile error 3` with it as an error, and so on.

use super::payloads::payloads;
use glassbox::protocol::*;
use std::sync::Arc;

/// The channel and the payload that the last message of a person asks for.
pub fn asked(request: &Request) -> Option<(String, String)> {
    let Prompt::Chat(messages) = &request.prompt else { return None };
    let text = &messages.iter().rev().find(|m| m.role == Role::User)?.content;
    let (channel, number) = text.strip_prefix("hostile ")?.rsplit_once(' ')?;
    Some((channel.to_owned(), payload(number)?))
}

/// The payload that the end of a name asks for: `./hostile-3`.
pub fn payload(name: &str) -> Option<String> {
    let number: usize = name.rsplit(['-', ' ']).next()?.parse().ok()?;
    Some(payloads().into_iter().nth(number)?.text)
}

/// What is said to `request`, from its acceptance to its end.
pub fn say(request: &Request, channel: &str, payload: &str) -> Vec<Event> {
    let seq = SeqId { request: request.id, choice: 0 };
    let Prompt::Chat(messages) = &request.prompt else { return Vec::new() };
    let after_a_call = messages.last().is_some_and(|m| m.role == Role::Tool);
    let mut events = vec![
        Event::Paused(false),
        Event::Accepted { id: request.id, prompt_tokens: 9, rendered: payload.into() },
        Event::Started { seq, cached_tokens: 0 },
    ];
    let text = |text: &str| Event::Delta { seq, part: Part::Text(text.into()) };
    let call = |name: &str, arguments: String| {
        let id = Some("call".to_owned());
        let piece = ToolCallDelta { id, name: Some(name.into()), arguments, ..ToolCallDelta::default() };
        Event::Delta { seq, part: Part::ToolCall(piece) }
    };
    let mut reason = FinishReason::Stop;
    match channel {
        _ if after_a_call => events.push(text("That is what it says.")),
        "answer" => events.push(text(payload)),
        "answer in pieces" => events.extend(payload.chars().map(|c| text(&c.to_string()))),
        "code" => events.push(text(&format!("```rust\n{payload}\n```\n"))),
        "code language" => events.push(text(&format!("```{payload}\nlet x;\n```\n"))),
        "table" => events.push(text(&format!("| a | b |\n|---|---|\n| 1 | {payload} |\n"))),
        "thoughts" => events.push(Event::Delta { seq, part: Part::Reasoning(payload.into()) }),
        "token" => events.extend([Event::Token { seq, token: Box::new(token(payload)) }, text("x")]),
        "call name" => events.push(call(payload, "{}".into())),
        "call arguments" => events.push(call("weather", payload.into())),
        "result" => {
            reason = FinishReason::ToolCalls;
            events.push(call("get_weather", serde_json::json!({ "city": payload }).to_string()));
        }
        "served" => {
            reason = FinishReason::ToolCalls;
            let number = payloads().iter().position(|known| known.text == payload).unwrap_or_default();
            events.push(call(&format!("served_{number}"), "{}".into()));
        }
        "error" => reason = FinishReason::Error(Failure::new(FailureKind::Internal, payload)),
        "note" => events.extend([Event::Note(payload.into()), text("x")]),
        "why" => events.push(Event::Broke { id: 1, step: 7, why: payload.into() }),
        other => panic!("no channel {other:?}"),
    }
    events.push(Event::Finished { seq, outcome: Box::new(outcome(reason, &request.params)) });
    events
}

/// A model whose file says it of itself.
pub fn model(info: ModelInfo, payload: &str) -> ModelInfo {
    ModelInfo {
        name: payload.into(),
        architecture: payload.into(),
        quantization: payload.into(),
        device: payload.into(),
        device_reason: payload.into(),
        ..info
    }
}

/// The newest token as the panels see it, had it this text.
pub fn trace(seq: SeqId, params: &SamplingParams, payload: &str) -> Arc<SamplingTrace> {
    let candidate = Candidate {
        id: 7,
        text: payload.into(),
        logit: 3.0,
        raw_probability: 0.9,
        probability: 1.0,
        cut_by: None,
    };
    Arc::new(SamplingTrace {
        seq,
        index: 0,
        params: params.clone(),
        stages: Vec::new(),
        candidates: vec![candidate],
        vocab_size: 100,
        entropy: 0.5,
        final_entropy: 0.4,
        drawn: 7,
        grammar: None,
    })
}

fn token(text: &str) -> TokenInfo {
    TokenInfo {
        id: 7,
        text: text.into(),
        bytes: text.into(),
        logprob: -0.1,
        rank: 1,
        entropy: 0.5,
        top: vec![],
        forced: false,
        channel: Channel::Content,
        held: text.into(),
        why: Some(HeldBack::Tag),
    }
}

fn outcome(reason: FinishReason, params: &SamplingParams) -> Outcome {
    Outcome {
        reason,
        usage: Usage { completion_tokens: 1, ..Usage::default() },
        timings: Timings::default(),
        seed: 1,
        params: params.clone(),
        beam: None,
    }
}
