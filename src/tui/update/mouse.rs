//! What the mouse does: it points at what was drawn last.

use super::{keys, kv, layout, reading, requests, transcript};
use crate::tui::app::{App, Effect, Focus};
use crate::tui::hits::Target;
use crate::tui::keymap::Action;
use crate::tui::overlay::Overlay;
use crate::tui::panels::Panel;
use crate::tui::place::{self as line, Scroll, Shown};
use crate::tui::pointer::Held;
use crate::tui::selection::{Place, Selection};
use crate::tui::view::BEFORE_TEXT;
use crossterm::event::{KeyCode, KeyEvent, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

/// Lines that a notch of the wheel moves.
const NOTCH: isize = 3;

pub fn event(app: &mut App, event: MouseEvent, effects: &mut Vec<Effect>) {
    let at = Position::new(event.column, event.row);
    match event.kind {
        MouseEventKind::ScrollUp => wheel(app, at, -1, effects),
        MouseEventKind::ScrollDown => wheel(app, at, 1, effects),
        MouseEventKind::Down(MouseButton::Left) => press(app, at, effects),
        MouseEventKind::Drag(MouseButton::Left) => drag(app, at),
        MouseEventKind::Up(MouseButton::Left) => release(app, effects),
        _ => {}
    }
}

/// What is under the pointer moves, whatever has the focus.
fn wheel(app: &mut App, at: Position, by: isize, effects: &mut Vec<Effect>) {
    let under = |panel: &Panel| app.hits.area(Target::Panel(*panel)).is_some_and(|area| area.contains(at));
    let panel = Panel::ALL.into_iter().find(under);
    match (&mut app.overlay, panel) {
        (Some(Overlay::Picker(picker)), _) => {
            picker.move_by(by);
            super::overlay::moved(app);
        }
        (Some(Overlay::Sessions(_)), _) => {
            let code = if by < 0 { KeyCode::Up } else { KeyCode::Down };
            super::session_list::key(app, KeyEvent::from(code), effects);
        }
        (None, Some(panel)) => wheel_panel(app, panel, by, effects),
        _ => keys::scroll(app, by * NOTCH),
    }
}

/// As its own keys for up and down would.
fn wheel_panel(app: &mut App, panel: Panel, by: isize, effects: &mut Vec<Effect>) {
    let focus = std::mem::replace(&mut app.focus, Focus::Panel(panel));
    let action = if by < 0 { Action::Up } else { Action::Down };
    let lines = match panel {
        Panel::Beams | Panel::Reasoning | Panel::Metrics => NOTCH,
        Panel::Sampling | Panel::Kv | Panel::Batch => 1,
    };
    for _ in 0..lines {
        keys::act(app, action, KeyEvent::from(KeyCode::Null), effects);
    }
    app.focus = focus;
}

fn press(app: &mut App, at: Position, effects: &mut Vec<Effect>) {
    let double = app.pointer.is_double(at, app.now);
    app.pointer.selection = None;
    let Some((area, target)) = app.hits.at(at) else { return };
    let transcript = app.hits.area(Target::Transcript).filter(|area| area.contains(at));
    app.pointer.held = match target {
        Target::Divider(side) => Some(Held::Divider(side)),
        Target::Scrollbar => Some(Held::Scrollbar),
        Target::Title(panel) => Some(Held::Title(panel)),
        Target::Panel(_) | Target::Number(_) | Target::Row(_) | Target::Overlay | Target::Outside => None,
        _ => transcript.map(|whole| {
            app.pointer.selection = Some(Selection::new(place(app, whole, at)));
            Held::Text
        }),
    };
    click(app, (at, area), target, double, effects);
}

fn click(
    app: &mut App,
    (at, area): (Position, Rect),
    target: Target,
    double: bool,
    effects: &mut Vec<Effect>,
) {
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
        Target::Scrollbar => drag_scrollbar(app, at.y),
        Target::Tab(tab) => app.switch_tab(tab),
        Target::Panel(panel) => app.focus = Focus::Panel(panel),
        Target::Title(panel) => {
            app.focus = Focus::Panel(panel);
            app.panels.zoomed ^= double;
        }
        Target::Number(panel) => keys::toggle_panel(app, panel),
        Target::Divider(_) | Target::Overlay => {}
        Target::Outside => super::overlay::close(app),
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
                super::overlay::take(app, effects);
            }
        }
    }
}

fn drag(app: &mut App, at: Position) {
    match app.pointer.held {
        Some(Held::Divider(side)) => layout::drag_divider(app, side, at.x),
        Some(Held::Title(panel)) => layout::drag_title(app, panel, at.y),
        Some(Held::Text) => mark(app, at),
        Some(Held::Scrollbar) => drag_scrollbar(app, at.y),
        None => {}
    }
}

/// The marked text goes on to the pointer; beyond an edge the view follows.
fn mark(app: &mut App, at: Position) {
    let Some(area) = app.hits.area(Target::Transcript).filter(|area| !area.is_empty()) else { return };
    if at.y < area.top() {
        keys::scroll(app, -1);
    } else if at.y >= area.bottom() {
        keys::scroll(app, 1);
    }
    let to = place(app, area, at);
    if let Some(selection) = &mut app.pointer.selection {
        selection.extend(to);
    }
}

fn release(app: &mut App, effects: &mut Vec<Effect>) {
    let held = app.pointer.held.take();
    let Some(selection) = app.pointer.selection.as_ref().filter(|_| held == Some(Held::Text)) else { return };
    let text = selection.text();
    if selection.is_empty() || text.trim().is_empty() {
        app.pointer.selection = None;
    } else {
        effects.push(Effect::Copy(text));
    }
}

/// The place in the whole transcript, of the nearest cell in view.
fn place(app: &App, area: Rect, at: Position) -> Place {
    let row = at.y.clamp(area.top(), area.bottom().saturating_sub(1)) - area.top();
    // In a presentation a line takes two rows.
    let row = if app.panels.presenting { row / 2 } else { row };
    let column = at.x.saturating_sub(area.x + BEFORE_TEXT);
    let rows = app.rows.borrow();
    // Under the last line there is none: it stands for that.
    let line = rows.get(usize::from(row)).or(rows.last()).copied().unwrap_or_default();
    Place { line, column: column.into() }
}

/// To the line that the place on the scrollbar stands for.
fn drag_scrollbar(app: &mut App, row: u16) {
    let Some(bar) = app.hits.area(Target::Scrollbar) else { return };
    let Shown { top, above, below, .. } = app.shown.get();
    let rows = usize::from(bar.height.saturating_sub(1)).max(1);
    let line = usize::from(row.saturating_sub(bar.y)).min(rows) * (above + below) / rows;
    let start = line::Place { width: top.width, ..line::Place::default() };
    app.chat.scroll = (line < above + below).then_some(Scroll::At(start.moved(line as isize)));
}
