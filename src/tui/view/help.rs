//! Keys and commands, from the same tables that act.

use super::paint;
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::hits::Target;
use crate::tui::keymap::{self, Place};
use crate::tui::overlay::Help;
use crate::tui::sanitize;
use crate::tui::slash::COMMANDS;
use crate::tui::theme::Role;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

/// Over everything between header and footer.
pub fn draw(app: &App, help: &Help, screen: Rect, buf: &mut Buffer) {
    let area = Rect { y: screen.y + 1, height: screen.height.saturating_sub(2), ..screen };
    Clear.render(area, buf);
    app.hits.note(area, Target::Overlay);
    let title = Line::from(vec![
        Span::styled(" help ", app.theme.style(Role::Heading)),
        Span::styled(searched(help), app.theme.style(Role::Focus)),
    ]);
    let note = Line::styled(" Esc closes ", app.theme.style(Role::Muted));
    let inside = paint::titled(title, note, area, app.theme.style(Role::Focus), buf);
    let two = inside.width >= 108;
    let mut lines = content(app, two, &help.query, inside.width.min(124).into());
    if lines.is_empty() {
        lines.push(Line::styled("nothing of it is in the help", app.theme.style(Role::Muted)));
    }
    help.end.set(lines.len().saturating_sub(inside.height.into()));
    let top = help.scroll.min(help.end.get());
    paint::lines(&lines[top..], inside, buf);
}

fn searched(help: &Help) -> String {
    if help.query.is_empty() { String::new() } else { format!("› {}▍ ", sanitize::one_line(&help.query)) }
}

/// Groups by place; what does not have the query in it is left out.
fn content(app: &App, two: bool, query: &str, width: usize) -> Vec<Line<'static>> {
    let writing = [keys(app, Place::Input, "writing"), commands(), mouse(app)];
    let replay = app.replay.map(|_| keys(app, Place::Replay, "in panels, of a replay"));
    let open = app.panels.open(app.class()).iter().map(|p| keys(app, Place::In(*p), p.title()));
    let mut others: Vec<Group> = replay.into_iter().collect();
    others.extend([keys(app, Place::Anywhere, "anywhere"), keys(app, Place::Panels, "in panels")]);
    others.extend(open);
    others.push(keys(app, Place::Question, "when a tool call is asked about"));
    let found = |groups: Vec<Group>| -> Vec<Vec<Line<'static>>> {
        groups.into_iter().filter_map(|group| group.narrowed(app, query)).collect()
    };
    let (writing, others) = (found(writing.into()), found(others));
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

/// Under one heading: what is pressed or typed, and what it does.
struct Group {
    heading: &'static str,
    entries: Vec<(String, &'static str)>,
}

impl Group {
    fn narrowed(self, app: &App, query: &str) -> Option<Vec<Line<'static>>> {
        let query = query.to_lowercase();
        let has = |(key, does): &(String, &str)| format!("{key} {does}").to_lowercase().contains(&query);
        let found = self.entries.into_iter().filter(has);
        let mut lines: Vec<Line> = found.map(|(key, does)| entry(app, &key, does, 24)).collect();
        if lines.is_empty() {
            return None;
        }
        lines.insert(0, Line::styled(self.heading, app.theme.style(Role::Heading)));
        Some(lines)
    }
}

fn keys(app: &App, place: Place, heading: &'static str) -> Group {
    let bound = app.keymap.bindings().filter(|b| b.place == place && !b.help.is_empty());
    let names = |b: &keymap::Binding| -> String {
        let names: Vec<String> = b.keys.iter().take(2).map(|k| keymap::name(*k)).collect();
        if names.is_empty() { "no key".into() } else { names.join("  ") }
    };
    Group { heading, entries: bound.map(|b| (names(b), b.help)).collect() }
}

fn commands() -> Group {
    let mut entries: Vec<_> =
        COMMANDS.iter().map(|c| (format!("/{} {}", c.name, c.arguments), c.help)).collect();
    entries.push(("//text".into(), "sends /text to the model"));
    Group { heading: "commands", entries }
}

fn mouse(app: &App) -> Group {
    let rows: &[(&str, &'static str)] = match app.mouse {
        true => &[
            ("click", "focus, choose"),
            ("wheel", "scrolls what is under it"),
            ("drag over the chat", "copies what is marked"),
            ("Shift and drag", "marks as the terminal does"),
            ("drag a line, a title", "resizes panels"),
            ("double click a title", "zooms the panel"),
            ("click a panel's number", "hides it"),
        ],
        false => &[("/mouse on", "gives the mouse to glassbox")],
    };
    Group { heading: "mouse", entries: rows.iter().map(|(what, does)| ((*what).to_owned(), *does)).collect() }
}

fn entry(app: &App, key: &str, does: &'static str, wide: usize) -> Line<'static> {
    Line::from(vec![
        Span::styled(format::pad(key, wide), app.theme.style(Role::Accent)),
        Span::styled(does, app.theme.style(Role::Text)),
    ])
}
