//! Keys and commands, from the same tables that act.

use super::paint;
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::keymap::{self, Place};
use crate::tui::slash::COMMANDS;
use crate::tui::theme::Role;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

/// Over everything between header and footer.
pub fn draw(app: &App, scroll: usize, screen: Rect, buf: &mut Buffer) {
    let area = Rect { y: screen.y + 1, height: screen.height.saturating_sub(2), ..screen };
    Clear.render(area, buf);
    let title = Line::styled(" help ", app.theme.style(Role::Heading));
    let note = Line::styled(" Esc closes ", app.theme.style(Role::Muted));
    let inside = paint::titled(title, note, area, app.theme.style(Role::Focus), buf);
    let two = inside.width >= 108;
    let lines = content(app, two, inside.width.min(124).into());
    let top = scroll.min(lines.len().saturating_sub(inside.height.into()));
    paint::lines(&lines[top..], inside, buf);
}

fn content(app: &App, two: bool, width: usize) -> Vec<Line<'static>> {
    let writing = [keys(app, Place::Input, "writing"), commands(app)];
    let replay = app.replay.map(|_| keys(app, Place::Replay, "in panels, of a replay"));
    let others = [
        keys(app, Place::Anywhere, "anywhere"),
        keys(app, Place::Transcript, "in the transcript"),
        keys(app, Place::Tokens, "token by token"),
        keys(app, Place::Panels, "in panels"),
        keys(app, Place::Question, "when a tool call is asked about"),
    ];
    let others = replay.into_iter().chain(others).collect::<Vec<_>>();
    if !two {
        return spaced(writing.into_iter().chain(others));
    }
    let (left, right) = (spaced(writing), spaced(others));
    let half = width / 2 - 1;
    (0..left.len().max(right.len()))
        .map(|i| {
            let line = paint::fit_line(left.get(i).cloned().unwrap_or_default(), half);
            let gap = " ".repeat(half + 2 - line.width());
            let mut spans: Vec<Span> = paint::spans(line).collect();
            spans.push(Span::raw(gap));
            spans.extend(paint::spans(right.get(i).cloned().unwrap_or_default()));
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
    for binding in app.keymap.bindings().filter(|b| b.place == place && !b.help.is_empty()) {
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
