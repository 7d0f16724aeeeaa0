//! A text that grows at its end and is never parsed twice.
//!
//! Whole blocks (a paragraph, a list, a fenced code block) are closed as soon as the text shows
//! that nothing can be added to them; each is rendered once per width. Only the open block at the
//! end is rendered again when it grows, and it is closed early when it becomes long, so the cost
//! of a new piece does not depend on how much came before (BUGLOG X31).

use super::code::Piece;
use super::fence::{Fence, ShownCode, code_head};
use super::{markdown, wrap};
use crate::tui::format;
use crate::tui::sanitize::{self, MARK};
use crate::tui::theme::{Role, Theme};
use ratatui::text::{Line, Span};
use std::cell::{Cell, Ref, RefCell};

/// A text block longer than this is closed at the next line break, at twice this at the next space.
const LONG_BLOCK: usize = 4096;
/// Numbers of marks are written as one private-use character each.
const MARK_BASE: u32 = 0xE100;

/// Markdown, or plain text, as it arrives.
#[derive(Default)]
pub struct Document {
    plain: bool,
    /// Plain lines go on under their last column: tables in notes.
    hanging: bool,
    blocks: Vec<Block>,
    open: Open,
    /// The open block's text. Of open code: the line that is not complete yet.
    tail: String,
    /// Bytes of `tail` already looked at, all whole lines.
    scanned: usize,
    after_blank: bool,
    /// Notes set into the text where they happened.
    marks: Vec<String>,
    tail_lines: RefCell<Option<Rendered>>,
    /// Width, how many blocks were counted, and their lines.
    closed_height: Cell<(u16, usize, usize)>,
}

struct Rendered {
    width: u16,
    /// Whose colours they have.
    theme: u32,
    lines: Vec<Line<'static>>,
}

struct Block {
    content: Content,
    lines: RefCell<Option<Rendered>>,
}

enum Content {
    Text(String),
    Code { language: String, lines: Vec<Vec<Piece>> },
}

#[derive(Default)]
enum Open {
    #[default]
    Text,
    Code(Box<Fence>),
}

impl Document {
    /// Text that is not markdown: a person's message, thoughts.
    pub fn plain(text: &str) -> Self {
        let mut document = Self { plain: true, ..Self::default() };
        document.push(text);
        document
    }

    /// Plain text in columns two spaces apart.
    pub fn note(text: &str) -> Self {
        Self { hanging: true, ..Self::plain(text) }
    }

    /// Adds foreign text; what a terminal might obey becomes visible.
    pub fn push(&mut self, text: &str) {
        let safe = sanitize::visible(text);
        self.tail.push_str(&safe);
        self.close_blocks();
        self.tail_lines.take();
    }

    /// Sets a note into the text at its present end.
    pub fn mark(&mut self, note: String) {
        if let Some(number) = char::from_u32(MARK_BASE + self.marks.len() as u32)
            && self.marks.len() < 0x1000
        {
            self.tail.extend([MARK, number]);
            self.marks.push(note);
            self.tail_lines.take();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.tail.is_empty()
    }

    /// How many lines it takes at `width` cells.
    pub fn height(&self, width: u16, theme: &Theme) -> usize {
        let (counted_width, counted, height) = self.closed_height.get();
        let (from, base) = if counted_width == width { (counted, height) } else { (0, 0) };
        let taller = |sum, part| sum + self.with_lines(part, width, theme, <[_]>::len);
        let closed = (from..self.blocks.len()).fold(base, taller);
        self.closed_height.set((width, self.blocks.len(), closed));
        let parts = self.parts();
        (self.blocks.len()..parts).fold(closed, taller) + parts.saturating_sub(1)
    }

    /// Calls `show` for the lines `from..to`, in order.
    pub fn visit(
        &self,
        (from, to): (usize, usize),
        width: u16,
        theme: &Theme,
        mut show: impl FnMut(&Line<'static>),
    ) {
        let blank = Line::default();
        let parts = self.parts();
        // From the end, where the view mostly is: what lies far above it costs nothing.
        let (mut first, mut at) = (parts, self.height(width, theme));
        while first > 0 && at > from {
            first -= 1;
            at -= self.with_lines(first, width, theme, <[_]>::len) + usize::from(first > 0);
        }
        for part in first..parts {
            if at >= to {
                return;
            }
            self.with_lines(part, width, theme, |lines| {
                // A blank line stands between two parts.
                let gap = (part > 0).then_some(&blank);
                let length = lines.len() + usize::from(part > 0);
                if at + length > from {
                    let all = gap.into_iter().chain(lines).enumerate();
                    all.map(|(i, line)| (at + i, line))
                        .filter(|(i, _)| (from..to).contains(i))
                        .for_each(|(_, line)| show(line));
                }
                at += length;
            });
        }
    }

    /// Closed blocks and, where there is something in it, the open one.
    fn parts(&self) -> usize {
        let open = match self.open {
            Open::Code(_) => true,
            Open::Text => !self.tail.trim().is_empty(),
        };
        self.blocks.len() + usize::from(open)
    }

    fn with_lines<R>(
        &self,
        part: usize,
        width: u16,
        theme: &Theme,
        then: impl FnOnce(&[Line<'static>]) -> R,
    ) -> R {
        let block = self.blocks.get(part);
        if let (None, Open::Code(fence)) = (block, &self.open) {
            return then(&self.open_code(fence, width, theme));
        }
        let mut cache = block.map_or(&self.tail_lines, |b| &b.lines).borrow_mut();
        if cache.as_ref().is_none_or(|c| (c.width, c.theme) != (width, theme.generation)) {
            let lines = match block {
                Some(block) => self.render(&block.content, width, theme),
                None => self.text_lines(&self.tail, width, theme),
            };
            *cache = Some(Rendered { width, theme: theme.generation, lines });
        }
        then(cache.as_ref().map_or(&[], |c| &c.lines))
    }

    fn close_blocks(&mut self) {
        while let Some(length) = self.tail[self.scanned..].find('\n') {
            let end = self.scanned + length + 1;
            self.complete_line(end);
        }
        if matches!(self.open, Open::Text) && self.tail.len() > 2 * LONG_BLOCK {
            let cut = self.tail.rfind(' ').map_or(self.tail.len(), |i| i + 1);
            self.close_text(cut);
        }
    }

    /// Looks at the line of `tail` that ends at `end`.
    fn complete_line(&mut self, end: usize) {
        let line = self.tail[self.scanned..end].trim_end_matches('\n').to_owned();
        if let Open::Code(fence) = &mut self.open {
            if fence.is_closed_by(&line) {
                self.close_code();
            } else {
                let pieces = fence.state.line(&line);
                fence.lines.push(pieces);
            }
            self.tail.drain(..end);
            self.scanned = 0;
            return;
        }
        if let Some(fence) = Fence::opened_by(&line).filter(|_| !self.plain) {
            self.close_text(self.scanned);
            self.tail.drain(..line.len() + 1);
            self.open = Open::Code(Box::new(fence));
            self.scanned = 0;
            return;
        }
        let starts_block = self.after_blank && !line.is_empty() && !line.starts_with(' ');
        if starts_block || self.scanned > LONG_BLOCK {
            let line_length = end - self.scanned;
            self.close_text(self.scanned);
            self.scanned = line_length;
        } else {
            self.scanned = end;
        }
        self.after_blank = line.trim().is_empty();
    }

    /// Closes the first `at` bytes of the open text.
    fn close_text(&mut self, at: usize) {
        let rest = self.tail.split_off(at);
        let text = std::mem::replace(&mut self.tail, rest);
        self.scanned = 0;
        self.after_blank = false;
        if !text.trim().is_empty() {
            self.blocks.push(Block::new(Content::Text(text)));
        }
    }

    fn close_code(&mut self) {
        if let Open::Code(fence) = std::mem::take(&mut self.open) {
            self.blocks.push(Block::new(Content::Code { language: fence.language, lines: fence.lines }));
        }
    }

    fn render(&self, content: &Content, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        match content {
            Content::Text(text) => self.text_lines(text, width, theme),
            Content::Code { language, lines } => {
                let mut shown = vec![code_head(language, theme)];
                shown.extend(lines.iter().flat_map(|l| self.code_line(l, width, theme)));
                shown
            }
        }
    }

    fn text_lines(&self, text: &str, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        let lines = if self.plain {
            let text = text.trim_end_matches('\n');
            text.split('\n').map(|line| (Line::from(line.to_owned()), self.hang(line))).collect()
        } else {
            markdown::render(text, width, theme)
        };
        lines
            .into_iter()
            .flat_map(|(line, hang)| wrap::wrap(&self.with_marks(line, theme), width.into(), hang))
            .collect()
    }

    fn hang(&self, line: &str) -> usize {
        let columns = line.rfind("  ").filter(|_| self.hanging);
        columns.map_or(0, |at| format::width(&line[..at]) + 2)
    }

    /// Wraps only the lines that came since, and the one still growing.
    fn open_code<'a>(&self, fence: &'a Fence, width: u16, theme: &Theme) -> Ref<'a, [Line<'static>]> {
        let mut shown = fence.shown.borrow_mut();
        if (shown.width, shown.theme) != (width, theme.generation) {
            let lines = vec![code_head(&fence.language, theme)];
            *shown = ShownCode { width, theme: theme.generation, wrapped: 0, stable: 1, lines };
        }
        let (stable, wrapped) = (shown.stable, shown.wrapped);
        shown.lines.truncate(stable);
        for line in &fence.lines[wrapped..] {
            shown.lines.extend(self.code_line(line, width, theme));
        }
        shown.wrapped = fence.lines.len();
        shown.stable = shown.lines.len();
        if !self.tail.is_empty() && !fence.may_be_closed_by(&self.tail) {
            shown.lines.extend(self.code_line(&fence.state.peek(&self.tail), width, theme));
        }
        drop(shown);
        Ref::map(fence.shown.borrow(), |shown| shown.lines.as_slice())
    }

    fn code_line(&self, pieces: &[Piece], width: u16, theme: &Theme) -> Vec<Line<'static>> {
        let bar = Span::styled("│ ", theme.style(Role::Border));
        let spans: Vec<Span> =
            pieces.iter().map(|(role, text)| Span::styled(text.clone(), theme.style(*role))).collect();
        let line = self.with_marks(Line::from(spans), theme);
        let wrapped = wrap::wrap(&line, usize::from(width).saturating_sub(2), 0);
        let with_bar = |mut line: Line<'static>| {
            line.spans.insert(0, bar.clone());
            line
        };
        wrapped.into_iter().map(with_bar).collect()
    }

    /// Replaces the mark characters by what they stand for.
    fn with_marks(&self, line: Line<'static>, theme: &Theme) -> Line<'static> {
        if self.marks.is_empty() || !line.spans.iter().any(|s| s.content.contains(MARK)) {
            return line;
        }
        let mut spans = Vec::new();
        for span in line.spans {
            for (i, piece) in span.content.split(MARK).enumerate() {
                let mut rest = piece;
                if let Some(number) = piece.chars().next().filter(|_| i > 0) {
                    let index = (number as u32).wrapping_sub(MARK_BASE) as usize;
                    let note = self.marks.get(index).map_or("", String::as_str);
                    spans.push(Span::styled(format!("‹{note}›"), theme.style(Role::Warn)));
                    rest = &piece[number.len_utf8()..];
                }
                spans.push(Span::styled(rest.to_owned(), span.style));
            }
        }
        Line { spans, ..line }
    }
}

impl Block {
    fn new(content: Content) -> Self {
        Self { content, lines: RefCell::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::theme::Depth;
    use std::time::{Duration, Instant};

    fn theme() -> Theme {
        Theme::load("dark", None, Depth::Sixteen).expect("built in")
    }

    fn shown(document: &Document, width: u16) -> Vec<String> {
        let mut lines = Vec::new();
        let height = document.height(width, &theme());
        let all = (0, usize::MAX);
        document.visit(all, width, &theme(), |line| lines.push(line.to_string().trim_end().to_owned()));
        assert_eq!(lines.len(), height);
        lines
    }

    const ANSWER: &str = "# Title\n\nSome *text* with `code`.\n\n- one\n- two\n\n```rust\nfn main() {}\n```\nAfter.\n\n> quoted\n\n1. first\n2. second\n";

    #[test]
    fn an_answer_looks_the_same_whole_and_in_pieces() {
        let mut whole = Document::default();
        whole.push(ANSWER);
        let mut pieces = Document::default();
        for (i, c) in ANSWER.chars().enumerate() {
            pieces.push(&c.to_string());
            if i % 7 == 0 {
                shown(&pieces, 40);
            }
        }
        assert_eq!(shown(&whole, 40), shown(&pieces, 40));
        assert_eq!(
            shown(&whole, 40),
            [
                "Title",
                "",
                "Some text with code.",
                "",
                "• one",
                "• two",
                "",
                "╭ rust",
                "│ fn main() {}",
                "",
                "After.",
                "",
                "▎ quoted",
                "",
                "1. first",
                "2. second"
            ]
        );
    }

    #[test]
    fn a_fence_that_is_still_open_shows_its_code() {
        let mut document = Document::default();
        document.push("Look:\n\n```py\nprint(1)\nprint(");
        assert_eq!(shown(&document, 30), ["Look:", "", "╭ py", "│ print(1)", "│ print("]);
        document.push("2)\n``");
        assert_eq!(shown(&document, 30).last().map(String::as_str), Some("│ print(2)"));
    }

    #[test]
    fn a_mark_stands_where_it_was_set_also_inside_code() {
        let mut document = Document::default();
        document.push("one ");
        document.mark("temperature 0.8→0.2".into());
        document.push("two\n\n```\na");
        document.mark("top_k 40→1".into());
        document.push("b\n```\n");
        assert_eq!(shown(&document, 60), ["one ‹temperature 0.8→0.2›two", "", "╭ code", "│ a‹top_k 40→1›b"]);
    }

    #[test]
    fn foreign_marks_and_escapes_are_only_text() {
        let mut document = Document::default();
        document.push("a\u{E000}\u{E100}b \x1b[31mred\x1b]8;;x\x07");
        document.mark("note".into());
        assert_eq!(shown(&document, 80), ["a\\u{e000}\u{E100}b \\x1b[31mred\\x1b]8;;x\\x07‹note›"]);
    }

    #[test]
    fn plain_text_is_not_markdown() {
        assert_eq!(shown(&Document::plain("# no\n* not a list\n```"), 40), ["# no", "* not a list", "```"]);
    }

    /// BUGLOG X31: the cost of a piece must not grow with what came before.
    #[test]
    fn the_cost_of_a_piece_is_flat() {
        // Another process may slow one half down by chance; a cost that grows shows every time.
        let ratios: Vec<f64> = (0..5).map(|_| second_half_over_first()).collect();
        assert!(ratios.iter().any(|ratio| *ratio < 1.5), "the second half took {ratios:.2?} times the first");
    }

    fn second_half_over_first() -> f64 {
        let theme = theme();
        let mut document = Document::default();
        let words = [
            "stream ",
            "of ",
            "words 🦙 ",
            "and\n",
            "more,\n\n",
            "```rust\n",
            "let x = 1;\n",
            "```\n",
            "- item\n",
        ];
        let mut half = || -> Duration {
            let start = Instant::now();
            for i in 0..10_000 {
                document.push(words[i % words.len()]);
                if i % 10 == 0 {
                    let bottom = document.height(60, &theme);
                    document.visit((bottom.saturating_sub(40), bottom), 60, &theme, |_| ());
                }
            }
            start.elapsed()
        };
        let (first, second) = (half(), half());
        assert!(document.height(60, &theme) > 5_000);
        second.as_secs_f64() / first.as_secs_f64()
    }
}
