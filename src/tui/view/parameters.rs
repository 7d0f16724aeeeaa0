//! Every sampling parameter with its value and where that is from, in the sampling panel.

use crate::protocol::{PARAMS, ParamKind, ParamSpec, SamplingParams};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::theme::Role;
use crate::tui::transcript::wrap::wrap;
use crate::tui::update::{edited, origin};
use ratatui::text::{Line, Span};

/// `repetition_penalty`, a value, and the letter of its origin.
pub const WIDTH: usize = 27;
/// The same, and the origin in words.
pub const WITH_ORIGIN: usize = 46;
/// The parameters that most people change are so many: the first.
pub const COMMON: usize = 11;
/// Rows from which a single column has headings.
const HEADINGS: usize = 16;
/// Lines for what the selected one means.
const HELP: usize = 3;

/// Parameters of one kind, by the first of them.
const GROUPS: &[(&str, &str)] = &[
    ("repetition_penalty", "common"),
    ("logprobs_mode", "output and its end"),
    ("sampler_order", "order of the stages"),
    ("logit_bias", "bias and bans"),
    ("penalty_last_n", "penalties, DRY"),
    ("dynatemp_range", "dynamic temperature"),
    ("top_n_sigma", "more cuts"),
    ("mirostat", "steering"),
    ("repetition_max_pattern", "endless repetition"),
];

enum Row {
    Heading(&'static str),
    Parameter(usize),
}

/// One column, with headings where there is room, and what the selected one means under it.
pub fn list(app: &App, (width, height): (usize, usize), focused: bool) -> Vec<Line<'static>> {
    let mut about = if focused { about(app, width) } else { Vec::new() };
    about.truncate(height.saturating_sub(4).min(HELP + 2));
    let room = height - about.len();
    let rows = rows(room >= HEADINGS);
    let selected = app.panels.sampling.param;
    let at = rows.iter().position(|row| matches!(row, Row::Parameter(i) if *i == selected)).unwrap_or(0);
    let first = scrolled(at, room, rows.len());
    let mut lines: Vec<Line> =
        rows.iter().skip(first).take(room).map(|row| line(app, row, width, focused)).collect();
    if !about.is_empty() {
        lines.resize(room, Line::default());
        lines.extend(about);
    }
    lines
}

/// Several columns, each read from top to bottom, scrolled so that the selected one is in view.
pub fn grid(app: &App, (width, height): (usize, usize), columns: usize, focused: bool) -> Vec<Line<'static>> {
    let mut about = if focused { about(app, width) } else { Vec::new() };
    about.truncate(height.saturating_sub(3).min(2));
    let rows = (height - about.len()).clamp(1, PARAMS.len().div_ceil(columns));
    let shown = rows * columns;
    let ahead = (app.panels.sampling.param + 1 + shown / 3).saturating_sub(shown);
    let first = ahead.min(PARAMS.len().saturating_sub(shown));
    let one = ((width + 2) / columns).saturating_sub(2).min(WIDTH);
    let line = |row: usize| {
        let mut spans = Vec::new();
        for index in (first + row..(first + shown).min(PARAMS.len())).step_by(rows) {
            if index >= first + rows {
                spans.push(Span::raw("  "));
            }
            spans.extend(parameter(app, index, one, focused));
        }
        Line::from(spans)
    };
    (0..rows).map(line).chain(about).collect()
}

fn rows(headings: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for (index, spec) in PARAMS.iter().enumerate() {
        let heading = GROUPS.iter().find(|(first, _)| headings && *first == spec.name);
        rows.extend(heading.map(|(_, title)| Row::Heading(title)));
        rows.push(Row::Parameter(index));
    }
    rows
}

/// The first row shown: all of them from the top while the selected one is among those.
fn scrolled(at: usize, room: usize, all: usize) -> usize {
    (at + 1 + room / 4).saturating_sub(room).min(all.saturating_sub(room))
}

fn line(app: &App, row: &Row, width: usize, focused: bool) -> Line<'static> {
    let theme = &app.theme;
    match row {
        Row::Heading(title) => {
            let rule = "─".repeat(width.saturating_sub(title.len() + 1));
            let rule = Span::styled(format!(" {rule}"), theme.style(Role::Border));
            Line::from(vec![Span::styled(*title, theme.style(Role::Muted)), rule])
        }
        Row::Parameter(index) if width >= WITH_ORIGIN => {
            let mut spans = parameter(app, *index, WIDTH, focused);
            let from = source(app, &PARAMS[*index]);
            let from = format::fit(&from, width - WIDTH - 1);
            spans.pop();
            spans.push(Span::styled(format!("  {from}"), theme.style(Role::Muted)));
            Line::from(spans)
        }
        Row::Parameter(index) => Line::from(parameter(app, *index, width, focused)),
    }
}

/// Name, value, and a letter for where it is from.
fn parameter(app: &App, index: usize, width: usize, focused: bool) -> Vec<Span<'static>> {
    let theme = &app.theme;
    let spec = &PARAMS[index];
    let selected = focused && index == app.panels.sampling.param;
    let params = edited(app);
    let typed = app.panels.typing.as_ref().filter(|_| selected);
    // Of a long text the end is seen: that is where it is typed.
    let typed = typed.map(|t| format!("{}▍", tail(t, width.saturating_sub(8))));
    let value = typed.unwrap_or_else(|| (spec.get)(params).to_string());
    let changed = is_changed(app, spec);
    let width = width.saturating_sub(2);
    let name = spec.name.replace("_penalty", if width + 2 < WIDTH { "_pen" } else { "_penalty" });
    let name = name.replace("_sequence_", "_").replace("_str_in_output", "").replace("_token_ids", "_ids");
    let value_width = format::width(&value).min(width.saturating_sub(4));
    let label = format::pad(&name, width.saturating_sub(value_width + 1));
    let mut name_style = theme.style(if selected { Role::Heading } else { Role::Muted });
    let mut value_style = theme.style(if changed { Role::Accent } else { Role::Text });
    if selected {
        name_style = name_style.patch(theme.style(Role::Selection));
        value_style = value_style.patch(theme.style(Role::Selection));
    }
    vec![
        Span::styled(label + " ", name_style),
        Span::styled(format::fit(&value, value_width), value_style),
        Span::styled(format!(" {}", letter(&source(app, spec))), theme.style(Role::Muted)),
    ]
}

/// It is not the built-in value or, of a trial, not what it was.
fn is_changed(app: &App, spec: &ParamSpec) -> bool {
    match &app.panels.sampling.trial {
        Some(trial) => (spec.get)(&trial.asked.params) != (spec.get)(&trial.recorded),
        None => (spec.get)(&app.params) != (spec.get)(&SamplingParams::default()),
    }
}

/// Where the value is from, in words.
fn source(app: &App, spec: &ParamSpec) -> String {
    match &app.panels.sampling.trial {
        Some(_) if is_changed(app, spec) => "tried".into(),
        Some(_) => "as recorded".into(),
        None => crate::tui::sanitize::one_line(origin(app, spec.name)),
    }
}

/// The origin in a letter; the built-in values have none.
fn letter(origin: &str) -> char {
    match origin {
        "built-in" | "as recorded" => ' ',
        origin if origin.starts_with("GLASSBOX_") => 'e',
        origin if origin.contains(".toml") => 'c',
        origin => origin.chars().next().unwrap_or(' '),
    }
}

/// What the selected one means, what it can be, and where its value is from.
fn about(app: &App, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let Some(spec) = PARAMS.get(app.panels.sampling.param) else { return Vec::new() };
    let (undo, redo) = app.panels.sampling.changes.left();
    let mut facts = vec![source(app, spec), range(spec)];
    if app.panels.sampling.trial.is_none() && undo + redo > 0 {
        facts.push(match redo {
            0 => format!("u undoes ({undo})"),
            _ => format!("u undoes ({undo}), U redoes ({redo})"),
        });
    }
    let facts = facts.into_iter().map(|fact| Span::styled(fact, theme.style(Role::Text)));
    let mut lines = vec![super::paint::fitting(facts, width, theme)];
    lines.extend(wrap(&Line::styled(spec.help, theme.style(Role::Muted)), width, 0));
    lines
}

/// `0 to 1`, `from 0, or none`.
fn range(spec: &ParamSpec) -> String {
    let none = if spec.optional { ", or none" } else { "" };
    let range = match spec.kind {
        ParamKind::Choice(names) => names.join(" or "),
        ParamKind::List => "a list".into(),
        _ if spec.max >= f64::from(u32::MAX) => format!("from {}", spec.min),
        _ => format!("{} to {}", spec.min, spec.max),
    };
    range + none
}

/// The end of a text, in at most so many cells.
fn tail(text: &str, width: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    letters[letters.len().saturating_sub(width)..].iter().collect()
}
