//! Panel 3: what did this step do? Rows, budget, waiting and preempted, and where the time went.

use super::paint;
use crate::protocol::{Phases, RowKind, RowRecord, StepRecord};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::theme::Role;
use ratatui::text::{Line, Span};

pub fn lines(app: &App, (width, height): (usize, usize)) -> Vec<Line<'static>> {
    let muted = app.theme.style(Role::Muted);
    let back = app.panels.step_back.min(app.meter.steps.len().saturating_sub(1));
    let Some(step) = app.meter.steps.iter().rev().nth(back) else {
        return vec![Line::styled("no step yet: the engine is idle", muted)];
    };
    let mut lines = vec![head(app, step, back), budget(app, step, width)];
    lines.extend(phases(app, &step.phases, width));
    let foot = 1;
    let earlier = app.meter.steps.iter().rev().skip(back + 1);
    let room = height.saturating_sub(lines.len() + foot);
    let mut body: Vec<Line> = step.rows.iter().map(|row| row_line(app, row, width)).collect();
    body.extend(
        step.waiting
            .iter()
            .map(|w| reason(app, "waits", w.seq.to_string(), &w.reason.to_string(), Role::Muted)),
    );
    body.extend(step.preempted.iter().map(|p| {
        let why = format!("{p} ({} blocks freed)", p.blocks_freed);
        reason(app, "preempted", p.seq.to_string(), &why, Role::Warn)
    }));
    if body.len() > room {
        let hidden = body.len() - room.saturating_sub(1);
        body.truncate(room.saturating_sub(1));
        body.push(Line::styled(format!("and {hidden} more"), muted));
    }
    if room >= body.len() + 3 {
        body.push(Line::default());
        body.extend(earlier.take(room - body.len()).map(|step| earlier_line(app, step)));
    }
    body.resize(room, Line::default());
    lines.extend(body);
    lines.push(throughput(app, width));
    lines
}

fn head(app: &App, step: &StepRecord, back: usize) -> Line<'static> {
    let theme = &app.theme;
    let mut words = vec![
        Span::styled(format!("step {}", format::count(step.step)), theme.style(Role::Text)),
        Span::styled(format::millis(step.phases.total_ms()), theme.style(Role::Text)),
    ];
    if back > 0 {
        words.push(Span::styled(format!("{back} back"), theme.style(Role::Warn)));
    } else if app.paused {
        words.push(Span::styled("paused", theme.style(Role::Warn)));
    }
    if step.waiting.len() + step.preempted.len() > 0 {
        words.push(Span::styled(format!("{} waiting", step.waiting.len()), theme.style(Role::Muted)));
    }
    paint::dotted(words, theme)
}

/// Tokens of this step in the step's budget.
fn budget(app: &App, step: &StepRecord, width: usize) -> Line<'static> {
    let numbers = format!("{}/{}", step.tokens, step.token_budget);
    let share = step.tokens as f64 / step.token_budget.max(1) as f64;
    let wide = width.saturating_sub(numbers.len() + 8);
    let mut spans = vec![Span::styled("tokens ", app.theme.style(Role::Muted))];
    spans.extend(paint::bar(share, wide, app.theme.style(Role::Accent), &app.theme));
    spans.push(Span::styled(format!(" {numbers}"), app.theme.style(Role::Text)));
    Line::from(spans)
}

/// One bar of four parts, and their milliseconds under it.
fn phases(app: &App, p: &Phases, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let parts = [
        ("sched", p.schedule_ms, Role::Warn, "░"),
        ("fwd", p.forward_ms, Role::Accent, "█"),
        // The projection to the vocabulary is most of it.
        ("head+sample", p.sample_ms, Role::Thought, "▓"),
        ("out", p.output_ms, Role::Good, "▒"),
    ];
    let total = p.total_ms().max(f64::MIN_POSITIVE);
    let mut bar = Vec::new();
    let mut used = 0;
    let mut upto = 0.0;
    for (_, ms, role, symbol) in parts {
        upto += ms;
        let end = (upto / total * width as f64).round() as usize;
        bar.push(Span::styled(symbol.repeat(end.saturating_sub(used)), theme.style(role)));
        used = end.max(used);
    }
    let gap = if width < 52 { " " } else { "   " };
    let number = |ms: f64| if ms < 9.95 { format!("{ms:.1}") } else { format!("{ms:.0}") };
    let legend = parts.iter().enumerate().map(|(i, (name, ms, role, _))| {
        let gap = if i > 0 { gap } else { "" };
        Span::styled(format!("{gap}{name} {}", number(*ms)), theme.style(*role))
    });
    vec![Line::from(bar), Line::from(legend.collect::<Vec<_>>())]
}

/// `1,058  18 ms  prefill 64 + decode 3`.
fn earlier_line(app: &App, step: &StepRecord) -> Line<'static> {
    let tokens = |kind| step.rows.iter().filter(|r| r.kind == kind).map(|r| r.tokens).sum::<usize>();
    let (prefill, decode) = (tokens(RowKind::Prefill), tokens(RowKind::Decode));
    let what = match (prefill, decode) {
        (0, decode) => format!("decode {decode}"),
        (prefill, 0) => format!("prefill {prefill}"),
        (prefill, decode) => format!("prefill {prefill} + decode {decode}"),
    };
    let role = if prefill > 0 { Role::Warn } else { Role::Muted };
    let time = format::pad_left(&format::millis(step.phases.total_ms()), 8);
    let number = format::pad_left(&format::count(step.step), 7);
    Line::from(vec![
        Span::styled(format!("{number} {time}  "), app.theme.style(Role::Muted)),
        Span::styled(what, app.theme.style(role)),
    ])
}

/// `1.2 decode   1 tok at 118  " Paris"`.
fn row_line(app: &App, row: &RowRecord, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let (kind, role) = match row.kind {
        RowKind::Prefill => ("prefill", Role::Warn),
        RowKind::Decode => ("decode", Role::Text),
    };
    let drew = row.sampled.map_or(String::new(), |id| {
        let known = app.parsed.iter().rev().find(|t| t.seq == row.seq && t.id == id);
        known.map_or_else(|| format!("#{id}"), |t| format::quoted(&t.text))
    });
    let seq = format::pad(&row.seq.to_string(), 4);
    let counts = format!("{:>3} tok at {:<6}", row.tokens, format::count(row.computed as u64));
    Line::from(vec![
        Span::styled("■ ", theme.sequence(App::hue(row.seq))),
        Span::styled(seq, theme.style(Role::Text)),
        Span::styled(format::pad(kind, 8), theme.style(role)),
        Span::styled(counts, theme.style(Role::Muted)),
        Span::styled(format::fit(&drew, width.saturating_sub(31)), theme.style(Role::Text)),
    ])
}

fn reason(app: &App, what: &'static str, seq: String, why: &str, role: Role) -> Line<'static> {
    Line::from(vec![
        Span::styled(format!("{what} {seq} "), app.theme.style(role)),
        Span::styled(crate::tui::sanitize::one_line(why), app.theme.style(Role::Muted)),
    ])
}

fn throughput(app: &App, width: usize) -> Line<'static> {
    let rate = app.meter.tokens_per_second().map_or("-".into(), format::rate);
    let numbers = format!(" {rate} tok/s");
    let values = app.meter.steps.iter().map(|s| s.tokens as f64);
    let line = paint::sparkline(values, width.saturating_sub(numbers.len() + 9));
    Line::from(vec![
        Span::styled("per step ", app.theme.style(Role::Muted)),
        Span::styled(line, app.theme.style(Role::Accent)),
        Span::styled(numbers, app.theme.style(Role::Text)),
    ])
}
