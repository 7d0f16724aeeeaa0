//! Versions of a message: said differently, answered again, and gone back to.

use super::engine;
use crate::tui::app::{App, Effect, Focus};
use crate::tui::chat::{Chat, Editing, Entry, Level, Turn};
use crate::tui::place::{Part, Scroll, Sight, Spot};
use crate::tui::sanitize;

/// Puts the how-manieth message (from 1), or the last, into the input.
pub fn edit(app: &mut App, arguments: &str) {
    if super::replay::does_not_answer(app) {
        return;
    }
    let said = said(&app.chat).count();
    let message = match arguments {
        "" => said.checked_sub(1),
        number => number.parse::<usize>().ok().and_then(|n| n.checked_sub(1)).filter(|n| *n < said),
    };
    match message {
        Some(message) => edit_message(app, message),
        None if said == 0 => app.say("nothing was said yet"),
        None => {
            app.chat.note(Level::Bad, format!("/edit takes a message from 1 to {said}, not {arguments:?}"))
        }
    }
}

/// Their numbers and what they say, the newest first: for completion.
pub fn messages(app: &App) -> Vec<(String, String)> {
    let beginning = |turn: &Turn| sanitize::one_line(&turn.text.chars().take(80).collect::<String>());
    let all = said(&app.chat).zip(1..).map(|((_, turn), n): (_, usize)| (n.to_string(), beginning(turn)));
    let mut all: Vec<_> = all.collect();
    all.reverse();
    all
}

/// Puts a message (from 0) into the input. What was being written comes back afterwards.
pub fn edit_message(app: &mut App, message: usize) {
    let Some(text) = said(&app.chat).nth(message).map(|(_, turn)| turn.text.clone()) else { return };
    let draft = match app.chat.editing.take() {
        Some(before) => before.draft,
        None => app.composer.whole_text(),
    };
    app.chat.editing = Some(Editing { message, draft });
    app.composer.set_to_edit(&text);
    app.completion = 0;
    app.focus = Focus::Input;
}

/// The message stays as it was.
pub fn leave(app: &mut App) {
    if let Some(editing) = app.chat.editing.take() {
        app.composer.replace(&editing.draft);
    }
}

/// The selected message, or the one that the selected answer answers, into the input.
pub fn edit_selected(app: &mut App) {
    if super::replay::does_not_answer(app) {
        return;
    }
    let Some(spot) = app.chat.selected else { return };
    let Some(message) = said(&app.chat).position(|(at, _)| at == spot.entry) else {
        return app.say("only what you said in this chat can be said differently");
    };
    edit_message(app, message);
}

/// What was written: a message, or another version of one.
pub fn submit(app: &mut App, text: &str, shown: &str, effects: &mut Vec<Effect>) {
    if app.chat.editing.is_some() && is_bound(app) {
        return app.composer.set(text);
    }
    let Some(editing) = app.chat.editing.take() else {
        return engine::submit(app, text, shown, effects);
    };
    app.composer.replace(&editing.draft);
    let at = said(&app.chat).nth(editing.message).map(|(at, _)| at);
    match at {
        Some(at) => start(app, at, Turn::shown_as(text, shown), effects),
        None => engine::submit(app, text, shown, effects),
    }
}

/// Answers the last message again; the answer there was is its version before.
pub fn regenerate(app: &mut App, effects: &mut Vec<Effect>) {
    let last = (0..app.chat.entries.len()).rev().find(|at| is_main(&app.chat, *at));
    answer_again(app, last, effects);
}

/// The same for the selected answer, or that to the selected message.
pub fn answer_selected_again(app: &mut App, effects: &mut Vec<Effect>) {
    let Some(spot) = app.chat.selected else { return };
    answer_again(app, Some(spot.entry).filter(|at| is_main(&app.chat, *at)), effects);
    let answer = Spot { part: Part::Answer(0), ..spot };
    app.chat.selected = Some(answer).filter(|answer| app.chat.answer_at(*answer).is_some()).or(Some(spot));
}

fn is_main(chat: &Chat, at: usize) -> bool {
    chat.turn(at).is_some_and(|turn| !turn.side && !turn.queued)
}

fn answer_again(app: &mut App, at: Option<usize>, effects: &mut Vec<Effect>) {
    if super::replay::does_not_answer(app) {
        return;
    }
    if app.ready().is_none() {
        return app.say("no model is ready");
    }
    let Some(at) = at else { return app.say("nothing to answer again") };
    if is_bound(app) {
        return;
    }
    let Some(turn) = app.chat.turn(at) else { return };
    let again = turn.again();
    start(app, at, again, effects);
    if let Some(seed) = app.params.seed {
        app.say(format!("with seed {seed} again; /set seed none lets it vary"));
    }
}

/// `/version`, `/version 2`, `/version next`.
pub fn version(app: &mut App, arguments: &str) {
    let Some((at, count, shown)) = with_versions(app) else {
        return app.say("no message has versions: /edit and /regen make them");
    };
    let wanted = match arguments {
        "next" => Some(shown + 1),
        "prev" | "previous" => shown.checked_sub(1),
        "" => Some((shown + 1) % count),
        number => number.parse::<usize>().ok().and_then(|n| n.checked_sub(1)),
    };
    match wanted {
        Some(version) if version < count => show(app, at, version),
        _ => app.chat.note(
            Level::Bad,
            format!("/version takes 1 to {count}, next or prev, not {arguments:?}; shown is {}", shown + 1),
        ),
    }
}

/// The version after, or before, the one that is shown.
pub fn beside(app: &mut App, by: isize) {
    match with_versions(app) {
        None => app.say("no message has versions: /edit and /regen make them"),
        Some((at, count, shown)) => match shown.checked_add_signed(by) {
            Some(version) if version < count => show(app, at, version),
            Some(_) => app.say(format!("version {count} of {count} is the last")),
            None => app.say(format!("version 1 of {count} is the first")),
        },
    }
}

/// Shows another version of the turn at entry `at`.
pub fn show(app: &mut App, at: usize, version: usize) {
    if is_bound(app) {
        return;
    }
    leave(app);
    app.chat.show_version(at, version);
    app.chat.scroll = None;
    if selected(app) == Some(at) {
        let spot = Spot { entry: at, part: Part::Said };
        app.chat.selected = Some(spot);
        app.chat.scroll = Some(Scroll::Show(app.shown.get().top, Sight::Message(spot)));
    }
    let count = app.chat.entries.get(at).map_or(1, |entry| match entry {
        Entry::Turn(turn) => turn.versions.len(),
        Entry::Note(_) => 1,
    });
    let live = if app.chat.is_answering() { ", still being answered" } else { "" };
    app.say(format!("version {} of {count}{live}", version + 1));
}

/// The entry whose versions are meant, how many there are, and which is shown.
fn with_versions(app: &App) -> Option<(usize, usize, usize)> {
    let several = |at: &usize| app.chat.turn(*at).is_some_and(|turn| turn.versions.is_several());
    let at = selected(app).filter(several).or_else(|| app.chat.last_with_versions())?;
    let turn = app.chat.turn(at)?;
    Some((at, turn.versions.len(), turn.versions.shown()))
}

/// The entry that the keys of the transcript act on.
fn selected(app: &App) -> Option<usize> {
    app.chat.selected.filter(|_| app.focus == Focus::Transcript).map(|spot| spot.entry)
}

/// The conversation goes on with `turn` in the place of what is at `at`.
fn start(app: &mut App, at: usize, mut turn: Turn, effects: &mut Vec<Effect>) {
    // What was said instead, and never answered, is no version worth going back to.
    let is_void = matches!(&app.chat.entries[at..], [Entry::Turn(old), rest @ ..]
        if old.is_refused() && rest.iter().all(|e| matches!(e, Entry::Note(_))));
    turn.queued = turn.calls.is_empty();
    app.chat.branch(at, turn);
    if let Some(Entry::Turn(turn)) = app.chat.entries.get_mut(at).filter(|_| is_void) {
        turn.versions.before.pop();
    }
    app.chat.scroll = None;
    engine::send_queued(app, effects);
}

/// A tool call is asked about or runs: what it belongs to must stay.
fn is_bound(app: &mut App) -> bool {
    let is_pending = app.chat.pending().is_some();
    if is_pending {
        app.say("a tool call is open: Esc refuses it");
    }
    is_pending
}

/// Turns of the conversation that come before a message (from 0).
pub fn turns_before(chat: &Chat, message: usize) -> usize {
    let at = said(chat).nth(message).map_or(usize::MAX, |(at, _)| at);
    let is_main = |entry: &&Entry| matches!(entry, Entry::Turn(turn) if !turn.queued && !turn.side);
    chat.entries.iter().take(at).filter(is_main).count()
}

/// The person's messages that were sent, with the entries they are.
fn said(chat: &Chat) -> impl Iterator<Item = (usize, &Turn)> {
    chat.entries.iter().enumerate().filter_map(|(at, entry)| match entry {
        Entry::Turn(turn) if turn.calls.is_empty() && !turn.queued && !turn.side => Some((at, turn)),
        _ => None,
    })
}
