//! Panel 2: where is the memory? A cell a block, or several blocks a cell where there are many.

use super::{block, paint};
use crate::protocol::{BlockView, KvView, SequenceState, Snapshot};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::history::{self, Seen};
use crate::tui::theme::Role;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use std::collections::BTreeSet;

/// Told apart by shape first, by colour second.
const OWNED: &str = "█";
const SHARED: &str = "▓";
const CACHED: &str = "▒";
const FREE: &str = "·";
/// Changed by the newest steps: taken, hit or copied; and given back or dropped.
const CHANGED: &str = "◆";
const LEFT: &str = "◇";
/// Lines under the map that are always there.
const FACTS: usize = 4;

pub fn lines(app: &App, (width, height): (usize, usize), focused: bool) -> Vec<Line<'static>> {
    let seen = history::seen(app);
    let kv = &seen.snapshot.kv;
    if kv.blocks.is_empty() {
        return vec![Line::styled("no blocks yet: a loaded model has them", app.theme.style(Role::Muted))];
    }
    // The map shrinks by putting several blocks into a cell; words cannot shrink.
    let for_map = kv.blocks.len().div_ceil(width.max(1));
    let for_facts = if focused { height.saturating_sub(3) } else { (height / 2).max(FACTS) };
    let for_facts = for_facts.max(height.saturating_sub(for_map));
    let facts = facts(app, &seen, width, for_facts - usize::from(!focused), focused);
    let with_sizes = facts.len() < for_facts;
    let rows = height.saturating_sub(facts.len() + usize::from(with_sizes)).max(1);
    let per_cell = blocks_per_cell(app, kv, width * rows, focused);
    app.kv_row.set(width * per_cell);
    let mut lines = map(app, kv, &changed(app, &seen), width, rows, per_cell, focused);
    let shown = (width * rows * per_cell).min(kv.blocks.len());
    lines.extend(facts);
    lines.extend(with_sizes.then(|| sizes(app, width, (per_cell, shown))));
    lines
}

/// Blocks that the step shown changed; of the newest state, those that this picture's steps did.
fn changed(app: &App, seen: &Seen) -> BTreeSet<u32> {
    let steps = if seen.back > 0 { 1 } else { app.meter.newest };
    let records = app.meter.steps.iter().rev().skip(seen.back).take(steps);
    records.flat_map(|step| step.blocks.iter().map(|change| change.block)).collect()
}

/// A cell a block while the used ones fit, then two, four and so on: a long context has thousands
/// of blocks, and the free ones at the end say nothing.
fn blocks_per_cell(app: &App, kv: &KvView, cells: usize, focused: bool) -> usize {
    let blocks = &kv.blocks;
    let used = blocks.iter().rposition(|b| b.references > 0 || b.cached).map_or(0, |last| last + 1);
    let chosen = if focused { app.panels.kv.block.min(blocks.len() - 1) + 1 } else { 0 };
    used.max(chosen).div_ceil(cells.max(1)).max(1).next_power_of_two()
}

fn map(
    app: &App,
    kv: &KvView,
    changed: &BTreeSet<u32>,
    width: usize,
    rows: usize,
    per_cell: usize,
    focused: bool,
) -> Vec<Line<'static>> {
    let selected = focused.then(|| app.panels.kv.block / per_cell);
    let cells: Vec<Span> = kv
        .blocks
        .chunks(per_cell)
        .enumerate()
        .map(|(i, blocks)| {
            let ids = (i * per_cell) as u32..((i + 1) * per_cell) as u32;
            let (symbol, style) = cell(app, blocks, changed.range(ids).next().is_some());
            let chosen = if selected == Some(i) { app.theme.style(Role::Selection) } else { Style::new() };
            Span::styled(symbol, style.patch(chosen))
        })
        .collect();
    cells.chunks(width).take(rows).map(|row| Line::from(row.to_vec())).collect()
}

/// The most telling of a cell's blocks: shared, then owned, then cached, then free.
fn cell(app: &App, blocks: &[BlockView], changed: bool) -> (&'static str, Style) {
    let owner = |block: &BlockView| block.owner.map_or(0, App::hue);
    let shown = |symbol| if changed { CHANGED } else { symbol };
    if blocks.iter().any(|b| b.references > 1) {
        return (shown(SHARED), app.theme.style(Role::Heading));
    }
    if let Some(block) = blocks.iter().find(|b| b.references == 1) {
        return (shown(OWNED), app.theme.sequence(owner(block)));
    }
    let shown = |symbol| if changed { LEFT } else { symbol };
    if blocks.iter().any(|b| b.cached) {
        return (shown(CACHED), app.theme.style(Role::Muted));
    }
    (shown(FREE), app.theme.style(Role::Faint))
}

/// The lines under the map, at most `room`: those that fit, the most telling first to be chosen.
fn facts(app: &App, seen: &Seen, width: usize, room: usize, focused: bool) -> Vec<Line<'static>> {
    let snapshot = &seen.snapshot;
    let mut left = room;
    let mut fits = |lines: Vec<Line<'static>>| {
        let fits = lines.len() <= left;
        left -= if fits { lines.len() } else { 0 };
        if fits { lines } else { Vec::new() }
    };
    let selected = fits(if focused { block::selected(app, snapshot, width) } else { Vec::new() });
    let legend = fits(legend(app, snapshot, width));
    let prefix = fits(vec![prefix(app, snapshot, width)]);
    let sequences = fits(vec![sequences(app, snapshot, width)]);
    let tiers = fits(snapshot.kv.tiers.iter().map(|t| block::tier(app, t, width)).collect());
    let happened = fits(block::happened(app, seen, width));
    let sharing = fits(vec![sharing(app, snapshot, width)]);
    let memory = fits(block::memory(app, snapshot, width).into_iter().collect());
    let events = fits(block::events(app, snapshot, width).into_iter().collect());
    let order = [selected, legend, sequences, prefix, sharing, happened, events, tiers, memory];
    order.into_iter().flatten().collect()
}

fn legend(app: &App, snapshot: &Snapshot, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let kv = &snapshot.kv;
    let shared = kv.blocks.iter().filter(|b| b.references > 1).count();
    // Sign and number apart where there is room.
    let (gap, space) = if width < 52 { (" ", "") } else { ("   ", " ") };
    let words = [
        (OWNED, theme.sequence(0), kv.owned, "owned"),
        (SHARED, theme.style(Role::Heading), shared, "shared"),
        (CACHED, theme.style(Role::Muted), kv.cached, "cached"),
        (FREE, theme.style(Role::Faint), kv.free, "free"),
    ];
    let mut lines = vec![Line::default()];
    for (sign, style, n, what) in words {
        let word = format!("{space}{} {what}", format::count(n as u64));
        let used = lines.last().map_or(0, Line::width);
        let gap = if used == 0 { "" } else { gap };
        if used + gap.len() + 1 + word.len() > width {
            lines.push(Line::default());
        }
        let line = lines.last_mut().expect("there is a first line");
        let gap = if line.width() == 0 { "" } else { gap };
        line.spans.extend([
            Span::raw(gap),
            Span::styled(sign, style),
            Span::styled(word, theme.style(Role::Text)),
        ]);
    }
    lines
}

fn prefix(app: &App, snapshot: &Snapshot, width: usize) -> Line<'static> {
    let counters = &snapshot.counters;
    let hits = match counters.prefix_queries {
        0 => "-".to_owned(),
        queries => format::percent(counters.prefix_hits as f64 / queries as f64),
    };
    let words = [
        format!("prefix hits {hits}"),
        format!("evicted {}", counters.evictions),
        format!("copied {}", counters.copies_on_write),
    ];
    paint::fitting(words.map(|w| Span::styled(w, app.theme.style(Role::Muted))), width, &app.theme)
}

/// Blocks that were found or forked instead of computed or copied.
fn sharing(app: &App, snapshot: &Snapshot, width: usize) -> Line<'static> {
    let shared = snapshot.counters.blocks_shared;
    let bytes = shared * snapshot.kv.bytes_per_block as u64;
    let words = [format!("saved by sharing {} blocks", format::count(shared)), format::bytes(bytes)];
    paint::fitting(words.map(|w| Span::styled(w, app.theme.style(Role::Muted))), width, &app.theme)
}

/// Who owns how many.
fn sequences(app: &App, snapshot: &Snapshot, width: usize) -> Line<'static> {
    let mut spans = Vec::new();
    for view in &snapshot.sequences {
        let word = match view.state {
            SequenceState::Running => format!("{} {} blk  ", view.seq, view.blocks.len()),
            SequenceState::Waiting => format!("{} waits  ", view.seq),
            SequenceState::Loading => format!("{} loads  ", view.seq),
            SequenceState::Compiling => format!("{} compiles  ", view.seq),
            SequenceState::Preempted => format!("{} preempted  ", view.seq),
        };
        let used: usize = spans.iter().map(Span::width).sum();
        if used + word.len() + 3 > width {
            spans.push(Span::styled("…", app.theme.style(Role::Muted)));
            break;
        }
        spans.push(Span::styled(format!("■ {word}"), app.theme.sequence(App::hue(view.seq))));
    }
    if spans.is_empty() {
        spans.push(Span::styled("no sequence owns a block", app.theme.style(Role::Muted)));
    }
    Line::from(spans)
}

fn sizes(app: &App, width: usize, (per_cell, shown): (usize, usize)) -> Line<'static> {
    let kv = &app.snapshot.kv;
    let muted = app.theme.style(Role::Muted);
    // The null block is nobody's and holds nothing.
    let blocks = kv.owned + kv.cached + kv.free;
    let all = blocks * kv.bytes_per_block;
    let mut words = vec![
        format!("{} blocks of {}", format::count(blocks as u64), kv.block_size),
        format::bytes(all as u64),
    ];
    if per_cell > 1 {
        words.push(format!("{per_cell} a cell"));
    }
    if shown < kv.blocks.len() && (per_cell == 1 || width >= 52) {
        words.push(format!("{} shown", format::count(shown as u64)));
    }
    paint::dotted(words.into_iter().map(|w| Span::styled(w, muted)), &app.theme)
}
