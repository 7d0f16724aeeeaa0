//! The conversation: only what is in view is rendered and drawn; of the rest its lines are counted,
//! and those that were never counted at this width are estimated.

use super::entry::{self, CARET, Content, Frame, Section};
use super::{card, find, paint, tokens};
use crate::tui::app::{App, Focus};
use crate::tui::chat::Entry;
use crate::tui::format;
use crate::tui::hits::Target;
use crate::tui::keymap;
use crate::tui::place::{Key, Measure, Measured, Part, Place, Scroll, Shown, Sight, Spot};
use crate::tui::theme::Role;
use crate::tui::transcript::{Document, Look};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

/// Text is easiest to read in lines no longer than this.
pub const MEASURE: u16 = 100;
/// A gutter on the left, and room for the caret on the right.
pub const GUTTER: u16 = 2;
/// Entries so far from the view keep no rendered lines.
const NEAR: usize = 32;

/// Under a rule that says how far up the view is.
pub fn titled(app: &App, area: Rect, buf: &mut Buffer) {
    let focused = app.focus == Focus::Transcript;
    let style = app.theme.style(if focused { Role::Focus } else { Role::Border });
    let name = app.theme.style(if focused { Role::Focus } else { Role::Muted });
    let [_, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    draw(app, rest, buf);
    paint::titled(Line::styled(" chat ", name), position(app), area, style, buf);
}

pub fn draw(app: &App, outer: Rect, buf: &mut Buffer) {
    let area = Rect { x: outer.x + 1, width: outer.width.saturating_sub(2), ..outer };
    if area.is_empty() {
        return;
    }
    app.hits.note(outer, Target::Transcript);
    let area = find::above(app, area);
    let width = area.width.min(MEASURE).saturating_sub(GUTTER + 1).max(1);
    let look = Look::new(width, &app.theme);
    let flow = Flow::new(Frame { app, look, area: (area.width, area.height) });
    let top = flow.top(area.height.into());
    flow.paint(top, area, buf);
    flow.forget_far(app.shown.get().top.entry, top.entry);
    flow.note_shown(top, area.height.into());
    scrollbar(app, Rect { x: outer.right() - 1, width: 1, ..area }, buf);
    tokens::popup(app, area, buf);
    find::field(app, outer, buf);
}

/// An entry's lines: those before `body`, where they are wanted, its pieces `from..to`, and those after
/// it, where `to` is beyond the last. Without a body all of it is before it.
pub fn part(
    app: &App,
    entry: &Entry,
    body: Option<&Document>,
    beginning: bool,
    (from, to): (usize, usize),
    (width, height): (u16, u16),
) -> Vec<Line<'static>> {
    // The last column stays free: a full row would be broken by a terminal that gets narrower.
    let width = width.saturating_sub(1).clamp(1, MEASURE);
    let look = Look::new(width.saturating_sub(GUTTER + 1).max(1), &app.theme);
    let frame = Frame { app, look, area: (width, height) };
    let mut lines = Vec::new();
    let mut wanted = beginning;
    for section in entry::sections(frame, entry) {
        match &section.content {
            Content::Document { document, first, style, caret, .. }
                if body.is_some_and(|body| std::ptr::eq(*document, body)) =>
            {
                document.visit_pieces((from, to), look, |line| {
                    lines.push(entry::in_gutter(line, first, *style));
                });
                wanted = to == usize::MAX;
                if let Some(last) = lines.last_mut().filter(|_| *caret && wanted) {
                    last.spans.push(Span::styled(CARET, app.theme.style(Role::Accent)));
                }
            }
            _ if wanted => {
                let height = section.height(frame);
                section.visit((0, height), height, frame, |line| lines.push(line.clone()));
            }
            _ => {}
        }
    }
    lines
}

/// What stands at the end while there is no model.
pub fn card_lines(app: &App, width: u16) -> Option<Vec<Line<'static>>> {
    card::lines(app, width.saturating_sub(1))
}

/// How far up the view is, if it does not follow the end.
fn position(app: &App) -> Line<'static> {
    let shown = app.shown.get();
    if app.chat.scroll.is_none() || shown.below == 0 {
        return Line::default();
    }
    let about = if shown.is_estimate { "about " } else { "" };
    let follows = app.keymap.hint(keymap::Place::Anywhere, "scroll_bottom", "follows");
    let follows = follows.map_or(String::new(), |hint| format!("· {hint} "));
    let text = format!(" ↓ {about}{} more {follows}", format::count(shown.below as u64));
    Line::styled(text, app.theme.style(Role::Warn))
}

/// A thumb in the last column, where there is more than is in view.
fn scrollbar(app: &App, column: Rect, buf: &mut Buffer) {
    let Shown { view, above, below, .. } = app.shown.get();
    let (all, rows) = (above + view + below, usize::from(column.height));
    if above + below == 0 || rows < 3 {
        return;
    }
    let thumb = (view * rows / all).max(1);
    let room = rows - thumb;
    let at = (above * room).div_ceil(above + below).min(room);
    let role = if app.focus == Focus::Transcript { Role::Focus } else { Role::Border };
    for (row, place) in column.rows().enumerate().filter(|(row, _)| (at..at + thumb).contains(row)) {
        debug_assert!(row < rows);
        buf.set_string(place.x, place.y, "┃", app.theme.style(role));
    }
    app.hits.note(column, Target::Scrollbar);
}

/// Every entry, and what lies under the last, one after the other, a blank line between two.
struct Flow<'a> {
    frame: Frame<'a>,
    entries: &'a [Entry],
    card: Option<Vec<Line<'static>>>,
    key: Key,
    /// The entry whose lines change with the keys pressed in it.
    read: Option<usize>,
}

impl<'a> Flow<'a> {
    fn new(frame: Frame<'a>) -> Self {
        let app = frame.app;
        let read = app.reading.as_ref().map(|read| read.seq).or(app.chat.compared.map(|(_, b)| b));
        Self {
            frame,
            entries: &app.chat.entries,
            card: card::lines(app, frame.area.0),
            key: Key(frame.look.key).with(usize::from(app.chat.thoughts_open)).with(frame.area.0.into()),
            read: read.and_then(|seq| app.chat.spot_of(seq)).map(|spot| spot.entry),
        }
    }

    fn len(&self) -> usize {
        self.entries.len() + usize::from(self.card.is_some())
    }

    /// The blank line over an entry.
    fn gap(entry: usize) -> usize {
        usize::from(entry > 0)
    }

    fn sections(&self, entry: usize) -> Vec<Section<'a>> {
        self.entries.get(entry).map_or_else(Vec::new, |entry| entry::sections(self.frame, entry))
    }

    /// Everything that its lines depend on; none while they change by themselves.
    fn key(&self, entry: usize) -> Option<(&'a Measure, Key)> {
        match self.entries.get(entry)? {
            Entry::Note(note) => Some((&note.measured, self.key.with(note.shown.size()))),
            Entry::Turn(_) if self.read == Some(entry) => None,
            Entry::Turn(turn) => Some((&turn.measured, turn.shape(self.key)?)),
        }
    }

    /// Its lines, with the blank one above.
    fn height(&self, entry: usize) -> usize {
        let key = self.key(entry);
        if let Some((kept, key)) = key
            && kept.get().key == key.0
        {
            return kept.get().lines;
        }
        let own: usize = match self.entries.get(entry) {
            Some(_) => self.sections(entry).iter().map(|section| section.height(self.frame)).sum(),
            None => self.card.as_ref().map_or(0, Vec::len),
        };
        let lines = own + Self::gap(entry);
        if let Some((kept, key)) = key {
            kept.set(Measured { key: key.0, width: self.frame.look.width, lines });
        }
        lines
    }

    /// Its lines as they were last counted, at another width perhaps, or what its text makes likely;
    /// and whether that is what they are.
    fn likely(&self, entry: usize) -> (usize, bool) {
        let Some((kept, key)) = self.key(entry) else { return (self.height(entry), true) };
        let Measured { key: counted, width, lines } = kept.get();
        let wide = usize::from(self.frame.look.width);
        if counted == key.0 {
            (lines, true)
        } else if lines > 0 {
            ((lines * usize::from(width)).div_ceil(wide), false)
        } else {
            (self.entries[entry].bytes() / wide + 3, false)
        }
    }

    /// The first line in view when the last one is at the bottom.
    fn end(&self, view: usize) -> Place {
        let mut left = view;
        for entry in (0..self.len()).rev() {
            let lines = self.height(entry);
            if lines >= left {
                return self.place(entry, (lines - left) as isize);
            }
            left -= lines;
        }
        Place::default()
    }

    fn place(&self, entry: usize, line: isize) -> Place {
        Place { entry, line, of: self.height(entry), width: self.frame.look.width }
    }

    /// The line at the top of the view.
    fn top(&self, view: usize) -> Place {
        let end = self.end(view);
        let top = match self.frame.app.chat.scroll {
            None => end,
            Some(Scroll::At(place)) => self.settled(place, view),
            Some(Scroll::Show(from, sight)) => self.showing(self.settled(from, view), sight, view),
        };
        if (top.entry, top.line) < (end.entry, end.line) { top } else { end }
    }

    /// A place that lies within its entry, at this width.
    fn settled(&self, place: Place, view: usize) -> Place {
        let mut entry = place.entry.min(self.len().saturating_sub(1));
        let mut line = place.line;
        if place.width != self.frame.look.width && place.of > 0 && line > 0 {
            line = line * self.height(entry) as isize / place.of as isize;
        }
        while line < 0 && entry > 0 {
            entry -= 1;
            line += self.height(entry) as isize;
        }
        while entry + 1 < self.len() {
            // What is jumped over need not be counted.
            let is_far = line > 4 * view as isize;
            let lines = if is_far { self.likely(entry).0 } else { self.height(entry) } as isize;
            if line < lines {
                break;
            }
            line -= lines;
            entry += 1;
        }
        self.place(entry, line.max(0))
    }

    /// The nearest top from which it is in view.
    fn showing(&self, from: Place, sight: Sight, view: usize) -> Place {
        let Some((entry, (first, last))) = self.lines_of(sight) else { return from };
        let first_line = self.place(entry, first as isize);
        if matches!(sight, Sight::Top(_)) || (entry, first as isize) < (from.entry, from.line) {
            return first_line;
        }
        // The last line at the bottom, but never the first above the top.
        let shown = (last - first).min(view.saturating_sub(1));
        let lowest = self.settled(self.place(entry, (first + shown) as isize + 1 - view as isize), view);
        if (lowest.entry, lowest.line) > (from.entry, from.line) { lowest } else { from }
    }

    /// First and last line of something, and the entry that they are in.
    fn lines_of(&self, sight: Sight) -> Option<(usize, (usize, usize))> {
        let app = self.frame.app;
        let (spot, row) = match sight {
            Sight::Message(spot) | Sight::Top(spot) => (spot, None),
            Sight::Token => {
                let spot = app.chat.spot_of(app.reading.as_ref()?.seq)?;
                (spot, Some(tokens::row(self.frame, app.chat.answer_at(spot)?)))
            }
            Sight::Match => return find::line(self.frame, |entry| self.sections(entry)),
        };
        let mut at = Self::gap(spot.entry);
        let mut lines: Option<(usize, usize)> = None;
        for section in self.sections(spot.entry) {
            let height = section.height(self.frame);
            if let (Some(row), entry::Content::Tokens(_)) = (row, &section.content) {
                return Some((spot.entry, (at + row, at + row)));
            }
            // What stands side by side has one section for all.
            let is_it =
                section.part.map_or(matches!(spot.part, Part::Answer(_)) && height > 1, |p| p == spot.part);
            if is_it && height > 0 {
                lines = Some((lines.map_or(at, |(first, _)| first), at + height - 1));
            }
            at += height;
        }
        Some((spot.entry, lines?))
    }

    fn paint(&self, top: Place, area: Rect, buf: &mut Buffer) {
        let mut y = area.y;
        let mut skip = top.line.max(0) as usize;
        let mut rows = self.frame.app.rows.borrow_mut();
        rows.clear();
        for entry in top.entry..self.len() {
            if y >= area.bottom() {
                break;
            }
            let gap = Self::gap(entry);
            y += (gap.saturating_sub(skip)) as u16;
            rows.extend((skip.min(gap)..gap).map(|line| (entry, line)));
            skip = skip.saturating_sub(gap);
            if let (None, Some(card)) = (self.entries.get(entry), &self.card) {
                let below = Rect { y, height: area.bottom() - y, ..area };
                rows.extend((0..usize::from(below.height)).map(|line| (entry, gap + line)));
                paint::lines(&card[skip.min(card.len())..], below, buf);
                return;
            }
            let mut line = gap;
            for section in self.sections(entry) {
                let height = section.height(self.frame);
                let to = height.min(skip + usize::from(area.bottom().saturating_sub(y)));
                if skip < to {
                    let place = (entry, line + skip);
                    rows.extend((line + skip..line + to).map(|line| (entry, line)));
                    y = self.paint_section(&section, place, (skip, to, height), Rect { y, ..area }, buf);
                }
                skip = skip.saturating_sub(height);
                line += height;
            }
        }
    }

    /// Draws a section's lines and says where the next begin.
    fn paint_section(
        &self,
        section: &Section,
        (entry, line): (usize, usize),
        (from, to, height): (usize, usize, usize),
        area: Rect,
        buf: &mut Buffer,
    ) -> u16 {
        let app = self.frame.app;
        let mut y = area.y;
        let clip = Rect { y: buf.area.y, height: buf.area.height, ..area };
        section.visit((from, to), height, self.frame, |content| {
            paint::line(area.x, y, content, clip, buf);
            y += 1;
        });
        let rows = Rect { height: y - area.y, ..area };
        if let Some(part) = section.part {
            let spot = Spot { entry, part };
            app.hits.note(rows, Target::Message(spot));
            if app.focus == Focus::Transcript && app.chat.selected == Some(spot) {
                (rows.top()..rows.bottom()).for_each(|y| {
                    buf.set_string(area.x - 1, y, "▌", app.theme.style(Role::Focus));
                });
            }
        }
        if let entry::Content::Streams(streams) = &section.content {
            for (nth, place) in streams.places((from, to)).into_iter().enumerate() {
                let place = Rect { x: rows.x + place.x, y: rows.y + place.y, ..place }.intersection(rows);
                app.hits.note(place, Target::Message(Spot { entry, part: Part::Answer(nth) }));
            }
        }
        if let entry::Content::Tokens(answer) = &section.content {
            tokens::note_hits(self.frame, answer, from, rows);
        }
        let is_text = matches!(section.content, Content::Document { .. });
        find::highlight(app, (entry, line), rows, is_text, buf);
        y
    }

    fn note_shown(&self, top: Place, view: usize) {
        let above: usize = (0..top.entry).map(|entry| self.likely(entry).0).sum();
        // So far under the view lines are counted, that scrolling is true to the line.
        let ahead = 3 * view;
        let (mut lines, mut is_estimate) = (self.height(top.entry), false);
        for entry in top.entry + 1..self.len() {
            let (likely, is_exact) =
                if lines < ahead { (self.height(entry), true) } else { self.likely(entry) };
            lines += likely;
            is_estimate |= !is_exact;
        }
        let line = top.line.max(0) as usize;
        let below = lines.saturating_sub(line + view);
        self.frame.app.shown.set(Shown { top, view, above: above + line, below, is_estimate });
    }

    /// What was in view in the frame before and is far now lets its rendered lines go.
    fn forget_far(&self, before: usize, top: usize) {
        let near = top.saturating_sub(NEAR)..top + 2 * NEAR;
        let was_near = before.saturating_sub(NEAR)..(before + 2 * NEAR).min(self.entries.len());
        was_near.filter(|entry| !near.contains(entry)).for_each(|entry| {
            self.entries.get(entry).into_iter().for_each(Entry::forget_lines);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::*;
    use crate::tui::app::Message;
    use crate::tui::port::ScreenOptions;
    use crate::tui::theme::{Depth, Theme};
    use crate::tui::transcript::RENDERED;
    use crate::tui::update;
    use crossterm::event::KeyCode;
    use std::time::Duration;

    /// A screen after so many turns, and how many blocks were rendered for what `then` does with it.
    fn rendered(turns: u64, then: impl Fn(&mut App)) -> usize {
        let theme = Theme::load("dark", None, Depth::Sixteen).expect("built in");
        let mut app = App::new(ScreenOptions::default(), theme, vec![]);
        tell(&mut app, Message::Resize(120, 40));
        for nth in 0..turns {
            let seq = SeqId { request: RequestId(nth), choice: 0 };
            let prompt = Prompt::Text(format!("question {nth}"));
            let request = Request::new(seq.request, prompt, SamplingParams::default());
            let answer = "A paragraph.\n\n- a list\n\n```\ncode\n```\nAnother **paragraph**.\n\nThe end.";
            let outcome = Outcome {
                reason: FinishReason::Stop,
                usage: Usage::default(),
                timings: Timings::default(),
                seed: 0,
                params: SamplingParams::default(),
                beam: None,
            };
            let events = vec![
                Event::Sent(Box::new(Command::Submit(Box::new(request)))),
                Event::Delta { seq, part: crate::protocol::Part::Text(answer.into()) },
                Event::Finished { seq, outcome: Box::new(outcome) },
            ];
            tell(&mut app, Message::Engine(events));
        }
        frame(&app);
        RENDERED.with(|count| count.set(0));
        then(&mut app);
        RENDERED.with(std::cell::Cell::get)
    }

    fn tell(app: &mut App, message: Message) {
        update(app, message, Duration::ZERO);
    }

    fn frame(app: &App) {
        let (width, height) = app.size;
        crate::tui::draw(app, &mut Buffer::empty(Rect::new(0, 0, width, height)));
    }

    fn page_up(app: &mut App) {
        tell(app, Message::Key(KeyCode::PageUp.into()));
        frame(app);
    }

    #[test]
    fn a_frame_renders_what_is_in_view_however_long_the_history_is() {
        let frames = |app: &mut App| (0..10).for_each(|_| frame(app));
        assert_eq!((rendered(50, frames), rendered(1_000, frames)), (0, 0));
        let scroll = |app: &mut App| (0..10).for_each(|_| page_up(app));
        let (short, long) = (rendered(200, scroll), rendered(1_000, scroll));
        assert_eq!(short, long);
        assert!(long < 600, "{long} blocks for ten pages");
    }

    #[test]
    fn a_resize_and_a_jump_render_what_comes_into_view() {
        let resize = |app: &mut App| {
            tell(app, Message::Resize(90, 40));
            frame(app);
        };
        assert_eq!(rendered(200, resize), rendered(1_000, resize));
        let jump = |app: &mut App| {
            app.chat.scroll = Some(Scroll::At(Place::default()));
            frame(app);
        };
        let (short, long) = (rendered(200, jump), rendered(1_000, jump));
        assert_eq!(short, long);
        assert!(long < 200, "{long} blocks for one view");
    }

    #[test]
    fn what_is_far_from_the_view_keeps_no_lines() {
        rendered(400, |app| {
            (0..300).for_each(|_| page_up(app));
            let held = |entry: &Entry| entry.holds_lines();
            let all = app.chat.entries.iter().filter(|entry| held(entry)).count();
            assert!(all < 4 * NEAR, "{all} entries hold lines");
        });
    }
}
