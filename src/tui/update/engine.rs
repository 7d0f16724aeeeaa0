//! What the engine reports, and what is sent to it.

use super::{calls, debug, sampling};
use crate::protocol::{
    Command, Event, Failure, FailureKind, FinishReason, ModelInfo, Outcome, Prompt, Request, RequestId,
    SeqId, Snapshot, Timings, Tools, Usage,
};
use crate::tui::app::{App, Effect, ModelState, ParsedToken, Replay};
use crate::tui::calls::Call;
use crate::tui::chat::{Answer, Entry, Level, Turn};
use crate::tui::keymap::Place;
use crate::tui::meter::Limits;
use crate::tui::{format, history, sanitize};
use std::sync::Arc;
use std::time::Duration;

/// Settings that an engine has not confirmed after this long are not shown any more.
const UNANSWERED: Duration = Duration::from_secs(1);

pub fn events(app: &mut App, events: Vec<Event>, effects: &mut Vec<Effect>) {
    // Whose event the one before was, and in which tab: a run of events looks its chat up once.
    let mut before: (Option<RequestId>, Option<usize>) = (None, None);
    for event in events {
        let request = request_of(&event);
        if request.is_none() || request != before.0 {
            before = (request, request.and_then(|id| app.tab_of(|chat| chat.has_request(id))));
        }
        let home = before.1;
        let ended = if let Event::Finished { seq, .. } = &event { Some(*seq) } else { None };
        let active = app.tabs.active();
        app.in_tab(home.unwrap_or(active), |app| {
            app.chat.unread |= home.is_some_and(|home| home != active);
            one(app, event, effects);
            ended.into_iter().for_each(|seq| calls::ended(app, seq, effects));
        });
    }
    for tab in 0..app.tabs.len() {
        app.in_tab(tab, |app| send_queued(app, effects));
    }
}

/// Whose event it is, where it is a request's.
fn request_of(event: &Event) -> Option<RequestId> {
    match event {
        Event::Accepted { id, .. } | Event::PromptLogprobs { id, .. } => Some(*id),
        Event::Started { seq, .. }
        | Event::Token { seq, .. }
        | Event::Delta { seq, .. }
        | Event::ParamsApplied { seq, .. }
        | Event::Finished { seq, .. } => Some(seq.request),
        _ => None,
    }
}

pub fn snapshot(app: &mut App, snapshot: Arc<Snapshot>) {
    app.meter.observe(&snapshot);
    app.traces.observe(&snapshot);
    if app.panels.batch.step_back > 0 {
        // The step that is looked at stays the same while the engine goes on.
        app.panels.batch.step_back += app.meter.newest;
        app.panels.batch.step_back = history::back(app);
    }
    if app.asked.as_ref().is_some_and(|(_, at)| app.now > *at + UNANSWERED) {
        app.asked = None;
    }
    app.snapshot = snapshot;
}

pub fn gone(app: &mut App) {
    for tab in 0..app.tabs.len() {
        app.in_tab(tab, |app| close_answers(app, "the engine ended"));
    }
    if let ModelState::Loading { name, .. } = &app.model {
        let name = name.clone();
        return load_failed_by_itself(app, name);
    }
    if let ModelState::Ready(info) = &app.model {
        let name = info.name.clone();
        app.chat.note(Level::Bad, format!("the engine of {name} ended; /model {name} starts it again"));
        app.model = ModelState::Failed { name, message: "the engine ended".into() };
    }
}

/// It ended while it loaded, without a word.
fn load_failed_by_itself(app: &mut App, name: String) {
    let message = "the engine ended".to_owned();
    let after = super::models::back_to_before(app).map(|before| format!("; {before} is still in use"));
    app.chat.note(Level::Bad, format!("{name} did not load: {message}{}", after.clone().unwrap_or_default()));
    if after.is_none() {
        app.model = ModelState::Failed { name, message };
    }
}

/// Sends what the person wrote, or keeps it until the model is ready and the last answer is done.
pub fn submit(app: &mut App, text: &str, shown: &str, effects: &mut Vec<Effect>) {
    if super::replay::does_not_answer(app) {
        return;
    }
    let mut turn = Turn::shown_as(text, shown);
    turn.queued = true;
    app.chat.entries.push(Entry::Turn(turn));
    app.chat.scroll = None;
    send_queued(app, effects);
}

/// One batch of several answers: `n` to one prompt, or one to each of several.
pub fn parallel(app: &mut App, prompts: &[String], n: u32, effects: &mut Vec<Effect>) {
    if super::replay::does_not_answer(app) {
        return;
    }
    let mut turn = Turn::new(&prompts.join(" | "));
    turn.side = true;
    for prompt in prompts {
        let request = request(app, self::prompt(app, Some(prompt)), n, Tools::default());
        let mut answers = send(app, request, effects);
        if prompts.len() > 1 {
            for answer in &mut answers {
                answer.title = Some(sanitize::one_line(prompt));
                answer.prompt = Some(prompt.clone());
            }
        }
        turn.answers.append(&mut answers);
    }
    app.chat.entries.push(Entry::Turn(turn));
    app.chat.scroll = None;
}

/// Ends every running answer here and now; late events of theirs find nothing.
pub fn close_answers(app: &mut App, why: &str) {
    let reason = FinishReason::Error(Failure::new(FailureKind::Internal, why));
    app.chat.each_turn_mut(&mut |turn| {
        for answer in turn.answers.iter_mut().filter(|a| a.outcome.is_none()) {
            let usage = Usage { completion_tokens: answer.tokens, ..Usage::default() };
            let (timings, params) = (Timings::default(), answer.params.clone());
            answer.outcome = Some(Box::new(Outcome {
                reason: reason.clone(),
                usage,
                timings,
                seed: 0,
                params,
                beam: None,
            }));
        }
    });
}

fn one(app: &mut App, event: Event, effects: &mut Vec<Effect>) {
    match &event {
        Event::Loading { stage: at, done: so_far, total: of } => {
            if let ModelState::Loading { stage, done, total, started, .. } = &mut app.model {
                if stage != at {
                    *started = app.now;
                }
                (*stage, *done, *total) = (*at, *so_far, *of);
            }
        }
        Event::Ready(info) => ready(app, info.clone(), effects),
        Event::LoadFailed(failure) => load_failed(app, failure),
        Event::Accepted { id, prompt_tokens, .. } => {
            app.chat.each_turn_mut(&mut |turn| {
                let of_request = turn.answers.iter_mut().filter(|a| a.seq.request == *id);
                of_request.for_each(|answer| answer.accepted(*prompt_tokens));
            });
        }
        Event::Paused(paused) => app.paused = *paused,
        Event::Note(text) => {
            // It may be why the settings are not what was asked for.
            app.asked = None;
            app.chat.note(Level::Info, text);
        }
        Event::Broke { id, step, why } => debug::broke(app, *id, *step, why),
        Event::Configured(settings) => {
            app.asked = None;
            Arc::make_mut(&mut app.snapshot).scheduler = (**settings).clone();
        }
        Event::Sent(command) => super::replay::sent(app, command),
        Event::Replaying { first, last, speed } => {
            super::replay::replaying(app, Replay { first: *first, last: *last, speed: *speed });
        }
        Event::Rewound => super::replay::rewound(app),
        Event::PromptLogprobs { .. } | Event::Kv(_) => {}
        Event::Inspected(answer) => super::kv::told(app, answer.clone()),
        Event::WhatIf(answer) => sampling::answered(app, answer),
        Event::Counted { ticket, tokens } => super::counting::counted(app, *ticket, tokens),
        Event::Limits(Ok(limits)) => app.meter.limits = Limits::Known(limits.clone()),
        Event::Limits(Err(why)) => app.meter.limits = Limits::Failed(why.clone()),
        Event::Token { seq, token } => {
            let index = app.chat.answer_mut(*seq).map_or(0, |answer| answer.tokens);
            app.parsed.push(ParsedToken {
                seq: *seq,
                index,
                id: token.id,
                rank: token.rank,
                logprob: token.logprob,
                text: token.text.clone(),
                forced: token.forced,
                channel: token.channel,
                held: token.held.clone(),
                why: token.why,
                at: app.now,
            });
            deliver(app, *seq, &event);
        }
        Event::Finished { seq, outcome } => {
            app.meter.finished(outcome);
            deliver(app, *seq, &event);
            finished(app, outcome);
        }
        Event::Started { seq, .. } | Event::Delta { seq, .. } | Event::ParamsApplied { seq, .. } => {
            deliver(app, *seq, &event)
        }
    }
}

fn deliver(app: &mut App, seq: SeqId, event: &Event) {
    let now = app.now;
    if let Some(answer) = app.chat.answer_mut(seq).filter(|a| a.outcome.is_none()) {
        answer.apply(event, now);
    }
}

fn ready(app: &mut App, info: Box<ModelInfo>, effects: &mut Vec<Effect>) {
    app.panels.kv.forget();
    let reason =
        if info.device_reason.is_empty() { String::new() } else { format!(": {}", info.device_reason) };
    let kv = format!("{} KV blocks of {}", format::count(info.kv_blocks as u64), info.block_size);
    let context = format::count(info.context_length as u64);
    // The same model a second time: its device failed and was opened again, or another one was. A replay
    // that goes back tells it again.
    let again = |before: &ModelInfo| (&before.name, &before.path) == (&info.name, &info.path);
    let goes_on = app.replay.is_none() && app.ready().is_some_and(again);
    let how = match goes_on {
        true => "goes on".to_owned(),
        false => format!("ready in {}", format::millis(info.load_ms)),
    };
    app.chat.note(
        if goes_on { Level::Info } else { Level::Good },
        format!("{} {how} · {}{reason} · context {context} · {kv}", info.name, info.device),
    );
    if !goes_on && !info.has_chat_template {
        app.chat.note(
            Level::Info,
            format!("{} has no chat template: it goes on from what you write, turn by turn", info.name),
        );
    }
    if let Some(quantized) = info.quantized.as_ref().filter(|_| !goes_on) {
        app.chat.note(Level::Info, format!("{} as {quantized}", info.name));
    }
    app.meter.limits = Limits::Unknown;
    app.model = ModelState::Ready(info);
    app.before = None;
    super::presets::in_force(app, effects);
}

fn load_failed(app: &mut App, failure: &Failure) {
    let name = match &app.model {
        ModelState::Loading { name, .. } => name.clone(),
        ModelState::Ready(info) => info.name.clone(),
        ModelState::None | ModelState::Failed { .. } => String::new(),
    };
    if let Some(before) = super::models::back_to_before(app) {
        let text = format!("{name} did not load: {failure}\n{before} is still in use");
        return app.chat.note(Level::Bad, text);
    }
    app.chat.note(Level::Bad, format!("{name} did not load: {failure}\n/model lists what else there is"));
    app.model = ModelState::Failed { name, message: failure.message.clone() };
}

fn finished(app: &mut App, outcome: &Outcome) {
    if let FinishReason::Error(failure) = &outcome.reason {
        let way_out = match failure.kind {
            FailureKind::TooLong => "\n/clear starts a new chat; ↑ brings the message back to shorten it",
            FailureKind::BadRequest => "\n/set lists the parameters",
            FailureKind::Busy => "\n/regen tries again",
            FailureKind::Grammar | FailureKind::Template | FailureKind::Model | FailureKind::Internal => "",
        };
        app.chat.note(Level::Bad, format!("{failure}{way_out}"));
    } else if !app.hinted {
        app.hinted = true;
        let key = |row, does| app.keymap.hint(Place::Anywhere, row, does);
        let panels = key("next_focus", "transcript, panels").filter(|_| !app.options.inline);
        let set = Some("/set temp 0.2 acts on the next token".to_owned());
        let hints = [panels, set, key("toggle_thoughts", "thoughts"), key("help", "help")];
        app.chat.note(Level::Info, hints.into_iter().flatten().collect::<Vec<_>>().join(" · "));
    }
}

/// What tools gave back, else the oldest message that waits, if the model is free.
pub fn send_queued(app: &mut App, effects: &mut Vec<Effect>) {
    if app.ready().is_none() || app.chat.is_answering() {
        return;
    }
    if let Some(turn) = app.chat.pending() {
        if turn.calls.iter().all(Call::is_done) {
            let prompt = prompt(app, None);
            let answer = main_request(app, prompt, effects);
            if let Some(turn) = app.chat.pending_mut() {
                turn.answers.push(answer);
            }
        }
        return;
    }
    let Some(text) = app.chat.turns().find(|t| t.queued).map(|t| t.text.clone()) else { return };
    let prompt = prompt(app, Some(&text));
    let answer = main_request(app, prompt, effects);
    if let Some(turn) = app.chat.turns_mut().find(|t| t.queued) {
        turn.queued = false;
        turn.answers.push(answer);
    }
}

/// The conversation and what is said next, if something is. A model without a template goes on from
/// the bare text.
pub fn prompt(app: &App, text: Option<&str>) -> Prompt {
    match app.ready() {
        Some(info) if !info.has_chat_template => Prompt::Text(text.unwrap_or_default().to_owned()),
        _ => Prompt::Chat(app.chat.messages(app.chat.system.as_deref(), text)),
    }
}

/// A request of the conversation itself: only there the model may ask for tools.
fn main_request(app: &mut App, prompt: Prompt, effects: &mut Vec<Effect>) -> Answer {
    let tools = Tools { tools: app.tools.offered(), ..Tools::default() };
    let request = request(app, prompt, 1, tools);
    send(app, request, effects).remove(0)
}

/// A request as it would be sent now, with everything that is set.
pub fn request(app: &App, prompt: Prompt, n: u32, tools: Tools) -> Request {
    Request {
        n,
        parse_reasoning: app.parse_reasoning,
        beam: app.beam,
        tools,
        guided: app.guided.clone(),
        thinking: app.thinking.clone(),
        ..Request::new(RequestId(app.next_request), prompt, app.params.clone())
    }
}

/// Sends a request and makes a place for each of its answers.
pub fn send(app: &mut App, request: Request, effects: &mut Vec<Effect>) -> Vec<Answer> {
    app.next_request += 1;
    let answer = |choice| {
        let seq = SeqId { request: request.id, choice };
        let answer = Answer::new(seq, request.params.clone(), app.now);
        Answer { budget: request.thinking.budget, ..answer }
    };
    let answers = (0..request.n).map(answer).collect();
    effects.push(Effect::Send(Command::Submit(Box::new(request))));
    answers
}
