//! The picture: `App` in, cells out. Nothing here changes anything or asks anyone.
//!
//! One file a panel. Where they lie is in `arrange`: as it comes, a drawer at 80x24, a column of panels
//! beside the chat at 120x40, panels on both sides at 200x60; below 60x15 header, transcript and input.

mod arrange;
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
mod diff;
mod draft;
mod entry;
mod find;
mod header;
mod help;
pub mod inline;
mod input;
mod kernels;
mod kv;
mod kv_class;
mod kv_curves;
mod kv_facts;
mod kv_legend;
mod kv_map;
mod kv_tree;
mod metrics;
mod paint;
mod panel;
mod parallel;
mod parameters;
mod picker;
mod present;
mod reasoning;
mod request;
mod sampling;
mod scheduling;
mod selection;
mod settle;
mod stage_table;
mod tabs;
mod title;
mod tokens;
mod transcript;
mod versions;
mod waterfall;

pub use metrics::count as metrics_count;

use super::app::{App, Focus};
use super::hits::Target;
use super::layout::Arrangement;
use super::overlay::Overlay;
use super::panels::{Panel, SizeClass};
use super::theme::Role;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Position, Rect};

pub use panel::least;
pub use selection::BEFORE_TEXT;
pub use title::window_title;

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
    overlay(app, area, buf);
    app.theme.paint(app.options.background, buf);
    settle::settle(buf);
    if app.options.ascii {
        ascii::replace(buf);
    }
    cursor.filter(|_| app.focus == Focus::Input && app.overlay.is_none() && app.tools.question.is_none())
}

/// What lies over everything.
fn overlay(app: &App, area: Rect, buf: &mut Buffer) {
    match &app.overlay {
        Some(Overlay::Help(help)) => help::draw(app, help, area, buf),
        Some(Overlay::Picker(picker)) => picker::draw(app, picker, area, buf),
        Some(Overlay::Sessions(list)) => picker::draw(app, &list.picker, area, buf),
        _ => {}
    }
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
    chat(app, body, buf);
    calls::question(app, sheet, buf);
    app.hits.note(bottom, Target::Input);
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
        _ if app.panels.presenting => present::draw(app, class, body, buf),
        Some(open) => panel::draw(app, open, body, buf),
        None => arranged(app, class, body, buf),
    }
    let cursor = input::draw(app, inside, buf);
    app.hits.note(bottom, Target::Input);
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

/// The chat and the open panels.
fn arranged(app: &App, class: SizeClass, body: Rect, buf: &mut Buffer) {
    let layout = app.panels.layout(class);
    let areas = arrange::areas(app, layout, body);
    match layout.arrangement {
        Arrangement::Compact => chat(app, areas.chat, buf),
        _ => titled_chat(app, areas.chat, buf),
    }
    for (open, area) in areas.panels {
        panel::draw(app, open, area, buf);
    }
    for (side, line) in areas.lines {
        paint::separator(line.x, body, app.theme.style(Role::Border), buf);
        app.hits.note(line, Target::Divider(side));
    }
}

fn chat(app: &App, area: Rect, buf: &mut Buffer) {
    transcript::draw(app, area, buf);
    selection::draw(app, area, buf);
}

fn titled_chat(app: &App, area: Rect, buf: &mut Buffer) {
    transcript::titled(app, area, buf);
    let under = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    selection::draw(app, under, buf);
}
