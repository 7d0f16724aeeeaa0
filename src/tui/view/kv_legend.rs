//! The legend of the block map: the shapes of its colour mode, and how many blocks are of each.

use super::kv_class::{Kind, kinds};
use super::kv_map::{Map, Plan};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::history::Seen;
use crate::tui::kv_panel::BlockColours;
use crate::tui::theme::Role;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// With less room sign and number stand together.
const WIDE: usize = 52;

pub fn lines(app: &App, seen: &Seen, map: &Map, plan: Plan) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let colours = app.panels.kv.colours;
    let mut words = Vec::new();
    if colours != BlockColours::Owner {
        words.push(("by".to_owned(), theme.style(Role::Muted), format!(" {}", colours.name())));
    }
    let space = if plan.width < WIDE { "" } else { " " };
    let number = |n: usize, what: &str| format!("{space}{} {what}", format::count(n as u64));
    for (kind, counted) in kinds(colours).iter().zip(map.counts) {
        let n = count(seen, colours, kind, counted);
        let always = matches!(colours, BlockColours::Owner | BlockColours::State);
        if !kind.word.is_empty() && (n > 0 || always) {
            words.push((sign(colours, kind, plan), style(app, kind), number(n, kind.word)));
        }
    }
    let marked = app.panels.kv.marked.len();
    if marked > 0 {
        words.push(("◈".to_owned(), theme.style(Role::Heading), number(marked, "marked")));
    }
    flow(words, plan.width, theme.style(Role::Text))
}

/// The pool keeps a block to itself, which it does not count.
fn count(seen: &Seen, colours: BlockColours, kind: &Kind, counted: usize) -> usize {
    let kv = &seen.snapshot.kv;
    match (colours, kind.word) {
        (BlockColours::Owner, "owned") => kv.owned,
        (BlockColours::Owner, "cached") | (BlockColours::State, "evictable") => kv.cached,
        (BlockColours::Owner | BlockColours::State, "free") => kv.free,
        (BlockColours::Age, "never") => {
            let uncounted = kv.blocks.len().saturating_sub(kv.owned + kv.cached + kv.free);
            counted.saturating_sub(uncounted)
        }
        _ => counted,
    }
}

/// Several blocks a cell: how full it is.
fn sign(colours: BlockColours, kind: &Kind, plan: Plan) -> String {
    let by_shade = plan.per_cell > 1 && matches!(colours, BlockColours::Owner | BlockColours::Tier);
    match by_shade && kind.shape == '█' {
        true => "░▒▓█".to_owned(),
        false => kind.shape.to_string(),
    }
}

fn style(app: &App, kind: &Kind) -> Style {
    match (app.panels.kv.colours, kind.shape) {
        (BlockColours::Owner, '█') => app.theme.sequence(0),
        _ => app.theme.style(kind.role),
    }
}

/// Signs with their words, none parted from its own, over as many lines as they take.
fn flow(words: Vec<(String, Style, String)>, width: usize, text: Style) -> Vec<Line<'static>> {
    let gap = if width < WIDE { " " } else { "   " };
    let mut lines = vec![Line::default()];
    for (sign, style, word) in words {
        let used = lines.last().map_or(0, Line::width);
        if used > 0 && used + gap.len() + format::width(&sign) + format::width(&word) > width {
            lines.push(Line::default());
        }
        let line = lines.last_mut().expect("there is a first line");
        if !line.spans.is_empty() {
            line.spans.push(Span::raw(gap));
        }
        line.spans.extend([Span::styled(sign, style), Span::styled(word, text)]);
    }
    lines
}
