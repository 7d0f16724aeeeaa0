//! What a step did to each sequence, and the tokens of all of them against the step's budget.

use crate::protocol::{RowKind, RowRecord, SeqId, SequenceState, SequenceView, StepRecord, Waiting};
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::history::{self, Seen};
use crate::tui::roster::{Entry, Got, roster};
use crate::tui::theme::Role;
use crate::tui::transcript::wrap::wrap;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use std::collections::HashMap;

/// With less room a row says less.
const WIDE: usize = 56;

/// A list of the step's sequences, those that ran and those that did not.
pub struct Rows {
    ran: Vec<Item>,
    others: Vec<Item>,
    broke: Vec<Line<'static>>,
    head: Line<'static>,
}

struct Item {
    seq: SeqId,
    lines: Vec<Line<'static>>,
}

/// A line of the list, and whose it is.
pub type Shown = (Option<SeqId>, Line<'static>);

impl Rows {
    pub fn of(app: &App, seen: &Seen, width: usize, focused: bool) -> Self {
        let later = history::later_tokens(app);
        let roster = roster(seen);
        let has_priorities = roster.iter().any(|e| e.view.is_some_and(|view| view.priority != 0));
        let item = |entry: &Entry| {
            let mut lines = lines_of(app, entry, &later, (width, has_priorities));
            if focused && app.panels.batch.chosen == Some(entry.seq) {
                select(app, &mut lines, width);
            }
            Item { seq: entry.seq, lines }
        };
        let (ran, others): (Vec<&Entry>, Vec<&Entry>) =
            roster.iter().partition(|entry| matches!(entry.got, Got::Row(_)));
        Self {
            ran: ran.into_iter().map(item).collect(),
            others: others.into_iter().map(item).collect(),
            broke: seen.step.map_or_else(Vec::new, |step| broke(app, step, width)),
            head: head(app, width, has_priorities),
        }
    }

    pub fn height(&self) -> usize {
        height(&self.ran) + height(&self.others) + self.broke.len()
    }

    /// In `room` lines. Where not all fit, those that ran get half; the chosen one is always in view, and
    /// what is not is counted.
    pub fn lines(self, app: &App, room: usize) -> Vec<Shown> {
        let chosen = app.panels.batch.chosen;
        let mut lines = Vec::new();
        if self.height() < room && !self.ran.is_empty() {
            lines.push((None, self.head));
        }
        let room_left = room.saturating_sub(lines.len());
        let ran: usize = self.ran.len();
        let rest = height(&self.others) + self.broke.len();
        let for_ran = if ran + rest <= room_left {
            ran
        } else {
            room_left.saturating_sub(rest).max(room_left / 2).min(ran)
        };
        lines.extend(window(app, self.ran, for_ran, chosen, "rows"));
        let for_broke = self.broke.len().min(room.saturating_sub(lines.len()));
        let for_others = room.saturating_sub(lines.len() + for_broke);
        lines.extend(window(app, self.others, for_others, chosen, "waiting"));
        lines.extend(self.broke.into_iter().map(|line| (None, line)));
        lines.truncate(room);
        lines
    }
}

/// `room` lines of the list: from the top, or so that the chosen one is in view.
fn window(app: &App, items: Vec<Item>, room: usize, chosen: Option<SeqId>, what: &str) -> Vec<Shown> {
    let all = height(&items);
    if all <= room || room == 0 {
        return flat(items).take(room).collect();
    }
    // One line says what is left out.
    let room = room - 1;
    let chosen = items.iter().position(|item| Some(item.seq) == chosen);
    let first = first(&items, chosen, room);
    let count = items.len();
    let mut lines: Vec<Shown> = Vec::new();
    let mut shown = 0;
    for item in items.into_iter().skip(first) {
        if lines.len() >= room {
            break;
        }
        shown += 1;
        let (seq, left) = (item.seq, room - lines.len());
        lines.extend(cut(item.lines, left).into_iter().map(|line| (Some(seq), line)));
    }
    let words = left_out(first, count - first - shown, what);
    lines.push((None, Line::styled(words, app.theme.style(Role::Muted))));
    lines
}

/// The first that is shown, so that the chosen one is whole.
fn first(items: &[Item], chosen: Option<usize>, room: usize) -> usize {
    let Some(chosen) = chosen else { return 0 };
    (0..chosen).find(|first| height(&items[*first..=chosen]) <= room).unwrap_or(chosen)
}

fn height(items: &[Item]) -> usize {
    items.iter().map(|item| item.lines.len()).sum()
}

fn flat(items: Vec<Item>) -> impl Iterator<Item = Shown> {
    items.into_iter().flat_map(|item| item.lines.into_iter().map(move |line| (Some(item.seq), line)))
}

fn left_out(before: usize, after: usize, what: &str) -> String {
    let count = |n: usize| format::count(n as u64);
    match (before, after) {
        (0, after) => format!("and {} more {what}", count(after)),
        (before, 0) => format!("{} more {what} before", count(before)),
        (before, after) => format!("{} more {what} before, {} after", count(before), count(after)),
    }
}

fn lines_of(
    app: &App,
    entry: &Entry,
    later: &HashMap<SeqId, usize>,
    (width, has_priorities): (usize, bool),
) -> Vec<Line<'static>> {
    let seq = entry.seq;
    let waits = |waiting: &Waiting, what: &str, role| {
        let priority =
            entry.view.filter(|_| has_priorities).map(|view| format!(", priority {}", view.priority));
        let why = format!("{}{}", waiting.reason, priority.unwrap_or_default());
        reason(app, seq, what, &why, role, width)
    };
    match entry.got {
        Got::Row(row) => {
            let later = later.get(&entry.seq).copied().unwrap_or(0);
            vec![row_line(app, row, entry.view, later, (width, has_priorities))]
        }
        Got::Preempted(preemption, waiting) => {
            let why = format!("{preemption} ({} blocks freed)", preemption.blocks_freed);
            let mut lines = reason(app, seq, "preempted", &why, Role::Warn, width);
            lines.extend(waiting.into_iter().flat_map(|w| waits(w, "waits", Role::Muted)));
            lines
        }
        Got::Skipped(waiting) => waits(waiting, "skipped", Role::Warn),
        Got::Waits(waiting) => waits(waiting, "waits", Role::Muted),
        Got::Nothing => {
            let why = match entry.view.map(|view| view.state) {
                Some(SequenceState::Compiling) => "its grammar is being compiled",
                Some(SequenceState::Loading) => "its cached blocks are on their way",
                _ if app.paused => "came after this step; the engine is paused",
                _ => "came after this step",
            };
            reason(app, seq, "new", why, Role::Muted, width)
        }
    }
}

/// The names of a row's numbers.
fn head(app: &App, width: usize, has_priorities: bool) -> Line<'static> {
    let priority = if has_priorities { " pri" } else { "" };
    let wide = if width >= WIDE { " blk" } else { "" };
    let text = format!("  seq  {:<8}{:>4} {:>11}{wide}{priority}", "kind", "tok", "cached/all");
    Line::styled(format::fit(&text, width), app.theme.style(Role::Muted))
}

/// `A 1.2  decode    1     119/130  9   0  " Paris"`.
fn row_line(
    app: &App,
    row: &RowRecord,
    view: Option<&SequenceView>,
    later: usize,
    (width, has_priorities): (usize, bool),
) -> Line<'static> {
    let theme = &app.theme;
    let (kind, role) = match row.kind {
        RowKind::Prefill => ("prefill", Role::Warn),
        RowKind::Decode => ("decode", Role::Text),
    };
    let computed = row.computed + row.tokens;
    let all = view.map_or(computed, |v| (v.prompt_tokens + v.generated_tokens).saturating_sub(later));
    let of = format!("{}/{}", format::count(computed as u64), format::count(all.max(computed) as u64));
    let mut numbers = format!("{:>4} {of:>11}", row.tokens);
    if width >= WIDE {
        numbers += &format!("{:>4}", view.map_or(0, |view| view.blocks.len()));
    }
    if has_priorities {
        numbers += &format!("{:>4}", view.map_or(0, |view| view.priority));
    }
    let left = width.saturating_sub(17 + format::width(&numbers));
    Line::from(vec![
        letter(app, row.seq),
        Span::styled(format::pad(&row.seq.to_string(), 5), theme.style(Role::Text)),
        Span::styled(format::pad(kind, 8), theme.style(role)),
        Span::styled(numbers, theme.style(Role::Muted)),
        Span::styled(format!("  {}", format::fit(&drew(app, row), left)), theme.style(Role::Text)),
    ])
}

fn drew(app: &App, row: &RowRecord) -> String {
    row.sampled.map_or(String::new(), |id| {
        let known = app.parsed.iter().rev().find(|t| t.seq == row.seq && t.id == id);
        known.map_or_else(|| format!("#{id}"), |t| format::quoted(&t.text))
    })
}

/// Where the engine was held after this step; the transcript has it in full.
fn broke(app: &App, step: &StepRecord, width: usize) -> Vec<Line<'static>> {
    let here = app.broke.iter().filter(|broke| broke.step == step.step);
    here.flat_map(|broke| {
        cut(said(app, format!("● breakpoint {}", broke.id), &broke.why, Role::Bad, width), 1)
    })
    .collect()
}

/// Whose, who, and the reason in words, over as many lines as it takes.
fn reason(app: &App, seq: SeqId, what: &str, why: &str, role: Role, width: usize) -> Vec<Line<'static>> {
    let mut lines = said(app, format!("{what} {seq}"), why, role, width.saturating_sub(2));
    for (i, line) in lines.iter_mut().enumerate() {
        let lead = if i == 0 { letter(app, seq) } else { Span::raw("  ") };
        line.spans.insert(0, lead);
    }
    lines
}

fn said(app: &App, who: String, why: &str, role: Role, width: usize) -> Vec<Line<'static>> {
    let line = Line::from(vec![
        Span::styled(who + ": ", app.theme.style(role)),
        Span::styled(crate::tui::sanitize::one_line(why), app.theme.style(Role::Muted)),
    ]);
    wrap(&line, width, 2)
}

/// Two cells: the letter that the bar and the map have too.
fn letter(app: &App, seq: SeqId) -> Span<'static> {
    let style = app.theme.sequence(App::hue(seq)).add_modifier(Modifier::BOLD);
    Span::styled(format!("{} ", App::letter(seq)), style)
}

/// At most `most` lines; where there were more, the last says so.
fn cut(mut lines: Vec<Line<'static>>, most: usize) -> Vec<Line<'static>> {
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            last.spans.push(Span::raw(" …"));
        }
    }
    lines
}

/// The chosen one: its whole first line, with a sign in front.
fn select(app: &App, lines: &mut [Line<'static>], width: usize) {
    let chosen = app.theme.style(Role::Selection);
    for (i, line) in lines.iter_mut().enumerate() {
        let fill = width.saturating_sub(line.width());
        line.spans.push(Span::raw(" ".repeat(fill)));
        line.spans.iter_mut().for_each(|span| span.style = span.style.patch(chosen));
        if i == 0
            && let Some(first) = line.spans.first_mut()
            && first.width() == 2
        {
            first.content = format!("{}›", first.content.trim_end()).into();
        }
    }
}

/// Each row's tokens of the step's budget, in its own colour: prefill `▓`, decode `█`, after the
/// sequence's letter. What is left of the budget is faint.
pub fn budget(app: &App, step: &StepRecord, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let numbers =
        format!(" {}/{}", format::count(step.tokens as u64), format::count(step.token_budget as u64));
    let cells = width.saturating_sub(numbers.len() + 7);
    let mut spans = vec![Span::styled("tokens ", theme.style(Role::Muted))];
    let mut used = 0;
    for (row, wide) in step.rows.iter().zip(shares(step, cells)) {
        let (shape, style) = match row.kind {
            RowKind::Prefill => ("▓", theme.sequence(App::hue(row.seq))),
            RowKind::Decode => ("█", theme.sequence(App::hue(row.seq))),
        };
        used += wide;
        if wide > 0 {
            spans.push(Span::styled(App::letter(row.seq).to_string(), style.add_modifier(Modifier::BOLD)));
            spans.push(Span::styled(shape.repeat(wide - 1), style));
        }
    }
    spans.push(Span::styled("·".repeat(cells.saturating_sub(used)), theme.style(Role::Faint)));
    let full = step.tokens >= step.token_budget;
    let role = if full { Role::Warn } else { Role::Text };
    spans.push(Span::styled(numbers, theme.style(role)));
    Line::from(spans)
}

/// Cells of each row. What is not nothing is seen, as long as there is a cell for each; then by its
/// part of the budget.
fn shares(step: &StepRecord, cells: usize) -> Vec<usize> {
    let least = usize::from(step.rows.len() <= cells);
    let spare = cells - least * step.rows.len();
    let budget = step.token_budget.max(step.tokens).saturating_sub(least * step.rows.len()).max(1);
    let (mut tokens, mut upto) = (0, 0);
    let mut part = |n: usize| {
        tokens += n;
        let end = tokens * spare / budget;
        let wide = end - upto;
        upto = end;
        wide
    };
    step.rows.iter().map(|row| least + part(row.tokens.saturating_sub(least))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::RequestId;

    fn step(tokens: &[usize], token_budget: usize) -> StepRecord {
        let row = |(i, tokens): (usize, &usize)| RowRecord {
            seq: SeqId { request: RequestId(i as u64), choice: 0 },
            kind: RowKind::Decode,
            tokens: *tokens,
            computed: 0,
            sampled: None,
        };
        let rows: Vec<RowRecord> = tokens.iter().enumerate().map(row).collect();
        StepRecord { tokens: tokens.iter().sum(), token_budget, rows, ..StepRecord::default() }
    }

    #[test]
    fn every_row_is_seen_and_the_bar_is_never_longer_than_its_budget() {
        assert_eq!(shares(&step(&[400, 1, 1], 512), 32), [23, 1, 1]);
        assert_eq!(shares(&step(&[1], 512), 32), [1]);
        assert_eq!(shares(&step(&[512], 512), 32), [32]);
        let many = shares(&step(&[8; 64], 512), 32);
        assert_eq!((many.len(), many.iter().sum::<usize>()), (64, 32));
        assert_eq!(shares(&step(&[9, 9], 3), 4), [2, 2]);
        assert_eq!(shares(&step(&[], 512), 0), Vec::<usize>::new());
    }
}
