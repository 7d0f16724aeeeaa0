//! Panel 1: why this token? The candidates, what each stage cut, and every parameter in place.

use super::paint;
use crate::protocol::{Candidate, PARAMS, SamplingParams, SamplingTrace, Stage};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::history;
use crate::tui::theme::Role;
use ratatui::text::{Line, Span};

/// Width from which candidates and parameters stand side by side.
const TWO_COLUMNS: usize = 70;
/// `repetition_penalty` and a value.
const PARAM_WIDTH: usize = 25;
/// The parameters that most people change are so many: the first.
const COMMON: usize = 11;
/// Rows that the why keeps before the parameters get theirs.
const WHY: usize = 8;

pub fn lines(app: &App, (width, height): (usize, usize), focused: bool) -> Vec<Line<'static>> {
    if width >= TWO_COLUMNS {
        let left = width - PARAM_WIDTH - 3;
        let why = why(app, left, height);
        let params = params(app, PARAM_WIDTH, 1, height, focused);
        return beside(why, params, left + 3, height);
    }
    let columns = if width >= 38 { 2 } else { 1 };
    // With the focus the parameters come first: they are what is changed here. They scroll.
    let rows = COMMON.div_ceil(columns);
    let beside = height.saturating_sub(rows + 1);
    let room = if focused { beside } else { beside.max(WHY.min(height)) };
    if room < 3 {
        return params(app, width, columns, height, focused);
    }
    let mut all = why(app, width, room);
    if let rows @ 1.. = height.saturating_sub(room + 1) {
        all.resize(room + 1, Line::default());
        all.extend(params(app, width, columns, rows, focused));
    }
    all
}

/// Candidates, entropy and the chain, in at most `height` rows.
fn why(app: &App, width: usize, height: usize) -> Vec<Line<'static>> {
    let seen = history::seen(app);
    let Some(trace) = &seen.snapshot.sampling else {
        return empty(app);
    };
    let mut chain = chain(app, trace, width);
    chain.extend(grammar(app, trace, width));
    let rest = chain.len() + 1;
    let shown = height.saturating_sub(rest).max(1).min(trace.candidates.len());
    let mut chosen: Vec<&Candidate> = trace.candidates.iter().take(shown).collect();
    if let Some(drawn) = trace.candidates.iter().find(|c| c.id == trace.drawn)
        && !chosen.iter().any(|c| c.id == drawn.id)
        && let Some(last) = chosen.last_mut()
    {
        *last = drawn;
    }
    let mut lines: Vec<_> = chosen.iter().map(|c| candidate(app, trace, c, width)).collect();
    lines.push(summary(app, trace, width));
    lines.extend(chain);
    lines.truncate(height);
    lines
}

fn empty(app: &App) -> Vec<Line<'static>> {
    let muted = app.theme.style(Role::Muted);
    vec![
        Line::styled("no token yet: while an answer streams,", muted),
        Line::styled("its likeliest tokens stand here", muted),
    ]
}

/// `" Paris"  ██████▏ 71.2% → 88.0% ◀`, or `✂ top-p` for what a stage cut.
fn candidate(app: &App, trace: &SamplingTrace, c: &Candidate, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let drawn = c.id == trace.drawn;
    let text_width = (width / 3).clamp(6, 18);
    let fixed = text_width + 1 + 1 + 6 + 1 + 8;
    let bar_width = width.saturating_sub(fixed).clamp(0, 24);
    let hue = theme.style(if drawn {
        Role::Accent
    } else if c.cut_by.is_some() {
        Role::Faint
    } else {
        Role::Muted
    });
    let name = theme.style(if drawn {
        Role::Heading
    } else if c.cut_by.is_some() {
        Role::Muted
    } else {
        Role::Text
    });
    let mut spans =
        vec![Span::styled(format::pad(&format::quoted(&c.text), text_width), name), Span::raw(" ")];
    let (filled, rest) = paint::bar_text(f64::from(c.raw_probability), bar_width);
    spans.push(Span::styled(filled, hue));
    spans.push(Span::raw(" ".repeat(rest + 1)));
    let raw = format::pad_left(&format::percent(f64::from(c.raw_probability)), 6);
    spans.push(Span::styled(raw, theme.style(Role::Text)));
    let (end, role) = match (drawn, c.cut_by) {
        (_, Some(stage)) => (format!(" ✂{}", short(stage)), Role::Warn),
        (true, None) => {
            (format!(" ◀{}", format::pad_left(&format::percent(f64::from(c.probability)), 6)), Role::Accent)
        }
        (false, None) => {
            (format!("  {}", format::pad_left(&format::percent(f64::from(c.probability)), 6)), Role::Muted)
        }
    };
    spans.push(Span::styled(end, theme.style(role)));
    Line::from(spans)
}

/// A stage's name in the seven cells that a column has.
fn short(stage: Stage) -> &'static str {
    match stage {
        Stage::Temperature => "temp",
        Stage::TopNSigma => "n-sigma",
        Stage::TypicalP => "typical",
        Stage::Mirostat => "miro",
        stage => stage.name(),
    }
}

/// Entropy before and after the stages; rank and log-probability of the drawn token.
fn summary(app: &App, trace: &SamplingTrace, width: usize) -> Line<'static> {
    let entropy = (format::decimal(trace.entropy), format::decimal(trace.final_entropy));
    let mut words = vec![format!("H {}→{} nat", entropy.0, entropy.1)];
    let drawn = app.parsed.iter().rev().find(|t| t.seq == trace.seq && t.index == trace.index);
    if let Some(token) = drawn {
        words.push(format!("rank {}", format::count(token.rank)));
        words.push(format!("logp {}", format::decimal(token.logprob)));
    }
    if width >= 56 {
        let kept = trace.stages.last().map_or(trace.vocab_size, |s| s.survivors);
        words.push(format!("kept {}", format::count(kept as u64)));
    }
    paint::dotted(words.into_iter().map(|w| Span::styled(w, app.theme.style(Role::Muted))), &app.theme)
}

/// `grammar 3 of 49,152: "{" "{\n" …, may end`, where one held the token.
fn grammar(app: &App, trace: &SamplingTrace, width: usize) -> Option<Line<'static>> {
    let view = trace.grammar.as_ref()?;
    let (allowed, of) = (format::count(view.allowed as u64), format::count(trace.vocab_size as u64));
    let end = if view.may_end { ", may end" } else { "" };
    let mut words = format!("grammar {allowed} of {of}:");
    for text in &view.first {
        let word = format!(" {}", format::quoted(text));
        if words.chars().count() + word.chars().count() + 2 + end.len() > width {
            words += " …";
            break;
        }
        words += &word;
    }
    Some(Line::styled(words + end, app.theme.style(Role::Muted)))
}

/// `raw 49,152 → top-k 40 → top-p 12 → min-p 3 · order default`, in the order in force and without idle
/// stages; wrapped to the width.
fn chain(app: &App, trace: &SamplingTrace, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let mut lines = vec![Line::default()];
    let mut before = trace.vocab_size;
    let acted = trace.stages.iter().filter(|view| view.active || view.stage == Stage::Raw);
    for (i, view) in acted.enumerate() {
        let cut = view.survivors < before;
        let count =
            if i == 0 || cut { format!(" {}", format::count(view.survivors as u64)) } else { String::new() };
        before = view.survivors;
        let role = if cut { Role::Warn } else { Role::Text };
        let wide = 3 + view.stage.name().len() + count.len();
        if lines.last().is_some_and(|line| line.width() + wide > width) {
            lines.push(Line::default());
        }
        if let Some(line) = lines.last_mut() {
            let arrow = match (i, line.spans.is_empty()) {
                (0, _) => "",
                (_, true) => "→ ",
                (_, false) => " → ",
            };
            line.spans.push(Span::styled(arrow, theme.style(Role::Faint)));
            line.spans.push(Span::styled(format!("{}{count}", view.stage.name()), theme.style(role)));
        }
    }
    let order = match &trace.params.sampler_order.names()[..] {
        [preset] => format!(" · order {preset}"),
        _ => " · own order".to_owned(),
    };
    if let Some(line) = lines.last_mut().filter(|line| line.width() + order.chars().count() <= width) {
        line.spans.push(Span::styled(order, theme.style(Role::Faint)));
    }
    lines
}

/// Parameters in columns; the selected one marked, and scrolled into view.
fn params(app: &App, width: usize, columns: usize, rows: usize, focused: bool) -> Vec<Line<'static>> {
    let rows = rows.clamp(1, PARAMS.len().div_ceil(columns));
    let shown = rows * columns;
    let ahead = (app.panels.sampling.param + 1 + shown / 3).saturating_sub(shown);
    let first = ahead.min(PARAMS.len().saturating_sub(shown));
    let width = if columns == 1 { width.min(PARAM_WIDTH) } else { ((width - 2) / 2).min(PARAM_WIDTH) };
    let line = |row: usize| {
        let mut spans = Vec::new();
        for index in (first + row..(first + shown).min(PARAMS.len())).step_by(rows) {
            if index >= first + rows {
                spans.push(Span::raw("  "));
            }
            spans.extend(param(app, index, width, focused));
        }
        Line::from(spans)
    };
    (0..rows).map(line).collect()
}

fn param(app: &App, index: usize, width: usize, focused: bool) -> Vec<Span<'static>> {
    let theme = &app.theme;
    let spec = &PARAMS[index];
    let selected = focused && index == app.panels.sampling.param;
    // Of a long text the end is seen: that is where it is typed.
    let end =
        |t: &str| t.chars().rev().take(width - 6).collect::<Vec<_>>().into_iter().rev().collect::<String>();
    let typed = app.panels.typing.as_ref().filter(|_| selected).map(|t| format!("{}▍", end(t)));
    let value = typed.unwrap_or_else(|| (spec.get)(&app.params).to_string());
    let changed = (spec.get)(&app.params) != (spec.get)(&SamplingParams::default());
    let name = spec.name.replace("_penalty", if width < PARAM_WIDTH { "_pen" } else { "_penalty" });
    let name = name.replace("_sequence_", "_").replace("_str_in_output", "").replace("_token_ids", "_ids");
    let value_width = format::width(&value).min(width - 4);
    let label = format::pad(&name, width - value_width - 1);
    let mut name_style = theme.style(if selected { Role::Heading } else { Role::Muted });
    let mut value_style = theme.style(if changed { Role::Accent } else { Role::Text });
    if selected {
        name_style = name_style.patch(theme.style(Role::Selection));
        value_style = value_style.patch(theme.style(Role::Selection));
    }
    vec![Span::styled(label + " ", name_style), Span::styled(format::fit(&value, value_width), value_style)]
}

fn beside(left: Vec<Line<'static>>, right: Vec<Line<'static>>, at: usize, rows: usize) -> Vec<Line<'static>> {
    (0..rows)
        .map(|i| {
            let line = paint::fit_line(left.get(i).cloned().unwrap_or_default(), at.saturating_sub(1));
            let gap = " ".repeat(at.saturating_sub(line.width()));
            let mut spans: Vec<Span> = paint::spans(line).collect();
            spans.push(Span::raw(gap));
            spans.extend(paint::spans(right.get(i).cloned().unwrap_or_default()));
            Line::from(spans)
        })
        .collect()
}
