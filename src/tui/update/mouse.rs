//! What the mouse does: it points at what was drawn last.

use super::{keys, reading, transcript};
use crate::tui::app::{App, Effect, Focus};
use crate::tui::hits::Target;
use crate::tui::overlay::Overlay;
use crate::tui::place::{Place, Scroll, Shown};
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

/// Lines that a notch of the wheel moves.
const NOTCH: isize = 3;

pub fn event(app: &mut App, event: MouseEvent, effects: &mut Vec<Effect>) {
    let hit = app.hits.at(Position::new(event.column, event.row)).map(|(_, target)| target);
    match (event.kind, hit) {
        (MouseEventKind::ScrollUp, _) => keys::scroll(app, -NOTCH),
        (MouseEventKind::ScrollDown, _) => keys::scroll(app, NOTCH),
        (
            MouseEventKind::Down(MouseButton::Left) | MouseEventKind::Drag(MouseButton::Left),
            Some(Target::Scrollbar),
        ) => {
            drag(app, event.row);
        }
        (MouseEventKind::Down(MouseButton::Left), Some(target)) => click(app, target, effects),
        _ => {}
    }
}

/// To the line that the place on the scrollbar stands for.
fn drag(app: &mut App, row: u16) {
    let Some((bar, _)) = app.hits.of(Target::Scrollbar) else { return };
    let Shown { above, below, .. } = app.shown.get();
    let rows = usize::from(bar.height.saturating_sub(1)).max(1);
    let line = usize::from(row.saturating_sub(bar.y)).min(rows) * (above + below) / rows;
    let start = Place { width: app.shown.get().top.width, ..Place::default() };
    app.chat.scroll = (line < above + below).then_some(Scroll::At(start.moved(line as isize)));
}

fn click(app: &mut App, target: Target, effects: &mut Vec<Effect>) {
    match target {
        Target::Input => app.focus = Focus::Input,
        Target::Transcript if app.chat.turns().next().is_none() => app.focus = Focus::Input,
        Target::Transcript => transcript::enter(app),
        Target::Message(spot) => {
            let again = app.focus == Focus::Transcript && app.chat.selected == Some(spot);
            app.chat.selected = Some(spot);
            transcript::enter(app);
            if again {
                transcript::open(app);
            }
        }
        Target::Token(index) => reading::look_at(app, index),
        Target::Alternative(nth) => {
            let again = app.reading.as_ref().is_some_and(|reading| reading.choice == Some(nth));
            reading::choose_nth(app, nth);
            if again {
                reading::fork(app, effects);
            }
        }
        Target::Scrollbar => {}
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
