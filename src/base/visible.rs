use std::borrow::Cow;
use std::fmt::Write;

/// Foreign text made safe for a terminal: every character that a terminal could obey, or that hides
/// or reorders its neighbours, is written as an escape one can read. Newline and tab stay.
///
/// `\x1b` for C0 and DEL, `\u{9b}` for C1, bidirectional controls and invisible format characters.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_dangerous) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_dangerous(c) { escape(c, &mut out) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Writes the character as [`visible`] does where it is dangerous.
pub fn escape(c: char, out: &mut String) {
    match c {
        '\r' => out.push_str("\\r"),
        '\0'..='\x7f' => write!(out, "\\x{:02x}", c as u32).expect("a String takes everything"),
        _ => write!(out, "\\u{{{:x}}}", c as u32).expect("a String takes everything"),
    }
}

/// Zero-width joiner and variation selectors are left alone: emoji need them.
pub fn is_dangerous(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}' => true,
        '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{206a}'..='\u{206f}' => true,
        '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' => true,
        '\u{e0000}'..='\u{e007f}' => true,
        _ => c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BUGLOG X01, X02, X05: not only CSI, also OSC, DCS, APC, C1 and lone controls.
    #[test]
    fn nothing_a_terminal_obeys_is_left() {
        for payload in [
            "\x1b[2J",
            "\x1b]52;c;SGVsbG8=\x07",
            "\x1b]0;title\x07",
            "\x1b]8;;http://evil.example\x1b\\link",
            "\x1bP1$r\x1b\\",
            "\x1b_apc\x1b\\",
            "\x1b[6n",
            "\x1bc",
            "\u{9b}31m",
            "\u{9d}52;c;AAAA\u{9c}",
            "over\rwrite",
            "\x08\x08\x7f",
            "abc\u{202e}txt.exe",
        ] {
            let shown = visible(payload);
            assert!(!shown.chars().any(is_dangerous), "{payload:?} became {shown:?}");
            assert_ne!(shown, payload);
        }
        assert_eq!(visible("a\x1b[1m\u{9b}b"), "a\\x1b[1m\\u{9b}b");
    }

    #[test]
    fn ordinary_text_is_not_copied() {
        for text in ["plain\n\ttext", "äöü 日本語 مرحبا", "👩\u{200d}🔬 ❤\u{fe0f}"] {
            assert!(matches!(visible(text), Cow::Borrowed(t) if t == text));
        }
    }
}
