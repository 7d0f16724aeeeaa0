//! The lines under the block map: the legend, who owns how many, what happened lately, and the memory.

use super::kv_class::kinds;
use super::kv_map::{Map, Plan};
use super::{block, paint};
use crate::protocol::{SequenceState, Snapshot, StepRecord};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::history::Seen;
use crate::tui::kv_panel::BlockColours;
use crate::tui::theme::Role;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// With so many lines there is room for curves.
const ROOMY: usize = 10;
/// Cells of a counter's name.
const NAME: usize = 8;

/// At most `height` lines: those that fit, the most telling first to be chosen.
pub fn lines(
    app: &App,
    seen: &Seen,
    map: &Map,
    plan: Plan,
    height: usize,
    focused: bool,
) -> Vec<Line<'static>> {
    let (snapshot, width) = (&seen.snapshot, plan.width);
    let mut left = height;
    let mut fits = |lines: Vec<Line<'static>>| {
        let fits = lines.len() <= left;
        left -= if fits { lines.len() } else { 0 };
        if fits { lines } else { Vec::new() }
    };
    let selected = match focused {
        true => fits(block::selected(app, seen, width, (height / 2).clamp(3, 12))),
        false => Vec::new(),
    };
    let legend = fits(legend(app, seen, map, plan));
    let sequences = fits(vec![sequences(app, snapshot, width)]);
    // What curves say need not be said twice.
    let curves = fits(if height >= ROOMY { counters(app, seen, width) } else { Vec::new() });
    let prefix = fits(if curves.is_empty() { vec![prefix(app, snapshot, width)] } else { Vec::new() });
    let sizes = fits(vec![sizes(app, map, plan)]);
    let tiers = fits(snapshot.kv.tiers.iter().map(|t| block::tier(app, t, width)).collect());
    let happened = fits(block::happened(app, seen, width));
    let sharing = fits(if curves.is_empty() { vec![sharing(app, snapshot, width)] } else { Vec::new() });
    let memory = fits(block::memory(app, snapshot, width).into_iter().collect());
    let events = fits(block::events(app, snapshot, width).into_iter().collect());
    let order =
        [selected, legend, sequences, prefix, curves, sharing, happened, events, tiers, memory, sizes];
    order.into_iter().flatten().collect()
}

/// The shapes of the colour mode, and how many blocks are of each.
fn legend(app: &App, seen: &Seen, map: &Map, plan: Plan) -> Vec<Line<'static>> {
    let (theme, width) = (&app.theme, plan.width);
    let kv = &seen.snapshot.kv;
    let colours = app.panels.kv.colours;
    let mut lines = vec![Line::default()];
    // Sign and number apart where there is room.
    let (gap, space) = if width < 52 { (" ", "") } else { ("   ", " ") };
    let mut add = |sign: String, style: Style, text: String| {
        let used = lines.last().map_or(0, Line::width);
        let wide = format::width(&sign) + format::width(&text);
        if used > 0 && used + gap.len() + wide > width {
            lines.push(Line::default());
        }
        let line = lines.last_mut().expect("there is a first line");
        if line.width() > 0 {
            line.spans.push(Span::raw(gap));
        }
        line.spans.extend([Span::styled(sign, style), Span::styled(text, theme.style(Role::Text))]);
    };
    if colours != BlockColours::Owner {
        add("by".into(), theme.style(Role::Muted), format!(" {}", colours.name()));
    }
    let many = plan.per_cell > 1 && matches!(colours, BlockColours::Owner | BlockColours::Tier);
    for (kind, counted) in kinds(colours).iter().zip(map.counts) {
        let n = match (colours, kind.word) {
            // The pool keeps a block to itself, which it does not count.
            (BlockColours::Owner, "owned") => kv.owned,
            (BlockColours::Owner, "cached") | (BlockColours::State, "evictable") => kv.cached,
            (BlockColours::Owner | BlockColours::State, "free") => kv.free,
            (BlockColours::Age, "never") => counted.saturating_sub(uncounted(seen)),
            _ => counted,
        };
        let always = matches!(colours, BlockColours::Owner | BlockColours::State);
        if kind.word.is_empty() || (n == 0 && !always) {
            continue;
        }
        let sign = if many && kind.full && kind.shape == '█' {
            "░▒▓█".to_owned()
        } else {
            kind.shape.to_string()
        };
        let style = if colours == BlockColours::Owner && kind.shape == '█' {
            theme.sequence(0)
        } else {
            theme.style(kind.role)
        };
        add(sign, style, format!("{space}{} {}", format::count(n as u64), kind.word));
    }
    if !app.panels.kv.marked.is_empty() {
        let n = format::count(app.panels.kv.marked.len() as u64);
        add("◈".into(), theme.style(Role::Heading), format!("{space}{n} marked"));
    }
    lines
}

/// Blocks that the pool keeps to itself.
fn uncounted(seen: &Seen) -> usize {
    let kv = &seen.snapshot.kv;
    kv.blocks.len().saturating_sub(kv.owned + kv.cached + kv.free)
}

fn prefix(app: &App, snapshot: &Snapshot, width: usize) -> Line<'static> {
    let counters = &snapshot.counters;
    let words = [
        format!("prefix hits {}", hit_rate(snapshot)),
        format!("evicted {}", format::count(counters.evictions)),
        format!("copied {}", format::count(counters.copies_on_write)),
    ];
    paint::fitting(words.map(|w| Span::styled(w, app.theme.style(Role::Muted))), width, &app.theme)
}

fn hit_rate(snapshot: &Snapshot) -> String {
    match snapshot.counters.prefix_queries {
        0 => "-".to_owned(),
        queries => format::percent(snapshot.counters.prefix_hits as f64 / queries as f64),
    }
}

/// Blocks that were found or forked instead of computed or copied.
fn sharing(app: &App, snapshot: &Snapshot, width: usize) -> Line<'static> {
    let words = saved(snapshot);
    paint::fitting(words.map(|w| Span::styled(w, app.theme.style(Role::Muted))), width, &app.theme)
}

fn saved(snapshot: &Snapshot) -> [String; 2] {
    let shared = snapshot.counters.blocks_shared;
    let bytes = shared * snapshot.kv.bytes_per_block as u64;
    [format!("saved by sharing {} blocks", format::count(shared)), format::bytes(bytes)]
}

/// What the last steps did to the cache, each as a row of columns, and the sum since the start.
fn counters(app: &App, seen: &Seen, width: usize) -> Vec<Line<'static>> {
    let snapshot = &seen.snapshot;
    let c = &snapshot.counters;
    let shared = c.blocks_shared * snapshot.kv.bytes_per_block as u64;
    let blocks = snapshot.kv.owned + snapshot.kv.cached + snapshot.kv.free;
    let free = seen.step.map_or(blocks, |step| step.blocks_free);
    let hits = format!("{} of prompt tokens", hit_rate(snapshot));
    let copied = format!("{} on write", format::count(c.copies_on_write));
    let of_all = format!("{} of {}", format::count(free as u64), format::count(blocks as u64));
    let saved =
        format!("{} by sharing {}", format::bytes(shared), format::plural(c.blocks_shared as usize, "block"));
    let total = |n: u64| format::count(n);
    let rows = [
        Counter::new("hits", Role::Good, |s, _| s.blocks_hit, hits),
        Counter::new("evicted", Role::Warn, |s, _| s.blocks_evicted, total(c.evictions)).of(c.evictions),
        Counter::new("copied", Role::Warn, |s, _| s.blocks_copied, copied).of(c.copies_on_write),
        Counter::new("saved", Role::Good, shared_by, saved).of(c.blocks_shared),
        Counter { top: blocks, ..Counter::new("free", Role::Faint, |s, _| s.blocks_free, of_all) },
    ];
    let room = (width / 2).min(64).saturating_sub(NAME);
    if seen.step.is_none() || room < 8 {
        return Vec::new();
    }
    let muted = app.theme.style(Role::Muted);
    let (some, none): (Vec<_>, Vec<_>) = rows.into_iter().partition(|counter| counter.happened);
    let line = |counter: Counter| {
        let columns = columns(&newest(app, seen, counter.count, room), counter.top);
        Line::from(vec![
            Span::styled(format::pad(counter.name, NAME), muted),
            Span::styled(format::pad_left(&columns, room), app.theme.style(counter.role)),
            Span::styled(format!("  {}", counter.text), app.theme.style(Role::Text)),
        ])
    };
    let mut lines: Vec<Line> = some.into_iter().map(line).collect();
    let words: Vec<&str> = none.iter().map(|counter| counter.name).collect();
    if !words.is_empty() {
        lines.push(Line::styled(format!("none    {} since the start", words.join(", ")), muted));
    }
    lines
}

/// A row of columns: its value of each step, and its sum in words.
struct Counter {
    name: &'static str,
    role: Role,
    count: Count,
    /// What fills a column; 0 is the largest value.
    top: usize,
    text: String,
    /// Else a word is enough.
    happened: bool,
}

impl Counter {
    fn new(name: &'static str, role: Role, count: Count, text: String) -> Self {
        Self { name, role, count, top: 0, text, happened: true }
    }

    fn of(self, total: u64) -> Self {
        Self { happened: total > 0, ..self }
    }
}

/// Of a step, with the one before it.
type Count = fn(&StepRecord, Option<&StepRecord>) -> usize;

fn shared_by(step: &StepRecord, before: Option<&StepRecord>) -> usize {
    let before = before.map_or(step.counters.blocks_shared, |before| before.counters.blocks_shared);
    step.counters.blocks_shared.saturating_sub(before) as usize
}

/// Of the newest `n` steps up to the one that is shown, oldest first.
fn newest(app: &App, seen: &Seen, count: Count, n: usize) -> Vec<usize> {
    let mut steps = app.meter.steps.iter().rev().skip(seen.back).peekable();
    let mut values = Vec::new();
    while let Some(step) = steps.next().filter(|_| values.len() < n) {
        values.push(count(step, steps.peek().map(|before| &***before)));
    }
    values.reverse();
    values
}

/// A column for each value, of at most `top` (0: the largest); what is not nothing is seen.
fn columns(values: &[usize], top: usize) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let top = if top == 0 { values.iter().copied().max().unwrap_or(0) } else { top };
    let level = |value: &usize| match (*value, top) {
        (0, _) | (_, 0) => LEVELS[0],
        (value, top) => LEVELS[(value * 7).div_ceil(top).min(7)],
    };
    values.iter().map(level).collect()
}

/// Who owns how many.
fn sequences(app: &App, snapshot: &Snapshot, width: usize) -> Line<'static> {
    let mut spans = Vec::new();
    let mut used = 0;
    for (i, view) in snapshot.sequences.iter().enumerate() {
        let what = match view.state {
            SequenceState::Running => format!("{} blk", view.blocks.len()),
            SequenceState::Waiting => "waits".into(),
            SequenceState::Loading => "loads".into(),
            SequenceState::Compiling => "compiles".into(),
            SequenceState::Preempted => "preempted".into(),
        };
        let word = format!("{} {} {what}  ", App::letter(view.seq), view.seq);
        let left = snapshot.sequences.len() - i;
        let more = if left > 1 { format!("and {left} more") } else { String::new() };
        if used + word.len() + if left > 1 { more.len() } else { 0 } > width + 2 {
            let all = if used == 0 { format!("{left} sequences") } else { more };
            spans.push(Span::styled(all, app.theme.style(Role::Muted)));
            break;
        }
        used += word.len();
        spans.push(Span::styled(word, app.theme.sequence(App::hue(view.seq))));
    }
    if spans.is_empty() {
        spans.push(Span::styled("no sequence owns a block", app.theme.style(Role::Muted)));
    }
    Line::from(spans)
}

fn sizes(app: &App, map: &Map, plan: Plan) -> Line<'static> {
    let kv = &app.snapshot.kv;
    let muted = app.theme.style(Role::Muted);
    // The null block is nobody's and holds nothing.
    let blocks = kv.owned + kv.cached + kv.free;
    let mut words = vec![
        format!("{} of {}", format::plural(blocks, "block"), kv.block_size),
        format::bytes((blocks * kv.bytes_per_block) as u64),
    ];
    if plan.per_cell > 1 {
        words.push(format!("{} a cell", format::count(plan.per_cell as u64)));
    }
    if plan.shown < map.len() {
        words.push(format!("{} shown", format::count(plan.shown as u64)));
    }
    paint::fitting(words.into_iter().map(|w| Span::styled(w, muted)), plan.width, &app.theme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_show_what_is_not_nothing_and_stop_at_the_top() {
        assert_eq!(columns(&[0, 1, 100], 0), "▁▂█");
        assert_eq!(columns(&[500, 250, 9_999], 500), "█▅█");
        assert_eq!(columns(&[0, 0], 0), "▁▁");
    }
}
