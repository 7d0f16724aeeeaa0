//! What the mouse does: it points at what was drawn last.

use super::{keys, kv, requests};
use crate::tui::app::{App, Effect, Focus};
use crate::tui::hits::Target;
use crate::tui::overlay::Overlay;
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

/// Lines that a notch of the wheel moves.
const NOTCH: isize = 3;

pub fn event(app: &mut App, event: MouseEvent, effects: &mut Vec<Effect>) {
    let at = Position::new(event.column, event.row);
    let hit = app.hits.at(at);
    match (event.kind, hit) {
        (MouseEventKind::ScrollUp, _) => keys::scroll(app, -NOTCH),
        (MouseEventKind::ScrollDown, _) => keys::scroll(app, NOTCH),
        (MouseEventKind::Down(MouseButton::Left), Some((area, target))) => {
            click(app, at, area, target, effects)
        }
        _ => {}
    }
}

fn click(app: &mut App, at: Position, area: Rect, target: Target, effects: &mut Vec<Effect>) {
    match target {
        Target::Input | Target::Transcript => app.focus = Focus::Input,
        Target::Tab(tab) => app.switch_tab(tab),
        Target::Panel(panel) => app.focus = Focus::Panel(panel),
        Target::Blocks { per_cell, levels } => {
            let (x, y) = (usize::from(at.x - area.x), usize::from(at.y - area.y) * levels);
            kv::select(app, (y * usize::from(area.width) + x) * per_cell);
        }
        Target::CacheRow(row) => kv::select_row(app, row),
        Target::Sequence(seq) => requests::point_at(app, seq),
        Target::Branch(row) => super::branches::point_at(app, row),
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
