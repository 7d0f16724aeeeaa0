//! The second half of panel 4: the conversation as a tree of what was said, answered and said instead.

use super::paint;
use crate::tui::app::App;
use crate::tui::branches::{Row, rows, shared_blocks, versions};
use crate::tui::chat::{Answer, Turn};
use crate::tui::format;
use crate::tui::hits::Target;
use crate::tui::sanitize::one_line;
use crate::tui::theme::Role;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

/// Lines that it would fill.
pub fn height(app: &App) -> usize {
    rows(&app.chat).len() + 1
}

pub fn lines(app: &App, area: Rect, focused: bool) -> Vec<Line<'static>> {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let rows = rows(&app.chat);
    let chosen = app.panels.branch.min(rows.len().saturating_sub(1));
    let mut lines = vec![head(app, width)];
    let room = height.saturating_sub(1).max(1);
    // The chosen row stays in view, with some of what follows it.
    let first = (chosen + 1 + room / 4).saturating_sub(room).min(rows.len().saturating_sub(room));
    for (i, row) in rows.iter().enumerate().skip(first).take(room) {
        let y = area.y + lines.len() as u16;
        app.hits.note(Rect { y, height: 1, ..area }.intersection(area), Target::Branch(i));
        lines.push(line(app, row, width, focused && i == chosen));
    }
    lines
}

fn head(app: &App, width: usize) -> Line<'static> {
    let turns = app.chat.main_turns().count();
    let paths: usize =
        app.chat.turns().map(|turn| versions(turn) - 1 + turn.answers.len().saturating_sub(1)).sum();
    let branches =
        if paths == 1 { "1 branch".to_owned() } else { format!("{} branches", format::count(paths as u64)) };
    let words = [format::plural(turns, "turn"), branches];
    let mut line = Line::from(vec![Span::styled("branches ", app.theme.style(Role::Heading))]);
    let words = words.map(|word| Span::styled(word, app.theme.style(Role::Muted)));
    line.spans.extend(paint::fitting(words, width.saturating_sub(9), &app.theme).spans);
    line
}

/// `● Why is the sky blue?`, and under it its answers and what was said in its place.
fn line(app: &App, row: &Row, width: usize, is_chosen: bool) -> Line<'static> {
    let theme = &app.theme;
    let lead = lead(&row.last, width / 3);
    let facts = match row.answer {
        Some(answer) => answer_facts(app, row.turn, answer),
        None => turn_facts(app, row),
    };
    let facts = format::fit(&facts, width.saturating_sub(20).max(width / 2));
    let (sign, text, style) = match row.answer {
        Some(answer) => {
            let own = theme.sequence(App::hue(answer.seq)).add_modifier(Modifier::BOLD);
            (format!("{} {} ", App::letter(answer.seq), answer.seq), said(answer), own)
        }
        None => (if row.in_view { "● " } else { "○ " }.to_owned(), asked(row.turn), theme.style(Role::User)),
    };
    let used = format::width(&lead) + format::width(&sign) + format::width(&facts) + 1;
    let text = format::pad(&text, width.saturating_sub(used));
    let chosen = if is_chosen { theme.style(Role::Selection) } else { Style::new() };
    let words = if row.in_view { theme.style(Role::Text) } else { theme.style(Role::Muted) };
    Line::from(vec![
        Span::styled(lead, theme.style(Role::Faint).patch(chosen)),
        Span::styled(sign, style.patch(chosen)),
        Span::styled(text, words.patch(chosen)),
        Span::styled(format!(" {facts}"), theme.style(Role::Muted).patch(chosen)),
    ])
}

/// The lines of the branches before a row, at most `room` cells; of a deep one how deep it is.
fn lead(last: &[bool], room: usize) -> String {
    let Some((own, above)) = last.split_last() else { return String::new() };
    let joint = if *own { "└ " } else { "├ " };
    let lines: String = above.iter().map(|last| if *last { "  " } else { "│ " }).collect();
    let whole = lines + joint;
    match format::width(&whole) <= room {
        true => whole,
        false => format!("…{} {joint}", above.len()),
    }
}

fn asked(turn: &Turn) -> String {
    match turn.calls.first() {
        Some(call) => one_line(&format!("result of {}", call.call.name)),
        None => one_line(&turn.text),
    }
}

/// The end of an answer is what tells it from its siblings, where it was forked; else its beginning.
fn said(answer: &Answer) -> String {
    let text = one_line(answer.text.trim());
    match &answer.title {
        Some(title) => format!("{}: {text}", one_line(title)),
        None => text,
    }
}

fn turn_facts(app: &App, row: &Row) -> String {
    let turn = row.turn;
    let mut words = Vec::new();
    if row.in_view && versions(turn) > 1 {
        words.push(format!("version {} of {}", turn.versions.before.len() + 1, versions(turn)));
    }
    if row.turns > 0 {
        words.push(format!("+{}", format::plural(row.turns, "turn")));
    }
    if let [answer] = &turn.answers[..] {
        words.push(answer_facts(app, turn, answer));
    }
    words.join(" · ")
}

/// Its tokens, what came from the cache, and what it shares with the first of its siblings.
fn answer_facts(app: &App, turn: &Turn, answer: &Answer) -> String {
    let mut words = Vec::new();
    let first = turn.answers.first().map(|first| first.seq).filter(|first| *first != answer.seq);
    match first.and_then(|first| Some((shared_blocks(app, answer.seq, first)?, first))) {
        Some(((shared, all), first)) => words.push(format!("{shared}/{all} blk of {first}")),
        None => words.extend(
            answer.cached_tokens.filter(|n| *n > 0).map(|n| format!("{} cached", format::count(n as u64))),
        ),
    }
    words.push(format!("{} tok", format::count(answer.tokens as u64)));
    if answer.outcome.is_none() {
        words.push("runs".into());
    }
    words.join(" · ")
}
