//! Tool calls: in the transcript, and the question about one above the input.

use super::entry::folds;
use super::paint;
use crate::protocol::{PlannedAction, ToolCall};
use crate::tui::app::App;
use crate::tui::calls::{Call, CallState, Question};
use crate::tui::chat::Turn;
use crate::tui::format;
use crate::tui::keymap::Place;
use crate::tui::theme::Role;
use crate::tui::transcript::wrap::wrap;
use crate::tui::{sanitize, stored};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

/// Words in front of what stands in columns: `runs   weather Oslo`.
const LABEL: usize = 8;

/// What an answer asks for.
pub fn asked(app: &App, call: &ToolCall, width: usize) -> Line<'static> {
    let line = Line::from(vec![
        Span::styled("→ ", app.theme.style(Role::Accent)),
        Span::styled(Call::line(call), app.theme.style(Role::Code)),
    ]);
    paint::fit_line(line, width)
}

/// The arguments of a call, a line for each where they are an object.
pub fn arguments(app: &App, call: &Call, width: usize) -> Vec<Line<'static>> {
    let arguments = &call.call.arguments;
    let object: Option<serde_json::Map<String, serde_json::Value>> = serde_json::from_str(arguments).ok();
    let rows: Vec<(String, String)> = match object {
        Some(object) => object.iter().map(|(name, value)| (format!("{name}  "), value.to_string())).collect(),
        None if arguments.trim().is_empty() => Vec::new(),
        None => vec![(String::new(), arguments.clone())],
    };
    let bar = Span::styled("│ ", app.theme.style(Role::Border));
    let row = |(name, value): (String, String)| {
        let name = sanitize::one_line(&name);
        let hang = format::width(&name);
        let line = Line::from(vec![
            Span::styled(name, app.theme.style(Role::Muted)),
            Span::styled(sanitize::one_line(&value), app.theme.style(Role::Code)),
        ]);
        wrap(&line, width, hang)
    };
    let barred = |mut line: Line<'static>| {
        line.spans.insert(0, bar.clone());
        line
    };
    rows.into_iter().flat_map(row).map(barred).collect()
}

/// Under a folded call: how its result begins.
pub fn beginning(app: &App, call: &Call, width: usize) -> Line<'static> {
    let mut lines = call.told().lines().filter(|line| !line.trim().is_empty());
    let first = lines.next().map(sanitize::one_line).unwrap_or_default();
    let more = if lines.next().is_some() { " …" } else { "" };
    let room = width.saturating_sub(more.len());
    Line::from(vec![
        Span::styled("╰ ", app.theme.style(Role::Border)),
        Span::styled(format::fit(first.trim(), room) + more, app.theme.style(Role::Muted)),
    ])
}

/// What came of a call, or what it waits for.
pub fn head(app: &App, call: &Call, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let muted = theme.style(Role::Muted);
    let open = call.is_open(app.chat.thoughts_open);
    let sign = if call.is_done() { "╭ " } else { "▸ " };
    let mut words = vec![Span::styled(sanitize::one_line(&call.call.name), theme.style(Role::Code))];
    match &call.state {
        CallState::Checking => words.push(Span::styled("is checked", muted)),
        CallState::Planned => words.push(Span::styled("waits for your answer", theme.style(Role::Warn))),
        CallState::Running(since) => {
            let so_far = app.now.saturating_sub(*since).as_secs_f64();
            let stops = app.keymap.hint(Place::Anywhere, "escape", "stops it");
            let stops = stops.map_or(String::new(), |hint| format!("; {hint}"));
            words.push(Span::styled(format!("runs, {} so far{stops}", format::seconds(so_far)), muted));
        }
        CallState::Done(result) => {
            let role = if result.is_good() { Role::Good } else { Role::Bad };
            words.push(Span::styled(Call::ending(&result.end), theme.style(role)));
            words.push(Span::styled(format::bytes(result.text.len() as u64), muted));
            if result.took_ms > 0.0 {
                words.push(Span::styled(format::millis(result.took_ms), muted));
            }
            words.extend(folds(app, open).map(|hint| Span::styled(hint, muted)));
        }
    }
    let mut line = paint::dotted(words, theme);
    let role = if call.is_done() { Role::Border } else { Role::Accent };
    line.spans.insert(0, Span::styled(sign, theme.style(role)));
    paint::fit_line(line, width)
}

/// Rows of the question, its rule and its keys among them; 0 without one.
pub fn rows(app: &App, area: Rect) -> u16 {
    let Some(question) = &app.tools.question else { return 0 };
    let lines = content(app, question, area.width.saturating_sub(2).into()).len() as u16;
    (lines + 2).min((area.height / 2).max(3))
}

/// The question, over the input: always in view, wherever the transcript stands.
pub fn question(app: &App, area: Rect, buf: &mut Buffer) {
    let Some(question) = app.tools.question.as_ref().filter(|_| area.height >= 3) else { return };
    Clear.render(area, buf);
    let theme = &app.theme;
    let inside = paint::titled(title(app, question), note(app, question), area, theme.style(Role::Warn), buf);
    let lines = content(app, question, inside.width.into());
    let room = usize::from(inside.height.saturating_sub(1));
    let top = question.scroll.min(lines.len().saturating_sub(room));
    let text = Rect { height: inside.height.saturating_sub(1), ..inside };
    paint::lines(&lines[top..], text, buf);
    let below = lines.len() - (top + room).min(lines.len());
    let keys = keys(app, question, below);
    paint::line(inside.x, inside.bottom() - 1, &keys, inside, buf);
    question.drawn.set(app.overlay.is_none());
    question.below.set(below);
    question.read.set(question.read.get() || (below == 0 && app.overlay.is_none()));
}

fn asked_about<'a>(app: &'a App, question: &Question) -> Option<(usize, usize, &'a Call)> {
    let mut calls = app.tabs.all(&app.chat).filter_map(|chat| Some(&chat.pending()?.calls));
    calls.find_map(|calls| {
        let at = calls.iter().position(|call| call.id == question.call)?;
        Some((at + 1, calls.len(), &calls[at]))
    })
}

fn title(app: &App, question: &Question) -> Line<'static> {
    let Some((nth, all, call)) = asked_about(app, question) else { return Line::default() };
    let name = sanitize::one_line(&call.call.name);
    let of = if all > 1 { format!(" {nth} of {all}") } else { String::new() };
    let whose = elsewhere(app, question).unwrap_or_default();
    Line::styled(format!(" {whose}tool call{of}: {name} "), app.theme.style(Role::Heading))
}

/// Which chat asks, if it is not the one in view: `chat 2, Why is the sky…: `.
fn elsewhere(app: &App, question: &Question) -> Option<String> {
    let asks = |turn: &Turn| turn.calls.iter().any(|call| call.id == question.call);
    let tab = app.tab_of(|chat| chat.pending().is_some_and(asks)).filter(|tab| *tab != app.tabs.active())?;
    let chat = app.tabs.all(&app.chat).nth(tab)?;
    Some(format!("chat {}, {}: ", tab + 1, format::fit(&sanitize::one_line(&stored::title(chat)), 24)))
}

fn note(app: &App, question: &Question) -> Line<'static> {
    let plan = asked_about(app, question).and_then(|(_, _, call)| call.plan.as_ref());
    match plan.map(|plan| plan.dry_run) {
        Some(true) => Line::styled(" dry run: nothing will run ", app.theme.style(Role::Good)),
        Some(false) => Line::styled(" for real ", app.theme.style(Role::Warn)),
        None => Line::default(),
    }
}

fn content(app: &App, question: &Question, width: usize) -> Vec<Line<'static>> {
    let Some((_, _, call)) = asked_about(app, question) else { return Vec::new() };
    let mut lines = Vec::new();
    if question.always {
        let name = sanitize::one_line(&call.call.name);
        let text = format!(
            "From now on {name} runs whenever the model asks, with whatever arguments, without a question, \
             until glassbox ends. Is that what you want?"
        );
        lines.extend(wrap(&Line::styled(text, app.theme.style(Role::Warn)), width, 0));
        return lines;
    }
    let mut row = |label: &'static str, text: &str, role| {
        for (i, part) in text.split('\n').enumerate() {
            let label = if i == 0 { label } else { "" };
            let line = Line::from(vec![
                Span::styled(format::pad(label, LABEL), app.theme.style(Role::Muted)),
                Span::styled(sanitize::visible(part).into_owned(), app.theme.style(role)),
            ]);
            lines.extend(wrap(&line, width, LABEL));
        }
    };
    if let Some(plan) = &call.plan {
        let label = if plan.dry_run { "would" } else { "runs" };
        match &plan.action {
            PlannedAction::Command { argv, cwd, stdin } => {
                let argv: Vec<String> = argv.iter().map(|argument| quoted(argument)).collect();
                row(label, &argv.join(" "), Role::Text);
                if let Some(cwd) = cwd {
                    row("in", cwd, Role::Text);
                }
                if let Some(stdin) = stdin {
                    row("stdin", stdin, Role::Text);
                }
            }
            PlannedAction::Mcp { server, tool } => {
                row(label, &format!("{tool} of the MCP server {server}"), Role::Text);
            }
        }
        row("at most", &format::seconds(plan.timeout_s), Role::Muted);
    }
    row("with", &pretty(&call.call.arguments), Role::Code);
    lines
}

/// An argument so that its borders, line breaks and spaces are seen.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,".contains(c);
    match !argument.is_empty() && argument.chars().all(is_plain) {
        true => argument.to_owned(),
        false => serde_json::Value::from(argument).to_string(),
    }
}

fn pretty(arguments: &str) -> String {
    let value: Result<serde_json::Value, _> = serde_json::from_str(arguments);
    value.map_or_else(|_| arguments.to_owned(), |value| format!("{value:#}"))
}

fn keys(app: &App, question: &Question, below: usize) -> Line<'static> {
    let plan = asked_about(app, question).and_then(|(_, _, call)| call.plan.as_ref());
    let keys: &[(&str, &str)] = match (question.always, plan.is_some_and(|plan| plan.dry_run)) {
        (true, _) => &[("y", "yes, always"), ("n", "no, back"), ("Esc", "refuse all")],
        (false, true) => {
            &[("y", "answer with that"), ("n", "refuse"), ("a", "always"), ("Esc", "refuse all")]
        }
        (false, false) => {
            &[("y", "run once"), ("n", "refuse"), ("d", "dry run"), ("a", "always"), ("Esc", "refuse all")]
        }
    };
    let mut words: Vec<Span> = Vec::new();
    if below > 0 {
        words.push(Span::styled(format!("↓ {below} more"), app.theme.style(Role::Warn)));
    }
    let mut line = paint::dotted(words, &app.theme);
    for (key, does) in keys {
        if !line.spans.is_empty() {
            line.spans.push(Span::styled(" · ", app.theme.style(Role::Faint)));
        }
        line.spans.push(Span::styled(*key, app.theme.style(Role::Accent)));
        line.spans.push(Span::styled(format!(" {does}"), app.theme.style(Role::Text)));
    }
    line
}
