//! The top row: model, device, context, speed, parameters. What does not fit goes, least first.

use super::{card, paint};
use crate::tui::app::{App, ModelState};
use crate::tui::format;
use crate::tui::sanitize;
use crate::tui::theme::Role;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Lower goes first when the row is short.
struct Segment {
    rank: u8,
    line: Vec<Span<'static>>,
}

pub fn draw(app: &App, area: Rect, buf: &mut Buffer) {
    let mut segments = segments(app, area.width);
    let badge = badge(app);
    let room = usize::from(area.width).saturating_sub(1 + badge.width());
    while row(app, &segments).width() > room && segments.len() > 1 {
        let least = segments.iter().enumerate().min_by_key(|(_, s)| s.rank).map_or(0, |(i, _)| i);
        segments.remove(least);
    }
    let row = paint::fit_line(row(app, &segments), room);
    paint::line(area.x, area.y, &row, area, buf);
    let x = area.right().saturating_sub(badge.width() as u16).max(area.x);
    paint::line(x, area.y, &badge, area, buf);
}

fn row(app: &App, segments: &[Segment]) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    for (i, segment) in segments.iter().enumerate() {
        if i > 0 {
            spans.push(Span::styled(" · ", app.theme.style(Role::Faint)));
        }
        spans.extend(segment.line.iter().cloned());
    }
    Line::from(spans)
}

fn segments(app: &App, width: u16) -> Vec<Segment> {
    let muted = app.theme.style(Role::Muted);
    let text = app.theme.style(Role::Text);
    let mut all = vec![Segment { rank: 9, line: model(app) }];
    if let Some(info) = app.ready() {
        let device = sanitize::one_line(&info.device);
        let short = device.split(" (").next().unwrap_or(&device).to_owned();
        let shown = if width < 110 { short } else { device };
        all.push(Segment { rank: 6, line: vec![Span::styled(shown, muted)] });
        all.push(Segment { rank: 8, line: context(app, info.context_length, width) });
    }
    if let Some(rate) = speed(app) {
        let line = vec![Span::styled(format::rate(rate), text), Span::styled(" tok/s", muted)];
        all.push(Segment { rank: 7, line });
    }
    if let Some(ttft) = app.chat.last_answer().and_then(|a| a.ttft_ms()) {
        let line = vec![Span::styled("TTFT ", muted), Span::styled(format::millis(ttft), text)];
        all.push(Segment { rank: 4, line });
    }
    if let Some(guided) = &app.guided {
        let line = vec![Span::styled(
            sanitize::one_line(&guided.grammar.to_string()),
            app.theme.style(Role::Accent),
        )];
        all.push(Segment { rank: 6, line });
    }
    let p = &app.params;
    let short = format!("T{} k{} p{}", p.temperature, p.top_k, p.top_p);
    let rest = format!("m{} seed {}", p.min_p, p.seed.map_or("-".to_owned(), |s| s.to_string()));
    all.push(Segment { rank: 5, line: vec![Span::styled(short, muted)] });
    all.push(Segment { rank: 2, line: vec![Span::styled(rest, muted)] });
    all
}

fn model(app: &App) -> Vec<Span<'static>> {
    let accent = app.theme.style(Role::Heading);
    let muted = app.theme.style(Role::Muted);
    let name = |name: &str| Span::styled(sanitize::one_line(name), accent);
    match (&app.model, &app.fetch) {
        (ModelState::Ready(info), _) => {
            vec![
                name(&info.name),
                Span::styled(format!(" {}", sanitize::one_line(&info.quantization)), muted),
            ]
        }
        (ModelState::Loading { name: of, .. }, _) => vec![name(of), Span::styled(loading(app), muted)],
        (_, Some(fetch)) => vec![name(&fetch.name), Span::styled(" fetching", muted)],
        (ModelState::Failed { name: of, .. }, _) if !of.is_empty() => {
            vec![name(of), Span::styled(" not loaded", app.theme.style(Role::Bad))]
        }
        _ => vec![Span::styled("no model", muted)],
    }
}

/// ` loading 42% · 1.2 GB/s · 3 s left`
fn loading(app: &App) -> String {
    let Some((share, pace)) = card::load_pace(app) else { return " loading".into() };
    let words = std::iter::once(format!(" loading {:.0}%", (share * 100.0).floor())).chain(pace);
    words.collect::<Vec<_>>().join(" · ")
}

fn context(app: &App, limit: usize, width: u16) -> Vec<Span<'static>> {
    let used = app.context_used();
    let share = used as f64 / limit.max(1) as f64;
    let hue = match share {
        s if s >= 0.9 => Role::Bad,
        s if s >= 0.7 => Role::Warn,
        _ => Role::Accent,
    };
    let numbers = format!("{}/{}", format::count(used as u64), format::count(limit as u64));
    let mut spans = vec![
        Span::styled("ctx ", app.theme.style(Role::Muted)),
        Span::styled(numbers, app.theme.style(Role::Text)),
    ];
    if width >= 100 {
        spans.push(Span::raw(" "));
        spans.extend(paint::bar(share, 6, app.theme.style(hue), &app.theme));
        spans.push(Span::styled(format!(" {:.0}%", (share * 100.0).floor()), app.theme.style(Role::Muted)));
    }
    spans
}

/// While answers stream, of the last second; then of the last answer.
fn speed(app: &App) -> Option<f64> {
    if app.chat.is_running() {
        return app.meter.tokens_per_second(0);
    }
    app.meter.last.as_ref().map(|o| o.timings.tokens_per_second).filter(|rate| *rate > 0.0)
}

fn badge(app: &App) -> Line<'static> {
    if let Some(replay) = &app.replay {
        let (mark, role) = if app.paused { ("‖", Role::Warn) } else { ("▶", Role::Good) };
        let (step, last) = (format::count(app.snapshot.step), format::count(replay.last));
        let words = match app.size.0 {
            ..100 => format!(" {mark} REPLAY {step}/{last} {}× ", replay.speed),
            _ => format!(" {mark} REPLAY step {step} of {last} · {}× ", replay.speed),
        };
        return Line::styled(words, app.theme.style(role));
    }
    if app.paused {
        return Line::styled(" ‖ paused ", app.theme.style(Role::Warn));
    }
    let running = app.chat.all_answers().filter(|a| a.outcome.is_none()).count();
    match running {
        0 => Line::default(),
        1 => Line::styled(" ● live ", app.theme.style(Role::Good)),
        n => Line::styled(format!(" ● {n} live "), app.theme.style(Role::Good)),
    }
}
