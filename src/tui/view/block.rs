//! The KV panel's selected block, and what happened to the cache lately.

use super::paint;
use crate::protocol::{KvEvent, KvHash, Medium, SequenceView, Snapshot, TierView};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::history::Seen;
use crate::tui::theme::Role;
use ratatui::text::{Line, Span};

/// What is known of the block under the cursor; then a line or more for its owners.
pub fn selected(app: &App, snapshot: &Snapshot, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let kv = &snapshot.kv;
    let index = app.panels.kv.block.min(kv.blocks.len().saturating_sub(1));
    let block = kv.blocks.get(index).copied().unwrap_or_default();
    let owners: Vec<(&SequenceView, usize)> = snapshot
        .sequences
        .iter()
        .filter_map(|s| Some((s, s.blocks.iter().position(|b| *b as usize == index)?)))
        .collect();
    let state = match (block.references, block.cached) {
        (0, false) => "free".to_owned(),
        (0, true) => "cached, evictable".to_owned(),
        (1, _) => block.owner.map_or("owned".into(), |seq| format!("owned by {seq}")),
        (n, _) => format!("shared by {n}"),
    };
    let mut words = vec![Span::styled(state, theme.style(Role::Text))];
    let muted = theme.style(Role::Muted);
    if block.cached && block.references > 0 {
        words.push(Span::styled("in the prefix cache", muted));
    }
    if block.used > 0 {
        words.push(Span::styled(format!("used in step {}", format::count(block.used)), muted));
    }
    if let Some(hash) = owners.first().and_then(|(s, at)| hash(app, snapshot, s, *at)) {
        words.push(Span::styled(format!("hash {hash:016x}"), muted));
    }
    let label = Span::styled(format!("block {index} "), theme.style(Role::Focus));
    let mut lines = paint::flowing(label, words, width, theme);
    let places = owners.iter().map(|(s, at)| {
        let from = at * kv.block_size;
        let to = (from + kv.block_size).min(s.computed_tokens.max(from + 1));
        let text = format!("{} #{at} of {}, tokens {from}-{}", s.seq, s.blocks.len(), to - 1);
        Span::styled(text, theme.sequence(App::hue(s.seq)))
    });
    if !owners.is_empty() {
        lines.extend(paint::flowing(Span::styled("■ ", muted), places, width, theme));
    }
    lines
}

/// The block's hash, where the newest events tell it: one of them stored just these tokens. Known
/// only of blocks that hold drawn tokens, because the screen never sees a prompt's.
fn hash(app: &App, snapshot: &Snapshot, s: &SequenceView, at: usize) -> Option<KvHash> {
    let size = snapshot.kv.block_size;
    let first = (at * size).checked_sub(s.prompt_tokens)?;
    let drawn = |index: usize| app.parsed.iter().rev().find(|t| t.seq == s.seq && t.index == index);
    let ids: Vec<u32> = (first..first + size).map(|i| drawn(i).map(|t| t.id)).collect::<Option<_>>()?;
    snapshot.kv_events.iter().rev().find_map(|event| match event {
        KvEvent::BlockStored { block_hashes, token_ids, block_size, .. } if *block_size == size => {
            let found = token_ids.chunks(size).position(|chunk| chunk == ids)?;
            block_hashes.get(found).copied()
        }
        _ => None,
    })
}

/// What the step that is shown did to the map, and what the cache has learnt and forgotten lately.
pub fn happened(app: &App, seen: &Seen, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let Some(step) = seen.step else { return Vec::new() };
    let counts = [
        ("taken", step.blocks_taken, Role::Text),
        ("freed", step.blocks_freed, Role::Text),
        ("hit", step.blocks_hit, Role::Good),
        ("evicted", step.blocks_evicted, Role::Warn),
        ("copied on write", step.blocks_copied, Role::Warn),
        ("saved", step.blocks_saved, Role::Thought),
        ("loaded", step.blocks_loaded, Role::Thought),
    ];
    let mut words: Vec<Span> = counts
        .into_iter()
        .filter(|(_, n, _)| *n > 0)
        .map(|(what, n, role)| Span::styled(format!("{what} {n}"), theme.style(role)))
        .collect();
    let muted = theme.style(Role::Muted);
    if words.is_empty() {
        words.push(Span::styled("no block changed hands", muted));
    }
    let label = Span::styled(format!("◆ step {} ", format::count(step.step)), muted);
    paint::flowing(label, words, width, theme)
}

/// The newest events of the cache's content, newest first.
pub fn events(app: &App, snapshot: &Snapshot, width: usize) -> Option<Line<'static>> {
    let muted = app.theme.style(Role::Muted);
    let words = snapshot.kv_events.iter().rev().map(|event| Span::styled(event_text(event), muted));
    let line = paint::fitting(words, width.saturating_sub(7), &app.theme);
    if line.spans.is_empty() {
        return None;
    }
    let mut line = line;
    line.spans.insert(0, Span::styled("events ", muted));
    Some(line)
}

fn event_text(event: &KvEvent) -> String {
    let place = |medium: &Medium| match medium {
        Medium::Device => "",
        Medium::Host => " on host",
        Medium::Disk => " on disk",
    };
    match event {
        KvEvent::BlockStored { block_hashes, medium, .. } => {
            format!("stored {}{}", block_hashes.len(), place(medium))
        }
        KvEvent::BlockRemoved { block_hashes, medium, .. } => {
            format!("removed {}{}", block_hashes.len(), place(medium))
        }
        KvEvent::AllBlocksCleared => "all cleared".into(),
    }
}

/// `host 12/64 blocks · hits 80.0% · evicted 3`.
pub fn tier(app: &App, tier: &TierView, width: usize) -> Line<'static> {
    let muted = app.theme.style(Role::Muted);
    let hits = match tier.queries {
        0 => "-".to_owned(),
        queries => format::percent(tier.hits as f64 / queries as f64),
    };
    let words = [
        format!("{} {}/{}", tier.medium, format::count(tier.used as u64), format::count(tier.blocks as u64)),
        format!("hits {hits}"),
        format!("stored {}", format::count(tier.stored)),
        format!("evicted {}", format::count(tier.evicted)),
    ];
    paint::fitting(words.map(|w| Span::styled(w, muted)), width, &app.theme)
}

/// What was planned before anything was allocated; none where nothing was.
pub fn memory(app: &App, snapshot: &Snapshot, width: usize) -> Option<Line<'static>> {
    let plan = &snapshot.memory;
    if plan.available == 0 {
        return None;
    }
    let muted = app.theme.style(Role::Muted);
    let mut words = vec![
        format!("weights {}", format::bytes(plan.weights)),
        format!("KV {}", format::bytes(plan.kv_cache)),
        format!("left {}", format::bytes(plan.left)),
        format!("workspace {}", format::bytes(plan.workspace)),
    ];
    if plan.host_kv_cache > 0 {
        words.push(format!("KV on host {}", format::bytes(plan.host_kv_cache)));
    }
    Some(paint::fitting(words.into_iter().map(|w| Span::styled(w, muted)), width, &app.theme))
}
