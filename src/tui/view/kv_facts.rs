//! The lines under the block map, as many as there is room for, the most telling first.

use super::kv_map::{Map, Plan};
use super::{block, kv_curves, kv_legend, paint};
use crate::protocol::{SequenceState, Snapshot};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::history::Seen;
use crate::tui::theme::Role;
use ratatui::text::{Line, Span};

/// With so many lines there is room for curves.
const ROOMY: usize = 10;

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
    let legend = fits(kv_legend::lines(app, seen, map, plan));
    let sequences = fits(vec![sequences(app, snapshot, width)]);
    // What curves say need not be said twice.
    let curves = fits(if height >= ROOMY { kv_curves::lines(app, seen, width) } else { Vec::new() });
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

fn prefix(app: &App, snapshot: &Snapshot, width: usize) -> Line<'static> {
    let counters = &snapshot.counters;
    let words = [
        format!("prefix hits {}", hit_rate(snapshot)),
        format!("evicted {}", format::count(counters.evictions)),
        format!("copied {}", format::count(counters.copies_on_write)),
    ];
    paint::fitting(words.map(|w| Span::styled(w, app.theme.style(Role::Muted))), width, &app.theme)
}

/// Of the prompt tokens that were looked up.
pub fn hit_rate(snapshot: &Snapshot) -> String {
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
