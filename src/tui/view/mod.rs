//! The picture: `App` in, cells out. Nothing here changes anything or asks anyone.
//!
//! One file a panel. Layout follows the size class: a drawer at 80x24, a column of panels beside
//! the chat at 120x40, panels on both sides at 200x60; below 60x15 header, transcript and input.

mod ascii;
mod batch;
mod batch_rows;
mod batch_strip;
mod beams;
mod block;
mod branches;
mod calls;
mod card;
mod chrome;
mod draft;
mod header;
mod help;
mod input;
mod kv;
mod kv_class;
mod kv_facts;
mod kv_map;
mod kv_tree;
mod metrics;
mod paint;
mod panel;
mod parallel;
mod parameters;
mod picker;
mod reasoning;
mod request;
mod sampling;
mod scheduling;
mod settle;
mod tabs;
mod transcript;
mod versions;
mod waterfall;

use super::app::{App, Focus};
use super::overlay::Overlay;
use super::panels::{Panel, SizeClass};
use super::theme::Role;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Position, Rect};

/// Columns of the panels beside the chat.
const MEDIUM_COLUMN: u16 = 44;
const WIDE_LEFT: u16 = 44;
const WIDE_RIGHT: u16 = 60;

/// Draws the whole screen and says where the cursor belongs.
pub fn draw(app: &App, buf: &mut Buffer) -> Option<Position> {
    let area = buf.area;
    let class = SizeClass::of((area.width, area.height));
    app.hits.clear();
    let cursor = if area.width < 12 || area.height < 4 {
        paint::too_small(app, area, buf);
        None
    } else if class == SizeClass::Tiny {
        tiny(app, area, buf)
    } else {
        full(app, class, area, buf)
    };
    match &app.overlay {
        Some(Overlay::Help { scroll }) if class != SizeClass::Tiny => help::draw(app, *scroll, area, buf),
        Some(Overlay::Picker(picker)) => picker::draw(app, picker, area, buf),
        Some(Overlay::Sessions(list)) => picker::draw(app, &list.picker, area, buf),
        _ => {}
    }
    settle::settle(buf);
    if app.options.ascii {
        ascii::replace(buf);
    }
    cursor.filter(|_| app.focus == Focus::Input && app.overlay.is_none() && app.tools.question.is_none())
}

fn tiny(app: &App, area: Rect, buf: &mut Buffer) -> Option<Position> {
    let rows = input::rows(app, area);
    let asked = calls::rows(app, area);
    let [top, row, body, sheet, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(tabs::rows(app)),
        Constraint::Min(0),
        Constraint::Length(asked),
        Constraint::Length(rows),
    ])
    .areas(area);
    match app.flash {
        // Where there is no footer, it is said at the top.
        Some(_) => chrome::footer(app, top, buf),
        None => header::draw(app, top, buf),
    }
    tabs::draw(app, row, buf);
    transcript::draw(app, body, buf);
    calls::question(app, sheet, buf);
    input::draw(app, bottom, buf)
}

fn full(app: &App, class: SizeClass, area: Rect, buf: &mut Buffer) -> Option<Position> {
    let rows = input::rows(app, area) + 1;
    let asked = calls::rows(app, area);
    let [top, row, body, sheet, bottom, last] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(tabs::rows(app)),
        Constraint::Min(0),
        Constraint::Length(asked),
        Constraint::Length(rows),
        Constraint::Length(1),
    ])
    .areas(area);
    header::draw(app, top, buf);
    tabs::draw(app, row, buf);
    chrome::footer(app, last, buf);
    // Before the body: the lines between its columns are joined to the input's rule.
    let inside = chrome::input_frame(app, bottom, buf);
    match zoomed(app) {
        Some(open) => panel::draw(app, open, body, buf),
        None => match class {
            SizeClass::Compact => compact(app, body, buf),
            SizeClass::Medium => medium(app, body, buf),
            _ => wide(app, body, buf),
        },
    }
    let cursor = input::draw(app, inside, buf);
    calls::question(app, sheet, buf);
    input::completion(app, bottom, buf);
    cursor
}

fn zoomed(app: &App) -> Option<Panel> {
    match app.focus {
        Focus::Panel(panel) if app.panels.zoomed => Some(panel),
        _ => None,
    }
}

/// The transcript over one panel, which grows while it has the focus.
fn compact(app: &App, body: Rect, buf: &mut Buffer) {
    let Some(open) = app.panels.open(SizeClass::Compact).first().copied() else {
        return transcript::draw(app, body, buf);
    };
    let wanted =
        if app.focus == Focus::Panel(open) { body.height * 3 / 5 } else { (body.height * 2 / 5).min(8) };
    let [chat, drawer] = Layout::vertical([Constraint::Min(0), Constraint::Length(wanted)]).areas(body);
    transcript::draw(app, chat, buf);
    panel::draw(app, open, drawer, buf);
}

fn medium(app: &App, body: Rect, buf: &mut Buffer) {
    let open = app.panels.open(SizeClass::Medium);
    if open.is_empty() {
        return transcript::titled(app, body, buf);
    }
    let [chat, line, side] = Layout::horizontal([
        Constraint::Min(0),
        Constraint::Length(1),
        Constraint::Length(MEDIUM_COLUMN - 1),
    ])
    .areas(body);
    transcript::titled(app, chat, buf);
    column(app, open, side, buf);
    paint::separator(line.x, body, app.theme.style(Role::Border), buf);
}

fn wide(app: &App, body: Rect, buf: &mut Buffer) {
    let open = app.panels.open(SizeClass::Wide);
    let on_left = |p: &&Panel| matches!(p, Panel::Batch | Panel::Metrics);
    let left: Vec<Panel> = open.iter().filter(on_left).copied().collect();
    let right: Vec<Panel> = open.iter().filter(|p| !on_left(p)).copied().collect();
    let width = |panels: &[Panel], width| Constraint::Length(if panels.is_empty() { 0 } else { width });
    let [first, line_1, chat, line_2, last] = Layout::horizontal([
        width(&left, WIDE_LEFT - 1),
        width(&left, 1),
        Constraint::Min(0),
        width(&right, 1),
        width(&right, WIDE_RIGHT - 1),
    ])
    .areas(body);
    column(app, &left, first, buf);
    transcript::titled(app, chat, buf);
    column(app, &right, last, buf);
    for line in [line_1, line_2].into_iter().filter(|line| line.width > 0) {
        paint::separator(line.x, body, app.theme.style(Role::Border), buf);
    }
}

/// Panels over each other, each with its share of the height.
fn column(app: &App, panels: &[Panel], area: Rect, buf: &mut Buffer) {
    let all: u16 = panels.iter().map(|p| panel::share(*p)).sum();
    let shares = panels.iter().map(|p| match panel::share(*p) {
        // It has so many lines and no more; the others can use what is left.
        share if *p == Panel::Metrics && panels.len() > 1 && share < area.height * share / all => {
            Constraint::Length(share + 1)
        }
        share => Constraint::Fill(share),
    });
    let areas = Layout::vertical(shares).split(area);
    for (panel, area) in panels.iter().zip(areas.iter()) {
        panel::draw(app, *panel, *area, buf);
    }
}
