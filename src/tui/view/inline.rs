//! The picture of the inline mode: a few live lines, the question, the input, one line of status. And
//! what of the transcript is finished, to be printed above them once.

use super::{calls, chrome, header, input, paint, settle, transcript};
use crate::protocol::SeqId;
use crate::tui::app::App;
use crate::tui::chat::{Answer, Entry};
use crate::tui::completion;
use crate::tui::theme::Role;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::text::Line;

/// Rows that an overlay takes at most.
const OVERLAY: u16 = 26;
/// Rows of the live part at most, where the terminal has them.
const LIVE: u16 = 14;
/// Rows that the completion takes, and those it needs above it.
const COMPLETION: usize = 8;

/// What of the chat in view has been printed.
#[derive(Default)]
pub struct Above {
    /// Whole entries.
    entries: Vec<Stamp>,
    /// Of the one after them.
    begun: Option<Begun>,
}

/// An entry of which a part is printed: all that comes before its answer's text, and so many closed
/// pieces of that.
#[derive(Clone)]
struct Begun {
    stamp: Stamp,
    pieces: usize,
}

/// Tells an entry from another one in its place.
#[derive(Clone, PartialEq)]
enum Stamp {
    Note,
    Turn { length: usize, answers: usize, last: Option<SeqId> },
}

impl Stamp {
    fn of(entry: &Entry) -> Self {
        match entry {
            Entry::Note(_) => Stamp::Note,
            Entry::Turn(turn) => Stamp::Turn {
                length: turn.text.len(),
                answers: turn.answers.len(),
                last: turn.answers.last().map(|answer| answer.seq),
            },
        }
    }
}

impl Above {
    /// Forgets what the chat does not have any more; true when that is something.
    fn match_with(&mut self, entries: &[Entry]) -> bool {
        let same = |(stamp, entry): &(&Stamp, &Entry)| **stamp == Stamp::of(entry);
        let kept = self.entries.iter().zip(entries).take_while(same).count();
        let next = entries.get(kept).map(Stamp::of);
        let lost = kept < self.entries.len();
        self.entries.truncate(kept);
        let other = self.begun.as_ref().is_some_and(|begun| Some(&begun.stamp) != next.as_ref());
        if lost || other {
            self.begun = None;
        }
        lost || other
    }
}

/// The lines that have become final since the last time. They are counted as printed.
pub fn finished(app: &App, above: &mut Above, size: (u16, u16)) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if above.match_with(&app.chat.entries) {
        let rule = "── from here on: another version of the chat ──";
        lines.extend([Line::styled(rule, app.theme.style(Role::Muted)), Line::default()]);
    }
    while let Some(entry) = app.chat.entries.get(above.entries.len()) {
        let stamp = Stamp::of(entry);
        let is_over = is_over(entry);
        let until = if is_over { usize::MAX } else { closed(entry) };
        let begins = is_over || until > 0;
        let pieces = above.begun.as_ref().map_or(0, |begun| begun.pieces);
        if begins {
            lines.extend(part(app, entry, above.begun.is_none(), (pieces, until), size));
        }
        if !is_over {
            if begins {
                above.begun = Some(Begun { stamp, pieces: until.max(pieces) });
            }
            break;
        }
        lines.push(Line::default());
        above.begun = None;
        above.entries.push(stamp);
    }
    lines
}

/// All that is left, finished or not, but for messages that were never sent.
pub fn rest(app: &App, above: &mut Above, size: (u16, u16)) -> Vec<Line<'static>> {
    let mut lines = finished(app, above, size);
    let sent = |entry: &&Entry| !matches!(entry, Entry::Turn(turn) if turn.queued);
    for entry in app.chat.entries[above.entries.len()..].iter().filter(sent) {
        let begun = above.begun.take();
        let from = begun.as_ref().map_or(0, |begun| begun.pieces);
        lines.extend(part(app, entry, begun.is_none(), (from, usize::MAX), size));
        lines.push(Line::default());
        above.entries.push(Stamp::of(entry));
    }
    lines
}

/// Nothing of it will change.
fn is_over(entry: &Entry) -> bool {
    match entry {
        Entry::Note(_) => true,
        Entry::Turn(turn) => {
            let ended = turn.answers.iter().all(|answer| answer.outcome.is_some());
            !turn.queued && ended && (!turn.answers.is_empty() || turn.held)
        }
    }
}

/// Pieces of its answer's text that will not change.
fn closed(entry: &Entry) -> usize {
    only_answer(entry).map_or(0, |answer| answer.body.closed())
}

/// Where an answer streams line by line, and not several beside each other.
fn only_answer(entry: &Entry) -> Option<&Answer> {
    match entry {
        Entry::Turn(turn) if !turn.side && !turn.queued && turn.answers.len() == 1 => turn.answers.first(),
        _ => None,
    }
}

/// An entry's lines: with or without its beginning, these pieces of its answer, and its end where
/// they are all.
fn part(
    app: &App,
    entry: &Entry,
    beginning: bool,
    (from, to): (usize, usize),
    size: (u16, u16),
) -> Vec<Line<'static>> {
    let body = only_answer(entry).map(|answer| &answer.body);
    transcript::part(app, entry, body, beginning, (from, to), size)
}

/// What is still in motion, as much of its end as there is room for.
fn live(app: &App, above: &Above, size: (u16, u16), room: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut begun = above.begun.as_ref();
    for entry in &app.chat.entries[above.entries.len().min(app.chat.entries.len())..] {
        let begun = begun.take();
        let from = begun.map_or(0, |begun| begun.pieces);
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(part(app, entry, begun.is_none(), (from, usize::MAX), size));
    }
    lines.extend(transcript::card_lines(app, size.0).into_iter().flatten());
    let start = lines.iter().position(|line| line.width() > 0).unwrap_or(lines.len());
    let start = start.max(lines.len().saturating_sub(room));
    lines.split_off(start)
}

/// Rows of the whole.
pub fn rows(app: &App, above: &Above, size: (u16, u16)) -> u16 {
    if app.overlay.is_some() {
        return size.1.min(OVERLAY);
    }
    let [live, question, input, status] = heights(app, above, size);
    (live + question + input + status).clamp(1, size.1)
}

/// Of the live part, the question, the input with its rule, and the status.
fn heights(app: &App, above: &Above, size: (u16, u16)) -> [u16; 4] {
    let (width, height) = size;
    let screen = Rect::new(0, 0, width, height);
    let status = u16::from(height > 2);
    let input = input::rows(app, screen) + u16::from(height > 3);
    let question = calls::rows(app, screen).min(height.saturating_sub(input + status));
    let left = height.saturating_sub(input + status + question);
    let room = left.min(LIVE).min((height / 2).max(1));
    let live = live(app, above, size, room.into()).len() as u16;
    let offered = completion::offered(app).len().min(COMPLETION);
    let completion = if offered > 0 { (offered as u16 + 2).max(4) } else { 0 };
    // A gap between what is above and the input's rule.
    let gap = u16::from(live > 0 && left > live);
    [(live + gap).max(completion).min(left), question, input, status]
}

/// Draws the live part and all under it, or what lies over that, and says where the cursor belongs.
pub fn draw(app: &App, above: &Above, buf: &mut Buffer) -> Option<Position> {
    app.hits.clear();
    let cursor = match app.overlay {
        Some(_) => over(app, buf),
        None => under(app, above, buf),
    };
    app.theme.paint(app.options.background, buf);
    settle::settle(buf);
    if app.options.ascii {
        super::ascii::replace(buf);
    }
    cursor.filter(|_| app.tools.question.is_none())
}

fn over(app: &App, buf: &mut Buffer) -> Option<Position> {
    let area = buf.area;
    super::overlay(app, area, buf);
    status(app, Rect { y: area.height.saturating_sub(1), height: area.height.min(1), ..area }, buf);
    None
}

fn under(app: &App, above: &Above, buf: &mut Buffer) -> Option<Position> {
    let heights = heights(app, above, app.size);
    let [text, sheet, bottom, last] = Layout::vertical(heights.map(Constraint::Length)).areas(buf.area);
    paint::lines(&live(app, above, app.size, text.height.into()), text, buf);
    let inside = if bottom.height > 1 { chrome::input_frame(app, bottom, buf) } else { bottom };
    let cursor = input::draw(app, inside, buf);
    calls::question(app, sheet, buf);
    input::completion(app, bottom, buf);
    status(app, last, buf);
    cursor
}

/// The model and its figures; what was just done, or what the keys do, where that matters more.
fn status(app: &App, area: Rect, buf: &mut Buffer) {
    let hints = app.overlay.is_some() || app.tools.question.is_some() || app.flash.is_some();
    if hints || !completion::offered(app).is_empty() {
        return chrome::footer(app, area, buf);
    }
    header::draw(app, area, buf);
}

/// Lines as cells, `width` of them in a row.
pub fn page(app: &App, lines: &[Line<'static>], width: u16) -> Buffer {
    let mut page = Buffer::empty(Rect::new(0, 0, width, lines.len() as u16));
    paint::lines(lines, page.area, &mut page);
    app.theme.paint(app.options.background, &mut page);
    settle::settle(&mut page);
    if app.options.ascii {
        super::ascii::replace(&mut page);
    }
    page
}
