use super::body::{Step, Stepped};
use super::json::{Malformed, Scanner, escaped};
use super::sink::Sink;

const PREFIX: &str = "call:";
const LONGEST_NAME: usize = 128;

/// `call:f{k:<escape>text<escape>,n:1,l:[true]}`: JSON without quotes around keys, and with a tag for
/// those around texts. Rewritten as JSON while it comes.
#[derive(Clone, Debug)]
pub(super) struct Gemma {
    quote: [&'static str; 1],
    name: String,
    in_text: bool,
    /// A key, a number or a bare word so far.
    word: String,
    scanner: Scanner,
}

impl Gemma {
    pub fn new(quote: &'static str) -> Self {
        Self {
            quote: [quote],
            name: String::new(),
            in_text: false,
            word: String::new(),
            scanner: Scanner::new(),
        }
    }

    pub fn watch(&self) -> &[&'static str] {
        if self.scanner.depth() > 0 { &self.quote } else { &[] }
    }

    pub fn in_string(&self) -> bool {
        self.in_text
    }

    pub fn tag(&mut self, sink: &mut Sink) -> Stepped {
        if !self.word.trim().is_empty() {
            return Err(Malformed);
        }
        self.in_text = !self.in_text;
        self.json("\"", sink)
    }

    pub fn char(&mut self, c: char, sink: &mut Sink) -> Stepped {
        if self.scanner.depth() == 0 && !self.scanner.is_done() {
            return self.head(c, sink);
        }
        if self.in_text {
            return self.json(&escaped(c.encode_utf8(&mut [0; 4])), sink);
        }
        if !"{}[],:".contains(c) {
            self.word.push(c);
            return if self.word.len() > 4096 { Err(Malformed) } else { Ok(Step::More) };
        }
        self.end_word(c, sink)?;
        self.json(c.encode_utf8(&mut [0; 4]), sink)
    }

    fn head(&mut self, c: char, sink: &mut Sink) -> Stepped {
        match c {
            '{' => {
                let name = self.name.strip_prefix(PREFIX).map(str::trim).unwrap_or_default();
                if name.is_empty() {
                    return Err(Malformed);
                }
                sink.name(name, None);
                return self.json("{", sink);
            }
            c if c.is_whitespace() && self.name.is_empty() => {}
            c => self.name.push(c),
        }
        let begun = self.name.starts_with(PREFIX) || PREFIX.starts_with(&self.name);
        let in_name = |c: char| c.is_alphanumeric() || "_-.:/".contains(c);
        match begun && self.name.len() <= LONGEST_NAME && self.name.chars().all(in_name) {
            true => Ok(Step::More),
            false => Err(Malformed),
        }
    }

    /// What stood before this punctuation: a key before a colon, else a value.
    fn end_word(&mut self, next: char, sink: &mut Sink) -> Result<(), Malformed> {
        let word = std::mem::take(&mut self.word);
        let word = word.trim();
        if word.is_empty() {
            return Ok(());
        }
        let key = next == ':' || self.scanner.in_key();
        let plain = !key && serde_json::from_str::<serde_json::Value>(word).is_ok();
        let json = if plain { word.to_owned() } else { format!("\"{}\"", escaped(word.trim_matches('"'))) };
        self.json(&json, sink).map(|_| ())
    }

    fn json(&mut self, json: &str, sink: &mut Sink) -> Stepped {
        json.chars().try_for_each(|c| self.scanner.feed(c))?;
        sink.arguments(json);
        if self.scanner.is_done() {
            sink.end();
            return Ok(Step::Done);
        }
        Ok(Step::More)
    }
}
