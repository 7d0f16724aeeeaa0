//! Panel 3: what did this step do, and why not more? Rows, budget, places, who waits and was
//! preempted and why, blocks, and where the time went.

use super::{paint, scheduling};
use crate::protocol::{Phases, RowKind, RowRecord, Slots, StepRecord};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::history::{self, Seen};
use crate::tui::theme::Role;
use crate::tui::transcript::wrap::wrap;
use ratatui::text::{Line, Span};

pub fn lines(app: &App, (width, height): (usize, usize), focused: bool) -> Vec<Line<'static>> {
    if app.panels.batch.settings {
        return scheduling::lines(app, (width, height), focused);
    }
    let seen = history::seen(app);
    let Some(step) = seen.step else {
        let mut lines = vec![Line::styled("no step yet: the engine is idle", app.theme.style(Role::Muted))];
        lines.push(scheduling::policy(app, width));
        lines.extend(breakpoints(app, width));
        return lines;
    };
    let entries = Entries::of(app, step, width);
    let wanted = entries.height().min(height * 3 / 5);
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
    let throughput = fits(vec![throughput(app, seen.back, width)]);
    let bar = fits(vec![bar]);

    let mut lines = vec![head(app, step, width), budget(app, step, width)];
    lines.extend([slots, bar, legend, blocks].into_iter().flatten());
    let foot = breakpoints.len() + policy.len() + throughput.len();
    let room = height.saturating_sub(lines.len() + foot);
    let mut body = entries.lines(app, room);
    if room >= body.len() + 3 {
        body.push(Line::default());
        let earlier = app.meter.steps.iter().rev().skip(seen.back + 1);
        body.extend(earlier.take(room - body.len()).map(|step| earlier_line(app, step)));
    }
    body.resize(room, Line::default());
    lines.extend(body);
    lines.extend([breakpoints, policy, throughput].into_iter().flatten());
    lines
}

/// What a step did to each sequence, a line or more each.
struct Entries {
    rows: Vec<Line<'static>>,
    /// Who gave way, who waits, what it stopped at.
    reasons: Vec<Vec<Line<'static>>>,
}

impl Entries {
    fn of(app: &App, step: &StepRecord, width: usize) -> Self {
        let broke = app
            .broke
            .iter()
            .filter(|broke| broke.step == step.step)
            // The transcript has it in full.
            .map(|broke| {
                cut(reason(app, format!("● breakpoint {}", broke.id), &broke.why, Role::Bad, width), 1)
            });
        let preempted = step.preempted.iter().map(|p| {
            let why = format!("{p} ({} blocks freed)", p.blocks_freed);
            reason(app, format!("preempted {}", p.seq), &why, Role::Warn, width)
        });
        let waiting = step.waiting.iter();
        let waiting = waiting
            .map(|w| reason(app, format!("waits {}", w.seq), &w.reason.to_string(), Role::Muted, width));
        Self {
            rows: step.rows.iter().map(|row| row_line(app, row, width)).collect(),
            reasons: preempted.chain(waiting).chain(broke).collect(),
        }
    }

    fn height(&self) -> usize {
        self.rows.len() + self.reasons.iter().map(Vec::len).sum::<usize>()
    }

    /// In `room` lines. Where not all fit, rows get half, and what is left out is counted.
    fn lines(mut self, app: &App, room: usize) -> Vec<Line<'static>> {
        if self.height() <= room {
            self.rows.extend(self.reasons.into_iter().flatten());
            return self.rows;
        }
        let more =
            |n: usize, what: &str| Line::styled(format!("and {n} more {what}"), app.theme.style(Role::Muted));
        let reasons = self.height() - self.rows.len();
        let for_rows = room.saturating_sub(reasons).max(room / 2);
        let mut lines = Vec::new();
        if self.rows.len() > for_rows {
            let hidden = self.rows.len() - for_rows.saturating_sub(1);
            self.rows.truncate(for_rows.saturating_sub(1));
            self.rows.push(more(hidden, "rows"));
        }
        lines.append(&mut self.rows);
        let all = self.reasons.len();
        for (i, entry) in self.reasons.into_iter().enumerate() {
            let left = room.saturating_sub(lines.len());
            let for_more = usize::from(i + 1 < all);
            if left <= for_more {
                lines.push(more(all - i, "reasons"));
                break;
            }
            lines.extend(cut(entry, left - for_more));
        }
        lines.truncate(room);
        lines
    }
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
    words.extend(count(step.waiting.len(), "waiting", muted));
    words.extend(count(step.rows.len(), if step.rows.len() == 1 { "row" } else { "rows" }, muted));
    paint::fitting(words, width, &app.theme)
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

/// At most `most` lines; where there were more, the last says so.
fn cut(mut lines: Vec<Line<'static>>, most: usize) -> Vec<Line<'static>> {
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            last.spans.push(Span::raw(" …"));
        }
    }
    lines
}

/// Who, and the reason in words, over as many lines as it takes.
fn reason(app: &App, who: String, why: &str, role: Role, width: usize) -> Vec<Line<'static>> {
    let line = Line::from(vec![
        Span::styled(who + ": ", app.theme.style(role)),
        Span::styled(crate::tui::sanitize::one_line(why), app.theme.style(Role::Muted)),
    ]);
    wrap(&line, width, 2)
}

fn throughput(app: &App, back: usize, width: usize) -> Line<'static> {
    let rate = app.meter.tokens_per_second(back).map_or("-".into(), format::rate);
    let numbers = format!(" {rate} tok/s");
    let values = app.meter.steps.iter().rev().skip(back).rev().map(|s| s.tokens as f64);
    let line = paint::sparkline(values, width.saturating_sub(numbers.len() + 9));
    Line::from(vec![
        Span::styled("per step ", app.theme.style(Role::Muted)),
        Span::styled(line, app.theme.style(Role::Accent)),
        Span::styled(numbers, app.theme.style(Role::Text)),
    ])
}
