//! Text of the transcript that is marked with the mouse, to be copied. What is marked is remembered as
//! lines and columns of the whole transcript, so it stays where it is while the view moves.

use super::format;
use std::cell::RefCell;
use std::collections::BTreeMap;
use unicode_segmentation::UnicodeSegmentation;

/// A cell of the transcript: its line from the top, its column from where text begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

#[derive(Debug)]
pub struct Selection {
    /// Where the button went down.
    start: Place,
    /// Where the pointer is, or was let go.
    end: Place,
    /// Lines in view since then, as they were drawn, and the width they were wrapped at.
    seen: RefCell<(BTreeMap<usize, String>, usize)>,
}

impl Selection {
    pub fn new(start: Place) -> Self {
        Self { start, end: start, seen: RefCell::default() }
    }

    pub fn extend(&mut self, to: Place) {
        self.end = to;
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// A line as it is drawn; lines are wrapped at `width`.
    pub fn see(&self, line: usize, text: &str, width: usize) {
        let mut seen = self.seen.borrow_mut();
        seen.0.insert(line, text.to_owned());
        seen.1 = width;
    }

    /// The marked columns of a line: from, and up to but not with.
    pub fn columns(&self, line: usize) -> Option<(usize, usize)> {
        let (first, last) = (self.start.min(self.end), self.start.max(self.end));
        if self.is_empty() || line < first.line || line > last.line {
            return None;
        }
        let from = if line == first.line { first.column } else { 0 };
        let to = if line == last.line { last.column + 1 } else { usize::MAX };
        Some((from, to))
    }

    /// The marked text, wrapped lines put together again, without the bar beside code.
    pub fn text(&self) -> String {
        let (seen, width) = &*self.seen.borrow();
        let marked = seen.iter().filter_map(|(line, text)| Some((text, self.columns(*line)?)));
        let mut all = String::new();
        let mut before: Option<&str> = None;
        for (line, columns) in marked {
            match before {
                Some(before) if goes_on(before, line, *width) => all.push(' '),
                Some(_) => all.push('\n'),
                None => {}
            }
            let part = cut(line, columns);
            let part = part.strip_prefix("│ ").unwrap_or(&part);
            let part = if all.ends_with(' ') { part.trim_start() } else { part };
            all.push_str(part.trim_end());
            before = Some(line);
        }
        all
    }
}

/// Whether `line` was broken off from the one before: its first word had no room there.
fn goes_on(before: &str, line: &str, width: usize) -> bool {
    let drawn = |text: &str| text.contains(['│', '─', '╭']);
    let Some(word) = line.split_whitespace().next() else { return false };
    !before.trim().is_empty()
        && !drawn(before)
        && !drawn(line)
        && format::width(before.trim_end()) + 1 + format::width(word) > width
}

fn cut(text: &str, (from, to): (usize, usize)) -> String {
    let mut column = 0;
    let mut part = String::new();
    for grapheme in text.graphemes(true) {
        if (from..to).contains(&column) {
            part.push_str(grapheme);
        }
        column += format::cells(grapheme);
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(lines: &[&str], width: usize, from: (usize, usize), to: (usize, usize)) -> String {
        let place = |(line, column)| Place { line, column };
        let mut selection = Selection::new(place(from));
        selection.extend(place(to));
        lines.iter().enumerate().for_each(|(i, line)| selection.see(i, line, width));
        selection.text()
    }

    #[test]
    fn wrapped_lines_are_one_again_and_others_stay_lines() {
        let lines = ["The sky is blue because of", "Rayleigh scattering.", "", "• one", "• two"];
        assert_eq!(
            marked(&lines, 30, (0, 4), (4, 4)),
            "sky is blue because of Rayleigh scattering.\n\n• one\n• two"
        );
        assert_eq!(marked(&lines, 60, (0, 0), (1, 7)), "The sky is blue because of\nRayleigh");
    }

    #[test]
    fn either_direction_marks_the_same_and_code_has_no_bar() {
        let lines = ["╭ rust", "│ fn main() {", "│     body();", "│ }"];
        let all = "fn main() {\n    body();\n}";
        assert_eq!(marked(&lines, 14, (1, 0), (3, 9)), all);
        assert_eq!(marked(&lines, 14, (3, 9), (1, 0)), all);
        assert_eq!(marked(&lines, 14, (1, 2), (1, 2)), "");
    }

    #[test]
    fn a_wide_character_is_marked_whole() {
        assert_eq!(marked(&["日本語で"], 30, (0, 2), (0, 4)), "本語");
    }
}
