//! A sequence of the batch in full: what was asked, how far it is, its parameters, and why it waits.

use super::paint;
use crate::protocol::{PARAMS, SamplingParams, SeqId, SequenceState, SequenceView};
use crate::tui::app::App;
use crate::tui::chat::{Answer, Turn};
use crate::tui::format;
use crate::tui::history::Seen;
use crate::tui::roster::{Entry, Got, roster};
use crate::tui::sanitize::one_line;
use crate::tui::theme::Role;
use crate::tui::transcript::wrap::wrap;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

pub fn lines(app: &App, seen: &Seen, seq: SeqId, (width, height): (usize, usize)) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let muted = theme.style(Role::Muted);
    let roster = roster(seen);
    let entry = roster.iter().find(|entry| entry.seq == seq);
    let mut lines = vec![head(app, seq, entry)];
    if let Some((turn, answer)) = asked(app, seq) {
        let text = answer.title.as_ref().unwrap_or(&turn.text);
        let text = format::fit(&one_line(text), width.saturating_sub(6) * 2);
        let line =
            Line::from(vec![Span::styled("asked ", muted), Span::styled(text, theme.style(Role::Text))]);
        lines.extend(wrap(&line, width, 6));
    }
    match entry {
        Some(entry) => {
            lines.extend(why(app, entry, width));
            lines.extend(entry.view.into_iter().flat_map(|view| progress(app, view, width)));
            lines.extend(entry.view.into_iter().flat_map(|view| parameters(app, &view.params, width)));
        }
        None => lines.extend(ended(app, seq, width)),
    }
    lines.truncate(height.saturating_sub(1));
    lines.resize(height.saturating_sub(1), Line::default());
    let keys = ["i back", "x cancel", "+ - priority", "f trace", "J K others"];
    lines.push(paint::fitting(keys.map(|key| Span::styled(key, muted)), width, theme));
    lines
}

fn head(app: &App, seq: SeqId, entry: Option<&Entry>) -> Line<'static> {
    let theme = &app.theme;
    let state = match entry.map(|entry| (entry.got, entry.view.map(|view| view.state))) {
        None => "has ended",
        Some((Got::Row(_), _)) => "runs",
        Some((Got::Preempted(..), _) | (_, Some(SequenceState::Preempted))) => "gave way",
        Some((Got::Skipped(_), _)) => "was passed over",
        Some((_, Some(SequenceState::Loading))) => "waits for its blocks",
        Some((_, Some(SequenceState::Compiling))) => "waits for its grammar",
        Some(_) => "waits",
    };
    let own = theme.sequence(App::hue(seq)).add_modifier(Modifier::BOLD);
    let traced = if app.focused_seq == Some(seq) { " · traced" } else { "" };
    Line::from(vec![
        Span::styled(format!("{} sequence {seq} ", App::letter(seq)), own),
        Span::styled(format!("{state}{traced}"), theme.style(Role::Text)),
    ])
}

/// Of whichever chat it is.
fn asked(app: &App, seq: SeqId) -> Option<(&Turn, &Answer)> {
    let turns = app.tabs.all(&app.chat).flat_map(|chat| chat.turns());
    turns.flat_map(|turn| turn.answers.iter().map(move |answer| (turn, answer))).find(|(_, a)| a.seq == seq)
}

/// What it got in this step, or why nothing.
fn why(app: &App, entry: &Entry, width: usize) -> Vec<Line<'static>> {
    let said = match entry.got {
        Got::Row(row) => {
            format!("{} in this step, from {} on", format::plural(row.tokens, "token"), row.computed)
        }
        Got::Preempted(preemption, waits) => {
            let waits = waits.map_or(String::new(), |waits| format!("; {}", waits.reason));
            format!("gave {} back: {preemption}{waits}", format::plural(preemption.blocks_freed, "block"))
        }
        Got::Skipped(waits) | Got::Waits(waits) => waits.reason.to_string(),
        Got::Nothing => "came after this step".to_owned(),
    };
    let role = if matches!(entry.got, Got::Row(_)) { Role::Muted } else { Role::Warn };
    let line = Line::from(vec![
        Span::styled("step  ", app.theme.style(Role::Muted)),
        Span::styled(one_line(&said), app.theme.style(role)),
    ]);
    wrap(&line, width, 6)
}

fn progress(app: &App, view: &SequenceView, width: usize) -> Vec<Line<'static>> {
    let count = |n: usize| format::count(n as u64);
    let all = view.prompt_tokens + view.generated_tokens;
    let tokens = [
        format!("prompt {}", count(view.prompt_tokens)),
        format!("of it cached {}", count(view.cached_tokens)),
        format!("generated {}", count(view.generated_tokens)),
    ];
    let place = [
        format!("computed {} of {}", count(view.computed_tokens), count(all)),
        format::plural(view.blocks.len(), "block"),
        format!("priority {}", view.priority),
        format!(
            "preempted {}",
            match view.preemptions {
                0 => "never".to_owned(),
                1 => "once".to_owned(),
                n => format!("{n} times"),
            }
        ),
    ];
    let flow = |label: &'static str, words: Vec<String>| {
        let style = app.theme.style(Role::Text);
        let words = words.into_iter().map(|word| Span::styled(word, style));
        paint::flowing(Span::styled(label, app.theme.style(Role::Muted)), words, width, &app.theme)
    };
    let share = view.computed_tokens as f64 / all.max(1) as f64;
    let mut bar = vec![Span::styled("cache ", app.theme.style(Role::Muted))];
    bar.extend(paint::bar(
        share,
        width.saturating_sub(6),
        app.theme.sequence(App::hue(view.seq)),
        &app.theme,
    ));
    let mut lines = flow("token ", tokens.into());
    lines.push(Line::from(bar));
    lines.extend(flow("      ", place.into()));
    lines
}

/// Those that are not the built-in ones.
fn parameters(app: &App, params: &SamplingParams, width: usize) -> Vec<Line<'static>> {
    let usual = SamplingParams::default();
    let changed = PARAMS.iter().filter(|spec| (spec.get)(params) != (spec.get)(&usual));
    let words: Vec<Span> = changed
        .map(|spec| {
            let text = one_line(&format!("{} {}", spec.name, (spec.get)(params)));
            Span::styled(format::fit(&text, width.saturating_sub(6)), app.theme.style(Role::Accent))
        })
        .collect();
    let label = Span::styled("set   ", app.theme.style(Role::Muted));
    match words.is_empty() {
        true => vec![Line::from(vec![
            label,
            Span::styled("all parameters as built in", app.theme.style(Role::Muted)),
        ])],
        false => paint::flowing(label, words, width, &app.theme),
    }
}

/// What the transcript still knows.
fn ended(app: &App, seq: SeqId, width: usize) -> Vec<Line<'static>> {
    let Some((_, answer)) = asked(app, seq) else { return Vec::new() };
    let Some(outcome) = &answer.outcome else { return Vec::new() };
    let words = [
        format!("ended: {}", outcome.reason.name()),
        format!("prompt {}", format::count(outcome.usage.prompt_tokens as u64)),
        format!("generated {}", format::count(outcome.usage.completion_tokens as u64)),
    ];
    let words = words.map(|word| Span::styled(word, app.theme.style(Role::Text)));
    paint::flowing(Span::raw("      "), words, width, &app.theme)
}
