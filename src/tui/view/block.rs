//! The KV panel's selected block, and what happened to the cache lately.

use super::paint;
use crate::protocol::{BlockDetail, KvEvent, KvHash, Medium, SeqId, SequenceView, Snapshot, TierView};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::history::Seen;
use crate::tui::sanitize::one_line;
use crate::tui::theme::Role;
use crate::tui::transcript::wrap::wrap;
use ratatui::text::{Line, Span};

/// What is known of the block under the cursor, in at most `room` lines: what it is, who owns it and
/// where, what it holds and what leads to it.
pub fn selected(app: &App, seen: &Seen, width: usize, room: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let (snapshot, muted) = (&seen.snapshot, theme.style(Role::Muted));
    let kv = &snapshot.kv;
    let index = app.panels.kv.block.min(kv.blocks.len().saturating_sub(1));
    // Of an earlier step nothing was asked.
    let detail = app.panels.kv.detail(index).filter(|_| seen.back == 0);
    let owners = owners(snapshot, index, detail);
    let label = Span::styled(format!("block {index} "), theme.style(Role::Focus));
    let mut lines = paint::flowing(label, facts(app, snapshot, index, &owners, detail), width, theme);
    let places = owners.iter().map(|(seq, at, view)| {
        let from = at * kv.block_size;
        let computed = view.map_or(usize::MAX, |view| view.computed_tokens);
        let to = (from + kv.block_size).min(computed.max(from + 1));
        let of = view.map_or(String::new(), |view| format!(" of {}", view.blocks.len()));
        let text = format!("{} {seq} #{at}{of}, tokens {from}-{}", App::letter(*seq), to - 1);
        Span::styled(text, theme.sequence(App::hue(*seq)))
    });
    let mut places = paint::flowing(Span::raw(""), places, width, theme);
    let most = (room.saturating_sub(lines.len()) / 2).max(1);
    if places.len() > most {
        places.truncate(most);
        places.iter_mut().last().into_iter().for_each(|last| last.spans.push(Span::styled(" …", muted)));
    }
    lines.extend(places.into_iter().filter(|_| !owners.is_empty()));
    if let Some(detail) = detail {
        let left = room.saturating_sub(lines.len());
        lines.extend(tokens(app, detail, width, left));
        if lines.len() < room && detail.chain.len() > 1 {
            lines.push(chain(app, detail, width));
        }
    }
    lines.truncate(room.max(1));
    lines
}

/// An owner, the block's place in its table, and what else is known of it.
type Owner<'a> = (SeqId, usize, Option<&'a SequenceView>);

/// As the engine told them, else as the block tables do.
fn owners<'a>(snapshot: &'a Snapshot, index: usize, detail: Option<&BlockDetail>) -> Vec<Owner<'a>> {
    let place =
        |s: &'a SequenceView| Some((s.seq, s.blocks.iter().position(|b| *b as usize == index)?, Some(s)));
    let known: Vec<Owner> = snapshot.sequences.iter().filter_map(place).collect();
    match detail.filter(|_| known.is_empty()) {
        Some(detail) => detail.owners.iter().map(|(seq, at)| (*seq, *at, None)).collect(),
        None => known,
    }
}

fn facts(
    app: &App,
    snapshot: &Snapshot,
    index: usize,
    owners: &[Owner],
    detail: Option<&BlockDetail>,
) -> Vec<Span<'static>> {
    let theme = &app.theme;
    let muted = theme.style(Role::Muted);
    let block = snapshot.kv.blocks.get(index).copied().unwrap_or_default();
    let state = match (block.references, block.cached) {
        (0, false) => "free".to_owned(),
        (0, true) => "cached, evictable".to_owned(),
        (1, _) => match block.owner {
            Some(seq) => format!("owned by {seq}"),
            None if owners.is_empty() => "the pool's own: no sequence gets it".to_owned(),
            None => "owned".to_owned(),
        },
        (n, _) => format!("shared by {n}"),
    };
    let mut words = vec![Span::styled(state, theme.style(Role::Text))];
    if block.cached && block.references > 0 {
        words.push(Span::styled("in the prefix cache", muted));
    }
    if block.used > 0 {
        let ago = match snapshot.step.saturating_sub(block.used) {
            0 | 1 => String::new(),
            steps => format!(", {} ago", format::count(steps)),
        };
        words.push(Span::styled(format!("used in step {}{ago}", format::count(block.used)), muted));
    }
    let told = detail.and_then(|detail| detail.chain.last().copied());
    let recorded = || owners.iter().find_map(|(_, at, view)| hash(app, snapshot, (*view)?, *at));
    if let Some(hash) = told.or_else(recorded) {
        words.push(Span::styled(format!("hash {hash:016x}"), muted));
    }
    words
}

/// The text of its tokens, with a bar where one ends and the next begins.
fn tokens(app: &App, detail: &BlockDetail, width: usize, room: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    if detail.tokens.is_empty() || room == 0 {
        return Vec::new();
    }
    let mut spans = vec![Span::styled("holds ", theme.style(Role::Muted))];
    for (i, (_, text)) in detail.tokens.iter().enumerate() {
        if i > 0 {
            spans.push(Span::styled("│", theme.style(Role::Faint)));
        }
        let text = one_line(&text.replace('\n', "\\n").replace('\t', "\\t"));
        spans.push(Span::styled(text, theme.style(Role::Text)));
    }
    let mut lines = wrap(&Line::from(spans), width, 6);
    if lines.len() > room {
        lines.truncate(room);
        let more = Span::styled(" …", theme.style(Role::Muted));
        lines.iter_mut().last().into_iter().for_each(|last| last.spans.push(more.clone()));
    }
    lines
}

/// `chain 61ab… → 09fe… → 3c81…`: the hashes that lead to this block's, as many as fit.
fn chain(app: &App, detail: &BlockDetail, width: usize) -> Line<'static> {
    let short = |hash: &KvHash| format!("{:08x}", hash & 0xffff_ffff);
    let fits = (width.saturating_sub(6) / 11).max(1);
    let all = detail.chain.len();
    let shown: Vec<String> = match all > fits {
        true => {
            let last = detail.chain[all - (fits - 1).min(all - 1)..].iter().map(short);
            std::iter::once("…".to_owned()).chain(last).collect()
        }
        false => detail.chain.iter().map(short).collect(),
    };
    let text = format!("chain {}", shown.join(" → "));
    Line::styled(format::fit(&text, width), app.theme.style(Role::Muted))
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
