//! Panel 6: is it fast? Latencies and rates of this session, as the engine measured them. With the focus a
//! row is selected, and what it means stands below.

use super::{kernels, paint};
use crate::base::Summary;
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::history::{self, Seen};
use crate::tui::meter::{self, Limits};
use crate::tui::theme::Role;
use crate::tui::transcript::wrap::wrap;
use ratatui::text::{Line, Span};
use std::borrow::Cow;

/// Rows without those of kernels.
const ROWS: usize = 20;
const LABEL: usize = 11;
/// Of a percentile.
const CELL: usize = 8;

/// A fact, and what it means.
pub(super) struct Row {
    pub label: Cow<'static, str>,
    /// Columns of the label, a space included.
    pub wide: usize,
    pub value: Vec<Span<'static>>,
    pub help: Cow<'static, str>,
}

/// How many rows there are.
pub fn count(app: &App) -> usize {
    ROWS + kernels::count(app)
}

pub fn lines(app: &App, (width, height): (usize, usize), focused: bool) -> Vec<Line<'static>> {
    let rows = rows(app, width);
    let selected = app.panels.scroll.min(rows.len() - 1);
    let mut about = Vec::new();
    if focused {
        about = wrap(&Line::styled(rows[selected].help.to_string(), app.theme.style(Role::Muted)), width, 0);
        about.truncate(height.saturating_sub(2).min(4));
    }
    let room = height - about.len();
    let first = if focused { (selected + 1 + room / 4).saturating_sub(room) } else { 0 };
    let first = first.min(rows.len().saturating_sub(room));
    let shown = rows.into_iter().enumerate().skip(first).take(room);
    let mut lines: Vec<Line> = shown.map(|(i, row)| line(app, row, focused && i == selected)).collect();
    if !about.is_empty() {
        lines.resize(room, Line::default());
        lines.extend(about);
    }
    lines
}

fn line(app: &App, row: Row, selected: bool) -> Line<'static> {
    let mut style = app.theme.style(if selected { Role::Heading } else { Role::Muted });
    if selected {
        style = style.patch(app.theme.style(Role::Selection));
    }
    let mut spans = vec![Span::styled(format::pad(&row.label, row.wide - 1), style), Span::raw(" ")];
    spans.extend(row.value);
    Line::from(spans)
}

/// The most wanted first: low panels show only those.
fn rows(app: &App, width: usize) -> Vec<Row> {
    let seen = history::seen(app);
    let (meter, room) = (&app.meter, width.saturating_sub(LABEL));
    let all = |ring: &crate::base::Ring<f64>| Summary::of(ring.iter().copied());
    let first = app.chat.last_answer().and_then(|a| a.ttft_ms()).filter(|_| meter.ttft_ms.is_empty());
    let ttft = match first {
        Some(ms) => running(app, ms),
        None => latency(app, &all(&meter.ttft_ms)),
    };
    let steps = meter.steps.iter().rev().skip(seen.back).rev();
    let per_step = paint::sparkline(steps.map(|s| meter::sampled(s) as f64), room);
    let mut rows = vec![
        row(
            "tok/s",
            rate(app, &seen),
            "tokens drawn a second, all sequences together, over the last second of engine time; then of each sequence",
        ),
        row(
            "",
            head(app),
            "percentiles interpolate linearly between neighbours, as numpy's do; n is the number of samples: of gaps the newest 512, of answers the newest 256",
        ),
        row(
            "TTFT",
            ttft,
            "time to first token: from the request's arrival at the engine, queueing and prefill included, to its first token",
        ),
        row(
            "ITL",
            latency(app, &meter.gaps()),
            "inter-token latency: every gap between two consecutive tokens of a sequence, pooled",
        ),
        row(
            "ITL strip",
            strip(app, room),
            "the newest gaps, oldest left; ▲ is an outlier, more than 3 times the median",
        ),
        row("outliers", outliers(app), "gaps of more than 3 times the median, once there are 5 gaps"),
        row(
            "TPOT",
            latency(app, &all(&meter.tpot_ms)),
            "(E2EL - TTFT) / (tokens - 1) of an answer with more than one: time per output token",
        ),
        row(
            "TPOT gaps",
            latency(app, &all(&meter.mean_gap_ms)),
            "the mean of an answer's gaps: TPOT without what came after the last token",
        ),
        row(
            "E2EL",
            latency(app, &all(&meter.e2el_ms)),
            "end to end: from the request's arrival to the end of its answer",
        ),
        row(
            "queue",
            latency(app, &all(&meter.queue_ms)),
            "from the request's arrival to its first step; a part of TTFT",
        ),
    ];
    rows.extend(work(app, &seen));
    rows.push(row(
        "tok / step",
        chart(app, per_step),
        "tokens drawn in each of the newest steps: the size of the batch",
    ));
    rows.extend(counts(app, &seen));
    debug_assert_eq!(rows.len(), ROWS);
    rows.extend(kernels::rows(app, width, most(app).as_ref()));
    rows
}

/// What the device did, and what the caches and grammars saved it.
fn work(app: &App, seen: &Seen) -> Vec<Row> {
    let c = &seen.snapshot.counters;
    let now = app.meter.work(seen.back);
    let most = most(app);
    let per_second = |amount: Option<f64>, unit: &str, limit: (Option<f64>, &str)| match amount {
        Some(x) if x > 0.0 => words(app, format!("{}{unit}", scaled(x)), of_limit(app, x, limit)),
        _ => nothing(app),
    };
    let limit = |of: fn(&Most) -> f64| most.as_ref().map(of);
    let (bytes_help, flops_help) = (
        "bytes of weights and KV that the steps of the last second read, by the time that they took",
        "operations of the same steps, as the model's operations count them; two to a multiplication and its addition; MFU (model FLOPs utilisation) is their share of the limit",
    );
    let hits = format!("of {} tok", format::count(c.prefix_queries));
    let forced = format!("of {} tok", format::count(c.generated_tokens));
    let grammar = match c.grammar_ms {
        ms if ms > 0.0 => words(app, format::millis(ms), format!("{} of steps", share(ms, c.busy_ms))),
        _ => nothing(app),
    };
    vec![
        row(
            "prefix hit",
            words(app, share(c.prefix_hits as f64, c.prefix_queries as f64), hits),
            "prompt tokens found in the prefix cache, of those looked up, since the engine started",
        ),
        row(
            "memory",
            per_second(now.map(|(bytes, _)| bytes), "B/s", (limit(|m| m.bytes), "of the limit")),
            format!(
                "{bytes_help}{}",
                most.as_ref().map_or(String::new(), |m| format!("; {}", m.bytes_words))
            ),
        ),
        row(
            "compute",
            per_second(now.map(|(_, flops)| flops), "FLOP/s", (limit(|m| m.flops), "MFU")),
            format!(
                "{flops_help}{}",
                most.as_ref().map_or(String::new(), |m| format!("; {}", m.flops_words))
            ),
        ),
        row(
            "forced",
            words(app, share(c.forced_tokens as f64, c.generated_tokens as f64), forced),
            "tokens that were not drawn, of all: nothing else could follow in their grammar",
        ),
        row(
            "grammar",
            grammar,
            "time that masks took and tokens followed, since the engine started, and its share of all steps",
        ),
    ]
}

/// What the device can do at most in a second, and how it was found.
pub(super) struct Most {
    pub bytes: f64,
    pub flops: f64,
    bytes_words: String,
    flops_words: String,
}

/// Known once it was measured. Quantised weights are multiplied at the rate of matrices, and on some devices
/// all but f32; others as f32.
fn most(app: &App) -> Option<Most> {
    let Limits::Known(limits) = &app.meter.limits else { return None };
    let is = |kinds: &[char]| app.ready().is_some_and(|info| info.quantization.starts_with(kinds));
    let is_f32 = app.ready().is_some_and(|info| info.quantization == "F32");
    let (flops, kind) = match is(&['Q', 'I']) || (limits.halves && !is_f32) {
        true => (limits.matrix, crate::tui::sanitize::one_line(&limits.matrix_name)),
        false => (limits.f32, "f32".into()),
    };
    let units = crate::tui::sanitize::one_line(&limits.units);
    Some(Most {
        bytes: limits.memory_read,
        flops,
        bytes_words: format!("at most {}B/s, measured on {units}", scaled(limits.memory_read)),
        flops_words: format!("at most {}FLOP/s ({kind}), measured on {units}", scaled(flops)),
    })
}

/// The share of a measured limit, or why there is none.
fn of_limit(app: &App, amount: f64, (most, name): (Option<f64>, &str)) -> String {
    match (&app.meter.limits, most.filter(|most| *most > 0.0)) {
        (_, Some(most)) => format!("· {} {name}", share(amount, most)),
        (Limits::Asked, _) => "· measuring…".into(),
        (Limits::Failed(why), _) => format!("· {}", crate::tui::sanitize::one_line(why)),
        _ => "· limit not measured".into(),
    }
}

fn counts(app: &App, seen: &Seen) -> Vec<Row> {
    let c = &seen.snapshot.counters;
    let prompt = app.meter.last.as_ref().map(|o| o.timings.prompt_tokens_per_second).filter(|r| *r > 0.0);
    let count = |n: u64| format::count(n);
    let model = |of: fn(&crate::protocol::ModelInfo) -> u64| match app.ready() {
        Some(info) => words(app, format::bytes(of(info)), String::new()),
        None => nothing(app),
    };
    let prompt = prompt
        .map_or_else(|| nothing(app), |r| words(app, format!("{} tok/s", format::rate(r)), String::new()));
    let (done, preempted) = (count(c.requests_finished), format!("done, {} preempted", c.preemptions));
    let (taken, given) = (count(c.prompt_tokens), format!("in, {} out", count(c.generated_tokens)));
    vec![
        row(
            "prompt",
            prompt,
            "prompt tokens that the last answer computed (not cached), by TTFT less queueing",
        ),
        row("tokens", words(app, taken, given), "of prompts, and generated, since the engine started"),
        row(
            "requests",
            words(app, done, preempted),
            "finished, and how often a sequence gave its blocks back, since the engine started",
        ),
        row(
            "model",
            model(|info| info.weights_bytes),
            "bytes of the weights; all of them are read for every step",
        ),
    ]
}

fn row(label: &'static str, value: Vec<Span<'static>>, help: impl Into<Cow<'static, str>>) -> Row {
    Row { label: label.into(), wide: LABEL, value, help: help.into() }
}

/// All together, then each sequence, as many as there are in the step.
fn rate(app: &App, seen: &Seen) -> Vec<Span<'static>> {
    let theme = &app.theme;
    let last = app.meter.last.as_ref().map(|o| o.timings.tokens_per_second);
    let of_last = last.filter(|rate| *rate > 0.0 && seen.back == 0);
    let Some(rate) = app.meter.tokens_per_second(seen.back).or(of_last) else { return nothing(app) };
    let mut spans = vec![Span::styled(format::pad(&format::rate(rate), 6), theme.style(Role::Text))];
    let each = app.meter.rates(seen.back);
    for (seq, rate) in each.iter().filter(|_| each.len() > 1) {
        spans.push(Span::styled(format!(" {} {seq}", App::letter(*seq)), theme.sequence(App::hue(*seq))));
        spans.push(Span::styled(format::pad_left(&format::rate(*rate), 5), theme.style(Role::Muted)));
    }
    spans
}

fn head(app: &App) -> Vec<Span<'static>> {
    let cells = ["p50", "p90", "p99"].map(|name| format::pad_left(name, CELL)).concat();
    vec![Span::styled(format!("{cells}{}", format::pad_left("n", 6)), app.theme.style(Role::Muted))]
}

/// The percentiles, and of how many.
fn latency(app: &App, s: &Summary) -> Vec<Span<'static>> {
    if s.count == 0 {
        return empty(app, "0");
    }
    let cells = [s.p50, s.p90, s.p99].map(|ms| format::pad_left(&format::millis(ms), CELL)).concat();
    let count = format::pad_left(&format::count(s.count as u64), 6);
    let theme = &app.theme;
    vec![Span::styled(cells, theme.style(Role::Text)), Span::styled(count, theme.style(Role::Muted))]
}

/// Of an answer that still runs; none has ended.
fn running(app: &App, ms: f64) -> Vec<Span<'static>> {
    let mut spans = empty(app, "now");
    let dashes = ["-"; 2].map(|dash| format::pad_left(dash, CELL)).concat();
    spans[0] = Span::styled(format::pad_left(&format::millis(ms), CELL), app.theme.style(Role::Text));
    spans.insert(1, Span::styled(dashes, app.theme.style(Role::Faint)));
    spans
}

fn empty(app: &App, count: &str) -> Vec<Span<'static>> {
    let dashes = ["-"; 3].map(|dash| format::pad_left(dash, CELL)).concat();
    let theme = &app.theme;
    let count = Span::styled(format::pad_left(count, 6), theme.style(Role::Muted));
    vec![Span::styled(dashes, theme.style(Role::Faint)), count]
}

/// The newest gaps as columns; what stands out is a triangle, and does not flatten the others.
fn strip(app: &App, width: usize) -> Vec<Span<'static>> {
    let limit = app.meter.outlier_ms().unwrap_or(f64::INFINITY);
    let gaps = &app.meter.gaps_ms;
    let columns = paint::sparkline(gaps.iter().map(|gap| gap.min(limit)), width);
    let newest = gaps.iter().skip(gaps.len().saturating_sub(width));
    let (accent, warn) = (app.theme.style(Role::Accent), app.theme.style(Role::Warn));
    let column = |(gap, column): (&f64, char)| match *gap > limit {
        true => Span::styled("▲", warn),
        false => Span::styled(column.to_string(), accent),
    };
    let spans: Vec<Span> = newest.zip(columns.chars()).map(column).collect();
    if spans.is_empty() { nothing(app) } else { spans }
}

fn outliers(app: &App) -> Vec<Span<'static>> {
    let Some(limit) = app.meter.outlier_ms() else { return nothing(app) };
    let gaps = app.meter.gaps();
    let over = app.meter.gaps_ms.iter().filter(|gap| **gap > limit).count();
    let longest = if over > 0 { format!(", longest {}", format::millis(gaps.max)) } else { String::new() };
    let what = format!("over {}{longest}", format::millis(limit));
    let mut spans = words(app, format::count(over as u64), what);
    if over > 0 {
        spans.insert(0, Span::styled("▲ ", app.theme.style(Role::Warn)));
    }
    spans
}

/// A value, and in less light what it is of.
fn words(app: &App, value: String, rest: String) -> Vec<Span<'static>> {
    if value == "-" {
        return nothing(app);
    }
    let theme = &app.theme;
    vec![
        Span::styled(value, theme.style(Role::Text)),
        Span::styled(format!(" {rest}"), theme.style(Role::Muted)),
    ]
}

fn nothing(app: &App) -> Vec<Span<'static>> {
    vec![Span::styled("-", app.theme.style(Role::Faint))]
}

fn chart(app: &App, line: String) -> Vec<Span<'static>> {
    if line.is_empty() { nothing(app) } else { vec![Span::styled(line, app.theme.style(Role::Accent))] }
}

pub(super) fn share(part: f64, of: f64) -> String {
    if of > 0.0 { format::percent(part / of) } else { "-".into() }
}

/// `13.4 G`, `512 M`: with a decimal prefix, before a unit.
fn scaled(x: f64) -> String {
    match x {
        x if x >= 1e12 => format!("{:.1} T", x / 1e12),
        x if x >= 1e9 => format!("{:.1} G", x / 1e9),
        x => format!("{:.1} M", x / 1e6),
    }
}
