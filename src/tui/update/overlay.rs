//! Keys while something lies over everything.

use super::{command, keys};
use crate::tui::app::{App, Effect};
use crate::tui::keymap::{self, Action};
use crate::tui::overlay::Overlay;
use crate::tui::picker::{Choice, Picker};
use crate::tui::slash;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// False lets the key act as usual.
pub fn key(app: &mut App, key: KeyEvent, effects: &mut Vec<Effect>) -> bool {
    match &mut app.overlay {
        Some(Overlay::Picker(_)) => pick(app, key, effects),
        Some(Overlay::Sessions(_)) => super::session_list::key(app, key, effects),
        Some(Overlay::Help { .. }) | None => return false,
    }
    true
}

fn pick(app: &mut App, key: KeyEvent, effects: &mut Vec<Effect>) {
    let Some(Overlay::Picker(picker)) = &mut app.overlay else { return };
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Esc => app.overlay = None,
        KeyCode::Char('c') if control => app.overlay = None,
        KeyCode::Enter => {
            let choice = picker.selected().map(|item| item.choice.clone());
            if let Some(choice) = choice {
                app.overlay = None;
                choose(app, choice, effects);
            }
        }
        KeyCode::Down | KeyCode::Tab => moved(picker, 1),
        KeyCode::Up | KeyCode::BackTab => moved(picker, -1),
        KeyCode::Char('n') if control => moved(picker, 1),
        KeyCode::Char('p') if control => moved(picker, -1),
        KeyCode::PageDown => moved(picker, 10),
        KeyCode::PageUp => moved(picker, -10),
        KeyCode::Home => moved(picker, isize::MIN),
        KeyCode::End => moved(picker, isize::MAX),
        KeyCode::Backspace => picker.type_letter(None),
        KeyCode::Char(c) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() => {
            picker.type_letter(Some(c));
        }
        _ => {}
    }
}

fn moved(picker: &mut Picker, by: isize) {
    picker.move_by(by);
}

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
        Choice::Parameter(index) => super::sampling::go_to(app, index),
        Choice::Preset(index) => super::sampling::preset(app, index, effects),
        Choice::Session(id) => super::sessions::resume(app, crate::protocol::WhichSession::Id(id), effects),
    }
}

pub fn toggle_help(app: &mut App) {
    app.overlay = match app.overlay {
        Some(Overlay::Help { .. }) => None,
        _ => Some(Overlay::Help { scroll: 0 }),
    };
}

/// Every action that has a name and every command, to be found by typing.
pub fn palette(app: &mut App) {
    use crate::tui::picker::Item;
    let keymap = app.keymap.bindings();
    let actions = keymap.filter(|b| !b.help.is_empty() && b.action.is_for_palette()).map(|b| Item {
        label: b.help.to_owned(),
        detail: String::new(),
        note: b.keys.first().map(|k| keymap::name(*k)).unwrap_or_default(),
        choice: Choice::Action(b.action),
    });
    let commands = slash::COMMANDS.iter().map(|c| Item {
        label: format!("/{} {}", c.name, c.arguments).trim_end().to_owned(),
        detail: c.help.to_owned(),
        note: String::new(),
        choice: match c.arguments {
            "" => Choice::Command(format!("/{}", c.name)),
            _ => Choice::Draft(format!("/{} ", c.name)),
        },
    });
    let items = actions.chain(commands).collect();
    app.overlay = Some(Overlay::Picker(Box::new(Picker::new("palette", items))));
}

impl Action {
    /// Whether it makes sense from anywhere.
    fn is_for_palette(self) -> bool {
        use Action::{Answer, Down, EditValue, First, Increase, Last, Submit, Up};
        !matches!(
            self,
            Answer(_) | Down | Up | First | Last | Increase | Action::Decrease | EditValue | Submit
        )
    }
}
