//! The input: an editor of one to ten rows, its history, and large pastes kept as chips.

use super::chips::Chips;
use super::recall::Recall;
use super::sanitize;
use super::theme::{Role, Theme};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::{Buffer, CellWidth};
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::widgets::Widget;
use ratatui_textarea::{CursorMove, TextArea, WrapMode};
use unicode_segmentation::UnicodeSegmentation;

/// A paste with more lines or bytes than this is shown as a chip.
const CHIP_LINES: usize = 12;
const CHIP_BYTES: usize = 2_000;
const MAX_ROWS: u16 = 10;

/// What was written, when it is taken.
pub struct Written {
    /// Chips unfolded.
    pub whole: String,
    /// Files by their names: to be remembered.
    pub typed: String,
    /// Files as chips.
    pub shown: String,
}

pub struct Composer {
    area: TextArea<'static>,
    history: Vec<String>,
    /// Where in the history the input is, and what was being written before.
    browsing: Option<(usize, String)>,
    chips: Chips,
    recall: Option<Recall>,
}

impl Default for Composer {
    fn default() -> Self {
        Self {
            area: editor(Vec::new()),
            history: Vec::new(),
            browsing: None,
            chips: Chips::default(),
            recall: None,
        }
    }
}

impl Composer {
    /// With the inputs of earlier sessions, oldest first.
    pub fn with_history(history: Vec<String>) -> Self {
        Self { history, ..Self::default() }
    }

    /// What is written, chips as chips.
    pub fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    pub fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    pub fn clear(&mut self) {
        self.set("");
        self.chips.clear();
    }

    pub fn set(&mut self, text: &str) {
        self.area = editor(sanitize::visible(text).split('\n').map(str::to_owned).collect());
        self.area.move_cursor(CursorMove::Bottom);
        self.area.move_cursor(CursorMove::End);
        self.browsing = None;
    }

    /// What is written, chips unfolded.
    pub fn whole_text(&self) -> String {
        self.chips.unfolded(&self.text())
    }

    /// A message that was sent, in full where it can be worked on.
    pub fn set_to_edit(&mut self, text: &str) {
        const WORKABLE: usize = 20_000;
        self.clear();
        match text.len() {
            ..WORKABLE => self.set(text),
            _ => self.paste(text),
        }
    }

    /// What came back from an editor, in place of all that was written.
    pub fn replace(&mut self, text: &str) {
        self.clear();
        self.paste(text);
    }

    pub fn recall(&self) -> Option<&Recall> {
        self.recall.as_ref()
    }

    pub fn recall_start(&mut self) {
        self.recall = Some(Recall::new(self.whole_text(), self.history.len()));
    }

    pub fn recall_older(&mut self) {
        self.recalled(Recall::older);
    }

    /// Another letter of what is looked for, or one less.
    pub fn recall_type(&mut self, letter: Option<char>) {
        if let Some(recall) = &mut self.recall {
            match letter {
                Some(c) => recall.query.push(c),
                None => drop(recall.query.pop()),
            }
        }
        self.recalled(Recall::newest);
    }

    /// With what was found, or with what was being written before.
    pub fn recall_end(&mut self, take: bool) {
        if let Some(recall) = self.recall.take().filter(|_| !take) {
            self.replace(&recall.draft);
        }
    }

    fn recalled(&mut self, look: for<'a> fn(&mut Recall, &'a [String]) -> Option<&'a str>) {
        let found = self.recall.as_mut().and_then(|recall| look(recall, &self.history)).map(str::to_owned);
        if let Some(text) = found {
            self.set(&text);
        }
    }

    /// Takes the input and remembers it as typed.
    pub fn take(&mut self) -> Written {
        let text = self.text();
        let chips = &self.chips;
        let written =
            Written { whole: chips.unfolded(&text), typed: chips.typed(&text), shown: chips.shown(&text) };
        self.remember(&written.typed);
        self.clear();
        written
    }

    pub fn remember(&mut self, text: &str) {
        if !text.trim().is_empty() && self.history.last().is_none_or(|last| last != text) {
            self.history.push(text.to_owned());
        }
    }

    /// One key that is no binding. A chip is one thing: the cursor is never inside, and what deletes a
    /// part of it deletes it.
    pub fn key(&mut self, key: KeyEvent) {
        let taken = match key.code {
            KeyCode::Backspace => self.delete_chip(|(at, wide), column| at + wide == column),
            KeyCode::Delete => self.delete_chip(|(at, _), column| at == column),
            KeyCode::Char('w') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                self.delete_chip(|(at, wide), column| at + wide == column)
            }
            _ => false,
        };
        if !taken {
            let before = self.area.cursor();
            self.area.input(key);
            self.leave_chip(before.1);
        }
    }

    pub fn undo(&mut self) {
        self.area.undo();
    }

    pub fn redo(&mut self) {
        self.area.redo();
    }

    /// The chip at the cursor becomes its content; without one the cursor goes to the line's end.
    pub fn expand_chip(&mut self) {
        let touches = |(at, wide): (usize, usize), column: usize| at <= column && column <= at + wide;
        let Some((label, content)) = self.chip_where(touches).map(|label| {
            let content = self.chips.unfolded(&label).trim_end().to_owned();
            (label, content)
        }) else {
            return self.area.move_cursor(CursorMove::End);
        };
        // Into the editor itself: `paste` would fold it again.
        self.swap(&label, &content);
    }

    pub fn newline(&mut self) {
        self.area.insert_newline();
    }

    pub fn clear_to_line_start(&mut self) {
        self.area.delete_line_by_head();
    }

    pub fn delete_next_char(&mut self) {
        self.area.delete_next_char();
    }

    /// One insertion, whatever it contains: a pasted line break never submits.
    pub fn paste(&mut self, text: &str) {
        // Terminals paste line breaks as carriage returns.
        let text = sanitize::visible(&text.replace("\r\n", "\n").replace('\r', "\n")).into_owned();
        let lines = text.lines().count();
        if lines <= CHIP_LINES && text.len() <= CHIP_BYTES {
            self.area.insert_str(text);
            return;
        }
        let chip = self.chips.add_paste(text).to_owned();
        self.area.insert_str(&chip);
    }

    /// The word at the cursor that names a file, without its `@`.
    pub fn mention(&self) -> Option<String> {
        let cursor = self.area.cursor();
        let before: String = self.area.lines().get(cursor.0)?.chars().take(cursor.1).collect();
        let word = before.rsplit(char::is_whitespace).next()?;
        let path = word.strip_prefix('@')?;
        (!path.starts_with('@')).then(|| path.to_owned())
    }

    /// Another path in the place of the word at the cursor.
    pub fn set_mention(&mut self, path: &str) {
        if let Some(typed) = self.mention() {
            for _ in typed.chars() {
                self.area.delete_char();
            }
            self.area.insert_str(path);
        }
    }

    /// Neither the word at the cursor nor its `@`.
    pub fn drop_mention(&mut self) {
        self.set_mention("");
        if self.mention().is_some() {
            self.area.delete_char();
        }
    }

    /// Words that may name files, in order.
    pub fn mentions(&self) -> Vec<String> {
        let text = self.chips.replaced_by_nothing(&self.text());
        let words = text.split_whitespace().filter_map(|word| word.strip_prefix('@'));
        words.filter(|path| !path.is_empty() && !path.starts_with('@')).map(str::to_owned).collect()
    }

    /// A file in the place of its name, or at the cursor.
    pub fn attach(&mut self, path: &str, content: &str) {
        let visible = sanitize::visible(&content.replace("\r\n", "\n")).into_owned();
        let chip = self.chips.add_file(path, visible).to_owned();
        if !self.swap(&format!("@{path}"), &chip) {
            self.area.insert_str(format!("{chip} "));
        }
    }

    /// Files whose tokens are not counted yet: their names and what they hold.
    pub fn uncounted(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self.chips.iter().filter(|chip| chip.tokens.is_none());
        files.filter_map(|chip| Some((chip.path.as_deref()?, chip.content.as_str())))
    }

    pub fn counted(&mut self, path: &str, tokens: usize) {
        if let Some((old, new)) = self.chips.counted(path, tokens) {
            self.swap(&old, &new);
        }
    }

    /// Puts `new` into the place of the first `old`; the cursor stays where it was in the text.
    fn swap(&mut self, old: &str, new: &str) -> bool {
        let found = self.area.lines().iter().enumerate().find_map(|(row, line)| {
            let at = word_at(line, old)?;
            Some((row, line[..at].chars().count()))
        });
        let Some((row, column)) = found else { return false };
        let cursor = self.area.cursor();
        let wide = old.chars().count();
        self.area.move_cursor(CursorMove::Jump(row as u16, column as u16));
        self.area.delete_str(wide);
        self.area.insert_str(new);
        // Behind it in its line the text has moved; inside it, the cursor goes to its end.
        if cursor.0 != row || cursor.1 < column {
            self.area.move_cursor(CursorMove::Jump(cursor.0 as u16, cursor.1 as u16));
        } else if !new.contains('\n') {
            let moved = cursor.1.saturating_sub(column + wide) + column + new.chars().count();
            self.area.move_cursor(CursorMove::Jump(row as u16, moved as u16));
        }
        true
    }

    /// Moves up in the text; on its first row, back in the history.
    pub fn up(&mut self) {
        if self.area.screen_cursor().row > 0 {
            self.area.move_cursor(CursorMove::Up);
            return;
        }
        let at = self.browsing.as_ref().map_or(self.history.len(), |(at, _)| *at);
        if let Some(earlier) = at.checked_sub(1).and_then(|at| self.history.get(at)).cloned() {
            let draft = self.browsing.take().map_or_else(|| self.text(), |(_, draft)| draft);
            self.set(&earlier);
            self.browsing = Some((at - 1, draft));
        }
    }

    /// Moves down in the text; on its last row, forward in the history.
    pub fn down(&mut self) {
        let before = self.area.screen_cursor().row;
        self.area.move_cursor(CursorMove::Down);
        if self.area.screen_cursor().row != before {
            return;
        }
        let Some((at, draft)) = self.browsing.take() else { return };
        match self.history.get(at + 1).cloned() {
            Some(later) => {
                self.set(&later);
                self.browsing = Some((at + 1, draft));
            }
            None => self.set(&draft),
        }
    }

    /// Rows the text takes when wrapped to `width`.
    pub fn rows(&self, width: u16) -> u16 {
        let rows: usize = self.area.lines().iter().map(|line| wrapped_rows(line, width.max(1).into())).sum();
        (rows as u16).clamp(1, MAX_ROWS)
    }

    /// Draws the text and says where the cursor is.
    pub fn draw(&self, area: Rect, buf: &mut Buffer, theme: &Theme, placeholder: &str) -> Option<Position> {
        if area.is_empty() {
            return None;
        }
        (&self.area).render(area, buf);
        if self.is_empty() {
            let hint = super::format::fit(placeholder, area.width.into());
            buf.set_string(area.x, area.y, hint, theme.style(Role::Muted));
            return Some(area.as_position());
        }
        for chip in self.chips.iter() {
            highlight(chip.label(), area, buf, theme.style(Role::Accent));
        }
        let cursor = self.area.screen_cursor();
        let (top, left) = self.area.scroll_offset();
        let x = (cursor.col as u16).saturating_sub(left).min(area.width - 1);
        let y = (cursor.row as u16).saturating_sub(top).min(area.height - 1);
        Some(Position::new(area.x + x, area.y + y))
    }

    /// Takes a chip that stands so to the cursor; its content is kept, for undo.
    fn delete_chip(&mut self, stands: impl Fn((usize, usize), usize) -> bool) -> bool {
        if self.area.is_selecting() {
            return false;
        }
        let Some(label) = self.chip_where(stands) else { return false };
        self.swap(&label, "")
    }

    /// The name of the chip in the cursor's line that stands so to the cursor's column.
    fn chip_where(&self, stands: impl Fn((usize, usize), usize) -> bool) -> Option<String> {
        let cursor = self.area.cursor();
        let line = self.area.lines().get(cursor.0)?;
        let (at, wide) = self.chips.places(line).into_iter().find(|place| stands(*place, cursor.1))?;
        Some(line.chars().skip(at).take(wide).collect())
    }

    /// From inside a chip to the end that lies where the cursor was going.
    fn leave_chip(&mut self, from: usize) {
        let cursor = self.area.cursor();
        let Some(line) = self.area.lines().get(cursor.0) else { return };
        let inside = |(at, wide): &(usize, usize)| *at < cursor.1 && cursor.1 < at + wide;
        if let Some((at, wide)) = self.chips.places(line).into_iter().find(inside) {
            let column = if cursor.1 < from { at } else { at + wide };
            self.area.move_cursor(CursorMove::Jump(cursor.0 as u16, column as u16));
        }
    }
}

/// Where `old` begins: a file's name only where a word does.
fn word_at(line: &str, old: &str) -> Option<usize> {
    let begins =
        |at: usize| !old.starts_with('@') || line[..at].chars().next_back().is_none_or(char::is_whitespace);
    line.match_indices(old).map(|(at, _)| at).find(|at| begins(*at))
}

fn editor(lines: Vec<String>) -> TextArea<'static> {
    let mut area = TextArea::new(lines);
    area.set_wrap_mode(WrapMode::WordOrGlyph);
    // The terminal's own cursor is used: input methods and screen readers follow it.
    area.set_cursor_style(Style::new());
    area.set_cursor_line_style(Style::new());
    area.set_selection_style(Style::new().add_modifier(Modifier::REVERSED));
    area
}

/// How the editor breaks a line: between words where it can, inside them where it must.
fn wrapped_rows(line: &str, width: usize) -> usize {
    let cells = |text: &str| -> usize { text.chars().map(|c| c.to_string().cell_width() as usize).sum() };
    let mut rows = 1;
    let mut used = 0;
    for word in line.split_word_bounds() {
        let wide = cells(word);
        if used + wide <= width {
            used += wide;
        } else if wide <= width {
            rows += 1;
            used = wide;
        } else {
            // Its own rows, and the next word starts a new one.
            rows += usize::from(used > 0) + wide.div_ceil(width) - 1;
            used = width;
        }
    }
    rows
}

fn highlight(text: &str, area: Rect, buf: &mut Buffer, style: Style) {
    let wide = text.chars().count() as u16;
    for y in area.rows() {
        let row: Vec<&str> = (area.x..area.right()).map(|x| buf[(x, y.y)].symbol()).collect();
        let Some(at) = row.concat().find(text) else { continue };
        // Cells before it may hold more than one byte; count cells instead.
        let mut bytes = 0;
        let before = |symbol: &&&str| {
            let starts_at = bytes;
            bytes += symbol.len();
            starts_at < at
        };
        let skipped = row.iter().take_while(before).count();
        let x = area.x + skipped as u16;
        buf.set_style(Rect::new(x, y.y, wide.min(area.right() - x), 1), style);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossterm::event::{KeyCode, KeyModifiers};
    use std::time::{Duration, Instant};

    fn press(composer: &mut Composer, code: KeyCode) {
        composer.key(KeyEvent::new(code, KeyModifiers::NONE));
    }

    #[test]
    fn fifty_pasted_lines_are_one_insertion() {
        // BUGLOG X18
        let mut composer = Composer::default();
        let text: Vec<String> = (0..50).map(|i| format!("line {i}")).collect();
        composer.paste(&text.join("\r"));
        assert_eq!(composer.text(), "[paste 1: 50 lines, 389 B]");
        assert_eq!(composer.take().whole, text.join("\n"));
        assert!(composer.is_empty());
    }

    #[test]
    fn a_large_paste_is_instant() {
        // BUGLOG X20: 100 KB must not take a refresh per character.
        let mut composer = Composer::default();
        let text = "all work and no play\n".repeat(5_000);
        let start = Instant::now();
        composer.paste(&text);
        let mut buf = Buffer::empty(Rect::new(0, 0, 80, 10));
        let theme = Theme::load("dark", None, crate::tui::Depth::None).expect("built in");
        composer.draw(buf.area, &mut buf, &theme, "");
        assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
        assert_eq!(composer.take().whole, text);
    }

    #[test]
    fn backspace_takes_a_chip_whole_and_undo_brings_it_back_with_its_content() {
        let mut composer = Composer::default();
        composer.paste(&"x\n".repeat(30));
        composer.paste(" and");
        (0..4).for_each(|_| press(&mut composer, KeyCode::Backspace));
        press(&mut composer, KeyCode::Backspace);
        assert!(composer.is_empty());
        composer.undo();
        assert_eq!(composer.whole_text(), "x\n".repeat(30));
    }

    #[test]
    fn pasted_escapes_are_seen_and_sent_as_text() {
        let mut composer = Composer::default();
        composer.paste("a\x1b[31mb\u{9b}c");
        assert_eq!(composer.take().whole, "a\\x1b[31mb\\u{9b}c");
    }

    #[test]
    fn history_goes_back_and_returns_to_the_draft() {
        let mut composer = Composer::with_history(vec!["first".into(), "second".into()]);
        composer.set("draft");
        composer.up();
        composer.up();
        composer.up();
        assert_eq!(composer.text(), "first");
        composer.down();
        composer.down();
        assert_eq!(composer.text(), "draft");
    }

    #[test]
    fn rows_are_counted_as_the_editor_wraps() {
        let samples = [
            "",
            "short",
            "exactly ten",
            "the quick brown fox jumps over the lazy dog",
            "averyverylongwordthatdoesnotfit in ten",
            "日本語のテキストと words mixed",
            "a b c d e f g h i j k l m",
        ];
        let theme = Theme::load("dark", None, crate::tui::Depth::None).expect("built in");
        for text in samples {
            let mut composer = Composer::default();
            composer.set(text);
            let mut buf = Buffer::empty(Rect::new(0, 0, 10, 10));
            composer.draw(buf.area, &mut buf, &theme, "");
            let last = composer.area.screen_cursor().row as u16;
            assert!(composer.rows(10) > last, "{text:?}: cursor on row {last} of {}", composer.rows(10));
            assert!(composer.rows(10) <= last + 2, "{text:?}");
        }
    }
}
