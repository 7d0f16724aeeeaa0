//! The field of a search, and its matches in what is in view.

use super::entry::{Content, Frame, Section};
use super::paint;
use super::transcript::GUTTER;
use crate::tui::app::App;
use crate::tui::find::{Match, Needle, Within};
use crate::tui::format;
use crate::tui::keymap::Place;
use crate::tui::sanitize;
use crate::tui::theme::Role;
use crate::tui::transcript::Document;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

/// What is left of the transcript over the field.
pub fn above(app: &App, area: Rect) -> Rect {
    let field = u16::from(app.find.is_some() && area.height > 3);
    Rect { height: area.height - field, ..area }
}

pub fn field(app: &App, outer: Rect, buf: &mut Buffer) {
    let Some(find) = app.find.as_ref().filter(|_| outer.height > 3) else { return };
    let row = Rect { y: outer.bottom() - 1, height: 1, ..outer };
    buf.set_style(row, app.theme.style(Role::Selection));
    let count = match (find.query.is_empty(), find.matches.len()) {
        (true, _) => String::new(),
        (false, 0) => "nothing found".into(),
        (false, all) => format!("{} of {}", format::count(find.at as u64 + 1), format::count(all as u64)),
    };
    let (caret, keys) = match find.typing {
        true => ("▍", "Enter next · ↑ before · Tab keep · Esc back".to_owned()),
        false => ("", kept(app)),
    };
    let role = if find.matches.is_empty() { Role::Warn } else { Role::Good };
    let mut spans = vec![
        Span::styled(" find ", app.theme.style(Role::Accent)),
        Span::styled(sanitize::one_line(&find.query) + caret, app.theme.style(Role::Text)),
        Span::styled(format!("  {count}"), app.theme.style(role)),
    ];
    let used: usize = spans.iter().map(Span::width).sum();
    if used + format::width(&keys) + 3 <= row.width.into() {
        let fill = usize::from(row.width) - used - format::width(&keys) - 1;
        spans.push(Span::raw(" ".repeat(fill)));
        spans.push(Span::styled(keys, app.theme.style(Role::Muted)));
    }
    let line = Line::from(spans);
    paint::line(row.x, row.y, &line, row, buf);
}

/// `n next · N before · Esc close`
fn kept(app: &App) -> String {
    let hints = [
        (Place::Transcript, "next_match", "next"),
        (Place::Transcript, "previous_match", "before"),
        (Place::Anywhere, "escape", "close"),
    ];
    let hint = |(place, row, does)| app.keymap.hint(place, row, does);
    hints.into_iter().filter_map(hint).collect::<Vec<_>>().join(" · ")
}

/// The line of the match shown, in its entry.
pub fn line<'a>(
    frame: Frame<'a>,
    sections: impl FnOnce(usize) -> Vec<Section<'a>>,
) -> Option<(usize, (usize, usize))> {
    let find = frame.app.find.as_ref()?;
    let shown = find.shown()?;
    let needle = Needle::new(&find.query);
    let document = document(frame.app, shown)?;
    let mut at = usize::from(shown.entry > 0);
    let mut nth = shown.nth;
    for section in sections(shown.entry) {
        let height = section.height(frame);
        let (mut row, mut found) = (at, None);
        let is_it = match &section.content {
            Content::Document { document: of, .. } => std::ptr::eq(*of, document),
            Content::Streams(_) => true,
            Content::Lines(_) | Content::Tokens(_) => false,
        };
        if is_it {
            let is_broken = matches!(section.content, Content::Document { .. });
            let mut before: Vec<char> = Vec::new();
            section.visit((0, height), height, frame, |line| {
                let text: Vec<char> = line.spans.iter().flat_map(|span| span.content.chars()).collect();
                // It counts as the last of the line above.
                if is_broken && needle.over_break(&before, &text[indent(&text)..]).is_some() {
                    if found.is_none() && nth == 0 {
                        found = Some((row - 1, needle.find(&before).len()));
                    }
                    nth = nth.saturating_sub(1);
                }
                let here = needle.find(&text).len();
                if found.is_none() && nth < here {
                    found = Some((row, nth));
                }
                nth = nth.saturating_sub(if found.is_none() { here } else { 0 });
                row += 1;
                before = trimmed(text);
            });
            // It may be written otherwise than it is shown.
            let (row, nth) = found.unwrap_or((at + height / 2, usize::MAX));
            find.line.set(Some((shown.entry, row, nth)));
            return Some((shown.entry, (row, row)));
        }
        at += height;
    }
    None
}

fn document(app: &App, shown: Match) -> Option<&Document> {
    let turn = app.chat.turn(shown.entry)?;
    Some(match shown.within {
        Within::Said => &turn.shown,
        Within::Result(nth) => &turn.calls.get(nth)?.shown,
        Within::Thoughts(nth) => &turn.answers.get(nth)?.thoughts,
        Within::Answer(nth) => &turn.answers.get(nth)?.body,
    })
}

/// A line without the room at its end.
fn trimmed(mut line: Vec<char>) -> Vec<char> {
    line.truncate(line.iter().rposition(|c| !c.is_whitespace()).map_or(0, |last| last + 1));
    line
}

/// Where the text of a line begins, behind the gutter and what it is indented by.
fn indent(line: &[char]) -> usize {
    let gutter = line.len().min(GUTTER.into());
    gutter + line[gutter..].iter().take_while(|c| c.is_whitespace()).count()
}

/// Marks the matches in what was just drawn, which begins at `line` of its entry: underlined, the one
/// shown reversed. Lines of one text, `is_text`, may have a match broken over two of them.
pub fn highlight(app: &App, (entry, line): (usize, usize), rows: Rect, is_text: bool, buf: &mut Buffer) {
    let Some(find) = app.find.as_ref().filter(|find| !find.query.is_empty()) else { return };
    let needle = Needle::new(&find.query);
    let style = |row: usize, nth: usize| {
        let style = app.theme.style(Role::Selection).add_modifier(Modifier::UNDERLINED | Modifier::BOLD);
        let is_shown = find.line.get() == Some((entry, line + row, nth));
        if is_shown { style.add_modifier(Modifier::REVERSED) } else { style }
    };
    let mut before: Option<(Rect, Vec<char>, Vec<u16>)> = None;
    for (nth_row, row) in rows.rows().enumerate() {
        let (text, columns) = cells(row, buf);
        let found = needle.find(&text);
        for (nth, start) in found.iter().enumerate() {
            let (from, to) = (columns[*start], columns[start + needle.len() - 1]);
            buf.set_style(Rect { x: from, width: to - from + 1, ..row }, style(nth_row, nth));
        }
        let indent = indent(&text);
        if let Some((above, line, places)) = before.filter(|_| is_text)
            && let Some((start, end)) = needle.over_break(&line, &text[indent..])
        {
            let style = style(nth_row - 1, needle.find(&line).len());
            let (from, to) = (places[start], places[line.len() - 1]);
            buf.set_style(Rect { x: from, width: to - from + 1, ..above }, style);
            let (from, to) = (columns[indent], columns[indent + end - 1]);
            buf.set_style(Rect { x: from, width: to - from + 1, ..row }, style);
        }
        before = Some((row, trimmed(text), columns));
    }
}

/// A row's characters, and the column of each.
fn cells(row: Rect, buf: &Buffer) -> (Vec<char>, Vec<u16>) {
    let mut text = Vec::new();
    let mut columns = Vec::new();
    let mut hidden = 0_usize;
    for x in row.left()..row.right() {
        let Some(cell) = buf.cell((x, row.y)).filter(|_| hidden == 0) else {
            hidden = hidden.saturating_sub(1);
            continue;
        };
        text.extend(cell.symbol().chars());
        columns.resize(text.len(), x);
        hidden = format::width(cell.symbol()).saturating_sub(1);
    }
    (text, columns)
}
