//! Panel 2: where is the memory? The map of blocks or the prefix cache as a tree, and the facts
//! under it.

use super::kv_map::{Map, Plan};
use super::{kv_facts, kv_tree};
use crate::tui::app::App;
use crate::tui::history::{self, Seen};
use crate::tui::hits::Target;
use crate::tui::theme::Role;
use ratatui::layout::Rect;
use ratatui::text::Line;
use std::collections::BTreeSet;

pub fn lines(app: &App, area: Rect, focused: bool) -> Vec<Line<'static>> {
    let seen = history::seen(app);
    let kv = &seen.snapshot.kv;
    if kv.blocks.is_empty() {
        return vec![Line::styled("no blocks yet: a loaded model has them", app.theme.style(Role::Muted))];
    }
    if app.panels.kv.tree {
        return kv_tree::lines(app, area, focused);
    }
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let changed = changed(app, &seen);
    let selected = focused.then(|| app.panels.kv.block.min(kv.blocks.len() - 1));
    let map = Map::of(app, kv, seen.snapshot.step, &changed, selected);
    // What is used is seen, as far as half of the room shows it; then come the words, and the map
    // gets what they leave.
    let least = (map.used.div_ceil(width.max(1)) + 1).min(height.div_ceil(2)).max(1);
    let room = height.saturating_sub(least);
    let facts = kv_facts::lines(app, &seen, &map, map.plan(width, least), room, focused);
    let rows = (height - facts.len().min(height)).clamp(1, map.len().div_ceil(width.max(1)).max(1));
    let plan = map.plan(width, rows);
    let mut lines = map.draw(plan);
    note(app, area, plan, lines.len());
    lines.extend(kv_facts::lines(app, &seen, &map, plan, room, focused));
    lines
}

/// Where the map lies, for the mouse and for the arrow keys.
fn note(app: &App, area: Rect, plan: Plan, lines: usize) {
    let Plan { per_cell, levels, .. } = plan;
    app.kv_row.set(plan.width * per_cell);
    app.kv_rows.set(lines * levels);
    let map = Rect { height: lines as u16, ..area };
    app.hits.note(map, Target::Blocks { per_cell, levels });
}

/// Blocks that the step shown changed; of the newest state, those that this picture's steps did.
fn changed(app: &App, seen: &Seen) -> BTreeSet<u32> {
    let steps = if seen.back > 0 { 1 } else { app.meter.newest };
    let records = app.meter.steps.iter().rev().skip(seen.back).take(steps);
    records.flat_map(|step| step.blocks.iter().map(|change| change.block)).collect()
}
