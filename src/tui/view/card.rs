//! What stands at the end of the transcript while there is no model: an offer, a download, a load.

use super::paint;
use crate::protocol::LoadStage;
use crate::tui::app::{App, Fetch, ModelState};
use crate::tui::format;
use crate::tui::keymap::Place;
use crate::tui::port::ModelChoice;
use crate::tui::sanitize;
use crate::tui::theme::Role;
use crate::tui::transcript::wrap::wrap;
use ratatui::text::{Line, Span};
use std::time::Duration;

/// Bytes from which a rate says something about the time left.
const MEASURABLE: u64 = 64_000;

pub fn lines(app: &App, width: u16) -> Option<Vec<Line<'static>>> {
    let width = usize::from(width.min(76));
    if let Some(fetch) = &app.fetch {
        return Some(fetching(app, fetch, width));
    }
    match &app.model {
        ModelState::Loading { name, stage, .. } => Some(loading(app, name, *stage, width)),
        ModelState::None => app.offer().map(|choice| offer(app, choice, width)),
        ModelState::Ready(_) | ModelState::Failed { .. } => None,
    }
}

fn offer(app: &App, choice: &ModelChoice, width: usize) -> Vec<Line<'static>> {
    // Beside what was said it is brief: a failed download's reason must stay in view.
    if app.chat.entries.is_empty() { full_offer(app, choice, width) } else { brief_offer(app, choice, width) }
}

fn brief_offer(app: &App, choice: &ModelChoice, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let muted = theme.style(Role::Muted);
    let key = |text| Span::styled(text, theme.style(Role::Accent));
    let what = format!(" fetches {}, {}", sanitize::one_line(&choice.name), format::bytes(choice.bytes));
    let rest = [
        key("  /model"),
        Span::styled(" shows the others; ", muted),
        key("/model PATH.gguf"),
        Span::styled(" opens any file", muted),
    ];
    let lines = vec![
        Line::from(vec![key("  Enter"), Span::styled(what, theme.style(Role::Text))]),
        Line::from(rest.to_vec()),
    ];
    lines.into_iter().map(|line| paint::fit_line(line, width)).collect()
}

fn full_offer(app: &App, choice: &ModelChoice, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let muted = theme.style(Role::Muted);
    let facts = [
        format::bytes(choice.bytes),
        sanitize::one_line(&choice.licence),
        format!("context {}", format::count(choice.context as u64)),
    ];
    let title = if choice.is_default {
        "No model on this machine yet."
    } else {
        "This model is not on this machine yet."
    };
    let mut lines = vec![
        Line::default(),
        Line::styled(format!("  {title}"), theme.style(Role::Text)),
        Line::default(),
        Line::styled(format!("  {}", sanitize::one_line(&choice.name)), theme.style(Role::Heading)),
        indented(paint::dotted(facts.map(|f| Span::styled(f, muted)), theme)),
    ];
    let description = sanitize::one_line(&choice.description);
    let target = format!("to {}", sanitize::one_line(&choice.target));
    lines.extend(wrapped(&description, width, muted));
    lines.extend(wrapped(&target, width, muted));
    lines.push(Line::default());
    lines.push(Line::from(vec![
        Span::raw("  "),
        Span::styled("Enter", theme.style(Role::Accent)),
        Span::styled(" fetches it and starts", theme.style(Role::Text)),
        Span::styled("     /model", theme.style(Role::Accent)),
        Span::styled(" shows the others", muted),
    ]));
    lines.extend(wrapped("Offline? glassbox PATH.gguf opens any GGUF file.", width, muted));
    lines
}

fn fetching(app: &App, fetch: &Fetch, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let muted = theme.style(Role::Muted);
    let share = fetch.done as f64 / fetch.total.max(1) as f64;
    let mut facts = vec![format!("{} of {}", format::bytes(fetch.done), format::bytes(fetch.total))];
    let new = fetch.done.saturating_sub(fetch.resumed_at.unwrap_or(0));
    facts.extend(pace(app, fetch.started, new, fetch.total.saturating_sub(fetch.done)));
    let from = sanitize::one_line(&fetch.source);
    let mut lines = vec![
        Line::from(vec![
            Span::styled("  Fetching ", theme.style(Role::Text)),
            Span::styled(sanitize::one_line(&fetch.name), theme.style(Role::Heading)),
            Span::styled(if from.is_empty() { String::new() } else { format!(" from {from}") }, muted),
        ]),
        gauge(app, share, width),
        indented(paint::dotted(facts.into_iter().map(|f| Span::styled(f, muted)), theme)),
    ];
    lines.extend(app.keymap.key_of(Place::Anywhere, "escape").map(|key| {
        Line::from(vec![
            Span::styled(format!("  {key}"), theme.style(Role::Accent)),
            Span::styled(" cancels; what is fetched stays for the next time", muted),
        ])
    }));
    lines.into_iter().map(|line| paint::fit_line(line, width)).collect()
}

/// How fast, and how long it will still take, once that can be measured.
fn pace(app: &App, started: Duration, new: u64, left: u64) -> Vec<String> {
    let spent = app.now.saturating_sub(started).as_secs_f64();
    if spent <= 0.2 || new < MEASURABLE {
        return Vec::new();
    }
    let rate = new as f64 / spent;
    let seconds = left as f64 / rate;
    vec![format!("{}/s", format::bytes(rate as u64)), format!("{} left", format::seconds(seconds))]
}

/// Of a load that is going on: its share, how fast it is, how long it will still take.
pub fn load_pace(app: &App) -> Option<(f64, Vec<String>)> {
    match app.model {
        ModelState::Loading { done, total, started, .. } if total > 0 => {
            let facts = pace(app, started, done, total.saturating_sub(done));
            Some((done as f64 / total as f64, facts))
        }
        _ => None,
    }
}

fn loading(app: &App, name: &str, stage: LoadStage, width: usize) -> Vec<Line<'static>> {
    let muted = app.theme.style(Role::Muted);
    let verb = match stage {
        LoadStage::Reading => "reading",
        LoadStage::Repacking => "arranging the weights for this processor",
    };
    let mut lines = vec![Line::from(vec![
        Span::styled("  Loading ", app.theme.style(Role::Text)),
        Span::styled(sanitize::one_line(name), app.theme.style(Role::Heading)),
        Span::styled(format!(": {verb}"), muted),
    ])];
    if let (Some((share, pace)), ModelState::Loading { done, total, .. }) = (load_pace(app), &app.model) {
        lines.push(gauge(app, share, width));
        let mut facts = vec![format!("{} of {}", format::bytes(*done), format::bytes(*total))];
        facts.extend(pace);
        lines.push(indented(paint::dotted(facts.into_iter().map(|f| Span::styled(f, muted)), &app.theme)));
    }
    if let Some(before) = &app.before {
        let text = format!("  {} stays if this fails", sanitize::one_line(&before.info.name));
        lines.push(Line::styled(text, muted));
    }
    lines.into_iter().map(|line| paint::fit_line(line, width)).collect()
}

fn gauge(app: &App, share: f64, width: usize) -> Line<'static> {
    let wide = width.saturating_sub(10).clamp(4, 50);
    let mut spans = vec![Span::raw("  ")];
    spans.extend(paint::bar(share, wide, app.theme.style(Role::Accent), &app.theme));
    spans.push(Span::styled(format!(" {:>3.0}%", (share * 100.0).floor()), app.theme.style(Role::Text)));
    Line::from(spans)
}

fn indented(mut line: Line<'static>) -> Line<'static> {
    line.spans.insert(0, Span::raw("  "));
    line
}

fn wrapped(text: &str, width: usize, style: ratatui::style::Style) -> impl Iterator<Item = Line<'static>> {
    let line = Line::styled(text.to_owned(), style);
    let lines = if text.is_empty() { Vec::new() } else { wrap(&line, width.saturating_sub(2), 0) };
    lines.into_iter().map(indented)
}
