//! Message -> changed state and effects. No I/O: `run` carries the effects out.

pub mod attach;
mod branch;
mod branches;
mod calls;
mod command;
mod compare;
mod counting;
mod debug;
mod engine;
mod find;
mod fork;
mod guided;
mod keymap;
mod keys;
mod kv;
mod layout;
mod metrics;
mod models;
mod mouse;
mod notice;
mod overlay;
mod palette;
mod params;
mod presets;
mod reading;
mod reasoning;
mod replay;
mod requests;
mod resume;
mod sampling;
mod scheduling;
mod session_list;
mod sessions;
mod tabs;
mod take;
mod theme;
mod transcript;

pub use branch::messages;
pub use keys::EXAMPLE;
pub use presets::names as preset_names;
pub use sampling::edited;
pub use scheduling::origin;
pub use take::answers_beside;
pub use theme::names as theme_names;

use super::app::{App, Effect, Focus, Message};
use super::chat::Level;
use std::time::Duration;

/// Handles what happened at `now` (time since the screen opened).
pub fn update(app: &mut App, message: Message, now: Duration) -> Vec<Effect> {
    app.now = now;
    if app.flash.as_ref().is_some_and(|(_, until)| *until < now) {
        app.flash = None;
    }
    let mut effects = Vec::new();
    // Snapshots change no chat, and come often.
    let may_change = !matches!(message, Message::Snapshot(_));
    let by_hand = matches!(message, Message::Key(_) | Message::Mouse(_));
    match message {
        Message::Key(key) => keys::key(app, key, &mut effects),
        Message::Mouse(event) => mouse::event(app, event, &mut effects),
        Message::Paste(text) => keys::paste(app, &text),
        Message::Tools(event) => calls::event(app, event, &mut effects),
        Message::Sessions(event) => sessions::event(app, event),
        Message::Resize(width, height) => resize(app, width, height),
        Message::Models(choices) => models::listed(app, choices, &mut effects),
        Message::Engine(events) => {
            let ended_ms = notice::longest(&events);
            engine::events(app, events, &mut effects);
            notice::ended(app, ended_ms, &mut effects);
        }
        Message::EngineGone => engine::gone(app),
        Message::Opening(name) => models::opening(app, name, &mut effects),
        Message::OpenFailed { name, why } => models::open_failed(app, name, &why),
        Message::Fetch(event) => models::fetched(app, event, &mut effects),
        Message::Snapshot(snapshot) => engine::snapshot(app, snapshot),
        Message::Panicked(what) => app.chat.note(Level::Bad, format!("internal error: {what}")),
        Message::Edited(Ok(text)) => app.composer.replace(&text),
        Message::GrammarRead { command, path, content } => guided::read(app, command, &path, content),
        Message::Edited(Err(why)) => app.chat.note(Level::Bad, format!("the draft is as it was: {why}")),
        Message::Folder { path, entries } => attach::listed(app, &path, entries),
        Message::FileRead { path, content } => attach::file_read(app, &path, content, &mut effects),
        Message::Globbed { pattern, found } => attach::globbed(app, &pattern, found, &mut effects),
        Message::Presets(presets) => presets::listed(app, presets),
        Message::StartSettings { preset, settings } => {
            presets::answered(app, preset, *settings, &mut effects)
        }
        Message::PresetSaved { name, result } => presets::saved(app, &name, result, &mut effects),
        Message::SystemEdited(Ok(text)) => command::system(app, text.trim_end()),
        Message::SystemEdited(Err(why)) => {
            app.chat.note(Level::Bad, format!("the system prompt is as it was: {why}"))
        }
        Message::Tick => {}
        Message::WindowFocus(here) => app.looked_away = !here,
        Message::ThemeRead { name, theme } => theme::read(app, &name, theme, &mut effects),
        Message::Copied(Ok(())) => copied(app),
        Message::Copied(Err(why)) => app.chat.note(Level::Bad, format!("not copied: {why}")),
    }
    if let Focus::Panel(panel) = app.focus {
        app.panels.recent = Some(panel);
    }
    attach::follow(app, &mut effects);
    counting::follow(app, &mut effects);
    kv::ask(app, &mut effects);
    if may_change {
        sessions::save(app, &mut effects);
    }
    if by_hand {
        layout::keep(app, &mut effects);
    }
    effects
}

/// What was marked is copied; anything else that is copied says so itself.
fn copied(app: &mut App) {
    let marked = app.pointer.selection.as_ref().map(|selection| selection.text().lines().count());
    app.say(match marked {
        Some(1) => "copied 1 line".into(),
        Some(lines) => format!("copied {lines} lines"),
        None => "copied".to_owned(),
    });
}

/// At the start: goes on with the session that was asked for.
pub fn resume(app: &mut App) -> Vec<Effect> {
    let mut effects = Vec::new();
    if let Some(which) = app.options.sessions.resume.take() {
        sessions::resume(app, which, &mut effects);
    }
    effects
}

fn resize(app: &mut App, width: u16, height: u16) {
    app.size = (width, height);
    // Also said when the screen was away: at the shell, or in an editor.
    if let Some(question) = &mut app.tools.question {
        question.unseen();
    }
    keys::keep_focus_visible(app);
}
