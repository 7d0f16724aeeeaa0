//! The KV panel: moving over its blocks and through its tree, and what the engine is asked about them.

use crate::protocol::{Command, Inspect, Inspected};
use crate::tui::app::{App, Effect, Focus};
use crate::tui::format;
use crate::tui::history;
use crate::tui::keymap::Action;
use crate::tui::kv_panel::Asked;
use crate::tui::panels::Panel;
use std::time::Duration;

/// What was told of an older step is asked anew after this long.
const REFRESH: Duration = Duration::from_millis(300);
/// A question without an answer is given up after this long.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks the engine about what is looked at, where that is not known or is of an older step. One
/// question at a time.
pub fn ask(app: &mut App, effects: &mut Vec<Effect>) {
    let Some(what) = wanted(app) else { return };
    let (now, step) = (app.now, app.snapshot.step);
    let kv = &mut app.panels.kv;
    let waits = kv.asked.is_some_and(|asked| now < asked.at + PATIENCE);
    let is_known = kv.told(what).is_some_and(|(at, of)| of == step || now < at + REFRESH);
    if !waits && !is_known {
        kv.asked = Some(Asked { what, at: now });
        effects.push(Effect::Send(Command::Inspect(what)));
    }
}

/// What the panel looks at: in the newest state of a live engine, while it has the focus.
fn wanted(app: &App) -> Option<Inspect> {
    let blocks = app.snapshot.kv.blocks.len();
    let looks = app.focus == Focus::Panel(Panel::Kv) && history::back(app) == 0;
    if !looks || blocks == 0 || app.replay.is_some() || app.ready().is_none() {
        return None;
    }
    let kv = &app.panels.kv;
    Some(if kv.tree { Inspect::Tree } else { Inspect::Block(kv.block.min(blocks - 1) as u32) })
}

pub fn told(app: &mut App, answer: Inspected) {
    let (now, step) = (app.now, app.snapshot.step);
    app.panels.kv.take(answer, now, step);
}

/// An arrow, or to the first or last.
pub fn moved(app: &mut App, action: Action) {
    let blocks = app.snapshot.kv.blocks.len();
    let row = app.kv_row.get();
    let kv = &mut app.panels.kv;
    if kv.tree {
        kv.row = super::keys::moved(kv.row, action, 1, kv.rows().len());
    } else {
        kv.block = super::keys::moved(kv.block, action, row, blocks);
    }
}

/// A page of the map or of the tree.
pub fn page(app: &mut App, direction: isize) {
    let (row, rows) = (app.kv_row.get(), app.kv_rows.get().max(1));
    let blocks = app.snapshot.kv.blocks.len();
    let kv = &mut app.panels.kv;
    if kv.tree {
        let last = kv.rows().len().saturating_sub(1);
        kv.row = kv.row.saturating_add_signed(direction * rows as isize).min(last);
    } else {
        let by = direction * (row * rows) as isize;
        kv.block = kv.block.saturating_add_signed(by).min(blocks.saturating_sub(1));
    }
}

pub fn next_colours(app: &mut App) {
    let kv = &mut app.panels.kv;
    kv.colours = kv.colours.next();
    kv.tree = false;
    let name = kv.colours.name();
    app.say(format!("blocks by {name}"));
}

/// Two blocks a cell, where the terminal has colours to tell them apart.
pub fn toggle_dense(app: &mut App) {
    if !app.theme.has_colours() || app.options.ascii {
        return app.say("two blocks a cell are told apart by colour, and there is none");
    }
    app.panels.kv.dense = !app.panels.kv.dense;
    app.say(if app.panels.kv.dense {
        "two blocks a cell, one over the other"
    } else {
        "a shape for each block"
    });
}

/// The tree in the map's place, or back: then the selected node's blocks are marked in the map.
pub fn toggle_tree(app: &mut App) {
    if app.replay.is_some() {
        return app.say("the tree of the prefix cache was not recorded");
    }
    let kv = &mut app.panels.kv;
    let node = kv.selected_node().map(|node| node.blocks.clone()).filter(|_| kv.tree);
    kv.tree = !kv.tree;
    kv.marked = node.clone().unwrap_or_default().into_iter().collect();
    if let Some(first) = node.as_ref().and_then(|blocks| blocks.first()) {
        kv.block = *first as usize;
        let n = kv.marked.len();
        app.say(format!(
            "{} of the prefix {} marked",
            format::plural(n, "block"),
            if n == 1 { "is" } else { "are" }
        ));
    }
}

pub fn select(app: &mut App, block: usize) {
    app.focus = Focus::Panel(Panel::Kv);
    app.panels.kv.block = block.min(app.snapshot.kv.blocks.len().saturating_sub(1));
}

pub fn select_row(app: &mut App, row: usize) {
    app.focus = Focus::Panel(Panel::Kv);
    app.panels.kv.row = row;
}
