//! The conversation: only the lines in view are drawn, only what changed is wrapped again.

use super::{calls, card, paint, parallel, versions};
use crate::protocol::{FinishReason, SequenceState};
use crate::tui::app::App;
use crate::tui::chat::{Answer, Entry, Level, Note, Turn};
use crate::tui::format;
use crate::tui::theme::Role;
use crate::tui::transcript::Document;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

/// Text is easiest to read in lines no longer than this.
pub const MEASURE: u16 = 100;
/// A gutter on the left, and room for the caret on the right.
pub const GUTTER: u16 = 2;
pub const CARET: &str = "▍";

/// A stretch of the transcript: a few lines, or a document that knows its own.
enum Section<'a> {
    Lines(Vec<Line<'static>>),
    Document { document: &'a Document, first: Span<'static>, rest: Span<'static>, style: Style, caret: bool },
}

/// Under a rule that says how far up the view is.
pub fn titled(app: &App, area: Rect, buf: &mut Buffer) {
    let style = app.theme.style(Role::Border);
    let title = Line::styled(" chat ", app.theme.style(Role::Muted));
    let [_, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    draw(app, rest, buf);
    paint::titled(title, position(app), area, style, buf);
}

pub fn draw(app: &App, area: Rect, buf: &mut Buffer) {
    let area = Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area };
    if area.is_empty() {
        return;
    }
    let width = area.width.min(MEASURE);
    let text = width.saturating_sub(GUTTER + 1).max(1);
    let sections = sections(app, area, text);
    let heights: Vec<usize> = sections.iter().map(|s| height(s, text, app)).collect();
    let total: usize = heights.iter().sum();
    let view = usize::from(area.height);
    let end = total.saturating_sub(view);
    let top = app.chat.scroll.map_or(end, |top| top.min(end));
    app.shown.set((total, view));

    let mut at = 0;
    let mut y = area.y;
    for (section, height) in sections.iter().zip(heights) {
        let (from, to) = (top.saturating_sub(at).min(height), (top + view).saturating_sub(at).min(height));
        if from < to {
            visit(section, (from, to), height, text, app, |line| {
                paint::line(area.x, y, line, area, buf);
                y += 1;
            });
        }
        at += height;
    }
}

/// How far up the view is, if it does not follow the end.
fn position(app: &App) -> Line<'static> {
    let (total, view) = app.shown.get();
    let end = total.saturating_sub(view);
    match app.chat.scroll {
        Some(top) if top < end => {
            let text = format!(" ↓ {} more · Ctrl+End follows ", format::count((end - top) as u64));
            Line::styled(text, app.theme.style(Role::Warn))
        }
        _ => Line::default(),
    }
}

fn height(section: &Section, text: u16, app: &App) -> usize {
    match section {
        Section::Lines(lines) => lines.len(),
        Section::Document { document, .. } => document.height(text, &app.theme),
    }
}

fn visit(
    section: &Section,
    (from, to): (usize, usize),
    height: usize,
    text: u16,
    app: &App,
    mut show: impl FnMut(&Line<'static>),
) {
    match section {
        Section::Lines(lines) => lines[from..to].iter().for_each(show),
        Section::Document { document, first, rest, style, caret } => {
            let mut row = from;
            document.visit((from, to), text, &app.theme, |line| {
                let gutter = if row == 0 { first } else { rest };
                let mut spans = vec![gutter.clone()];
                spans
                    .extend(line.spans.iter().map(|s| Span::styled(s.content.clone(), style.patch(s.style))));
                if *caret && row + 1 == height {
                    spans.push(Span::styled(CARET, app.theme.style(Role::Accent)));
                }
                show(&Line::from(spans));
                row += 1;
            });
        }
    }
}

fn sections<'a>(app: &'a App, area: Rect, text: u16) -> Vec<Section<'a>> {
    let mut all = Vec::new();
    for entry in &app.chat.entries {
        match entry {
            Entry::Note(note) => all.push(note_section(app, note)),
            Entry::Turn(turn) => turn_sections(app, turn, (area.width, area.height), text, &mut all),
        }
        all.push(blank());
    }
    all.extend(card::lines(app, area.width).map(Section::Lines));
    if matches!(all.last(), Some(Section::Lines(lines)) if lines.len() == 1 && lines[0].spans.is_empty()) {
        all.pop();
    }
    all
}

fn blank<'a>() -> Section<'a> {
    Section::Lines(vec![Line::default()])
}

fn note_section<'a>(app: &App, note: &'a Note) -> Section<'a> {
    let (sign, role, style) = match note.level {
        Level::Info => ("· ", Role::Faint, Role::Muted),
        Level::Good => ("✓ ", Role::Good, Role::Muted),
        Level::Bad => ("! ", Role::Bad, Role::Bad),
    };
    Section::Document {
        document: &note.shown,
        first: Span::styled(sign, app.theme.style(role)),
        rest: Span::raw("  "),
        style: app.theme.style(style),
        caret: false,
    }
}

fn turn_sections<'a>(app: &'a App, turn: &'a Turn, area: (u16, u16), text: u16, all: &mut Vec<Section<'a>>) {
    if !turn.calls.is_empty() {
        return calls_sections(app, turn, area, text, all);
    }
    let user = app.theme.style(if turn.queued { Role::Muted } else { Role::User });
    all.push(Section::Document {
        document: &turn.shown,
        first: Span::styled("› ", user),
        rest: Span::raw("  "),
        style: user.add_modifier(Modifier::BOLD),
        caret: false,
    });
    all.extend(versions::line(app, turn).map(|line| Section::Lines(vec![line])));
    if turn.queued {
        let sent =
            if app.ready().is_some() { "  sent after this answer" } else { "  sent when the model is ready" };
        all.push(Section::Lines(vec![Line::styled(sent, app.theme.style(Role::Muted))]));
    }
    if !turn.answers.is_empty() {
        all.push(blank());
    }
    answers_sections(app, turn, area, text, all);
}

fn answers_sections<'a>(
    app: &'a App,
    turn: &'a Turn,
    area: (u16, u16),
    text: u16,
    all: &mut Vec<Section<'a>>,
) {
    if turn.side || turn.answers.len() > 1 {
        all.push(Section::Lines(parallel::lines(app, turn, area)));
    } else {
        turn.answers.iter().for_each(|answer| answer_sections(app, answer, text, all));
    }
}

/// What tools gave back, folded, and the answer to it.
fn calls_sections<'a>(app: &'a App, turn: &'a Turn, area: (u16, u16), text: u16, all: &mut Vec<Section<'a>>) {
    all.extend(versions::line(app, turn).map(|line| Section::Lines(vec![line])));
    for call in &turn.calls {
        all.push(Section::Lines(vec![calls::head(app, call, text.into())]));
        if app.chat.thoughts_open && !call.shown.is_empty() {
            let bar = Span::styled("│ ", app.theme.style(Role::Border));
            let (first, rest, style) = (bar.clone(), bar, app.theme.style(Role::Muted));
            all.push(Section::Document { document: &call.shown, first, rest, style, caret: false });
        }
    }
    if !turn.answers.is_empty() {
        all.push(blank());
        answers_sections(app, turn, area, text, all);
    }
}

fn answer_sections<'a>(app: &'a App, answer: &'a Answer, text: u16, all: &mut Vec<Section<'a>>) {
    let live = answer.outcome.is_none();
    let mut started = false;
    if !answer.thoughts.is_empty() {
        all.push(Section::Lines(vec![thoughts_head(app, answer)]));
        if app.chat.thoughts_open {
            all.push(Section::Document {
                document: &answer.thoughts,
                first: Span::styled("│ ", app.theme.style(Role::Border)),
                rest: Span::styled("│ ", app.theme.style(Role::Border)),
                style: app.theme.style(Role::Thought),
                caret: live && answer.body.is_empty(),
            });
        }
        all.push(blank());
        started = true;
    }
    if answer.body.height(text, &app.theme) > 0 {
        all.push(Section::Document {
            document: &answer.body,
            first: Span::raw("  "),
            rest: Span::raw("  "),
            style: app.theme.style(Role::Text),
            caret: live,
        });
        started = true;
    }
    if !answer.tool_calls.is_empty() {
        if answer.body.height(text, &app.theme) > 0 {
            all.push(blank());
        }
        all.push(Section::Lines(
            answer.tool_calls.iter().map(|c| calls::asked(app, c, text.into())).collect(),
        ));
        started = true;
    }
    match &answer.outcome {
        None if !started => all.push(Section::Lines(vec![waiting(app, answer)])),
        None => {}
        Some(_) => {
            if started {
                all.push(blank());
            }
            all.extend(ending(app, answer).map(|line| Section::Lines(vec![line])));
        }
    }
}

fn thoughts_head(app: &App, answer: &Answer) -> Line<'static> {
    let open = app.chat.thoughts_open;
    let thinks = answer.outcome.is_none() && answer.body.is_empty();
    let spent = answer.thinking.map_or(0.0, |(from, to)| (to - from).as_secs_f64() * 1e3);
    let verb = if thinks { "thinking" } else { "thought" };
    let facts =
        format!("{verb} {} · {} tok", format::millis(spent), format::count(answer.reasoning_tokens as u64));
    Line::from(vec![
        Span::styled(if open { "▾ " } else { "▸ " }, app.theme.style(Role::Thought)),
        Span::styled(facts, app.theme.style(Role::Thought)),
        Span::styled(if open { "  Ctrl+O folds" } else { "  Ctrl+O shows" }, app.theme.style(Role::Faint)),
    ])
}

/// Before the first token: what the engine is doing about it.
fn waiting(app: &App, answer: &Answer) -> Line<'static> {
    let view = app.snapshot.sequences.iter().find(|s| s.seq == answer.seq);
    let text = match view {
        Some(s) if s.state != SequenceState::Running && !app.paused => {
            let step = app.meter.steps.last();
            let waiting = step.and_then(|step| step.waiting.iter().find(|w| w.seq == answer.seq));
            waiting.map_or("waits for the next step".into(), |w| format!("waits: {}", w.reason))
        }
        Some(s) if s.computed_tokens < s.prompt_tokens && !app.paused => {
            let (done, all) =
                (format::count(s.computed_tokens as u64), format::count(s.prompt_tokens as u64));
            format!("reading the prompt {done}/{all}")
        }
        _ if app.paused => "paused: F6 steps, F5 resumes".into(),
        _ => "…".into(),
    };
    Line::from(vec![
        Span::raw("  "),
        Span::styled(text, app.theme.style(Role::Muted)),
        Span::styled(CARET, app.theme.style(Role::Accent)),
    ])
}

/// How the answer ended and what it took.
fn ending(app: &App, answer: &Answer) -> Option<Line<'static>> {
    let outcome = answer.outcome.as_ref()?;
    let (why, role) = match &outcome.reason {
        // The note that follows says why.
        FinishReason::Error(_) if answer.text.is_empty() => {
            return Some(Line::styled("  not answered", app.theme.style(Role::Muted)));
        }
        FinishReason::Error(_) => ("ended by an error", Role::Bad),
        FinishReason::Abort => ("stopped", Role::Warn),
        FinishReason::Length => ("cut at the length limit", Role::Warn),
        FinishReason::Repetition => ("ended: it repeats itself", Role::Warn),
        FinishReason::StopString(_) => ("stop string", Role::Faint),
        FinishReason::ToolCalls => ("asks for tools", Role::Accent),
        FinishReason::Stop => ("", Role::Faint),
    };
    let faint = app.theme.style(Role::Muted).add_modifier(Modifier::DIM);
    let mut words = Vec::new();
    if !why.is_empty() {
        words.push(Span::styled(why, app.theme.style(role)));
    }
    words.push(Span::styled(format!("{} tok", format::count(answer.tokens as u64)), faint));
    if outcome.timings.tokens_per_second > 0.0 {
        words.push(Span::styled(format!("{} tok/s", format::rate(outcome.timings.tokens_per_second)), faint));
    }
    if let Some(ttft) = answer.ttft_ms() {
        words.push(Span::styled(format!("TTFT {}", format::millis(ttft)), faint));
    }
    let usage = &outcome.usage;
    if usage.cached_tokens > 0 {
        let count = |n: usize| format::count(n as u64);
        let cached = format!("{}/{} cached", count(usage.cached_tokens), count(usage.prompt_tokens));
        words.push(Span::styled(cached, faint));
    }
    let mut line = paint::dotted(words, &app.theme);
    line.spans.insert(0, Span::raw("  "));
    Some(line)
}
