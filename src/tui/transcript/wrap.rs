//! Wrapping styled lines by display width.

use crate::tui::format;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;

/// One grapheme cluster with its place in the line.
struct Cell<'a> {
    text: &'a str,
    style: Style,
    width: usize,
}

/// Breaks a line at spaces into lines of at most `limit` cells; words longer than that are cut.
/// Continuation lines start with `hang` spaces.
pub fn wrap(line: &Line<'_>, limit: usize, hang: usize) -> Vec<Line<'static>> {
    if hang == 0 {
        return wrap_after(line, limit, &[]);
    }
    wrap_after(line, limit, &[Span::raw(" ".repeat(hang))])
}

/// As [`wrap`], continuation lines start with `before`.
pub fn wrap_after(line: &Line<'_>, limit: usize, before: &[Span<'static>]) -> Vec<Line<'static>> {
    let limit = limit.max(1);
    let hang: usize = before.iter().map(|span| format::width(&span.content)).sum();
    let (hang, before) = if hang + 8 > limit { (0, &[][..]) } else { (hang, before) };
    let cells: Vec<Cell> = line
        .spans
        .iter()
        .flat_map(|span| {
            span.content.graphemes(true).map(move |text| Cell {
                text,
                style: line.style.patch(span.style),
                width: format::cells(text),
            })
        })
        .collect();
    let mut lines = Vec::new();
    let mut start = 0;
    while start < cells.len() || lines.is_empty() {
        let room = if lines.is_empty() { limit } else { limit - hang };
        let end = break_point(&cells[start..], room) + start;
        lines.push(join(&cells[start..end], if lines.is_empty() { &[] } else { before }));
        // The spaces a line was broken at are not carried over.
        start = end + cells[end..].iter().take_while(|c| c.text == " ").count();
        if end == cells.len() {
            break;
        }
    }
    lines
}

/// How many cells of the rest fit: up to the last space that does, or as many as there is room for.
fn break_point(rest: &[Cell], room: usize) -> usize {
    let mut used = 0;
    let mut after_space = None;
    for (i, cell) in rest.iter().enumerate() {
        used += cell.width;
        if used > room {
            // A space right at the edge may hang over it: it is dropped anyway.
            if cell.text == " " {
                return i;
            }
            return after_space.unwrap_or(i.max(1));
        }
        if cell.text == " " {
            after_space = Some(i + 1);
        }
    }
    rest.len()
}

/// A line's spans, each with the line's own style under it: to be put into another line.
pub fn spans(line: Line<'static>) -> impl Iterator<Item = Span<'static>> {
    let style = line.style;
    line.spans.into_iter().map(move |span| Span::styled(span.content, style.patch(span.style)))
}

fn join(cells: &[Cell], before: &[Span<'static>]) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = before.to_vec();
    for cell in cells {
        match spans.last_mut() {
            Some(last) if last.style == cell.style => last.content.to_mut().push_str(cell.text),
            _ => spans.push(Span::styled(cell.text.to_owned(), cell.style)),
        }
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::style::Stylize;

    fn wrapped(text: &str, limit: usize, hang: usize) -> Vec<String> {
        wrap(&Line::from(text.to_owned()), limit, hang).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_break_at_spaces_and_long_words_are_cut() {
        assert_eq!(wrapped("the quick brown fox", 10, 0), ["the quick ", "brown fox"]);
        assert_eq!(wrapped("abcdefghijkl", 5, 0), ["abcde", "fghij", "kl"]);
        assert_eq!(wrapped("", 5, 0), [""]);
        assert_eq!(wrapped("  - one two three", 14, 4), ["  - one two ", "    three"]);
    }

    #[test]
    fn a_wide_character_never_straddles_the_edge() {
        assert_eq!(wrapped("日本語", 5, 0), ["日本", "語"]);
        // Narrower than one character: it is drawn alone rather than never.
        assert_eq!(wrapped("日本", 1, 0), ["日", "本"]);
    }

    #[test]
    fn right_to_left_text_keeps_its_logical_order() {
        // BUGLOG X14
        let text = "مرحبا gpt-5 مرحبا بالعالم gpt-5";
        let lines = wrapped(text, 20, 0);
        assert!(lines.len() > 1 && lines.iter().all(|l| format::width(l) <= 20));
        assert_eq!(lines.concat(), text);
    }

    #[test]
    fn styles_follow_their_words() {
        let line = Line::from(vec!["plain ".into(), "bold words".bold()]);
        let lines = wrap(&line, 11, 0);
        assert_eq!(lines[0].spans[1].content, "bold ");
        assert_eq!(lines[1].spans[0], "words".bold());
    }
}
