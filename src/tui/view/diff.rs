//! Two answers of a turn compared: what they share once, then each from where they part.

use super::paint;
use super::transcript::GUTTER;
use crate::tui::app::App;
use crate::tui::chat::{Answer, Turn};
use crate::tui::format;
use crate::tui::keymap::Place;
use crate::tui::panels::SizeClass;
use crate::tui::reading;
use crate::tui::theme::Role;
use crate::tui::transcript::wrap::wrap;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

/// Columns stand beside each other where each gets this, but for small screens; else one over the
/// other.
const MIN_COLUMN: usize = 32;
/// Lines that are left of what both share.
const SHARED: usize = 4;

/// The two that are compared, if they are to be shown at this turn.
pub fn here<'a>(app: &'a App, turn: &'a Turn) -> Option<(&'a Answer, &'a Answer)> {
    let (a, b) = app.chat.compared?;
    let second = turn.answers.iter().find(|answer| answer.seq == b)?;
    Some((app.chat.answer(a)?, second))
}

pub fn lines(app: &App, a: &Answer, b: &Answer, (width, _): (u16, u16)) -> Vec<Line<'static>> {
    let width = usize::from(width.saturating_sub(GUTTER));
    let shared = a.drawn.shared(&b.drawn);
    let muted = app.theme.style(Role::Muted).add_modifier(Modifier::DIM);
    let mut lines = vec![title(app, a, b, shared)];
    let mut common = raw(a, (0, shared), (muted, muted), width);
    let left_out = common.len().saturating_sub(SHARED);
    if left_out > 0 {
        let text = format!("… {} lines that both share", format::count(left_out as u64));
        lines.push(Line::styled(text, app.theme.style(Role::Muted)));
    }
    lines.extend(common.drain(left_out..));
    let is_small = matches!(app.class(), SizeClass::Tiny | SizeClass::Compact);
    let columns = if width >= 2 * MIN_COLUMN + 2 && !is_small { 2 } else { 1 };
    let column = (width / columns).saturating_sub(if columns > 1 { 2 } else { 0 }).max(1);
    let (left, right) = (side(app, a, shared, column), side(app, b, shared, column));
    if columns == 2 {
        lines.extend(beside(left, right, column));
    } else {
        lines.extend(left);
        lines.push(Line::default());
        lines.extend(right);
    }
    let indent = |mut line: Line<'static>| {
        line.spans.insert(0, Span::raw(" ".repeat(GUTTER.into())));
        line
    };
    lines.into_iter().map(indent).collect()
}

fn title(app: &App, a: &Answer, b: &Answer, shared: usize) -> Line<'static> {
    let mut words = vec![
        Span::styled(format!("{} and {} compared", a.seq, b.seq), app.theme.style(Role::Focus)),
        Span::styled(
            match shared {
                0 => "they share nothing".to_owned(),
                n => format!("the first {} tokens are shared", format::count(n as u64)),
            },
            app.theme.style(Role::Muted),
        ),
    ];
    let keys = [(Place::Transcript, "compare_answers"), (Place::Anywhere, "escape")];
    let keys: Vec<String> =
        keys.into_iter().filter_map(|(place, row)| app.keymap.key_of(place, row)).collect();
    if !keys.is_empty() {
        words.push(Span::styled(format!("{} closes", keys.join(" or ")), app.theme.style(Role::Muted)));
    }
    paint::dotted(words, &app.theme)
}

/// An answer from where it parts from the other; its first own token stands out.
fn side(app: &App, answer: &Answer, shared: usize, width: usize) -> Vec<Line<'static>> {
    let hue = app.theme.sequence(App::hue(answer.seq));
    let own = answer.drawn.len().saturating_sub(shared);
    let head = Line::from(vec![
        Span::styled(format!("■ {}", answer.seq), hue),
        Span::styled(format!(" {} own tok", format::count(own as u64)), app.theme.style(Role::Muted)),
    ]);
    let mut lines = vec![paint::fit_line(head, width), Line::styled("─".repeat(width), hue)];
    if own == 0 {
        lines.push(Line::styled("nothing of its own", app.theme.style(Role::Muted)));
        return lines;
    }
    let mark = app.theme.style(Role::Accent).add_modifier(Modifier::REVERSED | Modifier::BOLD);
    let styles = (mark, app.theme.style(Role::Text));
    lines.extend(raw(answer, (shared, answer.drawn.len()), styles, width));
    lines
}

/// Tokens as text, wrapped; the first may have a style of its own.
fn raw(
    answer: &Answer,
    (from, to): (usize, usize),
    (first, rest): (Style, Style),
    width: usize,
) -> Vec<Line<'static>> {
    let mut lines = vec![Line::default()];
    for index in from..to {
        let Some(token) = answer.drawn.get(index) else { break };
        let style = if index == from { first } else { rest };
        let shown = reading::piece(&token, false);
        for (nth, part) in shown.split('↵').enumerate() {
            if nth > 0 {
                lines.push(Line::default());
            }
            if let Some(line) = lines.last_mut().filter(|_| !part.is_empty()) {
                line.spans.push(Span::styled(part.to_owned(), style));
            }
        }
    }
    let lines = lines.into_iter().take(if from == to { 0 } else { usize::MAX });
    lines.flat_map(|line| wrap(&line, width, 0)).collect()
}

fn beside(left: Vec<Line<'static>>, right: Vec<Line<'static>>, column: usize) -> Vec<Line<'static>> {
    let rows = left.len().max(right.len());
    let (mut left, mut right) = (left.into_iter(), right.into_iter());
    let row = |_| {
        let (mut line, other) = (left.next().unwrap_or_default(), right.next().unwrap_or_default());
        let line_style = line.style;
        line.spans.iter_mut().for_each(|span| span.style = line_style.patch(span.style));
        let fill = (column + 2).saturating_sub(line.width());
        line.spans.push(Span::raw(" ".repeat(fill)));
        line.spans.extend(paint::spans(other));
        Line::from(line.spans)
    };
    (0..rows).map(row).collect()
}
