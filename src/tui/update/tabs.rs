//! Tabs: opened, closed, gone to.

use super::{calls, sessions};
use crate::protocol::Command;
use crate::tui::app::{App, Effect, Focus};
use crate::tui::chat::{Chat, Level};
use crossterm::event::{KeyEvent, KeyModifiers};
use std::time::Duration;

/// More are not to be told apart.
const MOST: usize = 32;
/// A second wish to close within this is meant.
const TWICE: Duration = Duration::from_millis(3_000);

/// `/tab`, `/tab new`, `/tab close`, `/tab 2`
pub fn command(app: &mut App, arguments: &str, effects: &mut Vec<Effect>) {
    match (arguments, arguments.parse::<usize>()) {
        ("" | "new", _) => open(app),
        ("close", _) => close(app, effects),
        ("next", _) => go_by(app, 1),
        ("previous", _) => go_by(app, app.tabs.len() - 1),
        (_, Ok(n)) if (1..=app.tabs.len()).contains(&n) => app.switch_tab(n - 1),
        (_, Ok(n)) => app.say(format!("there is no chat {n}: {} are open", app.tabs.len())),
        _ => app.chat.note(Level::Bad, format!("/tab takes new, close, or a number, not {arguments:?}")),
    }
}

/// An empty chat in a tab of its own, with this one's system prompt.
pub fn open(app: &mut App) {
    if super::replay::does_not_answer(app) {
        return;
    }
    if app.tabs.len() >= MOST {
        return app.say(format!("{MOST} chats are open: close one first"));
    }
    let chat =
        Chat { system: app.chat.system.clone(), thoughts_open: app.chat.thoughts_open, ..Chat::default() };
    app.open_tab(chat);
    app.focus = Focus::Input;
}

/// Closes the chat in view; an answer under way is asked about first. Nothing is lost: it is a session.
pub fn close(app: &mut App, effects: &mut Vec<Effect>) {
    if app.tabs.len() == 1 {
        return app.say("the only chat stays open; /clear starts anew, Ctrl+D leaves");
    }
    let tab = app.tabs.active();
    let again = app.last_close.take().is_some_and(|(other, at)| other == tab && app.now - at < TWICE);
    if (app.chat.is_running() || app.chat.pending().is_some()) && !again {
        app.last_close = Some((tab, app.now));
        return app.say("an answer is under way: once more stops it and closes the chat");
    }
    calls::stop(app, effects);
    for id in app.chat.running() {
        effects.push(Effect::Send(Command::Abort(id)));
    }
    sessions::leave_chat(app, effects);
    app.close_tab();
}

pub fn go_by(app: &mut App, by: usize) {
    app.switch_tab((app.tabs.active() + by) % app.tabs.len());
}

/// Ctrl with an arrow moves by words, and Ctrl+W deletes one, where there are words.
pub fn belongs_to_the_draft(app: &App, key: KeyEvent) -> bool {
    app.focus == Focus::Input && key.modifiers.contains(KeyModifiers::CONTROL) && !app.composer.is_empty()
}
