//! A chat as it is stored, and back.

use super::calls::{Call, CallState};
use super::chat::{Answer, Chat, Entry, Turn};
use super::{format, sanitize};
use crate::protocol::{
    CallId, FinishReason, Outcome, RequestId, SeqId, StoredAnswer, StoredCall, StoredSession, StoredTurn,
    Timings, ToolEnd, ToolResult, TurnNumber, Usage,
};
use std::collections::HashMap;
use std::time::Duration;

/// Columns of a title that is made of the first message.
const TITLE: usize = 60;

/// As its tab and the list of sessions call it: by its name, else by its first message.
pub fn title(chat: &Chat) -> String {
    if let Some(title) = &chat.title {
        return title.clone();
    }
    let first = chat.turns().find(|turn| !turn.text.trim().is_empty());
    let line = first.and_then(|turn| turn.text.lines().find(|line| !line.trim().is_empty()));
    // A line may be a whole book.
    let beginning: String = line.unwrap_or_default().trim_start().chars().take(4 * TITLE).collect();
    format::fit(sanitize::one_line(&beginning).trim_end(), TITLE)
}

/// Without its answers and its place.
pub fn turn(turn: &Turn) -> StoredTurn {
    let call = |call: &Call| StoredCall {
        call: call.call.clone(),
        plan: call.plan.clone(),
        result: if let CallState::Done(result) = &call.state { Some(result.clone()) } else { None },
    };
    StoredTurn {
        text: turn.text.clone(),
        queued: turn.queued,
        side: turn.side,
        held: turn.held,
        calls: turn.calls.iter().map(call).collect(),
        ..StoredTurn::default()
    }
}

/// As `model` gives it, where nobody said who did.
pub fn answer(answer: &Answer, model: &str) -> StoredAnswer {
    StoredAnswer {
        title: answer.title.clone(),
        model: answer.model.clone().unwrap_or_else(|| model.to_owned()),
        text: answer.text.clone(),
        reasoning: answer.reasoning.clone(),
        tool_calls: answer.tool_calls.clone(),
        tokens: answer.tokens,
        reasoning_tokens: answer.reasoning_tokens,
        prompt_tokens: answer.prompt_tokens,
        cached_tokens: answer.cached_tokens,
        params: answer.params.clone(),
        budget: answer.budget,
        thinking_ms: answer.thinking.map(|(from, to)| (to - from).as_secs_f64() * 1e3),
        outcome: answer.outcome.clone(),
    }
}

/// Gives ids to what is read: none that the engine or the tools could speak of.
pub struct Ids<'a> {
    pub request: &'a mut u64,
    pub call: &'a mut u64,
    /// Versions of versions: nobody makes so many, but a file might.
    pub depth: usize,
}

const DEEPEST: usize = 200;

/// A chat of what is stored, and how many of its answers were cut off.
pub fn chat(session: StoredSession, mut ids: Ids<'_>) -> (Chat, usize) {
    let cut_off = session.turns.iter().flat_map(|t| &t.answers).filter(|a| a.outcome.is_none()).count();
    let mut children: HashMap<Option<TurnNumber>, Vec<StoredTurn>> = HashMap::new();
    for turn in session.turns {
        children.entry(turn.parent).or_default().push(turn);
    }
    children.values_mut().for_each(|turns| turns.sort_by_key(|turn| turn.place));
    let mut chat = Chat {
        title: Some(session.meta.title).filter(|title| session.meta.named && !title.is_empty()),
        system: session.meta.system,
        ..Chat::default()
    };
    let first = children.remove(&None).unwrap_or_default();
    chat.entries = entries(first, &mut children, &mut ids);
    (chat, cut_off)
}

/// Versions of a turn, and what follows the one in view. Each turn is taken once: whatever a file says,
/// there is an end.
fn entries(
    versions: Vec<StoredTurn>,
    children: &mut HashMap<Option<TurnNumber>, Vec<StoredTurn>>,
    ids: &mut Ids<'_>,
) -> Vec<Entry> {
    let mut list = Vec::new();
    let mut versions = versions;
    while !versions.is_empty() {
        let shown = versions.iter().position(|turn| turn.in_view).unwrap_or(versions.len() - 1);
        let after = versions.split_off(shown + 1);
        let Some(stored) = versions.pop() else { break };
        let number = stored.number;
        let mut turn = read_turn(stored, ids);
        ids.depth += 1;
        let mut others = |all: Vec<StoredTurn>| -> Vec<Vec<Entry>> {
            let all = if ids.depth < DEEPEST { all } else { Vec::new() };
            all.into_iter().map(|one| entries(vec![one], children, ids)).collect()
        };
        turn.versions.before = others(versions);
        turn.versions.after = others(after);
        ids.depth -= 1;
        list.push(Entry::Turn(turn));
        versions = children.remove(&Some(number)).unwrap_or_default();
    }
    list
}

fn read_turn(stored: StoredTurn, ids: &mut Ids<'_>) -> Turn {
    let mut turn = Turn::new(&stored.text);
    turn.number = Some(stored.number);
    (turn.queued, turn.side, turn.held) = (stored.queued, stored.side, stored.held);
    turn.calls = stored.calls.into_iter().map(|call| read_call(call, ids)).collect();
    // Nothing is sent by itself.
    turn.held |= !turn.calls.is_empty() && stored.answers.is_empty();
    let request = RequestId(*ids.request);
    *ids.request += u64::from(!stored.answers.is_empty());
    let answers =
        (0..).zip(stored.answers).map(|(choice, answer)| read_answer(SeqId { request, choice }, answer));
    turn.answers = answers.collect();
    turn
}

fn read_call(stored: StoredCall, ids: &mut Ids<'_>) -> Call {
    let mut call = Call::new(CallId(*ids.call), stored.call);
    *ids.call += 1;
    call.plan = stored.plan;
    call.end(stored.result.unwrap_or_else(|| {
        ToolResult::not_run(ToolEnd::Cancelled, "The program ended before this call did.")
    }));
    call
}

fn read_answer(seq: SeqId, stored: StoredAnswer) -> Answer {
    let mut answer = Answer::new(seq, stored.params, Duration::ZERO);
    answer.body.push(&stored.text);
    answer.thoughts.push(&stored.reasoning);
    answer.thinking =
        stored.thinking_ms.map(|ms| (Duration::ZERO, Duration::from_secs_f64(ms.clamp(0.0, 1e9) / 1e3)));
    Answer {
        title: stored.title,
        model: Some(stored.model).filter(|model| !model.is_empty()),
        text: stored.text,
        reasoning: stored.reasoning,
        tool_calls: stored.tool_calls,
        tokens: stored.tokens,
        reasoning_tokens: stored.reasoning_tokens,
        prompt_tokens: stored.prompt_tokens,
        cached_tokens: stored.cached_tokens,
        budget: stored.budget,
        outcome: stored.outcome,
        ..answer
    }
}

/// Answers that nobody writes any more are stopped ones.
pub fn end_answers(entries: &mut [Entry]) {
    let turns = entries.iter_mut().filter_map(|entry| match entry {
        Entry::Turn(turn) => Some(turn),
        Entry::Note(_) => None,
    });
    for turn in turns {
        for answer in turn.answers.iter_mut().filter(|answer| answer.outcome.is_none()) {
            answer.outcome = Some(Box::new(stopped(answer)));
        }
        for list in turn.versions.before.iter_mut().chain(&mut turn.versions.after) {
            end_answers(list);
        }
    }
}

fn stopped(answer: &Answer) -> Outcome {
    let usage = Usage {
        prompt_tokens: answer.prompt_tokens.unwrap_or_default(),
        completion_tokens: answer.tokens,
        reasoning_tokens: answer.reasoning_tokens,
        ..Usage::default()
    };
    let (timings, params) = (Timings::default(), answer.params.clone());
    Outcome { reason: FinishReason::Abort, usage, timings, seed: 0, params, beam: None }
}
