//! Panel 3: what did this step do, and why not more? Rows, budget, places, who waits and was
//! preempted and why, blocks, and where the time went.

use super::batch_rows::{self, Rows};
use super::{batch_strip, paint, request, scheduling};
use crate::protocol::{Phases, RowKind, Slots, StepRecord};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::history::{self, Seen};
use crate::tui::hits::Target;
use crate::tui::theme::Role;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Over the list: what the step was, its tokens, where its time went, what it did to the blocks.
/// Under it: breakpoints, the policy, and the strip of the last steps.
pub fn lines(app: &App, area: Rect, focused: bool) -> Vec<Line<'static>> {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    if app.panels.batch.settings {
        return scheduling::lines(app, (width, height), focused);
    }
    let seen = history::seen(app);
    if let Some(seq) = app.panels.batch.chosen.filter(|_| app.panels.batch.inspecting) {
        return request::lines(app, &seen, seq, (width, height));
    }
    let Some(step) = seen.step else {
        return idle(app, &seen, area, focused);
    };
    let rows = Rows::of(app, &seen, width, focused);
    let wanted = rows.height().min(height * 3 / 5);
    let mut left = height.saturating_sub(2 + wanted);
    // The most telling first; each is shown where its room is left.
    let mut fits = |lines: Vec<Line<'static>>| {
        let fits = lines.len() <= left;
        left -= if fits { lines.len() } else { 0 };
        if fits { lines } else { Vec::new() }
    };
    let breakpoints = fits(breakpoints(app, width));
    let slots = fits(slots(app, &step.slots, width));
    let [bar, legend] = phases(app, &step.phases, width);
    let legend = fits(vec![legend]);
    let blocks = fits(blocks(app, &seen, step, width));
    let policy = fits(vec![scheduling::policy(app, width)]);
    let strip = fits(vec![batch_strip::strip(app, seen.back, width)]);
    let bar = fits(vec![bar]);
    let cursor = fits(batch_strip::cursor(app, &seen, width).into_iter().collect());

    let mut lines = vec![head(app, step, width), batch_rows::budget(app, step, width)];
    lines.extend([slots, bar, legend, blocks].into_iter().flatten());
    let foot = breakpoints.len() + policy.len() + strip.len() + cursor.len();
    let room = height.saturating_sub(lines.len() + foot);
    let mut body = list(app, rows, Rect { y: area.y + lines.len() as u16, ..area }, room);
    if room >= body.len() + 3 {
        body.push(Line::default());
        let earlier = app.meter.steps.iter().rev().skip(seen.back + 1);
        body.extend(earlier.take(room - body.len()).map(|step| earlier_line(app, step)));
    }
    body.resize(room, Line::default());
    lines.extend(body);
    lines.extend([breakpoints, policy, strip, cursor].into_iter().flatten());
    lines
}

/// Before the first step.
fn idle(app: &App, seen: &Seen, area: Rect, focused: bool) -> Vec<Line<'static>> {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let why =
        if app.paused { "no step yet: the engine is paused" } else { "no step yet: the engine is idle" };
    let mut lines = vec![Line::styled(why, app.theme.style(Role::Muted))];
    let rows = Rows::of(app, seen, width, focused);
    let room = height.saturating_sub(3);
    lines.extend(list(app, rows, Rect { y: area.y + 1, ..area }, room));
    lines.push(scheduling::policy(app, width));
    lines.extend(breakpoints(app, width));
    lines
}

/// The list, each line of it a place for the mouse.
fn list(app: &App, rows: Rows, area: Rect, room: usize) -> Vec<Line<'static>> {
    let shown = rows.lines(app, room);
    for (y, (seq, _)) in shown.iter().enumerate() {
        let line = Rect { y: area.y + y as u16, height: 1, ..area };
        seq.iter().for_each(|seq| app.hits.note(line, Target::Sequence(*seq)));
    }
    shown.into_iter().map(|(_, line)| line).collect()
}

fn head(app: &App, step: &StepRecord, width: usize) -> Line<'static> {
    let (text, muted, warn) =
        (app.theme.style(Role::Text), app.theme.style(Role::Muted), app.theme.style(Role::Warn));
    let mut words = vec![
        Span::styled(format!("step {}", format::count(step.step)), text),
        Span::styled(format::millis(step.phases.total_ms()), text),
    ];
    if app.paused {
        words.push(Span::styled("paused", warn));
    }
    let count = |n: usize, what: &str, style| (n > 0).then(|| Span::styled(format!("{n} {what}"), style));
    words.extend(count(step.preempted.len(), "preempted", warn));
    words.push(Span::styled(format::plural(step.rows.len(), "row"), muted));
    words.extend(count(step.waiting.len(), "waiting", muted));
    paint::fitting(words, width, &app.theme)
}

/// Places of the batch: used, kept idle, and free ones each have a shape.
fn slots(app: &App, slots: &Slots, width: usize) -> Vec<Line<'static>> {
    if slots.all == 0 {
        return Vec::new();
    }
    let theme = &app.theme;
    let idle = if slots.idle > 0 { format!(", {} idle", slots.idle) } else { String::new() };
    let numbers = format!(" {} of {}{idle}", slots.used, slots.all);
    let cells = width.saturating_sub(numbers.len() + 7).min(slots.all);
    let scaled = |n: usize| match n * cells / slots.all {
        0 if n > 0 => 1,
        scaled => scaled,
    };
    let (used, idle) = (scaled(slots.used), scaled(slots.idle));
    let free = cells.saturating_sub(used + idle);
    vec![Line::from(vec![
        Span::styled("slots  ", theme.style(Role::Muted)),
        Span::styled("█".repeat(used.min(cells)), theme.style(Role::Accent)),
        Span::styled("▒".repeat(idle.min(cells.saturating_sub(used))), theme.style(Role::Warn)),
        Span::styled("·".repeat(free), theme.style(Role::Faint)),
        Span::styled(numbers, theme.style(Role::Text)),
    ])]
}

/// What the step did to the cache; only what it did.
fn blocks(app: &App, seen: &Seen, step: &StepRecord, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let shared = |counters: &crate::protocol::Counters| counters.blocks_shared;
    let before = seen.before.map_or(0, |before| shared(&before.counters));
    let counts = [
        ("taken", step.blocks_taken, Role::Text),
        ("freed", step.blocks_freed, Role::Text),
        ("hit", step.blocks_hit, Role::Good),
        ("shared", shared(&step.counters).saturating_sub(before) as usize, Role::Good),
        ("evicted", step.blocks_evicted, Role::Warn),
        ("copied", step.blocks_copied, Role::Warn),
        ("saved", step.blocks_saved, Role::Thought),
        ("loaded", step.blocks_loaded, Role::Thought),
    ];
    let done = counts.into_iter().filter(|(_, n, _)| *n > 0);
    let words = done.map(|(what, n, role)| {
        Span::styled(format!("{what} {}", format::count(n as u64)), theme.style(role))
    });
    let free = format!("{} available", format::count(step.blocks_free as u64));
    let words = words.chain([Span::styled(free, theme.style(Role::Muted))]);
    paint::flowing(Span::styled("blocks ", theme.style(Role::Muted)), words, width, theme)
}

/// `● 1 preemption · ● 2 step 40, 1 hit`.
fn breakpoints(app: &App, width: usize) -> Vec<Line<'static>> {
    let set = &app.snapshot.breakpoints;
    if set.is_empty() {
        return Vec::new();
    }
    let theme = &app.theme;
    let words = set.iter().map(|b| {
        let hits = match b.hits {
            0 => String::new(),
            1 => ", 1 hit".into(),
            n => format!(", {} hits", format::count(n)),
        };
        let text = crate::tui::sanitize::one_line(&format!("{} {}{hits}", b.id, b.on));
        Span::styled(text, theme.style(if b.hits > 0 { Role::Warn } else { Role::Text }))
    });
    paint::flowing(Span::styled("● ", theme.style(Role::Bad)), words, width, theme)
}

/// One bar of four parts, and their milliseconds under it.
fn phases(app: &App, p: &Phases, width: usize) -> [Line<'static>; 2] {
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
    [Line::from(bar), Line::from(legend.collect::<Vec<_>>())]
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
    let number = format::pad_left(&format::count(step.step), 6);
    let broke = if app.broke.iter().any(|broke| broke.step == step.step) { "●" } else { " " };
    Line::from(vec![
        Span::styled(broke, app.theme.style(Role::Bad)),
        Span::styled(format!("{number} {time}  "), app.theme.style(Role::Muted)),
        Span::styled(what, app.theme.style(role)),
    ])
}
