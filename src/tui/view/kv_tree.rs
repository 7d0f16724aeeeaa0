//! The prefix cache as a tree: each node a run of blocks that belong together, under what comes
//! before it.

use super::paint;
use crate::protocol::{CacheNode, CacheTree};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::hits::Target;
use crate::tui::kv_panel::TreeRow;
use crate::tui::sanitize::one_line;
use crate::tui::theme::Role;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Cells of the numbers on the right.
const NUMBERS: usize = 24;

pub fn lines(app: &App, area: Rect, focused: bool) -> Vec<Line<'static>> {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let muted = app.theme.style(Role::Muted);
    let kv = &app.panels.kv;
    let Some(told) = &kv.tree_told else {
        let why = match app.replay {
            Some(_) => "the tree of the prefix cache was not recorded: t goes back to the map",
            None if focused => "the engine is asked for the prefix cache …",
            None => "the prefix cache as a tree: it is asked for while this panel has the focus",
        };
        return vec![Line::styled(why, muted)];
    };
    let rows = kv.rows();
    let row = kv.row.min(rows.len().saturating_sub(1));
    let mut lines = vec![head(app, &told.what, told.step, width)];
    if rows.is_empty() {
        lines.push(Line::styled("nothing is cached", muted));
        return lines;
    }
    let mut facts = if focused { selected(app, &told.what.nodes[rows[row].node], width) } else { Vec::new() };
    facts.truncate(height.saturating_sub(4));
    let room = height.saturating_sub(1 + facts.len()).max(1);
    app.kv_rows.set(room);
    // The selected row stays in view, with some of what follows it.
    let first = (row + 1 + room / 4).saturating_sub(room).min(rows.len().saturating_sub(room));
    for (i, tree_row) in rows.iter().enumerate().skip(first).take(room) {
        let y = area.y + lines.len() as u16;
        app.hits.note(Rect { y, height: 1, ..area }.intersection(area), Target::CacheRow(i));
        lines.push(node_line(app, &told.what, tree_row, width, focused && i == row));
    }
    lines.resize(height.saturating_sub(facts.len()), Line::default());
    lines.extend(facts);
    lines
}

/// `radix · 12 nodes · 3 left out · step 40`.
fn head(app: &App, tree: &CacheTree, step: u64, width: usize) -> Line<'static> {
    let muted = app.theme.style(Role::Muted);
    let mut words = vec![
        Span::styled(one_line(&tree.index), app.theme.style(Role::Text)),
        Span::styled(format::plural(tree.nodes.len(), "node"), muted),
    ];
    if tree.left_out > 0 {
        let left_out = format!("{} more left out", format::count(tree.left_out as u64));
        words.push(Span::styled(left_out, app.theme.style(Role::Warn)));
    }
    words.push(Span::styled(format!("after step {}", format::count(step)), muted));
    let line = paint::fitting(words, width.saturating_sub(NUMBERS), &app.theme);
    let names = format!("{:>6}{:>5}{:>6}{:>7}", "tok", "blk", "refs", "used");
    let fill = width.saturating_sub(line.width() + names.len());
    let mut line = line;
    line.spans.extend([Span::raw(" ".repeat(fill)), Span::styled(names, muted)]);
    line
}

fn node_line(app: &App, tree: &CacheTree, row: &TreeRow, width: usize, is_selected: bool) -> Line<'static> {
    let theme = &app.theme;
    let node = &tree.nodes[row.node];
    let room = width.saturating_sub(NUMBERS + 1);
    let lead = lead(row, room / 2);
    let sign = match (row.hidden, row.has_children) {
        (1.., _) => "▸ ",
        (0, true) => "▾ ",
        _ => "",
    };
    let hidden =
        if row.hidden > 0 { format!(" +{}", format::count(row.hidden as u64)) } else { String::new() };
    let for_text = room.saturating_sub(format::width(&lead) + format::width(sign) + hidden.len());
    let text = format::fit(&format::quoted(&node.text), for_text);
    let role = if node.references > 0 { Role::Text } else { Role::Muted };
    let numbers = format!(
        "{:>6}{:>5}{:>6}{:>7}",
        format::count(node.tokens as u64),
        format::count(node.blocks.len() as u64),
        if node.references > 0 { node.references.to_string() } else { "-".into() },
        if node.used > 0 { format::count(node.used) } else { "-".into() },
    );
    let used = format::width(&lead) + format::width(sign) + format::width(&text) + hidden.len();
    let chosen = if is_selected { theme.style(Role::Selection) } else { Default::default() };
    Line::from(vec![
        Span::styled(lead, theme.style(Role::Faint).patch(chosen)),
        Span::styled(sign, theme.style(Role::Accent).patch(chosen)),
        Span::styled(text, theme.style(role).patch(chosen)),
        Span::styled(hidden, theme.style(Role::Warn).patch(chosen)),
        Span::styled(" ".repeat((room + 1).saturating_sub(used)), chosen),
        Span::styled(numbers, theme.style(Role::Muted).patch(chosen)),
    ])
}

/// The lines of the branches before a node, at most `room` cells; of a deep one how deep it is.
fn lead(row: &TreeRow, room: usize) -> String {
    let Some((own, above)) = row.last.split_last() else { return String::new() };
    if above.is_empty() {
        return String::new();
    }
    let joint = if *own { "└ " } else { "├ " };
    let lines: String = above[1..].iter().map(|last| if *last { "  " } else { "│ " }).collect();
    let whole = lines + joint;
    match format::width(&whole) <= room {
        true => whole,
        false => format!("…{} {joint}", above.len()),
    }
}

/// The selected prefix in full.
fn selected(app: &App, node: &CacheNode, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let muted = theme.style(Role::Muted);
    let count = |n: usize| format::count(n as u64);
    let owners = match node.references {
        0 => "nobody owns it: evictable".to_owned(),
        1 => "1 sequence owns it".to_owned(),
        n => format!("{n} sequences own it"),
    };
    let blocks: Vec<String> = node.blocks.iter().take(8).map(u32::to_string).collect();
    let more = if node.blocks.len() > 8 { " …" } else { "" };
    let words = [
        Span::styled(owners, theme.style(Role::Text)),
        Span::styled(
            format!("{} tokens in {}", count(node.tokens), format::plural(node.blocks.len(), "block")),
            muted,
        ),
        Span::styled(format!("blocks {}{more}", blocks.join(" ")), muted),
    ];
    let mut lines = paint::flowing(Span::styled("prefix ", theme.style(Role::Focus)), words, width, theme);
    lines.push(Line::styled(format::fit(&format::quoted(&node.text), width), theme.style(Role::Text)));
    lines
}
