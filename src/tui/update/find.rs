//! Find in the transcript: the field, and going from match to match.

use crate::tui::app::{App, Focus};
use crate::tui::find::{Find, Within};
use crate::tui::place::{Scroll, Sight};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Ctrl+F: the field opens, or takes the keys again.
pub fn open(app: &mut App) {
    match &mut app.find {
        Some(find) => find.typing = true,
        None => app.find = Some(Find::new(String::new(), app.chat.scroll)),
    }
}

/// `/find TEXT`: from the newest match backwards, with n and N.
pub fn find(app: &mut App, text: &str) {
    let mut find = Find::new(text.to_owned(), app.chat.scroll);
    find.typing = text.is_empty();
    find.search(&app.chat);
    find.at = find.matches.len().saturating_sub(1);
    app.find = Some(find);
    if !text.is_empty() {
        super::transcript::enter(app);
        show(app);
    }
}

/// A key while the field is open; false lets it act as usual.
pub fn key(app: &mut App, key: KeyEvent) -> bool {
    let Some(find) = app.find.as_mut().filter(|find| find.typing) else { return false };
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Esc => close(app),
        KeyCode::Char('c' | 'g') if control => close(app),
        KeyCode::Enter if key.modifiers.contains(KeyModifiers::SHIFT) => step(app, -1),
        KeyCode::Enter | KeyCode::Down => step(app, 1),
        KeyCode::Up => step(app, -1),
        KeyCode::Char('u') if control => typed(app, String::clear),
        KeyCode::Backspace => typed(app, |query| _ = query.pop()),
        KeyCode::Tab => {
            find.typing = false;
            super::transcript::enter(app);
        }
        KeyCode::Char(c) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() => {
            typed(app, |query| query.push(c));
        }
        _ => return false,
    }
    true
}

pub fn pasted(app: &mut App, text: &str) -> bool {
    let typing = app.find.as_ref().is_some_and(|find| find.typing);
    if typing {
        typed(app, |query| query.push_str(text.lines().next().unwrap_or_default()));
    }
    typing
}

/// To the next match, or to the one before.
pub fn step(app: &mut App, by: isize) {
    let Some(find) = &mut app.find else { return app.say("Ctrl+F or /find TEXT searches the chat") };
    find.search(&app.chat);
    find.step(by);
    show(app);
}

fn typed(app: &mut App, change: impl FnOnce(&mut String)) {
    let Some(find) = &mut app.find else { return };
    change(&mut find.query);
    // The newest is likely meant.
    find.matches.clear();
    find.search(&app.chat);
    find.at = find.matches.len().saturating_sub(1);
    show(app);
}

/// Brings the match into view, out of what is folded.
fn show(app: &mut App) {
    let Some(find) = &app.find else { return };
    let Some(shown) = find.shown() else {
        app.chat.scroll = find.before;
        return;
    };
    if let Some(turn) = app.chat.turn_mut(shown.entry) {
        match shown.within {
            Within::Said if turn.is_long() && !turn.unfolded => turn.unfold(true),
            Within::Result(nth) => turn.calls[nth].open = Some(true),
            Within::Thoughts(nth) => turn.answers[nth].open = Some(true),
            Within::Said | Within::Answer(_) => {}
        }
    }
    app.chat.scroll = Some(Scroll::Show(app.shown.get().top, Sight::Match));
}

/// The view is where it was before.
fn close(app: &mut App) {
    if let Some(find) = app.find.take() {
        app.chat.scroll = find.before;
    }
    if app.focus == Focus::Transcript {
        super::transcript::enter(app);
    }
}
