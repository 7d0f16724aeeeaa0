//! Keys while something lies over everything.

use super::{command, keys, theme};
use crate::tui::app::{App, Effect};
use crate::tui::overlay::{Help, Overlay};
use crate::tui::picker::Choice;
use crate::tui::slash;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// False lets the key act as usual.
pub fn key(app: &mut App, key: KeyEvent, effects: &mut Vec<Effect>) -> bool {
    match &mut app.overlay {
        Some(Overlay::Picker(_)) => {
            pick(app, key, effects);
            true
        }
        Some(Overlay::Sessions(_)) => {
            super::session_list::key(app, key, effects);
            true
        }
        // Whoever is asked something closes the help to answer, and searches nothing in it.
        Some(Overlay::Help(_)) if app.tools.question.is_some() => false,
        Some(Overlay::Help(help)) => read(help, key),
        None => false,
    }
}

/// A letter narrows the help; what does not belong to it acts as usual.
fn read(help: &mut Help, key: KeyEvent) -> bool {
    match key.code {
        // As it was opened from a panel.
        KeyCode::Char('?') if help.query.is_empty() => return false,
        KeyCode::Char(c) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() => help.query.push(c),
        KeyCode::Backspace => drop(help.query.pop()),
        KeyCode::Down => return scrolled(help, 1),
        KeyCode::Up => return scrolled(help, -1),
        KeyCode::PageDown => return scrolled(help, 10),
        KeyCode::PageUp => return scrolled(help, -10),
        KeyCode::Home => return scrolled(help, isize::MIN),
        KeyCode::End => return scrolled(help, isize::MAX),
        _ => return false,
    }
    help.scroll = 0;
    true
}

fn scrolled(help: &mut Help, by: isize) -> bool {
    help.scroll_by(by);
    true
}

fn pick(app: &mut App, key: KeyEvent, effects: &mut Vec<Effect>) {
    let Some(Overlay::Picker(picker)) = &mut app.overlay else { return };
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Esc => return close(app),
        KeyCode::Char('c') if control => return close(app),
        KeyCode::Enter => return take(app, effects),
        _ if picker.navigate(key) => {}
        KeyCode::Backspace => picker.type_letter(None),
        KeyCode::Char(c) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() => {
            picker.type_letter(Some(c));
        }
        _ => {}
    }
    moved(app);
}

/// Another entry is selected: a theme is tried on.
pub fn moved(app: &mut App) {
    let Some(Overlay::Picker(picker)) = &app.overlay else { return };
    if picker.before.is_none() {
        return;
    }
    if let Some(Choice::Theme(name)) = picker.selected().map(|item| item.choice.clone()) {
        theme::preview(app, &name);
    }
}

/// Leaves it as it was before it was opened.
pub fn close(app: &mut App) {
    if let Some(Overlay::Picker(picker)) = app.overlay.take()
        && let Some(worn) = picker.before
    {
        theme::preview(app, &worn);
    }
}

/// Takes the selected entry.
pub fn take(app: &mut App, effects: &mut Vec<Effect>) {
    let item = match &app.overlay {
        Some(Overlay::Picker(picker)) => picker.selected().cloned(),
        Some(Overlay::Sessions(list)) => list.picker.selected().cloned(),
        _ => None,
    };
    let Some(item) = item else { return };
    app.overlay = None;
    app.chosen.retain(|label| *label != item.label);
    app.chosen.insert(0, item.label);
    app.chosen.truncate(RECENT);
    choose(app, item.choice, effects);
}

/// So many entries of the palette are remembered as the newest.
const RECENT: usize = 8;

/// Does what the entry stands for.
pub fn choose(app: &mut App, choice: Choice, effects: &mut Vec<Effect>) {
    match choice {
        Choice::Action(action) => {
            keys::act(app, action, KeyEvent::from(KeyCode::Null), effects);
        }
        Choice::Command(line) => {
            if let slash::Line::Command(name, arguments) = slash::read(&line) {
                command::run(app, name, arguments, effects);
            }
        }
        Choice::Draft(text) => {
            app.focus = crate::tui::app::Focus::Input;
            app.composer.set(&text);
            app.completion = 0;
        }
        Choice::Tab(tab) => app.switch_tab(tab),
        Choice::Theme(name) => theme::command(app, &name, effects),
        Choice::Parameter(index) => super::sampling::go_to(app, index),
        Choice::Preset(index) => super::sampling::preset(app, index, effects),
        Choice::Session(id) => super::sessions::resume(app, crate::protocol::WhichSession::Id(id), effects),
    }
}

pub fn help(app: &mut App) {
    app.overlay = Some(Overlay::Help(Help::default()));
}

pub fn toggle_help(app: &mut App) {
    match app.overlay {
        Some(Overlay::Help(_)) => app.overlay = None,
        _ => help(app),
    }
}
