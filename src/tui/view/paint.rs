//! Small things every part of the picture is made of.

use crate::tui::app::App;
use crate::tui::format;
use crate::tui::theme::{Role, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// A rule with a title on it; the room under it, a column narrower on both sides.
pub fn titled(title: Line<'_>, note: Line<'_>, area: Rect, style: Style, buf: &mut Buffer) -> Rect {
    if area.is_empty() {
        return area;
    }
    buf.set_string(area.x, area.y, "─".repeat(area.width.into()), style);
    line(area.x + 1, area.y, &title, area, buf);
    let x = area.right().saturating_sub(note.width() as u16 + 1).max(area.x);
    line(x, area.y, &note, area, buf);
    Rect { x: area.x + 1, y: area.y + 1, width: area.width.saturating_sub(2), height: area.height - 1 }
}

/// A box with a title on it; the room in it.
pub fn boxed(title: Line<'_>, note: Line<'_>, area: Rect, style: Style, buf: &mut Buffer) -> Rect {
    if area.width < 2 || area.height < 2 {
        return titled(title, note, area, style, buf);
    }
    let (right, bottom) = (area.right() - 1, area.bottom() - 1);
    let inside = titled(title, note, area, style, buf);
    buf.set_string(area.x, bottom, "─".repeat(area.width.into()), style);
    for y in area.top()..area.bottom() {
        for x in [area.x, right] {
            buf.set_string(x, y, "│", style);
        }
    }
    for (x, y, corner) in
        [(area.x, area.y, "┌"), (right, area.y, "┐"), (area.x, bottom, "└"), (right, bottom, "┘")]
    {
        buf.set_string(x, y, corner, style);
    }
    Rect { height: inside.height - 1, ..inside }
}

/// A vertical line between columns, joined to the rules that meet it.
pub fn separator(x: u16, body: Rect, style: Style, buf: &mut Buffer) {
    for y in body.top()..=body.bottom() {
        let is_rule = |x: Option<u16>| x.and_then(|x| buf.cell((x, y))).is_some_and(|c| c.symbol() == "─");
        let (left, right) = (is_rule(x.checked_sub(1)), is_rule(Some(x + 1)));
        let joint = match (left, right) {
            _ if y == body.bottom() => "┴",
            _ if y == body.top() => "┬",
            (true, true) => "┼",
            (true, false) => "┤",
            (false, true) => "├",
            (false, false) => "│",
        };
        if let Some(cell) = buf.cell_mut((x, y)) {
            let style = if y == body.bottom() { cell.style() } else { style };
            cell.set_symbol(joint).set_style(style);
        }
    }
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

/// The newest values as a row of small columns.
pub fn sparkline(values: impl DoubleEndedIterator<Item = f64>, width: usize) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let mut newest: Vec<f64> = values.rev().take(width).collect();
    newest.reverse();
    // A steady value stands at three quarters, not as a solid block.
    let top = newest.iter().copied().fold(0.0, f64::max) * 1.3;
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

/// Words separated by faint dots, as many as fit: none is cut.
pub fn fitting(words: impl IntoIterator<Item = Span<'static>>, width: usize, theme: &Theme) -> Line<'static> {
    let mut used = 0;
    let fits = |word: &Span| {
        used += word.width() + if used > 0 { 3 } else { 0 };
        used <= width
    };
    dotted(words.into_iter().take_while(fits), theme)
}

/// Words separated by faint dots, over as many lines as they take; the later ones begin under the
/// first word, behind `label`.
pub fn flowing(
    label: Span<'static>,
    words: impl IntoIterator<Item = Span<'static>>,
    width: usize,
    theme: &Theme,
) -> Vec<Line<'static>> {
    let hang = label.width();
    let mut lines = vec![vec![label]];
    let mut used = hang;
    for word in words {
        let wide = word.width();
        let line = lines.last_mut().expect("there is a first line");
        if line.len() > 1 && used + 3 + wide > width {
            used = hang + wide;
            lines.push(vec![Span::raw(" ".repeat(hang)), word]);
            continue;
        }
        if line.len() > 1 {
            line.push(Span::styled(" · ", theme.style(Role::Faint)));
            used += 3;
        }
        used += wide;
        line.push(word);
    }
    lines.into_iter().map(Line::from).collect()
}

/// A line's spans, each with the line's own style under it: to be put into another line.
pub fn spans(line: Line<'static>) -> impl Iterator<Item = Span<'static>> {
    let style = line.style;
    line.spans.into_iter().map(move |span| Span::styled(span.content, style.patch(span.style)))
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
    fn words_that_do_not_fit_are_left_out_or_begin_a_line() {
        let theme = Theme::load("dark", None, crate::tui::theme::Depth::None).expect("built in");
        let words = || ["taken 1", "freed 22", "evicted 3"].map(Span::raw);
        let text = |line: &Line| line.to_string();
        assert_eq!(text(&fitting(words(), 18, &theme)), "taken 1 · freed 22");
        assert_eq!(text(&fitting(words(), 17, &theme)), "taken 1");
        let lines = flowing(Span::raw("blocks "), words(), 26, &theme);
        assert_eq!(
            lines.iter().map(text).collect::<Vec<_>>(),
            ["blocks taken 1 · freed 22", "       evicted 3"]
        );
    }

    #[test]
    fn sparklines_keep_the_newest() {
        assert_eq!(sparkline([9.0, 0.0, 7.0].into_iter(), 2), "▁▆");
        assert_eq!(sparkline([0.0, 0.0].into_iter(), 5), "▁▁");
    }
}
