//! Panel 5: what did the parser decide? Token by token, the channel and what is held back.

use super::paint;
use crate::protocol::Channel;
use crate::tui::app::{App, ParsedToken};
use crate::tui::format;
use crate::tui::history;
use crate::tui::theme::Role;
use ratatui::text::{Line, Span};

pub fn lines(app: &App, (width, height): (usize, usize)) -> Vec<Line<'static>> {
    let mut lines = vec![state(app)];
    let room = height.saturating_sub(1);
    let tokens = so_far(app);
    let skip = app.panels.scroll.min(tokens.len().saturating_sub(room));
    let mut rows: Vec<Line> = tokens.iter().skip(skip).take(room).map(|t| row(app, t, width)).collect();
    rows.reverse();
    if rows.is_empty() {
        rows.push(Line::styled("no token yet", app.theme.style(Role::Muted)));
    }
    lines.extend(rows);
    lines
}

/// The tokens drawn up to the step that is shown, newest first.
fn so_far(app: &App) -> Vec<&ParsedToken> {
    let mut later = history::later_tokens(app);
    let came_by_then = |token: &&ParsedToken| match later.get_mut(&token.seq) {
        Some(n @ 1..) => {
            *n -= 1;
            false
        }
        _ => true,
    };
    app.parsed.iter().rev().filter(came_by_then).collect()
}

/// Which parser is at work, where it is, and what thinking has taken so far.
fn state(app: &App) -> Line<'static> {
    let theme = &app.theme;
    let muted = theme.style(Role::Muted);
    let Some(info) = app.ready() else {
        return Line::styled("no model", muted);
    };
    let parser = match (&info.reasoning_parser, app.parse_reasoning) {
        (None, _) => "this model has no thinking tags".to_owned(),
        (Some(_), false) => "parser off (/think fold turns it on)".to_owned(),
        (Some(name), true) => format!("parser {name}"),
    };
    let mut words = vec![Span::styled(parser, muted)];
    if let Some(answer) = app.chat.last_answer().filter(|a| a.reasoning_tokens > 0) {
        let spent = answer.thinking.map_or(0.0, |(from, to)| (to - from).as_secs_f64() * 1e3);
        let text = format!(
            "thought {} tok, {}",
            format::count(answer.reasoning_tokens as u64),
            format::millis(spent)
        );
        words.push(Span::styled(text, theme.style(Role::Thought)));
    }
    if app.chat.is_running()
        && let Some(last) = app.parsed.last()
    {
        words.push(Span::styled(
            format!("in {}", channel(last.channel).0),
            theme.style(channel(last.channel).1),
        ));
    }
    paint::dotted(words, theme)
}

/// `151667  "<think>"   → marker   held "<th"`.
fn row(app: &App, token: &ParsedToken, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let (name, role) = channel(token.channel);
    let text = (width / 3).clamp(8, 22);
    let mut spans = vec![
        Span::styled("■ ", theme.sequence(App::hue(token.seq))),
        Span::styled(format::pad_left(&token.id.to_string(), 6), theme.style(Role::Muted)),
        Span::raw(" "),
        Span::styled(format::pad(&format::quoted(&token.text), text), theme.style(Role::Text)),
        Span::styled(" → ", theme.style(Role::Faint)),
        Span::styled(format::pad(name, 9), theme.style(role)),
    ];
    if !token.held.is_empty() {
        spans.push(Span::styled(format!(" held {}", format::quoted(&token.held)), theme.style(Role::Warn)));
    }
    Line::from(spans)
}

fn channel(channel: Channel) -> (&'static str, Role) {
    match channel {
        Channel::Content => ("content", Role::Good),
        Channel::Reasoning => ("reasoning", Role::Thought),
        Channel::Tool => ("tool call", Role::Accent),
        Channel::Marker => ("marker", Role::Warn),
    }
}
