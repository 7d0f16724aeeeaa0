//! Keys and commands, from the same tables that act.

use super::paint;
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::keymap::{self, BINDINGS, Place};
use crate::tui::slash::COMMANDS;
use crate::tui::theme::Role;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::symbols::border;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Widget};

pub fn draw(app: &App, screen: Rect, buf: &mut Buffer) {
    let two = screen.width >= 110;
    let width = if two { 116 } else { 76 }.min(screen.width.saturating_sub(4));
    let lines = content(app, two, (width - 4).into());
    let height = (lines.len() as u16 + 2).min(screen.height.saturating_sub(2));
    let area = Rect {
        x: screen.x + (screen.width - width) / 2,
        y: screen.y + (screen.height - height) / 2,
        width,
        height,
    };
    Clear.render(area, buf);
    let title = Line::styled(" help ", app.theme.style(Role::Heading));
    let note = Line::styled(" Esc closes ", app.theme.style(Role::Muted));
    let block = Block::bordered()
        .border_set(border::ROUNDED)
        .border_style(app.theme.style(Role::Focus))
        .title(title)
        .title(note.right_aligned());
    let inside = block.inner(area);
    block.render(area, buf);
    let inside = Rect { x: inside.x + 1, width: inside.width.saturating_sub(2), ..inside };
    let top = app.help_scroll.min(lines.len().saturating_sub(inside.height.into()));
    paint::lines(&lines[top..], inside, buf);
}

fn content(app: &App, two: bool, width: usize) -> Vec<Line<'static>> {
    let writing = [keys(app, Place::Input, "writing"), keys(app, Place::Anywhere, "anywhere")];
    let others = [commands(app), keys(app, Place::Panels, "in panels")];
    if !two {
        return spaced(writing.into_iter().chain(others));
    }
    let (left, right) = (spaced(writing), spaced(others));
    let half = width / 2 - 1;
    (0..left.len().max(right.len()))
        .map(|i| {
            let line = paint::fit_line(left.get(i).cloned().unwrap_or_default(), half);
            let gap = " ".repeat(half + 2 - line.width());
            let mut spans = line.spans;
            spans.push(Span::raw(gap));
            spans.extend(right.get(i).cloned().unwrap_or_default().spans);
            paint::fit_line(Line::from(spans), width)
        })
        .collect()
}

fn spaced(parts: impl IntoIterator<Item = Vec<Line<'static>>>) -> Vec<Line<'static>> {
    let mut all = Vec::new();
    for part in parts {
        if !all.is_empty() {
            all.push(Line::default());
        }
        all.extend(part);
    }
    all
}

fn keys(app: &App, place: Place, title: &'static str) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(title, app.theme.style(Role::Heading))];
    for binding in BINDINGS.iter().filter(|b| b.place == place && !b.help.is_empty()) {
        let names: Vec<String> = binding.keys.iter().take(2).map(|k| keymap::name(*k)).collect();
        lines.push(entry(app, &names.join("  "), binding.help, 24));
    }
    lines
}

fn commands(app: &App) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled("commands", app.theme.style(Role::Heading))];
    lines.extend(COMMANDS.iter().map(|c| entry(app, &format!("/{} {}", c.name, c.arguments), c.help, 24)));
    lines.push(entry(app, "//text", "sends /text to the model", 24));
    lines
}

fn entry(app: &App, key: &str, does: &'static str, wide: usize) -> Line<'static> {
    Line::from(vec![
        Span::styled(format::pad(key, wide), app.theme.style(Role::Accent)),
        Span::styled(does, app.theme.style(Role::Text)),
    ])
}
