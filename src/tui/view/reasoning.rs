//! Panel 5: what did the parser decide? Token by token, the channel and what is held back.

use super::paint;
use crate::protocol::Channel;
use crate::tui::app::{App, ParsedToken};
use crate::tui::format;
use crate::tui::history;
use crate::tui::sanitize;
use crate::tui::theme::Role;
use ratatui::text::{Line, Span};

/// Most calls shown: the newest.
const CALLS: usize = 3;

pub fn lines(app: &App, (width, height): (usize, usize)) -> Vec<Line<'static>> {
    let mut lines = vec![state(app, width)];
    lines.extend(calls(app, width).into_iter().take(height.saturating_sub(4)));
    let room = height.saturating_sub(lines.len());
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

/// The calls of the last answer, as they form.
fn calls(app: &App, width: usize) -> Vec<Line<'static>> {
    let Some(answer) = app.chat.last_answer() else { return Vec::new() };
    let style = app.theme.style(Role::Accent);
    let forming =
        answer.outcome.is_none() && matches!(app.parsed.last(), Some(t) if t.channel == Channel::Tool);
    let newest = answer.tool_calls.len().saturating_sub(CALLS);
    let all = answer.tool_calls.iter().enumerate().skip(newest);
    all.map(|(i, call)| {
        let more = if forming && i + 1 == answer.tool_calls.len() { "…" } else { "" };
        let name = sanitize::one_line(&call.name);
        let text = format!("call {} {name} {}", i + 1, format::quoted(&call.arguments).trim_matches('"'));
        // Its end is where it grows.
        let text =
            if more.is_empty() { format::fit(&text, width) } else { tail(&text, width.saturating_sub(1)) };
        Line::styled(text + more, style)
    })
    .collect()
}

/// The end of a text that is too long.
fn tail(text: &str, width: usize) -> String {
    let over = format::width(text).saturating_sub(width);
    if over == 0 {
        text.to_owned()
    } else {
        format!("…{}", text.chars().skip(over + 1).collect::<String>())
    }
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

/// Which parsers are at work, where they are, and what thinking has taken and may still take.
fn state(app: &App, width: usize) -> Line<'static> {
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
        let count = |n: usize| format::count(n as u64);
        let left = |budget: u32| (budget as usize).saturating_sub(answer.reasoning_tokens);
        let left = answer.budget.map_or(String::new(), |budget| format!(", {} left", count(left(budget))));
        let text = format!("thought {} tok{left}, {}", count(answer.reasoning_tokens), format::millis(spent));
        words.push(Span::styled(text, theme.style(Role::Thought)));
    }
    if app.chat.is_running()
        && let Some(last) = app.parsed.last()
    {
        let (name, role) = channel(last.channel);
        words.push(Span::styled(format!("in {name}"), theme.style(role)));
    }
    if let Some(format) = &info.tool_call_parser {
        words.push(Span::styled(format!("calls {format}"), muted));
    }
    paint::fitting(words, width, theme)
}

/// `151667  "<think>"   → marker   held "<th" a tag?`.
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
        let why = token.why.map_or(String::new(), |why| format!(" {}", why.name()));
        let label = if width < 64 { " " } else { " held " };
        let room = width.saturating_sub(text + 21 + label.len() + why.len()).max(4);
        let held = format::fit(&format::quoted(&token.held), room);
        spans.push(Span::styled(format!("{label}{held}"), theme.style(Role::Warn)));
        spans.push(Span::styled(why, theme.style(Role::Muted)));
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
