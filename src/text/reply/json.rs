use std::fmt::Write;

/// The text is not what the format allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Deeper nesting is refused; serde_json reads 128 levels.
const DEEPEST: usize = 100;
/// Longest number.
const LONGEST_WORD: usize = 400;

/// Reads one JSON object a character at a time, and says at once where it can be none any more.
///
/// Strings may hold bare line breaks, which models write and JSON forbids: [`Scanner::write`] escapes
/// them.
#[derive(Clone, Debug)]
pub(super) struct Scanner {
    /// `{` and `[` that are open.
    stack: Vec<char>,
    state: State,
    /// A number, `true`, `false` or `null`, as far as it is there.
    word: String,
    /// The string so far ends in the first half of a surrogate pair.
    half: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Value,
    /// After `[`.
    FirstValue,
    /// After `{`.
    FirstKey,
    Key,
    Colon,
    After,
    Text {
        key: bool,
    },
    Escape {
        key: bool,
    },
    Hex {
        key: bool,
        digits: u8,
        value: u32,
    },
    Word,
    Done,
}

impl Scanner {
    pub fn new() -> Self {
        Self { stack: Vec::new(), state: State::Value, word: String::new(), half: false }
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Open brackets.
    pub fn depth(&self) -> usize {
        self.stack.len()
    }

    pub fn in_string(&self) -> bool {
        matches!(self.state, State::Text { .. } | State::Escape { .. } | State::Hex { .. })
    }

    /// Whether a string is a key; between strings, whether one must come.
    pub fn in_key(&self) -> bool {
        match self.state {
            State::Text { key } | State::Escape { key } | State::Hex { key, .. } => key,
            State::FirstKey | State::Key => true,
            _ => false,
        }
    }

    pub fn feed(&mut self, c: char) -> Result<(), Malformed> {
        self.state = match self.state {
            State::Text { key } => self.text(c, key)?,
            State::Escape { key } => self.escape(c, key)?,
            State::Hex { key, digits, value } => self.hex(c, key, digits, value)?,
            State::Word if !matches!(c, ',' | '}' | ']') && !c.is_ascii_whitespace() => {
                self.word.push(c);
                if self.word.len() > LONGEST_WORD {
                    return Err(Malformed);
                }
                State::Word
            }
            State::Word => {
                let word = std::mem::take(&mut self.word);
                serde_json::from_str::<serde_json::Value>(&word).map_err(|_| Malformed)?;
                if c.is_ascii_whitespace() { State::After } else { self.after(c)? }
            }
            state if c.is_ascii_whitespace() => state,
            State::FirstValue if c == ']' => self.close('[')?,
            State::Value | State::FirstValue => self.value(c)?,
            State::FirstKey if c == '}' => self.close('{')?,
            State::FirstKey | State::Key if c == '"' => State::Text { key: true },
            State::Colon if c == ':' => State::Value,
            State::After => self.after(c)?,
            State::FirstKey | State::Key | State::Colon | State::Done => return Err(Malformed),
        };
        Ok(())
    }

    /// `c` as it stands in JSON, from the state before it was fed.
    pub fn write(&self, c: char, out: &mut String) {
        match c {
            '\n' if self.in_string() => out.push_str("\\n"),
            '\t' if self.in_string() => out.push_str("\\t"),
            c if c < ' ' && self.in_string() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }

    fn value(&mut self, c: char) -> Result<State, Malformed> {
        match c {
            '{' | '[' if self.stack.len() < DEEPEST => {
                if self.stack.is_empty() && c == '[' {
                    return Err(Malformed);
                }
                self.stack.push(c);
                Ok(if c == '{' { State::FirstKey } else { State::FirstValue })
            }
            _ if self.stack.is_empty() => Err(Malformed),
            '"' => Ok(State::Text { key: false }),
            '-' | '0'..='9' | 't' | 'f' | 'n' => {
                self.word.push(c);
                Ok(State::Word)
            }
            _ => Err(Malformed),
        }
    }

    fn after(&mut self, c: char) -> Result<State, Malformed> {
        match (c, self.stack.last()) {
            (',', Some('{')) => Ok(State::Key),
            (',', Some(_)) => Ok(State::Value),
            ('}', _) => self.close('{'),
            (']', _) => self.close('['),
            _ => Err(Malformed),
        }
    }

    fn close(&mut self, open: char) -> Result<State, Malformed> {
        if self.stack.pop() != Some(open) {
            return Err(Malformed);
        }
        Ok(if self.stack.is_empty() { State::Done } else { State::After })
    }

    fn text(&mut self, c: char, key: bool) -> Result<State, Malformed> {
        match c {
            '\\' => Ok(State::Escape { key }),
            _ if self.half => Err(Malformed),
            '"' => Ok(if key { State::Colon } else { State::After }),
            _ => Ok(State::Text { key }),
        }
    }

    fn escape(&mut self, c: char, key: bool) -> Result<State, Malformed> {
        match c {
            'u' => Ok(State::Hex { key, digits: 0, value: 0 }),
            _ if self.half => Err(Malformed),
            '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => Ok(State::Text { key }),
            _ => Err(Malformed),
        }
    }

    /// Halves of surrogate pairs come in pairs.
    fn hex(&mut self, c: char, key: bool, digits: u8, value: u32) -> Result<State, Malformed> {
        let value = value * 16 + c.to_digit(16).ok_or(Malformed)?;
        if digits < 3 {
            return Ok(State::Hex { key, digits: digits + 1, value });
        }
        let low = (0xDC00..0xE000).contains(&value);
        if low != self.half {
            return Err(Malformed);
        }
        self.half = (0xD800..0xDC00).contains(&value);
        Ok(State::Text { key })
    }
}

/// `text` inside a JSON string.
pub(super) fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// What is read of `text`, and whether the object was whole.
    fn scan(text: &str) -> Result<(String, bool), Malformed> {
        let (mut scanner, mut out) = (Scanner::new(), String::new());
        for c in text.chars() {
            scanner.write(c, &mut out);
            scanner.feed(c)?;
        }
        Ok((out, scanner.is_done()))
    }

    // BUGLOG F01, F04: strings, escapes and braces in strings, at every cut.
    #[test]
    fn every_beginning_of_an_object_may_become_one() {
        let text =
            r#" {"a": "b } c", "\u00e9\ud83d\ude00": [1, -2.5e3, {}, [], true, null], "c\\\"": {"d": "["}}"#;
        assert_eq!(scan(text), Ok((text.to_owned(), true)));
        for (at, _) in text.char_indices() {
            assert!(matches!(scan(&text[..at]), Ok((_, false))), "{}", &text[..at]);
        }
    }

    #[test]
    fn what_is_no_json_is_known_at_once() {
        for bad in [
            "[",
            "1",
            "\"",
            "{a",
            "{1",
            "{\"a\" 1",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":[1,]",
            "{\"a\":1]",
            "{\"a\":tru}",
            "{\"a\":1.}",
            "{\"a\":\"\\x",
            "{\"a\":\"\\ud83d\"",
            "{\"a\":\"\\ude00",
            "{}{",
            "{\"a\":'",
        ] {
            let before = &bad[..bad.len() - 1];
            assert!(scan(before).is_ok(), "{before}");
            assert_eq!(scan(bad), Err(Malformed), "{bad}");
        }
        assert_eq!(scan(&"{\"a\":".repeat(200)), Err(Malformed));
    }

    #[test]
    fn bare_line_breaks_in_strings_are_escaped() {
        let (json, done) = scan("{\"a\":\n\"x\ny\t\u{1}\"}").unwrap();
        assert!(done);
        assert_eq!(json, "{\"a\":\n\"x\\ny\\t\\u0001\"}");
        assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
    }

    proptest! {
        #[test]
        fn whole_means_that_serde_json_reads_it(text in r#"\{("|a|\\u?|d83d|de00|[0-9.e-]|true|null|[:,\[\]{}]| |\n){0,14}\}?"#) {
            if let Ok((json, true)) = scan(&text) {
                prop_assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{}", json);
            }
        }
    }
}
