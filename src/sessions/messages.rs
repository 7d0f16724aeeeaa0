//! A plain list of messages, as chat APIs know it -> turns.

use crate::protocol::{
    FinishReason, Message, Outcome, Role, SamplingParams, StoredAnswer, StoredCall, StoredSession,
    StoredTurn, Timings, ToolCall, ToolEnd, ToolResult, Usage,
};
use std::collections::HashMap;

/// Messages of one kind in a row become one, so that each turn is a question and its answer.
pub fn session(messages: Vec<Message>) -> StoredSession {
    let mut session = StoredSession::default();
    for message in messages {
        match message.role {
            Role::System => join(session.meta.system.get_or_insert_default(), &message.content),
            Role::User => user(&mut session.turns, &message.content),
            Role::Assistant => assistant(&mut session.turns, message),
            Role::Tool => result(&mut session.turns, message),
        }
    }
    for (at, turn) in session.turns.iter_mut().enumerate() {
        turn.number = at as u32 + 1;
        turn.parent = (at > 0).then_some(at as u32);
        turn.in_view = true;
    }
    // What nobody has answered yet is still to be sent.
    if let Some(last) = session.turns.last_mut().filter(|turn| turn.answers.is_empty()) {
        last.queued = last.calls.is_empty();
    }
    session
}

fn join(text: &mut String, more: &str) {
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}

fn user(turns: &mut Vec<StoredTurn>, text: &str) {
    match turns.last_mut().filter(|turn| turn.answers.is_empty() && turn.calls.is_empty()) {
        Some(turn) => join(&mut turn.text, text),
        None => turns.push(StoredTurn { text: text.to_owned(), ..StoredTurn::default() }),
    }
}

fn assistant(turns: &mut Vec<StoredTurn>, message: Message) {
    if turns.is_empty() {
        turns.push(StoredTurn::default());
    }
    let Some(turn) = turns.last_mut() else { return };
    match turn.answers.first_mut() {
        Some(answer) => {
            join(&mut answer.text, &message.content);
            answer.tool_calls.extend(message.tool_calls);
        }
        None => turn.answers.push(StoredAnswer {
            text: message.content,
            reasoning: message.reasoning.unwrap_or_default(),
            tool_calls: message.tool_calls,
            outcome: Some(Box::new(whole())),
            ..StoredAnswer::default()
        }),
    }
}

/// Nothing is known of how it came about, but that it is not cut off.
fn whole() -> Outcome {
    Outcome {
        reason: FinishReason::Stop,
        usage: Usage::default(),
        timings: Timings::default(),
        seed: 0,
        params: SamplingParams::default(),
        beam: None,
    }
}

/// Results of one round of calls stand in one turn.
fn result(turns: &mut Vec<StoredTurn>, message: Message) {
    let id = message.tool_call_id.unwrap_or_default();
    let asked = turns.iter().flat_map(|turn| &turn.answers).flat_map(|answer| &answer.tool_calls);
    let asked = asked.filter(|call| call.id == id).last().cloned();
    let call =
        asked.unwrap_or(ToolCall { id, name: message.name.unwrap_or_default(), ..ToolCall::default() });
    let result =
        ToolResult { text: message.content, end: ToolEnd::Answered { is_error: false }, took_ms: 0.0 };
    let call = StoredCall { call, plan: None, result: Some(result) };
    match turns.last_mut().filter(|turn| turn.answers.is_empty() && !turn.calls.is_empty()) {
        Some(turn) => turn.calls.push(call),
        None => turns.push(StoredTurn { calls: vec![call], ..StoredTurn::default() }),
    }
}

/// The conversation in view as a list of messages; answers side by side are not of it.
pub fn messages(session: &StoredSession) -> Vec<Message> {
    let system = session.meta.system.as_ref().map(|text| Message::new(Role::System, text));
    let mut messages: Vec<Message> = system.into_iter().collect();
    for turn in in_view(session).into_iter().filter(|turn| !turn.side) {
        if turn.calls.is_empty() {
            messages.push(Message::new(Role::User, &turn.text));
        }
        messages.extend(turn.calls.iter().map(|call| {
            let mut message = Message::new(Role::Tool, call.result.as_ref().map_or("", |r| &r.text));
            message.tool_call_id = Some(call.call.id.clone());
            message.name = Some(call.call.name.clone());
            message
        }));
        messages.extend(turn.answers.first().map(|answer| {
            let mut message = Message::new(Role::Assistant, &answer.text);
            message.reasoning = (!answer.reasoning.is_empty()).then(|| answer.reasoning.clone());
            message.tool_calls = answer.tool_calls.clone();
            message
        }));
    }
    messages
}

/// From the first turn to the last one that nothing follows.
fn in_view(session: &StoredSession) -> Vec<&StoredTurn> {
    let shown = session.turns.iter().filter(|turn| turn.in_view);
    let mut next: HashMap<_, _> = shown.map(|turn| (turn.parent, turn)).collect();
    // Each is taken once: whatever a file says, there is an end.
    let first = next.remove(&None);
    std::iter::successors(first, |turn| next.remove(&Some(turn.number))).collect()
}
