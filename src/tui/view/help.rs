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
    let keys = keys(app);
    let commands = commands(app);
    if !two {
        return keys.into_iter().chain(std::iter::once(Line::default())).chain(commands).collect();
    }
    let half = width / 2 - 1;
    let rows = keys.len().max(commands.len());
    (0..rows)
        .map(|i| {
            let left = paint::fit_line(keys.get(i).cloned().unwrap_or_default(), half);
            let gap = " ".repeat(half + 2 - left.width());
            let mut spans = left.spans;
            spans.push(Span::raw(gap));
            spans.extend(commands.get(i).cloned().unwrap_or_default().spans);
            Line::from(spans)
        })
        .collect()
}

fn keys(app: &App) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (place, title) in
        [(Place::Input, "writing"), (Place::Anywhere, "anywhere"), (Place::Panels, "in panels")]
    {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.push(Line::styled(title, app.theme.style(Role::Heading)));
        for binding in BINDINGS.iter().filter(|b| b.place == place && !b.help.is_empty()) {
            let names: Vec<String> = binding.keys.iter().take(2).map(|k| keymap::name(*k)).collect();
            lines.push(entry(app, &names.join("  "), binding.help, 18));
        }
    }
    lines
}

fn commands(app: &App) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled("commands", app.theme.style(Role::Heading))];
    lines.extend(COMMANDS.iter().map(|c| entry(app, &format!("/{} {}", c.name, c.arguments), c.help, 28)));
    lines.push(Line::default());
    lines.push(Line::styled("a line that starts with // is sent with one /", app.theme.style(Role::Muted)));
    lines
}

fn entry(app: &App, key: &str, does: &'static str, wide: usize) -> Line<'static> {
    Line::from(vec![
        Span::styled(format::pad(key, wide), app.theme.style(Role::Accent)),
        Span::styled(does, app.theme.style(Role::Text)),
    ])
}
