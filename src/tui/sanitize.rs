//! Foreign text made safe to draw in cells: [`crate::base::visible`], and what a cell grid and the
//! transcript's marks need besides. Copying and the conversation itself keep the original.

use crate::base::{escape, is_dangerous};
use std::borrow::Cow;

/// Drawn in place of nothing else: the transcript puts marks into its text with this character and
/// the next ones. It is private use, so foreign text loses it here.
pub const MARK: char = '\u{E000}';
/// Numbers of marks are written as one private-use character each, from this one.
pub const MARK_BASE: u32 = 0xE100;

/// The text with every dangerous character written out. Line breaks stay, a tab becomes four
/// spaces, a carriage return before a line break goes.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(needs_care) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\n' => safe.push('\n'),
            '\t' => safe.push_str("    "),
            '\r' if rest.peek() == Some(&'\n') => {}
            c if needs_care(c) => escape(c, &mut safe),
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// As [`visible`], on one line.
pub fn one_line(text: &str) -> String {
    visible(text).replace('\n', " ")
}

fn needs_care(c: char) -> bool {
    is_dangerous(c) || c == '\t' || matches!(c, '\u{E000}'..='\u{E0FF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BUGLOG X01, X02, X05: what reaches a terminal from a model, a file name, an error.
    pub const PAYLOADS: [&str; 10] = [
        "\x1b[31mred\x1b[0m",
        "before \x1b]52;c;SGVsbG8=\x07 after",
        "\x1b]0;title\x07",
        "\x1b]8;;http://example.com\x1b\\never closed",
        "\x1bP$q\"p\x1b\\",
        "\x1b_payload\x1b\\",
        "\x1b[6n",
        "\x1bc",
        "\u{9b}2J \u{9d}0;x\u{9c}",
        "\x1b]52;c;dW50ZXJtaW5hdGVk",
    ];

    #[test]
    fn no_control_character_survives_and_the_text_around_it_does() {
        for payload in PAYLOADS {
            let shown = visible(payload);
            assert!(!shown.chars().any(|c| c.is_control()), "{payload:?} -> {shown:?}");
        }
        assert_eq!(visible(PAYLOADS[1]), "before \\x1b]52;c;SGVsbG8=\\x07 after");
    }

    #[test]
    fn bidirectional_overrides_are_shown_and_letters_keep_their_order() {
        assert_eq!(visible("a\u{202e}b\u{2066}c"), "a\\u{202e}b\\u{2066}c");
        assert_eq!(visible("مرحبا gpt-5"), "مرحبا gpt-5");
    }

    #[test]
    fn line_breaks_tabs_and_emoji_joiners_stay() {
        assert_eq!(visible("a\r\nb\tc"), "a\nb    c");
        assert_eq!(visible("👩\u{200d}🔬 e\u{301}"), "👩\u{200d}🔬 e\u{301}");
        assert_eq!(one_line("a\nb\r"), "a b\\r");
    }
}
