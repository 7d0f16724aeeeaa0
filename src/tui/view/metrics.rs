//! Panel 6: is it fast? Latencies and rates of this session, as the engine measured them.

use super::paint;
use crate::base::Summary;
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::history;
use crate::tui::meter;
use crate::tui::theme::Role;
use ratatui::text::{Line, Span};

const LABEL: usize = 11;

pub fn lines(app: &App, (width, height): (usize, usize)) -> Vec<Line<'static>> {
    let all = all(app, width);
    let top = app.panels.scroll.min(all.len().saturating_sub(height));
    all.into_iter().skip(top).collect()
}

fn all(app: &App, width: usize) -> Vec<Line<'static>> {
    let seen = history::seen(app);
    let (meter, c) = (&app.meter, &seen.snapshot.counters);
    let last = meter.last.as_ref().map(|o| (o.timings, o.usage));
    let of_last = last.map(|(t, _)| t.tokens_per_second).filter(|rate| *rate > 0.0 && seen.back == 0);
    let rate = meter.tokens_per_second(seen.back).or(of_last);
    let gaps = meter.gaps();
    let strip = paint::sparkline(meter.gaps_ms.iter().copied(), width.saturating_sub(LABEL));
    let steps = meter.steps.iter().rev().skip(seen.back).rev();
    let per_step = paint::sparkline(steps.map(|s| meter::sampled(s) as f64), width.saturating_sub(LABEL));
    let busy = c.busy_ms / 1e3;
    let share =
        |part: u64, of: u64| if of == 0 { "-".to_owned() } else { format::percent(part as f64 / of as f64) };
    let over = |amount: u64, unit: &str| match (busy > 0.0, amount) {
        (true, 1..) => format!("{:.1} {unit}/s", amount as f64 / busy / 1e9),
        _ => "-".to_owned(),
    };
    let prompt = last.map(|(t, _)| t.prompt_tokens_per_second).filter(|r| *r > 0.0);
    let first = app.chat.last_answer().and_then(|a| a.ttft_ms()).filter(|_| meter.ttft_ms.is_empty());
    // The most wanted first: low panels show only those.
    let mut all = vec![
        fact(app, "tok/s", rate.map_or("-".into(), format::rate)),
        fact(
            app,
            "TTFT",
            first.map_or_else(|| latency(&Summary::of(meter.ttft_ms.iter().copied())), format::millis),
        ),
        fact(app, "ITL", latency(&gaps)),
        chart(app, "ITL strip", strip),
        fact(app, "TPOT", latency(&Summary::of(meter.tpot_ms.iter().copied()))),
        fact(app, "E2EL", latency(&Summary::of(meter.e2el_ms.iter().copied()))),
        fact(
            app,
            "prefix hit",
            format!("{} of {} tok", share(c.prefix_hits, c.prefix_queries), format::count(c.prefix_queries)),
        ),
        fact(app, "memory", over(c.bytes_read, "GB")),
        fact(app, "prompt", prompt.map_or("-".into(), |r| format!("{} tok/s", format::rate(r)))),
        chart(app, "tok / step", per_step),
        fact(
            app,
            "tokens",
            format!("{} in, {} out", format::count(c.prompt_tokens), format::count(c.generated_tokens)),
        ),
        fact(app, "requests", format!("{} done, {} preempted", c.requests_finished, c.preemptions)),
        fact(
            app,
            "KV / token",
            app.ready().map_or("-".into(), |i| format::bytes(i.kv_bytes_per_token as u64)),
        ),
        fact(app, "weights", app.ready().map_or("-".into(), |i| format::bytes(i.weights_bytes))),
    ];
    if c.forced_tokens > 0 {
        let of = share(c.forced_tokens, c.generated_tokens);
        all.push(fact(app, "forced", format!("{} tok, {of}", format::count(c.forced_tokens))));
    }
    if c.flops > 0 {
        all.push(fact(app, "compute", over(c.flops, "GFLOP")));
    }
    all
}

/// Median first, then the tail.
fn latency(s: &Summary) -> String {
    if s.count == 0 {
        return "-".into();
    }
    let (p50, p90, p99) = (format::millis(s.p50), format::millis(s.p90), format::millis(s.p99));
    format!("{p50} p90 {p90} p99 {p99}")
}

fn fact(app: &App, label: &str, value: String) -> Line<'static> {
    let role = if value == "-" { Role::Faint } else { Role::Text };
    Line::from(vec![
        Span::styled(format::pad(label, LABEL), app.theme.style(Role::Muted)),
        Span::styled(value, app.theme.style(role)),
    ])
}

fn chart(app: &App, label: &str, line: String) -> Line<'static> {
    let (line, role) = if line.is_empty() { ("-".into(), Role::Faint) } else { (line, Role::Accent) };
    Line::from(vec![
        Span::styled(format::pad(label, LABEL), app.theme.style(Role::Muted)),
        Span::styled(line, app.theme.style(role)),
    ])
}
