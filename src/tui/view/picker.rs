//! A picker, over everything: what is looked for, and what matches.

use super::paint;
use crate::tui::app::App;
use crate::tui::hits::Target;
use crate::tui::picker::Picker;
use crate::tui::theme::Role;
use crate::tui::{format, sanitize};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};
use unicode_segmentation::UnicodeSegmentation;

pub fn draw(app: &App, picker: &Picker, screen: Rect, buf: &mut Buffer) {
    // On a small screen it is all there is.
    let margin = if screen.width < 60 { 0 } else { 4 };
    let width = screen.width.saturating_sub(margin).min(84);
    let height = (picker.items.len() as u16 + 3).min(screen.height.saturating_sub(2)).min(24);
    let area = Rect {
        x: screen.x + (screen.width - width) / 2,
        y: screen.y + 1 + screen.height.saturating_sub(height + 2) / 4,
        width,
        height,
    }
    .intersection(screen);
    app.hits.note(screen, Target::Outside);
    app.hits.note(area, Target::Overlay);
    Clear.render(area, buf);
    let title = Line::styled(format!(" {} ", picker.title), app.theme.style(Role::Heading));
    let count = match width {
        ..24 => String::new(),
        _ => format!(" {} of {} ", picker.shown.len(), picker.items.len()),
    };
    let note = Line::styled(count, app.theme.style(Role::Muted));
    let inside = paint::boxed(title, note, area, app.theme.style(Role::Focus), buf);
    let query = Line::from(vec![
        Span::styled("› ", app.theme.style(Role::Focus)),
        Span::styled(sanitize::one_line(&picker.query), app.theme.style(Role::Text)),
        Span::styled("▍", app.theme.style(Role::Accent)),
    ]);
    paint::line(inside.x, inside.y, &query, inside, buf);
    let rows = usize::from(inside.height).saturating_sub(1);
    let first = (picker.selected + 1).saturating_sub(rows);
    for (row, index) in picker.shown.iter().enumerate().skip(first).take(rows) {
        let y = inside.y + 1 + (row - first) as u16;
        app.hits.note(Rect { y, height: 1, ..inside }, Target::Row(row));
        let line = entry(app, picker, *index, row == picker.selected, inside.width.into());
        paint::line(inside.x, y, &line, inside, buf);
    }
    if picker.shown.is_empty() && rows > 0 {
        let none = Line::styled("  nothing matches", app.theme.style(Role::Muted));
        paint::line(inside.x, inside.y + 1, &none, inside, buf);
    }
}

fn entry(app: &App, picker: &Picker, index: usize, selected: bool, width: usize) -> Line<'static> {
    let item = &picker.items[index];
    let pick = if selected { app.theme.style(Role::Selection) } else { ratatui::style::Style::new() };
    let note = format::fit(&sanitize::one_line(&item.note), width / 3);
    let room = width.saturating_sub(format::width(&note) + 3);
    let mark = if selected { "▸ " } else { "  " };
    let mut left = Line::from(vec![Span::styled(mark, app.theme.style(Role::Accent))]);
    left.spans.extend(label(app, picker, &sanitize::one_line(&item.label)));
    let detail = format!("  {}", sanitize::one_line(&item.detail));
    left.spans.push(Span::styled(detail, app.theme.style(Role::Muted)));
    left = paint::fit_line(left, room);
    let gap = " ".repeat(width.saturating_sub(left.width() + format::width(&note) + 1));
    left.spans.push(Span::raw(gap));
    left.spans.push(Span::styled(note, app.theme.style(Role::Muted)));
    for span in &mut left.spans {
        span.style = span.style.patch(pick);
    }
    left
}

/// What matches in it is underlined.
fn label(app: &App, picker: &Picker, label: &str) -> Vec<Span<'static>> {
    let text = app.theme.style(Role::Text);
    if picker.query.is_empty() {
        return vec![Span::styled(label.to_owned(), text)];
    }
    let matched = app.theme.style(Role::Accent).add_modifier(Modifier::UNDERLINED);
    let places = picker.matched(label);
    let mut at = 0;
    let letter = |cluster: &str| {
        let style = if places.binary_search(&at).is_ok() { matched } else { text };
        at += 1;
        Span::styled(cluster.to_owned(), style)
    };
    label.graphemes(true).map(letter).collect()
}
