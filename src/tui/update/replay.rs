//! A replay in the place of an engine: what was asked then, going back, and the keys for it.

use super::keys;
use crate::protocol::{
    CallId, Command, Message, Prompt, ReplayCommand, Request, Role, SeqId, ToolCall, ToolEnd, ToolResult,
};
use crate::tui::app::{App, Effect, Focus, Replay};
use crate::tui::calls::Call;
use crate::tui::chat::{Answer, Chat, Entry, Turn};
use crate::tui::panels::Panel;
use crossterm::event::KeyEvent;

/// The replay's first word, or its new speed.
pub fn replaying(app: &mut App, replay: Replay) {
    let open = app.panels.open(app.class());
    let panel = open.iter().copied().find(|p| *p == Panel::Batch).or(open.first().copied());
    if app.replay.replace(replay).is_none() && app.focus == Focus::Input && app.composer.is_empty() {
        app.focus = panel.map_or(Focus::Input, Focus::Panel);
        app.hinted = true;
        app.say("space pauses · n and b step · [ and ] change the speed · F1 help");
    }
}

/// What the front end of that time sent makes the transcript.
pub fn sent(app: &mut App, command: &Command) {
    match command {
        Command::Submit(request) => asked(app, request),
        Command::Fork(request) => super::fork::place(app, request),
        Command::SetParams(_, params) => app.params = (**params).clone(),
        _ => {}
    }
}

fn asked(app: &mut App, request: &Request) {
    app.params = request.params.clone();
    let text = match &request.prompt {
        Prompt::Text(text) => text.clone(),
        Prompt::Tokens(ids) => format!("{} tokens", ids.len()),
        Prompt::Chat(messages) => {
            let last = messages.iter().rev().find(|message| message.role == Role::User);
            last.map(|message| message.content.clone()).unwrap_or_default()
        }
    };
    let calls = results(&request.prompt);
    let mut turn = Turn::new(if calls.is_empty() { &text } else { "" });
    turn.calls = calls;
    turn.side = request.n > 1;
    let seqs = (0..request.n).map(|choice| SeqId { request: request.id, choice });
    turn.answers = seqs.map(|seq| Answer::new(seq, request.params.clone(), app.now)).collect();
    app.chat.entries.push(Entry::Turn(turn));
}

/// What tools gave back, where a request ends with that and not with a person's words.
fn results(prompt: &Prompt) -> Vec<Call> {
    let Prompt::Chat(messages) = prompt else { return Vec::new() };
    let results = messages.iter().rev().take_while(|message| message.role == Role::Tool).count();
    let (before, results) = messages.split_at(messages.len() - results);
    let asked = before.last().map_or(&[][..], |message| &message.tool_calls);
    let call = |message: &Message| {
        let id = message.tool_call_id.clone().unwrap_or_default();
        let name = message.name.clone().unwrap_or_default();
        let made = || ToolCall { id: id.clone(), name, arguments: String::new() };
        let mut call =
            Call::new(CallId::default(), asked.iter().find(|c| c.id == id).cloned().unwrap_or_else(made));
        call.end(ToolResult::not_run(ToolEnd::Answered { is_error: false }, &message.content));
        call
    };
    results.iter().map(call).collect()
}

/// Everything said so far is said again, up to an earlier point.
pub fn rewound(app: &mut App) {
    app.chat = Chat { thoughts_open: app.chat.thoughts_open, ..Chat::default() };
    app.meter.forget_answers();
    app.parsed.clear();
    app.chat.scroll = None;
    app.panels.batch.step_back = 0;
}

/// A key that means something to a replay; false lets it act as usual.
pub fn key(app: &mut App, key: KeyEvent, effects: &mut Vec<Effect>) -> bool {
    if app.replay.is_none() || app.focus == Focus::Input {
        return false;
    }
    if app.focus == Focus::Transcript && app.keymap.action(key, app.focus).is_some() {
        return false;
    }
    let action = app.keymap.replay_action(key);
    if let Some(action) = action {
        keys::act(app, action, key, effects);
    }
    action.is_some()
}

pub fn back(app: &mut App, effects: &mut Vec<Effect>) {
    effects.push(Effect::Send(Command::Replay(ReplayCommand::Back(1))));
    app.paused = true;
}

/// From a hundredth of the recorded speed to a thousand times.
pub fn change_speed(app: &mut App, factor: f32, effects: &mut Vec<Effect>) {
    let Some(replay) = &app.replay else { return };
    let speed = (replay.speed * factor).clamp(0.01, 1000.0);
    effects.push(Effect::Send(Command::Replay(ReplayCommand::Speed(speed))));
}

/// Whether this is a replay, in which nothing can be set; it says so.
pub fn is_as_recorded(app: &mut App) -> bool {
    if app.replay.is_some() {
        app.say("a replay is as it was recorded: nothing is set here");
    }
    app.replay.is_some()
}

/// Whether this is a replay, which answers nothing; it says so.
pub fn does_not_answer(app: &mut App) -> bool {
    if app.replay.is_some() {
        app.say("a replay does not answer: it shows what was recorded");
    }
    app.replay.is_some()
}
