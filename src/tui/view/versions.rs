//! Which version of a turn is shown, and how to see the others.

use crate::tui::app::App;
use crate::tui::chat::{Answer, Entry, Turn};
use crate::tui::keymap::Place;
use crate::tui::theme::Role;
use ratatui::text::{Line, Span};

/// `‹ 2/3 › Alt+← Alt+→ · version 1 is being answered`, under the person's words.
pub fn line(app: &App, turn: &Turn) -> Option<Line<'static>> {
    if !turn.versions.is_several() {
        return None;
    }
    let (shown, all) = (turn.versions.shown() + 1, turn.versions.len());
    let mut spans = vec![Span::styled(format!("  ‹ {shown}/{all} ›"), app.theme.style(Role::Accent))];
    let key = |row| app.keymap.key_of(Place::Anywhere, row);
    let keys: Vec<String> = ["previous_version", "next_version"].into_iter().filter_map(key).collect();
    if !keys.is_empty() {
        spans.push(Span::styled(format!("  {}", keys.join(" ")), app.theme.style(Role::Muted)));
    }
    let live: Vec<String> = live(turn).iter().map(usize::to_string).collect();
    if !live.is_empty() {
        let text = format!(" · {} still answered", live.join(", "));
        spans.push(Span::styled(text, app.theme.style(Role::Good)));
    }
    Some(Line::from(spans))
}

/// Versions that are not shown and into which an answer streams, from 1.
fn live(turn: &Turn) -> Vec<usize> {
    let before = turn.versions.before.iter().zip(1..);
    let after = turn.versions.after.iter().zip(turn.versions.shown() + 2..);
    let all = before.chain(after);
    all.filter(|(tail, _)| tail.iter().any(streams)).map(|(_, number)| number).collect()
}

fn streams(entry: &Entry) -> bool {
    let is_live = |answer: &Answer| answer.outcome.is_none();
    matches!(entry, Entry::Turn(turn) if turn.answers.iter().any(is_live))
}
