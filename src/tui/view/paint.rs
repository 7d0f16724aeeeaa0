//! Small things every part of the picture is made of.

use crate::tui::app::App;
use crate::tui::format;
use crate::tui::theme::{Role, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::symbols::border;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Widget};

/// A rounded box with a title, or, where rows are dear, one rule with the title on it.
pub fn frame(title: Line<'_>, note: Line<'_>, area: Rect, boxed: bool, style: Style, buf: &mut Buffer) -> Rect {
    if area.is_empty() {
        return area;
    }
    if boxed {
        let block = Block::bordered()
            .border_set(border::ROUNDED)
            .border_style(style)
            .title(title)
            .title(note.right_aligned());
        let inside = block.inner(area);
        block.render(area, buf);
        return inside;
    }
    let rule = "─".repeat(area.width.into());
    buf.set_string(area.x, area.y, rule, style);
    line(area.x + 1, area.y, &title, area, buf);
    let x = area.right().saturating_sub(note.width() as u16 + 1).max(area.x);
    line(x, area.y, &note, area, buf);
    let room = Rect { y: area.y + 1, height: area.height - 1, ..area };
    Rect { x: room.x + 1, width: room.width.saturating_sub(2), ..room }
}

/// Draws one line, clipped to the area.
pub fn line(x: u16, y: u16, line: &Line<'_>, area: Rect, buf: &mut Buffer) {
    if y < area.bottom() && x < area.right() {
        buf.set_line(x, y, line, area.right() - x);
    }
}

pub fn lines(lines: &[Line<'_>], area: Rect, buf: &mut Buffer) {
    for (row, content) in area.rows().zip(lines) {
        line(row.x, row.y, content, row, buf);
    }
}

/// A bar of eighths of a cell, unfilled part faint.
pub fn bar(share: f64, width: usize, style: Style, theme: &Theme) -> Vec<Span<'static>> {
    let (filled, rest) = bar_text(share, width);
    vec![Span::styled(filled, style), Span::styled("·".repeat(rest), theme.style(Role::Faint))]
}

/// The filled part, and how many cells are left.
pub fn bar_text(share: f64, width: usize) -> (String, usize) {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let mut eighths = (share * width as f64 * 8.0).round() as usize;
    // What is not nothing is seen.
    if share > 0.0 {
        eighths = eighths.max(1);
    }
    let text = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
    let used = eighths.div_ceil(8);
    (text, width.saturating_sub(used))
}

/// The newest values as a row of small columns, the largest one full height.
pub fn sparkline(values: impl DoubleEndedIterator<Item = f64>, width: usize) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let mut newest: Vec<f64> = values.rev().take(width).collect();
    newest.reverse();
    let top = newest.iter().copied().fold(0.0, f64::max);
    let level = |x: &f64| match (x / top * 7.0).round() {
        l if l.is_finite() => LEVELS[(l as usize).min(7)],
        _ => LEVELS[0],
    };
    newest.iter().map(level).collect()
}

/// Words separated by faint dots.
pub fn dotted(words: impl IntoIterator<Item = Span<'static>>, theme: &Theme) -> Line<'static> {
    let mut spans = Vec::new();
    for word in words {
        if !spans.is_empty() {
            spans.push(Span::styled(" · ", theme.style(Role::Faint)));
        }
        spans.push(word);
    }
    Line::from(spans)
}

/// The line cut to `width` cells, with `…` where something is missing.
pub fn fit_line(line: Line<'static>, width: usize) -> Line<'static> {
    if line.width() <= width {
        return line;
    }
    let mut left = width;
    let mut spans = Vec::new();
    for span in line.spans {
        let fitted = format::fit(&span.content, left);
        left -= format::width(&fitted).min(left);
        spans.push(Span::styled(fitted, span.style));
        if left == 0 {
            break;
        }
    }
    Line { spans, ..line }
}

pub fn too_small(app: &App, area: Rect, buf: &mut Buffer) {
    let text = format::fit("too small", area.width.into());
    if !area.is_empty() {
        buf.set_string(area.x, area.y, text, app.theme.style(Role::Muted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_what_is_not_nothing_and_never_overflow() {
        assert_eq!(bar_text(0.5, 4), ("██".into(), 2));
        assert_eq!(bar_text(0.0001, 4), ("▏".into(), 3));
        assert_eq!(bar_text(7.0, 4), ("████".into(), 0));
        assert_eq!(bar_text(f64::NAN, 3), (String::new(), 3));
    }

    #[test]
    fn sparklines_keep_the_newest() {
        assert_eq!(sparkline([9.0, 0.0, 7.0].into_iter(), 2), "▁█");
        assert_eq!(sparkline([0.0, 0.0].into_iter(), 5), "▁▁");
    }
}
