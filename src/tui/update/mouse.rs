//! What the mouse does: it points at what was drawn last.

use super::keys;
use crate::tui::app::{App, Effect, Focus};
use crate::tui::hits::Target;
use crate::tui::overlay::Overlay;
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

/// Lines that a notch of the wheel moves.
const NOTCH: isize = 3;

pub fn event(app: &mut App, event: MouseEvent, effects: &mut Vec<Effect>) {
    let hit = app.hits.at(Position::new(event.column, event.row)).map(|(_, target)| target);
    match (event.kind, hit) {
        (MouseEventKind::ScrollUp, _) => keys::scroll(app, -NOTCH),
        (MouseEventKind::ScrollDown, _) => keys::scroll(app, NOTCH),
        (MouseEventKind::Down(MouseButton::Left), Some(target)) => click(app, target, effects),
        _ => {}
    }
}

fn click(app: &mut App, target: Target, effects: &mut Vec<Effect>) {
    match target {
        Target::Input | Target::Transcript => app.focus = Focus::Input,
        Target::Tab(tab) => app.switch_tab(tab),
        Target::Panel(panel) => app.focus = Focus::Panel(panel),
        Target::Row(row) => {
            let picker = match &mut app.overlay {
                Some(Overlay::Picker(picker)) => Some(&mut **picker),
                Some(Overlay::Sessions(list)) => Some(&mut list.picker),
                _ => None,
            };
            if let Some(picker) = picker {
                picker.selected = row;
                let choice = picker.selected().map(|item| item.choice.clone());
                app.overlay = None;
                choice.into_iter().for_each(|choice| super::overlay::choose(app, choice, effects));
            }
        }
    }
}
