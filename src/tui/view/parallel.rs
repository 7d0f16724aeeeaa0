//! The streams of one batch, side by side in the transcript.

use super::entry::CARET;
use super::paint;
use super::transcript::GUTTER;
use crate::protocol::SequenceState;
use crate::tui::app::{App, Focus};
use crate::tui::chat::{Answer, Turn};
use crate::tui::format;
use crate::tui::sanitize::one_line;
use crate::tui::theme::Role;
use crate::tui::transcript::{Document, Look};
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

/// Streams stand beside each other where each gets at least this.
const MIN_COLUMN: usize = 24;
/// Rows over a stream's text: its name, its rule, and the blank line above.
const HEAD: usize = 3;

/// The streams of a turn, in rows of columns; only the lines asked for are made.
pub struct Streams<'a> {
    rows: Vec<Vec<Stream<'a>>>,
    column: usize,
    /// What can be done with them.
    way: Option<Line<'static>>,
}

/// One of them: its head, then its texts, the first `skip` lines of which are not shown.
struct Stream<'a> {
    head: Vec<Line<'static>>,
    texts: Vec<(&'a Document, Style)>,
    look: Look<'a>,
    skip: usize,
    lines: usize,
    caret: Option<Style>,
}

impl<'a> Streams<'a> {
    /// As many columns as there is room for, the others under them. While they stream all of them are
    /// in view, each with its newest lines; in full when all have ended.
    pub fn new(app: &'a App, turn: &'a Turn, (width, height): (u16, u16), look: Look<'a>) -> Self {
        let width = usize::from(width.saturating_sub(GUTTER));
        let count = turn.answers.len().max(1);
        let most = (width / (MIN_COLUMN + 2)).clamp(1, count);
        // As many rows as that takes, each as full as the others.
        let rows = count.div_ceil(most);
        let columns = count.div_ceil(rows);
        let column = (width / columns).saturating_sub(2).max(1);
        let live = turn.answers.iter().any(|a| a.outcome.is_none());
        let room = (usize::from(height).saturating_sub(2) / rows).saturating_sub(HEAD).max(2);
        let limit = if live { room } else { usize::MAX };
        let look = look.at(column.saturating_sub(1).max(1) as u16);
        let numbered: Vec<(usize, &Answer)> = (1..).zip(&turn.answers).collect();
        let row = |answers: &[(usize, &'a Answer)]| {
            answers.iter().map(|(n, answer)| stream(app, answer, *n, look, (column, limit))).collect()
        };
        let way = format!("{}/take N goes on from one of them", " ".repeat(GUTTER.into()));
        let way = (!live).then(|| Line::styled(way, app.theme.style(Role::Muted)));
        Self { rows: numbered.chunks(columns).map(row).collect(), column, way }
    }

    pub fn height(&self) -> usize {
        let rows: usize = self.rows.iter().map(|row| tallest(row)).sum();
        rows + self.rows.len().saturating_sub(1) + if self.way.is_some() { 2 } else { 0 }
    }

    pub fn visit(&self, (from, to): (usize, usize), mut show: impl FnMut(&Line<'static>)) {
        let mut at = 0;
        for (nth, row) in self.rows.iter().enumerate() {
            let gap = usize::from(nth > 0);
            let height = gap + tallest(row);
            let (first, end) = (from.saturating_sub(at), to.saturating_sub(at).min(height));
            if first < end && first < gap {
                show(&Line::default());
            }
            let (first, end) = (first.saturating_sub(gap), end.saturating_sub(gap));
            if first < end {
                self.beside(row, (first, end)).iter().for_each(&mut show);
            }
            at += height;
        }
        let last = [Line::default(), self.way.clone().unwrap_or_default()];
        let last =
            last.iter().enumerate().filter(|(i, _)| self.way.is_some() && (from..to).contains(&(at + i)));
        last.for_each(|(_, line)| show(line));
    }

    /// Where the lines `from..to` of each answer lie, from the first of these: column, line and size.
    pub fn places(&self, (from, to): (usize, usize)) -> Vec<Rect> {
        let mut all = Vec::new();
        let mut top = 0;
        for row in &self.rows {
            let (first, end) = (top.max(from), (top + tallest(row)).min(to));
            all.extend((0..row.len()).map(|nth| Rect {
                x: GUTTER + (nth * (self.column + 2)) as u16,
                y: first.saturating_sub(from) as u16,
                width: self.column as u16,
                height: end.saturating_sub(first) as u16,
            }));
            top += tallest(row) + 1;
        }
        all
    }

    /// The same lines of each stream in a row, one after the other.
    fn beside(&self, row: &[Stream], (from, to): (usize, usize)) -> Vec<Line<'static>> {
        let mut lines = vec![vec![Span::raw(" ".repeat(GUTTER.into()))]; to - from];
        for (nth, stream) in row.iter().enumerate() {
            let mut own = stream.window((from, to)).into_iter();
            for line in &mut lines {
                let part = own.next().unwrap_or_default();
                let fill = (self.column + 2).saturating_sub(part.width());
                line.extend(paint::spans(part));
                if nth + 1 < row.len() {
                    line.push(Span::raw(" ".repeat(fill)));
                }
            }
        }
        lines.into_iter().map(Line::from).collect()
    }
}

impl Stream<'_> {
    fn height(&self) -> usize {
        self.head.len() + self.lines
    }

    /// Its lines `from..to`, as many as there are.
    fn window(&self, (from, to): (usize, usize)) -> Vec<Line<'static>> {
        let mut lines: Vec<Line> = self.head.iter().take(to).skip(from).cloned().collect();
        let head = self.head.len();
        let (first, end) = (from.saturating_sub(head) + self.skip, to.saturating_sub(head) + self.skip);
        let mut at = 0;
        for (document, style) in &self.texts {
            let height = document.height(self.look);
            let (a, b) = (first.saturating_sub(at), end.saturating_sub(at).min(height));
            if a < b {
                document.visit((a, b), self.look, |line| lines.push(line.clone().patch_style(*style)));
            }
            at += height;
        }
        if let Some(style) = self.caret.filter(|_| (from..to).contains(&(self.height() - 1)))
            && let Some(last) = lines.last_mut()
        {
            last.spans.push(Span::styled(CARET, style));
        }
        lines
    }
}

fn tallest(row: &[Stream]) -> usize {
    row.iter().map(Stream::height).max().unwrap_or(0)
}

/// Name, numbers and the newest `limit` lines of one stream, which `/take` calls by `number`.
fn stream<'a>(
    app: &'a App,
    answer: &'a Answer,
    number: usize,
    look: Look<'a>,
    (width, limit): (usize, usize),
) -> Stream<'a> {
    let hue = app.theme.sequence(App::hue(answer.seq));
    let mut facts = format!(" {} tok", format::count(answer.tokens as u64));
    let mut rule = "─".repeat(width);
    let view = app.snapshot.sequences.iter().find(|s| s.seq == answer.seq);
    let state = view.filter(|_| answer.outcome.is_none()).and_then(|s| match s.state {
        SequenceState::Running => None,
        SequenceState::Waiting => Some("waits"),
        SequenceState::Loading => Some("loads"),
        SequenceState::Compiling => Some("compiles"),
        SequenceState::Preempted => Some("preempted"),
    });
    if let Some(state) = state {
        facts += &format!(" · {state}");
    }
    if let Some(outcome) = &answer.outcome {
        facts += &format!(" · {}", outcome.reason.name());
        // In full wherever it fits: half a seed cannot be set again.
        rule = format::fit(&format!("─ seed {} {rule}", outcome.seed), width).replace('…', "─");
    }
    let is_selected = app.focus == Focus::Transcript
        && app
            .chat
            .selected
            .is_some_and(|spot| app.chat.answer_at(spot).is_some_and(|a| a.seq == answer.seq));
    let (sign, name) = if is_selected { ("▸", hue.add_modifier(Modifier::REVERSED)) } else { ("■", hue) };
    let head = Line::from(vec![
        Span::styled(format!("{number}) {sign} {}", answer.seq), name),
        Span::styled(facts, app.theme.style(Role::Muted)),
    ]);
    let mut head = vec![paint::fit_line(head, width)];
    let user = app.theme.style(Role::User);
    head.extend(answer.title.iter().map(|t| Line::styled(format::fit(&one_line(t), width), user)));
    head.push(Line::styled(rule, hue));
    let texts = texts(app, answer);
    let all: usize = texts.iter().map(|(document, _)| document.height(look)).sum();
    // An answer that said nothing yet has a line for its caret.
    let skip = all.saturating_sub(limit);
    let caret = answer.outcome.is_none().then_some(hue);
    if all == 0 {
        head.push(Line::default());
    }
    Stream { head, texts, look, skip, lines: all - skip, caret }
}

/// Its thoughts, while there is nothing else or they are asked for, and what it says.
fn texts<'a>(app: &App, answer: &'a Answer) -> Vec<(&'a Document, Style)> {
    let shows_thoughts = answer.is_open(app.chat.thoughts_open) || answer.body.is_empty();
    let thoughts = shows_thoughts.then(|| (&answer.thoughts, app.theme.style(Role::Thought)));
    thoughts.into_iter().chain([(&answer.body, Style::new())]).collect()
}
