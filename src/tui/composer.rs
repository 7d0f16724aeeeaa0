//! The input: an editor of one to ten rows, its history, and large pastes kept as chips.

use super::recall::Recall;
use super::sanitize;
use super::theme::{Role, Theme};
use crossterm::event::KeyEvent;
use ratatui::buffer::{Buffer, CellWidth};
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::widgets::Widget;
use ratatui_textarea::{CursorMove, TextArea, WrapMode};
use unicode_segmentation::UnicodeSegmentation;

/// A paste with more lines or bytes than this is shown as a chip.
const CHIP_LINES: usize = 12;
const CHIP_BYTES: usize = 2_000;
const MAX_ROWS: u16 = 10;

pub struct Composer {
    area: TextArea<'static>,
    history: Vec<String>,
    /// Where in the history the input is, and what was being written before.
    browsing: Option<(usize, String)>,
    /// The chip's text in the input, and what it stands for.
    chips: Vec<(String, String)>,
    recall: Option<Recall>,
}

impl Default for Composer {
    fn default() -> Self {
        Self {
            area: editor(Vec::new()),
            history: Vec::new(),
            browsing: None,
            chips: Vec::new(),
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
        self.area = editor(text.split('\n').map(str::to_owned).collect());
        self.area.move_cursor(CursorMove::Bottom);
        self.area.move_cursor(CursorMove::End);
        self.browsing = None;
    }

    /// What is written, chips unfolded.
    pub fn whole_text(&self) -> String {
        self.chips.iter().fold(self.text(), |text, (chip, content)| text.replacen(chip, content, 1))
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

    /// Takes the input, chips unfolded, and remembers it as typed.
    pub fn take(&mut self) -> String {
        let text = self.whole_text();
        self.remember(&text);
        self.clear();
        text
    }

    pub fn remember(&mut self, text: &str) {
        if !text.trim().is_empty() && self.history.last().is_none_or(|last| last != text) {
            self.history.push(text.to_owned());
        }
    }

    /// One key that is no binding.
    pub fn key(&mut self, key: KeyEvent) {
        let backspace = key.code == crossterm::event::KeyCode::Backspace;
        if !(backspace && self.delete_chip()) {
            self.area.input(key);
        }
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
        let number = self.chips.len() + 1;
        let size = super::format::bytes(text.len() as u64);
        let chip = match lines {
            0 | 1 => format!("[paste {number}: {size}]"),
            lines => format!("[paste {number}: {lines} lines, {size}]"),
        };
        self.area.insert_str(&chip);
        self.chips.push((chip, text));
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
        for (chip, _) in &self.chips {
            highlight(chip, area, buf, theme.style(Role::Accent));
        }
        let cursor = self.area.screen_cursor();
        let (top, left) = self.area.scroll_offset();
        let x = (cursor.col as u16).saturating_sub(left).min(area.width - 1);
        let y = (cursor.row as u16).saturating_sub(top).min(area.height - 1);
        Some(Position::new(area.x + x, area.y + y))
    }

    /// Backspace at the end of a chip takes all of it.
    fn delete_chip(&mut self) -> bool {
        let cursor = self.area.cursor();
        let Some(line) = self.area.lines().get(cursor.0) else { return false };
        let before: String = line.chars().take(cursor.1).collect();
        let Some(at) = self.chips.iter().position(|(chip, _)| before.ends_with(chip.as_str())) else {
            return false;
        };
        let (chip, _) = self.chips.remove(at);
        for _ in chip.chars() {
            self.area.delete_char();
        }
        true
    }
}

fn editor(lines: Vec<String>) -> TextArea<'static> {
    let mut area = TextArea::new(lines);
    area.set_wrap_mode(WrapMode::WordOrGlyph);
    // The terminal's own cursor is used: input methods and screen readers follow it.
    area.set_cursor_style(Style::new());
    area.set_cursor_line_style(Style::new());
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
        assert_eq!(composer.take(), text.join("\n"));
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
        assert_eq!(composer.take(), text);
    }

    #[test]
    fn backspace_takes_a_chip_whole_and_its_content_with_it() {
        let mut composer = Composer::default();
        composer.paste(&"x\n".repeat(30));
        composer.paste(" and");
        (0..4).for_each(|_| press(&mut composer, KeyCode::Backspace));
        press(&mut composer, KeyCode::Backspace);
        assert!(composer.is_empty() && composer.chips.is_empty());
    }

    #[test]
    fn pasted_escapes_are_seen_and_sent_as_text() {
        let mut composer = Composer::default();
        composer.paste("a\x1b[31mb\u{9b}c");
        assert_eq!(composer.take(), "a\\x1b[31mb\\u{9b}c");
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
