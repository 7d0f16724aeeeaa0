//! Keys in the list of sessions. What is typed is looked for in all that was ever said.

use super::overlay;
use crate::protocol::SessionCommand;
use crate::tui::app::{App, Effect};
use crate::tui::overlay::Overlay;
use crate::tui::sanitize;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

pub fn key(app: &mut App, key: KeyEvent, effects: &mut Vec<Effect>) {
    let Some(Overlay::Sessions(list)) = &mut app.overlay else { return };
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let deletes = key.code == KeyCode::Delete || (control && key.code == KeyCode::Char('d'));
    if !deletes {
        list.deleting = None;
    }
    let picker = &mut list.picker;
    match key.code {
        KeyCode::Esc => app.overlay = None,
        KeyCode::Char('c') if control => app.overlay = None,
        KeyCode::Enter => {
            let choice = picker.selected().map(|item| item.choice.clone());
            if let Some(choice) = choice {
                app.overlay = None;
                overlay::choose(app, choice, effects);
            }
        }
        KeyCode::Delete => delete(app, effects),
        KeyCode::Char('d') if control => delete(app, effects),
        _ if picker.navigate(key) => {}
        KeyCode::Backspace => {
            picker.query.pop();
            look(app, effects);
        }
        KeyCode::Char(c) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() => {
            picker.query.push(c);
            look(app, effects);
        }
        _ => {}
    }
}

/// The keeper answers the newest question only: nobody waits for the letters before it.
fn look(app: &App, effects: &mut Vec<Effect>) {
    let Some(Overlay::Sessions(list)) = &app.overlay else { return };
    effects.push(Effect::Sessions(SessionCommand::List { words: list.picker.query.clone() }));
}

/// The first time asks, the second does it.
fn delete(app: &mut App, effects: &mut Vec<Effect>) {
    let Some(Overlay::Sessions(list)) = &mut app.overlay else { return };
    let Some(row) = list.selected() else { return };
    let (id, title) = (row.id, sanitize::one_line(&row.title));
    if list.deleting == Some(id) {
        list.deleting = None;
        effects.push(Effect::Sessions(SessionCommand::Delete(id)));
    } else {
        list.deleting = Some(id);
        app.say(format!("Del once more deletes for ever: {title}"));
    }
}
