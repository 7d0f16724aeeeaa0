//! Panel 1: why this token? The candidates, what each stage cut, and every parameter in place.
//!
//! Small it lists the likeliest tokens over the parameters that most people change; with the width for
//! it the stages are columns, and every candidate falls through them.

use super::{paint, parameters, stage_table, waterfall};
use crate::protocol::SamplingTrace;
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::keymap::Place;
use crate::tui::looked::{self, Looked};
use crate::tui::panels::Panel;
use crate::tui::theme::Role;
use crate::tui::transcript::wrap::wrap;
use crate::tui::trial::Trial;
use ratatui::text::{Line, Span};

/// Width from which candidates and parameters stand side by side.
const TWO_COLUMNS: usize = 70;
/// Width from which the stages are columns, and the parameters beside them.
const TABLE: usize = 108;
/// Width from which every parameter says where it is from.
const ORIGINS: usize = 150;
/// Rows that the why keeps before the parameters get theirs.
const WHY: usize = 8;
/// Rows of parameters while other values are tried: what comes of them matters more.
const TRIED: usize = 6;
/// Rows of parameters under a table that fills the screen.
const UNDER: usize = 4;

pub fn lines(app: &App, (width, height): (usize, usize), focused: bool) -> Vec<Line<'static>> {
    if width >= TABLE {
        let right = if width >= ORIGINS { parameters::WITH_ORIGIN } else { parameters::WIDTH };
        let left = width - right - 3;
        let why = why(app, (left, height), true);
        return beside(why, parameters::list(app, (right, height), focused), left + 3, height);
    }
    if focused && app.panels.zoomed && height >= 12 {
        let columns = (width / (parameters::WIDTH + 2)).max(1);
        return over(app, (width, height), height - UNDER - 3, columns, focused);
    }
    if width >= TWO_COLUMNS {
        let left = width - parameters::WIDTH - 3;
        let why = why(app, (left, height), false);
        return beside(why, parameters::list(app, (parameters::WIDTH, height), focused), left + 3, height);
    }
    let columns = if width >= 38 { 2 } else { 1 };
    // With the focus the parameters come first: they are what is changed here. They scroll.
    let rows = parameters::COMMON.div_ceil(columns) + if focused { 2 } else { 0 };
    let left = height.saturating_sub(rows + 1);
    let room = match focused {
        true if app.panels.sampling.trial.is_some() => height.saturating_sub(TRIED).max(left),
        true => left.max(height / 2),
        false => left.max(WHY.min(height)),
    };
    if room < 3 {
        return parameters::grid(app, (width, height), columns, focused);
    }
    over(app, (width, height), room, columns, focused)
}

/// The why in `room` rows, and under it the parameters in columns.
fn over(
    app: &App,
    (width, height): (usize, usize),
    room: usize,
    columns: usize,
    focused: bool,
) -> Vec<Line<'static>> {
    let table = app.panels.zoomed && focused;
    let mut all = why(app, (width, room), table);
    if let rows @ 1.. = height.saturating_sub(room + 1) {
        all.resize(room + 1, Line::default());
        all.extend(parameters::grid(app, (width, rows), columns, focused));
    }
    all
}

/// Which token, its candidates and what the stages did, in at most `height` rows.
fn why(app: &App, (width, height): (usize, usize), table: bool) -> Vec<Line<'static>> {
    let muted = app.theme.style(Role::Muted);
    let trial = app.panels.sampling.trial.as_ref();
    let trace = match looked::looked(app) {
        Looked::At(trace) => trace,
        Looked::Nothing => return empty(app),
        Looked::Untraced { seq, index, why } => {
            let mut lines = vec![head(app, (seq, index), None, width)];
            lines.extend(wrap(&Line::styled(format!("no waterfall: {why}"), muted), width, 0));
            return lines;
        }
    };
    let mut lines = Vec::new();
    if app.token.is_some() || table {
        lines.push(head(app, (trace.seq, trace.index), Some(&trace), width));
    }
    lines.extend(trial.map(|trial| trying(app, trial, width)));
    let tried = trial.and_then(|trial| trial.answer.as_ref());
    if let Some(Err(why)) = tried {
        let bad = app.theme.style(Role::Bad);
        lines.extend(wrap(&Line::styled(format!("cannot be told: {why}"), bad), width, 2));
    }
    let tried = tried.and_then(|answer| answer.as_deref().ok());
    let size = (width, height.saturating_sub(lines.len()));
    lines.extend(match table {
        true => stage_table::table(app, &trace, tried, size),
        false => waterfall::list(app, &trace, tried, size),
    });
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

/// `token 42 of 120 · sequence 1 · " sky" · , . step · End newest`.
fn head(
    app: &App,
    (seq, index): (crate::protocol::SeqId, usize),
    trace: Option<&SamplingTrace>,
    width: usize,
) -> Line<'static> {
    let theme = &app.theme;
    let muted = theme.style(Role::Muted);
    let number = format::count(index as u64 + 1);
    let of = looked::drawn(app, seq).map_or(String::new(), |n| format!(" of {}", format::count(n as u64)));
    let of_trace = trace.and_then(|t| t.candidates.iter().find(|c| c.id == t.drawn)).map(|c| c.text.clone());
    let text = of_trace.or_else(|| looked::token(app, seq, index).map(|t| t.text.clone()));
    let mut words = vec![
        Span::styled(format!("token {number}{of}"), theme.style(Role::Text)),
        Span::styled(format!("{} {seq}", App::letter(seq)), theme.sequence(App::hue(seq))),
    ];
    words
        .extend(text.map(|t| Span::styled(format::fit(&format::quoted(&t), 24), theme.style(Role::Heading))));
    words.push(match app.token {
        Some(_) => Span::styled(", . step, End newest", muted),
        None => Span::styled("the newest; , steps back", muted),
    });
    paint::fitting(words, width, theme)
}

/// What is tried, and what can be done with it.
fn trying(app: &App, trial: &Trial, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let muted = theme.style(Role::Muted);
    let change = |spec: &crate::protocol::ParamSpec| {
        let (was, now) = ((spec.get)(&trial.recorded), (spec.get)(&trial.asked.params));
        Span::styled(format!("{} {was}→{now}", spec.name), theme.style(Role::Accent))
    };
    let said = |hint: String| Span::styled(hint, muted);
    let mut words = vec![Span::styled("what if", theme.style(Role::Heading))];
    words.extend(trial.tried().map(change));
    match words.len() {
        1 => words.push(Span::styled("change a value: ← →", muted)),
        _ => words.extend(app.keymap.hint(Place::In(Panel::Sampling), "apply_tried", "uses it").map(said)),
    }
    words.extend(app.keymap.hint(Place::Anywhere, "escape", "leaves").map(said));
    if trial.waits {
        words.insert(1, Span::styled("computing…", muted));
    }
    paint::fitting(words, width, theme)
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
