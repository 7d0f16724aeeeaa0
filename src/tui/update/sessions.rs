//! Sessions: saved after whatever happens, listed, loaded, named, exported.

use crate::protocol::{
    LoadedSession, PARAMS, SessionChange, SessionCommand, SessionEvent, SessionFormat, SessionKey,
    SessionMeta, StoredSession, WhichSession,
};
use crate::tui::app::{App, Effect};
use crate::tui::chat::{Chat, Entry, Level};
use crate::tui::overlay::Overlay;
use crate::tui::sanitize;
use crate::tui::sessions::SessionList;
use crate::tui::stored::{self, Ids};
use std::path::PathBuf;

/// What became different in any chat is sent to be saved.
pub fn save(app: &mut App, effects: &mut Vec<Effect>) {
    if !app.options.sessions.on || app.replay.is_some() {
        return;
    }
    let model = app.ready().map(|info| info.name.clone()).unwrap_or_default();
    for tab in 0..app.tabs.len() {
        app.in_tab(tab, |app| save_one(app, &model, effects));
    }
}

/// A chat in which nothing was said is no session.
fn save_one(app: &mut App, model: &str, effects: &mut Vec<Effect>) {
    let Chat { saved, entries, .. } = &mut app.chat;
    if saved.key.is_none() && !entries.iter().any(|entry| matches!(entry, Entry::Turn(_))) {
        return;
    }
    let mut changes = saved.changes(entries, model);
    let title = stored::title(&app.chat);
    let renamed = app.chat.saved.renamed(&title, app.chat.system.as_deref());
    if changes.is_empty() && !renamed {
        return;
    }
    let is_telling = |change: &SessionChange| !matches!(change, SessionChange::More { .. });
    if renamed || changes.iter().any(is_telling) {
        changes.insert(0, SessionChange::Meta(Box::new(meta(app, title, model))));
    }
    let key = key(app);
    effects.push(Effect::Sessions(SessionCommand::Save { key, changes }));
}

fn meta(app: &App, title: String, model: &str) -> SessionMeta {
    let last =
        app.chat.answers().rev().find_map(|answer| answer.model.clone().filter(|model| !model.is_empty()));
    SessionMeta {
        title,
        named: app.chat.title.is_some(),
        model: if model.is_empty() { last.unwrap_or_default() } else { model.to_owned() },
        model_path: app.ready().map(|info| info.path.clone()).unwrap_or_default(),
        system: app.chat.system.clone(),
        params: app.params.clone(),
        set: app.set_here.iter().map(|name| (*name).to_owned()).collect(),
        thinking: app.thinking.clone(),
    }
}

/// The chat's, from now on.
fn key(app: &mut App) -> SessionKey {
    let sessions = &mut app.sessions;
    *app.chat.saved.key.get_or_insert_with(|| {
        sessions.next_key += 1;
        SessionKey(sessions.next_key)
    })
}

/// The chat in view is left for good: its answers end here, all of it is saved, and others may open it.
pub fn leave_chat(app: &mut App, effects: &mut Vec<Effect>) {
    stored::end_answers(&mut app.chat.entries);
    save(app, effects);
    if let Some(key) = app.chat.saved.key.filter(|_| app.options.sessions.on) {
        effects.push(Effect::Sessions(SessionCommand::Close(key)));
    }
}

/// Goes on with an earlier session.
pub fn resume(app: &mut App, which: WhichSession, effects: &mut Vec<Effect>) {
    if let WhichSession::Id(id) = &which
        && let Some(tab) = app.tab_of(|chat| chat.saved.id == Some(*id))
    {
        return app.switch_tab(tab);
    }
    app.sessions.next_key += 1;
    let key = SessionKey(app.sessions.next_key);
    effects.push(Effect::Sessions(SessionCommand::Load { key, which }));
}

pub fn event(app: &mut App, event: SessionEvent) {
    match event {
        SessionEvent::Listed { words, now_ms, found } => listed(app, words, now_ms, found),
        SessionEvent::Loaded { key, loaded } => self::loaded(app, key, *loaded),
        SessionEvent::NotLoaded { why, .. } => app.chat.note(Level::Bad, why),
        SessionEvent::Saved { key, id } => {
            app.sessions.saved = true;
            if let Some(tab) = app.tab_of(|chat| chat.saved.key == Some(key)) {
                app.in_tab(tab, |app| app.chat.saved.id = Some(id));
            }
        }
        SessionEvent::SendAgain(key) => {
            if let Some(tab) = app.tab_of(|chat| chat.saved.key == Some(key)) {
                app.in_tab(tab, |app| app.chat.saved.forget());
            }
        }
        SessionEvent::Deleted(id) => {
            app.say("deleted");
            if let Some(Overlay::Sessions(list)) = &mut app.overlay {
                let rows = list.rows.iter().position(|row| row.id == id);
                rows.into_iter().for_each(|at| list.take_away(at));
            }
        }
        SessionEvent::Kept { why, .. } => app.say(why),
        SessionEvent::Exported(Ok(path)) => {
            app.chat.note(Level::Good, format!("exported to {}", path.display()));
        }
        SessionEvent::Exported(Err(why)) => app.chat.note(Level::Bad, format!("not exported: {why}")),
        SessionEvent::Trouble(why) => {
            app.chat.note(Level::Bad, &why);
            app.sessions.trouble = Some(why);
        }
        SessionEvent::Recovered => {
            app.sessions.trouble = None;
            app.chat.note(Level::Good, "all that was said is saved now");
        }
        SessionEvent::Note(text) => app.chat.note(Level::Info, text),
    }
}

fn listed(
    app: &mut App,
    words: String,
    now_ms: i64,
    found: Result<Vec<crate::protocol::SessionRow>, String>,
) {
    let Some(Overlay::Sessions(list)) = &mut app.overlay else { return };
    match found {
        // Of what was typed since, the answer is still to come.
        Ok(rows) if list.picker.query == words => list.found(words, now_ms, rows),
        Ok(_) => {}
        Err(why) => {
            app.overlay = None;
            app.chat.note(Level::Bad, format!("the sessions cannot be listed: {why}"));
        }
    }
}

/// In this tab if nothing was said here, else in a new one.
fn loaded(app: &mut App, key: SessionKey, loaded: LoadedSession) {
    let LoadedSession { id, session, note } = loaded;
    let meta = session.meta.clone();
    let is_fresh = app.tabs.len() == 1 && is_empty(&app.chat) && app.set_here.is_empty();
    let ids = Ids { request: &mut app.next_request, call: &mut app.tools.next_call, depth: 0 };
    let (mut chat, cut_off) = stored::chat(session, ids);
    chat.thoughts_open = app.chat.thoughts_open;
    chat.saved.key = Some(key);
    if id.is_some() {
        chat.saved.id = id;
        // What was read is on disk.
        chat.saved.changes(&mut chat.entries, "");
        let title = stored::title(&chat);
        chat.saved.renamed(&title, chat.system.as_deref());
    }
    stored::end_answers(&mut chat.entries);
    take_drafts(&mut chat);
    show(app, chat);
    if cut_off > 0 {
        app.chat
            .note(Level::Info, "the last answer was cut off when the program ended; /regen answers again");
    }
    if let Some(note) = note {
        app.chat.note(Level::Info, note);
    }
    if is_fresh { take_params(app, &meta) } else { tell_params(app, &meta) }
}

fn is_empty(chat: &Chat) -> bool {
    chat.turns().next().is_none() && chat.saved.key.is_none()
}

fn show(app: &mut App, chat: Chat) {
    if !is_empty(&app.chat) {
        return app.open_tab(chat);
    }
    // What is being written stays, and notes of the start do.
    let draft = [app.composer.whole_text(), chat.draft.clone()];
    let draft: Vec<_> = draft.into_iter().filter(|text| !text.is_empty()).collect();
    let before = std::mem::replace(&mut app.chat, chat);
    let notes = before.entries.into_iter().filter(|entry| matches!(entry, Entry::Note(_)));
    app.chat.entries.extend(notes);
    app.chat.draft.clear();
    app.composer.replace(&draft.join("\n"));
}

/// What was written and never sent goes back to where it was written.
fn take_drafts(chat: &mut Chat) {
    let waiting: Vec<String> = chat.turns().filter(|t| t.queued).map(|t| t.text.clone()).collect();
    chat.entries.retain(|entry| !matches!(entry, Entry::Turn(turn) if turn.queued));
    chat.draft = waiting.join("\n");
}

/// As set in that session; what a flag says stays.
fn take_params(app: &mut App, meta: &SessionMeta) {
    let by_flag = |app: &App, name: &str| app.options.origins.get(name).is_some_and(|from| from == "flag");
    for spec in PARAMS.iter().filter(|spec| meta.set.iter().any(|name| name == spec.name)) {
        let mut changed = app.params.clone();
        if by_flag(app, spec.name) || spec.set(&mut changed, (spec.get)(&meta.params)).is_err() {
            continue;
        }
        app.params = changed;
        app.set_here.push(spec.name);
    }
    if app.thinking == app.options.thinking {
        app.thinking = meta.thinking.clone();
    }
}

/// Parameters are the same in all tabs: those of before are only told.
fn tell_params(app: &mut App, meta: &SessionMeta) {
    let set = PARAMS.iter().filter(|spec| meta.set.iter().any(|name| name == spec.name));
    let other = set.filter(|spec| (spec.get)(&meta.params) != (spec.get)(&app.params));
    let told: Vec<String> = other.map(|s| format!("{} {}", s.name, (s.get)(&meta.params))).collect();
    if !told.is_empty() {
        app.chat.note(Level::Info, format!("set in that session: {}; /set sets it here", told.join(", ")));
    }
}

/// The conversation in view, as it would be stored.
fn session(app: &mut App) -> StoredSession {
    let model = app.ready().map(|info| info.name.clone()).unwrap_or_default();
    let changes = crate::tui::saved::Saved::default().changes(&mut app.chat.entries, &model);
    let mut session =
        StoredSession { meta: meta(app, stored::title(&app.chat), &model), ..StoredSession::default() };
    for change in changes {
        match change {
            SessionChange::Turn(turn) => session.turns.push(*turn),
            SessionChange::Answer { turn, answer, .. } => {
                let turn = session.turns.iter_mut().find(|other| other.number == turn);
                turn.into_iter().for_each(|turn| turn.answers.push((*answer).clone()));
            }
            _ => {}
        }
    }
    session.turns.sort_by_key(|turn| turn.number);
    session
}

// ---- commands ----

/// `/sessions [WORDS]`
pub fn list(app: &mut App, words: &str, effects: &mut Vec<Effect>) {
    if !app.options.sessions.on || app.options.sessions.file.is_none() {
        return app.say("sessions are not kept: --no-save, or save_sessions = false");
    }
    app.overlay = Some(Overlay::Sessions(Box::new(SessionList::new(words))));
    effects.push(Effect::Sessions(SessionCommand::List { words: words.to_owned() }));
}

/// `/rename TITLE`; without one, the first message names the chat again.
pub fn rename(app: &mut App, title: &str) {
    let title: String = title.chars().take(200).collect();
    app.chat.title = Some(title).filter(|title| !title.is_empty());
    let title = sanitize::one_line(&stored::title(&app.chat));
    app.say(if title.is_empty() {
        "the first message will be the title".into()
    } else {
        format!("title: {title}")
    });
}

/// `/save`: it is done all the time; this says where.
pub fn tell(app: &mut App) {
    let file = app.options.sessions.file.as_ref().map(|file| file.display().to_string());
    let text = match (&app.sessions.trouble, file, app.chat.saved.id) {
        (Some(why), ..) => why.clone(),
        (None, None, _) => {
            "nothing is saved: --no-save, or save_sessions = false; /export writes a file".into()
        }
        (None, Some(file), None) => format!("saved in {file} as soon as something is said"),
        (None, Some(file), Some(id)) => format!(
            "saved as session {} in {file}, all the time\nglassbox -c goes on with the newest; /export writes a file",
            id.0
        ),
    };
    app.chat.note(Level::Info, text);
}

/// `/duplicate`: a session of its own, in a tab of its own, that begins as this one.
pub fn duplicate(app: &mut App) {
    if is_empty(&app.chat) {
        return app.say("nothing was said here yet");
    }
    let mut session = session(app);
    session.meta.title += " (copy)";
    session.meta.named = true;
    session.turns.retain(|turn| !turn.queued);
    let ids = Ids { request: &mut app.next_request, call: &mut app.tools.next_call, depth: 0 };
    let (mut chat, _) = stored::chat(session, ids);
    stored::end_answers(&mut chat.entries);
    chat.thoughts_open = app.chat.thoughts_open;
    app.open_tab(chat);
}

/// `/export [md|json] [FILE]`, `/export! …` also over a file that is there.
pub fn export(app: &mut App, arguments: &str, effects: &mut Vec<Effect>) {
    if !app.options.sessions.on {
        return app.say("nothing is exported here");
    }
    if app.chat.turns().next().is_none() {
        return app.say("nothing to export yet");
    }
    let (replace, arguments) = match arguments.strip_prefix('!') {
        Some(rest) => (true, rest.trim()),
        None => (false, arguments),
    };
    let (first, rest) = arguments.split_once(char::is_whitespace).unwrap_or((arguments, ""));
    let (named, file) = match SessionFormat::parse(first) {
        Ok(format) => (Some(format), rest.trim()),
        Err(_) => (None, arguments),
    };
    let by_end = file.rsplit_once('.').and_then(|(_, end)| SessionFormat::parse(end).ok());
    let format = named.or(by_end).unwrap_or(SessionFormat::Markdown);
    let file = (!file.is_empty()).then(|| PathBuf::from(file));
    let session = Box::new(session(app));
    effects.push(Effect::Sessions(SessionCommand::Export { session, format, file, replace }));
}

/// `/import FILE`
pub fn import(app: &mut App, file: &str, effects: &mut Vec<Effect>) {
    if file.is_empty() || !app.options.sessions.on {
        return app.chat.note(Level::Bad, "/import takes a file: Markdown, or JSON with messages");
    }
    app.sessions.next_key += 1;
    let (key, file) = (SessionKey(app.sessions.next_key), PathBuf::from(file));
    effects.push(Effect::Sessions(SessionCommand::Import { key, file }));
}
