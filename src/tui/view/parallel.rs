//! The streams of one batch, side by side in the transcript.

use super::paint;
use super::transcript::{CARET, GUTTER};
use crate::protocol::SequenceState;
use crate::tui::app::App;
use crate::tui::chat::{Answer, Turn};
use crate::tui::format;
use crate::tui::theme::Role;
use ratatui::text::{Line, Span};

/// Streams stand beside each other where each gets at least this.
const MIN_COLUMN: usize = 24;
/// Rows over a stream's text: its name, its rule, and the blank line above.
const HEAD: usize = 3;

/// As many columns as there is room for, the others under them. While they stream all of them are
/// in view, each with its newest lines; in full when all have ended.
pub fn lines(app: &App, turn: &Turn, (width, height): (u16, u16)) -> Vec<Line<'static>> {
    let width = usize::from(width.saturating_sub(GUTTER));
    let count = turn.answers.len().max(1);
    let most = (width / (MIN_COLUMN + 2)).clamp(1, count);
    // As many rows as that takes, each as full as the others.
    let rows = count.div_ceil(most);
    let columns = count.div_ceil(rows);
    let column = (width / columns).saturating_sub(2).max(1);
    let live = turn.answers.iter().any(|a| a.outcome.is_none());
    let room = (usize::from(height).saturating_sub(2) / rows).saturating_sub(HEAD).max(2);
    let limit = if live { room } else { usize::MAX };
    let mut lines = Vec::new();
    for (row, answers) in turn.answers.chunks(columns).enumerate() {
        if row > 0 {
            lines.push(Line::default());
        }
        let numbered = answers.iter().zip(row * columns + 1..);
        let streams: Vec<_> = numbered.map(|(a, number)| stream(app, a, number, column, limit)).collect();
        zip(&streams, column, &mut lines);
    }
    if !live {
        let way = format!("{}/take N goes on from one of them", " ".repeat(GUTTER.into()));
        lines.push(Line::default());
        lines.push(Line::styled(way, app.theme.style(Role::Faint)));
    }
    lines
}

/// One line of each stream after the other.
fn zip(streams: &[Vec<Line<'static>>], column: usize, lines: &mut Vec<Line<'static>>) {
    let height = streams.iter().map(Vec::len).max().unwrap_or(0);
    for y in 0..height {
        let mut spans = vec![Span::raw(" ".repeat(GUTTER.into()))];
        for (i, stream) in streams.iter().enumerate() {
            let line = stream.get(y).cloned().unwrap_or_default();
            let fill = (column + 2).saturating_sub(line.width());
            spans.extend(paint::spans(line));
            if i + 1 < streams.len() {
                spans.push(Span::raw(" ".repeat(fill)));
            }
        }
        lines.push(Line::from(spans));
    }
}

/// Name, numbers and the newest `limit` lines of one stream, which `/take` calls by `number`.
fn stream(app: &App, answer: &Answer, number: usize, width: usize, limit: usize) -> Vec<Line<'static>> {
    let hue = app.theme.sequence(App::hue(answer.seq));
    let mut facts = format!(" {} tok", format::count(answer.tokens as u64));
    let mut rule = "─".repeat(width);
    let view = app.snapshot.sequences.iter().find(|s| s.seq == answer.seq);
    let state = view.filter(|_| answer.outcome.is_none()).and_then(|s| match s.state {
        SequenceState::Running => None,
        SequenceState::Waiting => Some("waits"),
        SequenceState::Loading => Some("loads"),
        SequenceState::Compiling => Some("compiles"),
        SequenceState::Preempted => Some("preempted"),
    });
    if let Some(state) = state {
        facts += &format!(" · {state}");
    }
    if let Some(outcome) = &answer.outcome {
        facts += &format!(" · {}", outcome.reason.name());
        // In full wherever it fits: half a seed cannot be set again.
        rule = format::fit(&format!("─ seed {} {rule}", outcome.seed), width).replace('…', "─");
    }
    let head = Line::from(vec![
        Span::styled(format!("{number}) ■ {}", answer.seq), hue),
        Span::styled(facts, app.theme.style(Role::Muted)),
    ]);
    let mut lines = vec![paint::fit_line(head, width)];
    let user = app.theme.style(Role::User);
    lines.extend(answer.title.iter().map(|t| Line::styled(format::fit(t, width), user)));
    lines.push(Line::styled(rule, hue));
    let mut text = text(app, answer, width);
    text.drain(..text.len().saturating_sub(limit));
    lines.append(&mut text);
    if answer.outcome.is_none()
        && let Some(last) = lines.last_mut()
        && last.width() < width
    {
        last.spans.push(Span::styled(CARET, hue));
    }
    lines
}

fn text(app: &App, answer: &Answer, width: usize) -> Vec<Line<'static>> {
    let width = width.saturating_sub(1).max(1) as u16;
    let all = (0, usize::MAX);
    let mut lines = Vec::new();
    if app.chat.thoughts_open || answer.body.is_empty() {
        let style = app.theme.style(Role::Thought);
        answer.thoughts.visit(all, width, &app.theme, |line| lines.push(line.clone().patch_style(style)));
    }
    answer.body.visit(all, width, &app.theme, |line| lines.push(line.clone()));
    if lines.is_empty() {
        lines.push(Line::default());
    }
    lines
}
