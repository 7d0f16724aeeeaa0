//! Tool calls: prepared, asked about one after the other, run, and their results sent back.
//!
//! Nothing runs without a yes: [`Effect::Tools`] with `Run` is made in [`run`] only, which is called
//! after an answer to a question that was on screen, or for a tool of `always`.

use super::engine;
use crate::protocol::{
    CallId, FinishReason, OfferedTool, PlannedCall, RunHow, SeqId, ServerState, TOOL_ROUNDS, ToolCall,
    ToolCommand, ToolEnd, ToolEvent, ToolList, ToolResult,
};
use crate::tui::app::{App, Effect};
use crate::tui::calls::{Call, CallState, Question, Reply};
use crate::tui::chat::{Entry, Level, Turn};
use crate::tui::keymap::Action;
use crate::tui::sanitize;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// An answer ended; what it asks for is prepared.
pub fn ended(app: &mut App, seq: SeqId, effects: &mut Vec<Effect>) {
    if app.replay.is_some() || app.tools.off || app.tools.list.tools.is_empty() {
        return;
    }
    let Some(asked) = asked_for(app, seq) else { return };
    let limit = app.options.tool_rounds.unwrap_or(TOOL_ROUNDS);
    let is_over = app.chat.rounds() >= limit as usize;
    let mut turn = Turn::new("");
    turn.held = is_over;
    for call in asked {
        let id = CallId(app.tools.next_call);
        app.tools.next_call += 1;
        let mut one = Call::new(id, ToolCall { id: named(&call, id), ..call });
        if is_over {
            let why = format!("not run: {limit} rounds of tool calls in a row are the limit");
            one.end(ToolResult::not_run(ToolEnd::Refused, why));
        } else {
            effects.push(Effect::Tools(ToolCommand::Prepare { id, call: one.call.clone() }));
        }
        turn.calls.push(one);
    }
    app.chat.insert(Entry::Turn(turn));
    if is_over {
        let way_out = "a message goes on; [tools] tool_rounds in config.toml is the limit";
        app.chat.note(Level::Info, format!("stopped after {limit} rounds of tool calls in a row: {way_out}"));
    }
}

/// The calls of the answer that the conversation goes on from, if it ended well.
fn asked_for(app: &App, seq: SeqId) -> Option<Vec<ToolCall>> {
    let answer = app.chat.last_main()?.answers.first().filter(|answer| answer.seq == seq)?;
    let is_well = !matches!(answer.outcome.as_ref()?.reason, FinishReason::Abort | FinishReason::Error(_));
    let calls: Vec<_> = answer.tool_calls.iter().filter(|call| !call.name.is_empty()).cloned().collect();
    (is_well && !calls.is_empty()).then_some(calls)
}

/// A result names its call; not every format has names for calls.
fn named(call: &ToolCall, id: CallId) -> String {
    if call.id.is_empty() { format!("call_{}", id.0) } else { call.id.clone() }
}

pub fn event(app: &mut App, event: ToolEvent, effects: &mut Vec<Effect>) {
    match event {
        ToolEvent::Tools(list) => listed(app, *list),
        ToolEvent::Prepared { id, planned } => in_chat_of(app, id, |app| prepared(app, id, planned)),
        ToolEvent::Finished { id, result } => in_chat_of(app, id, |app| {
            if let Some(call) = app.chat.call_mut(id).filter(|call| !call.is_done()) {
                call.end(result);
            }
        }),
    }
    go_on_everywhere(app, effects);
}

fn prepared(app: &mut App, id: CallId, planned: Result<PlannedCall, String>) {
    let Some(call) = app.chat.call_mut(id).filter(|call| call.state == CallState::Checking) else { return };
    match planned {
        Ok(plan) => (call.plan, call.state) = (Some(plan), CallState::Planned),
        Err(why) => call.end(ToolResult::not_run(ToolEnd::Invalid, why)),
    }
}

/// Which chat a call is of.
fn tab_of(app: &App, id: CallId) -> Option<usize> {
    let has_it = |turn: &Turn| turn.calls.iter().any(|call| call.id == id);
    app.tab_of(|chat| chat.turns().rev().any(has_it))
}

/// Lets something happen in the chat of a call, in view or not.
fn in_chat_of(app: &mut App, id: CallId, then: impl FnOnce(&mut App)) {
    let Some(tab) = tab_of(app, id) else { return };
    let active = app.tabs.active();
    app.in_tab(tab, |app| {
        app.chat.unread |= tab != active;
        then(app);
    });
}

/// The chat in view asks first.
fn go_on_everywhere(app: &mut App, effects: &mut Vec<Effect>) {
    go_on(app, effects);
    for tab in 0..app.tabs.len() {
        app.in_tab(tab, |app| go_on(app, effects));
    }
}

/// The next call is asked about, or run; after the last one the results are sent.
pub fn go_on(app: &mut App, effects: &mut Vec<Effect>) {
    let Some(turn) = app.chat.pending() else { return };
    match turn.calls.iter().find(|call| !call.is_done()) {
        Some(Call { state: CallState::Planned, id, call, .. }) => {
            let (id, may_run) = (*id, app.tools.always.contains(&call.name));
            if may_run {
                run(app, id, RunHow::AsDeclared, effects);
            } else if app.tools.question.is_none() {
                app.tools.question = Some(Question::new(id));
            }
        }
        Some(_) => {}
        None => engine::send_queued(app, effects),
    }
}

fn run(app: &mut App, id: CallId, how: RunHow, effects: &mut Vec<Effect>) {
    let now = app.now;
    if let Some(call) = app.chat.call_mut(id) {
        call.state = CallState::Running(now);
        effects.push(Effect::Tools(ToolCommand::Run { id, how }));
    }
}

/// Refuses what is asked, ends what runs, and sends nothing back before the person's next message.
pub fn stop(app: &mut App, effects: &mut Vec<Effect>) {
    let Some(turn) = app.chat.pending_mut() else { return };
    turn.held = true;
    // The question may be another chat's.
    let asked = app.tools.question.as_ref().map(|question| question.call);
    if turn.calls.iter().any(|call| Some(call.id) == asked) {
        app.tools.question = None;
    }
    for call in turn.calls.iter_mut().filter(|call| !call.is_done()) {
        effects.push(Effect::Tools(ToolCommand::Cancel(call.id)));
        call.end(match call.state {
            CallState::Running(_) => ToolResult::not_run(ToolEnd::Cancelled, "The user stopped this call."),
            _ => ToolResult::not_run(ToolEnd::Refused, REFUSED),
        });
    }
}

const REFUSED: &str = "The user refused this call.";

/// A key while a question is open; false lets it act as usual.
pub fn key(app: &mut App, key: KeyEvent, effects: &mut Vec<Effect>) -> bool {
    let now = app.now;
    let Some(question) = app.tools.question.as_mut().filter(|_| app.overlay.is_none()) else { return false };
    match (app.keymap.question_action(key), app.keymap.action(key, app.focus)) {
        (Some(Action::Answer(reply)), _) => answer(app, reply, effects),
        (_, Some(Action::Escape)) => {
            let call = question.call;
            in_chat_of(app, call, |app| stop(app, effects));
            app.say("refused; write what to do instead");
            go_on_everywhere(app, effects);
        }
        _ if is_writing(key) => {
            question.disturbed(now);
            app.say("first an answer to the question: y, n, d, a or Esc");
        }
        _ => return false,
    }
    true
}

/// Letters, Enter and the like. What is written on while a question appears is no answer to it.
fn is_writing(key: KeyEvent) -> bool {
    let plain = key.modifiers.difference(KeyModifiers::SHIFT).is_empty();
    plain && matches!(key.code, KeyCode::Char(_) | KeyCode::Enter | KeyCode::Backspace | KeyCode::Delete)
}

pub fn answer(app: &mut App, reply: Reply, effects: &mut Vec<Effect>) {
    let now = app.now;
    let Some(question) = &mut app.tools.question else { return };
    match reply {
        Reply::Up => return question.scroll = question.scroll.saturating_sub(1),
        Reply::Down => return question.scroll += usize::from(question.below.get() > 0),
        _ => {}
    }
    let (taken, id) = (question.takes_answers(now), question.call);
    question.disturbed(now);
    if !taken {
        return;
    }
    match (reply, question.always) {
        (Reply::Once | Reply::Always, _) if !question.read.get() => {
            app.say("there is more of it: ↓ shows it")
        }
        (Reply::Always, false) => question.ask(true),
        (Reply::Refuse, true) => question.ask(false),
        (Reply::Once, false) => decided(app, id, Some(RunHow::AsDeclared), effects),
        (Reply::DryRun, false) => decided(app, id, Some(RunHow::DryRun), effects),
        (Reply::Refuse, false) => decided(app, id, None, effects),
        (Reply::Once, true) => {
            in_chat_of(app, id, |app| {
                let name = app.chat.call_mut(id).map(|call| call.call.name.clone());
                app.tools.always.extend(name);
            });
            decided(app, id, Some(RunHow::AsDeclared), effects);
        }
        (Reply::DryRun | Reply::Always | Reply::Up | Reply::Down, _) => {}
    }
}

fn decided(app: &mut App, id: CallId, how: Option<RunHow>, effects: &mut Vec<Effect>) {
    app.tools.question = None;
    in_chat_of(app, id, |app| match how {
        Some(how) => run(app, id, how, effects),
        None => {
            effects.push(Effect::Tools(ToolCommand::Cancel(id)));
            if let Some(call) = app.chat.call_mut(id) {
                call.end(ToolResult::not_run(ToolEnd::Refused, REFUSED));
            }
            go_on(app, effects);
        }
    });
    if how.is_none() || app.tabs.len() > 1 {
        go_on_everywhere(app, effects);
    }
}

/// What is declared now. A yes for always is for a tool as it was then.
fn listed(app: &mut App, list: ToolList) {
    let before = std::mem::replace(&mut app.tools.list, list);
    let list = &app.tools.list;
    let find = |tools: &[OfferedTool], name: &str| tools.iter().find(|t| t.tool.name == name).cloned();
    app.tools.always.retain(|name| {
        let now = find(&list.tools, name);
        now.is_some() && now == find(&before.tools, name)
    });
    let mut notes = Vec::new();
    if let Some(error) = list.error.as_ref().filter(|_| list.error != before.error) {
        notes.push((Level::Bad, format!("no tools: {error}\n/tools reload reads it again")));
    }
    for server in list.servers.iter().filter(|server| !before.servers.contains(server)) {
        if let ServerState::Failed(why) = &server.state {
            let name = &server.name;
            notes.push((Level::Bad, format!("MCP server {name}: {why}\n/tools reload starts it again")));
        }
    }
    if list.settled && list.tools.len() != before.tools.len() && !list.tools.is_empty() {
        let names: Vec<String> = list.tools.iter().map(|t| sanitize::one_line(&t.tool.name)).collect();
        notes.push((Level::Good, format!("tools: {} · each call is asked for · /tools", names.join(", "))));
    }
    notes.into_iter().for_each(|(level, text)| app.chat.note(level, text));
}

/// `/tools`, `/tools off`, `/tools on`, `/tools reload`.
pub fn command(app: &mut App, arguments: &str, effects: &mut Vec<Effect>) {
    match arguments {
        "" => app.chat.note(Level::Info, table(app)),
        "on" | "off" => {
            app.tools.off = arguments == "off";
            app.say(match app.tools.off {
                true => "the model is told of no tools, from the next message on",
                false => "the model is told of the tools, from the next message on",
            });
        }
        "reload" => {
            app.tools.always.clear();
            effects.push(Effect::Tools(ToolCommand::Reload));
            app.say("the tools are read again");
        }
        other => {
            app.chat.note(Level::Bad, format!("/tools lists them, /tools on, off or reload, not {other:?}"))
        }
    }
}

fn table(app: &App) -> String {
    let list = &app.tools.list;
    if list.file.is_empty() {
        return "this screen has no tools".into();
    }
    let state = if app.tools.off { "off: the model is not told of them" } else { "on" };
    let mut lines = vec![format!("tools of {} · {state}", list.file)];
    lines.extend(list.error.iter().cloned());
    if list.tools.is_empty() && list.servers.is_empty() && list.error.is_none() {
        lines.push("none are declared there; docs/tools.md says how".into());
    }
    for OfferedTool { tool, source, dry_run } in &list.tools {
        let how = match (dry_run, app.tools.always.contains(&tool.name)) {
            (true, _) => "dry run",
            (false, true) => "always",
            (false, false) => "asks",
        };
        let name = sanitize::one_line(&tool.name);
        let text = sanitize::one_line(&format!("{source}  {}", tool.description));
        lines.push(format!("{name:<16}  {how:<8}  {text}"));
    }
    lines.extend(list.servers.iter().map(|server| {
        let state = match &server.state {
            ServerState::Starting => "starts".into(),
            ServerState::Ready { tools } => format!("ready, {tools} tools"),
            ServerState::Failed(why) => format!("failed: {}", sanitize::one_line(why)),
        };
        format!("{:<16}  {:<8}  {state}", server.name, "server")
    }));
    lines.join("\n")
}
