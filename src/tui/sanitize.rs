//! Foreign text made safe to draw: whatever a terminal might obey, or a reader might be deceived
//! by, becomes a visible escape. Copying and the conversation itself keep the original.

use std::borrow::Cow;
use std::fmt::Write;

/// Drawn in place of nothing else: the transcript puts marks into its text with this character and
/// the next ones. It is private use, so foreign text loses it here.
pub const MARK: char = '\u{E000}';

/// The text with every control, bidirectional and invisible format character written out. Line
/// breaks stay, a tab becomes four spaces, a carriage return before a line break goes.
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

fn escape(c: char, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = match c as u32 {
        code @ 0..=0xff => write!(out, "\\x{code:02x}"),
        code => write!(out, "\\u{{{code:x}}}"),
    };
}

/// Zero-width joiners and variation selectors are left alone: emoji and several scripts need them.
fn needs_care(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
            | '\u{E000}'..='\u{E0FF}')
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
        assert_eq!(one_line("a\nb\r"), "a b\\x0d");
    }
}
