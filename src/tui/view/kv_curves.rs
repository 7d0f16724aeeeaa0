//! What the last steps did to the KV cache: a row of columns for each counter, and its sum.

use super::kv_facts::hit_rate;
use crate::protocol::{KvView, StepRecord};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::history::Seen;
use crate::tui::theme::Role;
use ratatui::text::{Line, Span};

/// Cells of a counter's name.
const NAME: usize = 8;
/// Fewer columns say nothing.
const LEAST: usize = 8;
/// More are not looked at.
const MOST: usize = 56;

/// Nothing before the first step, nor where there is no room.
pub fn lines(app: &App, seen: &Seen, width: usize) -> Vec<Line<'static>> {
    let room = (width / 2).saturating_sub(NAME).min(MOST);
    if seen.step.is_none() || room < LEAST {
        return Vec::new();
    }
    let muted = app.theme.style(Role::Muted);
    let (some, none): (Vec<_>, Vec<_>) = counters(seen).into_iter().partition(|counter| counter.happened);
    let mut lines: Vec<Line> = some.iter().map(|counter| line(app, seen, counter, room)).collect();
    let words: Vec<&str> = none.iter().map(|counter| counter.name).collect();
    if !words.is_empty() {
        let text = format!("{}{} since the start", format::pad("none", NAME), words.join(", "));
        lines.push(Line::styled(format::fit(&text, width), muted));
    }
    lines
}

fn line(app: &App, seen: &Seen, counter: &Counter, room: usize) -> Line<'static> {
    let columns = columns(&newest(app, seen, counter.count, room), counter.top);
    Line::from(vec![
        Span::styled(format::pad(counter.name, NAME), app.theme.style(Role::Muted)),
        Span::styled(format::pad_left(&columns, room), app.theme.style(counter.role)),
        Span::styled(format!("  {}", counter.text), app.theme.style(Role::Text)),
    ])
}

fn counters(seen: &Seen) -> [Counter; 5] {
    let (kv, c) = (&seen.snapshot.kv, &seen.snapshot.counters);
    let count = |n: u64| format::count(n);
    let blocks = all(kv);
    let free = seen.step.map_or(blocks, |step| step.blocks_free);
    let bytes = format::bytes(c.blocks_shared * kv.bytes_per_block as u64);
    let saved = format!("{bytes} by sharing {}", format::plural(c.blocks_shared as usize, "block"));
    let hits = format!("{} of prompt tokens", hit_rate(&seen.snapshot));
    let copied = format!("{} on write", count(c.copies_on_write));
    let left = format!("{} of {} free", count(free as u64), count(blocks as u64));
    [
        Counter::new("hits", Role::Good, |s, _, _| s.blocks_hit, hits),
        Counter::new("evicted", Role::Warn, |s, _, _| s.blocks_evicted, count(c.evictions)).of(c.evictions),
        Counter::new("copied", Role::Warn, |s, _, _| s.blocks_copied, copied).of(c.copies_on_write),
        Counter::new("saved", Role::Good, shared, saved).of(c.blocks_shared),
        Counter { top: blocks, ..Counter::new("in use", Role::Accent, in_use, left) },
    ]
}

/// Blocks that sequences can have.
fn all(kv: &KvView) -> usize {
    kv.owned + kv.cached + kv.free
}

fn shared(step: &StepRecord, before: Option<&StepRecord>, _: usize) -> usize {
    let before = before.map_or(step.counters.blocks_shared, |before| before.counters.blocks_shared);
    step.counters.blocks_shared.saturating_sub(before) as usize
}

fn in_use(step: &StepRecord, _: Option<&StepRecord>, blocks: usize) -> usize {
    blocks.saturating_sub(step.blocks_free)
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

/// Of a step, with the one before it and the number of all blocks.
type Count = fn(&StepRecord, Option<&StepRecord>, usize) -> usize;

/// Of the newest `n` steps up to the one that is shown, oldest first.
fn newest(app: &App, seen: &Seen, count: Count, n: usize) -> Vec<usize> {
    let mut steps = app.meter.steps.iter().rev().skip(seen.back).peekable();
    let mut values = Vec::new();
    while let Some(step) = steps.next().filter(|_| values.len() < n) {
        values.push(count(step, steps.peek().map(|before| &***before), all(&seen.snapshot.kv)));
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
