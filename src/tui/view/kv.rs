//! Panel 2: where is the memory? A cell a block, or several blocks a cell where there are many.

use super::paint;
use crate::protocol::{BlockView, KvView};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::theme::Role;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Told apart by shape first, by colour second.
const OWNED: &str = "█";
const SHARED: &str = "▓";
const CACHED: &str = "▒";
const FREE: &str = "·";
/// Lines under the map.
const FACTS: usize = 4;

pub fn lines(app: &App, (width, height): (usize, usize), focused: bool) -> Vec<Line<'static>> {
    let kv = &app.snapshot.kv;
    if kv.blocks.is_empty() {
        return vec![Line::styled("no blocks yet: a loaded model has them", app.theme.style(Role::Muted))];
    }
    let rows = height.saturating_sub(FACTS).max(1);
    let per_cell = blocks_per_cell(app, width * rows, focused);
    app.kv_row.set(width * per_cell);
    let mut lines = map(app, kv, width, rows, per_cell, focused);
    let shown = (width * rows * per_cell).min(kv.blocks.len());
    lines.extend(facts(app, width, (per_cell, shown), focused));
    lines
}

/// A cell a block while the used ones fit, then two, four and so on: a long context has thousands
/// of blocks, and the free ones at the end say nothing.
fn blocks_per_cell(app: &App, cells: usize, focused: bool) -> usize {
    let blocks = &app.snapshot.kv.blocks;
    let used = blocks.iter().rposition(|b| b.references > 0 || b.cached).map_or(0, |last| last + 1);
    let chosen = if focused { app.panels.block.min(blocks.len() - 1) + 1 } else { 0 };
    used.max(chosen).div_ceil(cells.max(1)).max(1).next_power_of_two()
}

fn map(
    app: &App,
    kv: &KvView,
    width: usize,
    rows: usize,
    per_cell: usize,
    focused: bool,
) -> Vec<Line<'static>> {
    let selected = focused.then(|| app.panels.block / per_cell);
    let cells: Vec<Span> = kv
        .blocks
        .chunks(per_cell)
        .enumerate()
        .map(|(i, blocks)| {
            let (symbol, style) = cell(app, blocks);
            let chosen = if selected == Some(i) { app.theme.style(Role::Selection) } else { Style::new() };
            Span::styled(symbol, style.patch(chosen))
        })
        .collect();
    cells.chunks(width).take(rows).map(|row| Line::from(row.to_vec())).collect()
}

/// The most telling of a cell's blocks: shared, then owned, then cached, then free.
fn cell(app: &App, blocks: &[BlockView]) -> (&'static str, Style) {
    let owner = |block: &BlockView| block.owner.map_or(0, App::hue);
    if blocks.iter().any(|b| b.references > 1) {
        return (SHARED, app.theme.style(Role::Heading));
    }
    if let Some(block) = blocks.iter().find(|b| b.references == 1) {
        return (OWNED, app.theme.sequence(owner(block)));
    }
    if blocks.iter().any(|b| b.cached) {
        return (CACHED, app.theme.style(Role::Muted));
    }
    (FREE, app.theme.style(Role::Faint))
}

fn facts(app: &App, width: usize, scale: (usize, usize), focused: bool) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let (kv, counters) = (&app.snapshot.kv, &app.snapshot.counters);
    let text = |s: String| Span::styled(s, theme.style(Role::Text));
    let shared = kv.blocks.iter().filter(|b| b.references > 1).count();
    // Sign and number apart where there is room.
    let (gap, space) = if width < 52 { (" ", "") } else { ("   ", " ") };
    let mut lines = vec![Line::from(vec![
        Span::styled(OWNED, theme.sequence(0)),
        text(format!("{space}{} owned{gap}", kv.owned)),
        Span::styled(SHARED, theme.style(Role::Heading)),
        text(format!("{space}{shared} shared{gap}")),
        Span::styled(CACHED, theme.style(Role::Muted)),
        text(format!("{space}{} cached{gap}", kv.cached)),
        Span::styled(FREE, theme.style(Role::Faint)),
        text(format!("{space}{} free", format::count(kv.free as u64))),
    ])];
    lines.push(sequences(app, width));
    let hits = match counters.prefix_queries {
        0 => "-".to_owned(),
        queries => format::percent(counters.prefix_hits as f64 / queries as f64),
    };
    let muted = theme.style(Role::Muted);
    let words = [
        format!("prefix hits {hits}"),
        format!("evicted {}", counters.evictions),
        format!("copied {}", counters.copies_on_write),
    ];
    lines.push(paint::dotted(words.map(|w| Span::styled(w, muted)), theme));
    lines.push(if focused { selected(app) } else { sizes(app, width, scale) });
    lines
}

/// Who owns how many.
fn sequences(app: &App, width: usize) -> Line<'static> {
    let mut spans = Vec::new();
    for view in &app.snapshot.sequences {
        let word = format!("{} {} blk  ", view.seq, view.blocks.len());
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
    let all = kv.blocks.len() * kv.bytes_per_block;
    let mut words = vec![
        format!("{} blocks of {}", format::count(kv.blocks.len() as u64), kv.block_size),
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

/// The block under the cursor: whose it is, and what is known of it.
fn selected(app: &App) -> Line<'static> {
    let kv = &app.snapshot.kv;
    let index = app.panels.block.min(kv.blocks.len().saturating_sub(1));
    let block = kv.blocks.get(index).copied().unwrap_or_default();
    let owners: Vec<String> = app
        .snapshot
        .sequences
        .iter()
        .filter(|s| s.blocks.contains(&(index as u32)))
        .map(|s| s.seq.to_string())
        .collect();
    let state = match (block.references, block.cached) {
        (0, false) => "free".to_owned(),
        (0, true) => "cached, evictable".to_owned(),
        (1, _) => format!("owned by {}", owners.join(" ")),
        (n, _) => format!("shared by {n}: {}", owners.join(" ")),
    };
    let known = if block.cached && block.references > 0 { " · in the prefix cache" } else { "" };
    Line::from(vec![
        Span::styled(format!("block {index} "), app.theme.style(Role::Focus)),
        Span::styled(format!("{state}{known}"), app.theme.style(Role::Text)),
    ])
}
