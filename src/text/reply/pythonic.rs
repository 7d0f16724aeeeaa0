use super::body::{Step, Stepped};
use super::json::Malformed;
use super::sink::Sink;
use serde_json::{Map, Value as Json};
use std::iter::Peekable;
use std::str::Chars;

/// `[f(a=1), g(b="x")]`: a list of Python calls with literals as keyword arguments. It is told when the
/// whole list is read, since one call that is none makes all of it text; nothing is evaluated.
///
/// Every character is looked at once when it comes and once at the end: linear time (CVE-2025-48887).
#[derive(Clone, Debug)]
pub(super) struct Pythonic {
    strict: bool,
    text: String,
    /// The first name so far; none once its bracket has come.
    first: Option<String>,
    depth: usize,
    quote: Option<char>,
    escape: bool,
}

impl Pythonic {
    pub fn new(strict: bool) -> Self {
        Self { strict, text: String::new(), first: Some(String::new()), depth: 0, quote: None, escape: false }
    }

    pub fn in_string(&self) -> bool {
        self.quote.is_some()
    }

    pub fn char(&mut self, c: char, sink: &mut Sink) -> Stepped {
        if self.depth == 0 && c != '[' {
            return if c.is_whitespace() { Ok(Step::More) } else { Err(Malformed) };
        }
        self.text.push(c);
        if self.depth > 0
            && let Some(first) = self.first.take()
        {
            return self.name(c, first, sink);
        }
        match self.quote {
            Some(_) if std::mem::take(&mut self.escape) => {}
            Some(_) if c == '\\' => self.escape = true,
            Some(quote) if c == quote => self.quote = None,
            Some(_) => {}
            None => match c {
                '\'' | '"' => self.quote = Some(c),
                '[' | '(' | '{' => self.depth += 1,
                ']' | ')' | '}' => self.depth -= 1,
                _ => {}
            },
        }
        if self.depth == 0 {
            self.tell(sink)?;
            return Ok(Step::Done);
        }
        Ok(Step::More)
    }

    /// `[1]` and `[see below]` are known to be text at once.
    fn name(&mut self, c: char, mut first: String, sink: &mut Sink) -> Stepped {
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || (c == '.' && !first.is_empty());
        match c {
            '(' if !first.is_empty() && (!self.strict || sink.knows(first.trim())) => {
                self.depth = 2;
                return Ok(Step::More);
            }
            c if c.is_whitespace() && first.is_empty() => return Ok(Step::More),
            c if is_name(c) && !(first.is_empty() && c.is_numeric()) => first.push(c),
            _ => return Err(Malformed),
        }
        self.first = Some(first);
        Ok(Step::More)
    }

    fn tell(&mut self, sink: &mut Sink) -> Result<(), Malformed> {
        let calls = calls(&self.text)?;
        if self.strict && !calls.iter().all(|(name, _)| sink.knows(name)) {
            return Err(Malformed);
        }
        for (name, arguments) in calls {
            sink.name(&name, None);
            sink.arguments(&Json::Object(arguments).to_string());
            sink.end();
        }
        Ok(())
    }
}

const DEEPEST: usize = 100;

/// A name, and arguments by theirs.
type Call = (String, Map<String, Json>);

/// The calls of a whole list.
fn calls(text: &str) -> Result<Vec<Call>, Malformed> {
    let mut reader = Reader { rest: text.chars().peekable() };
    reader.expect('[')?;
    let calls = reader.items(']', |reader| {
        let name = reader.name()?;
        reader.expect('(')?;
        let mut arguments = Map::new();
        reader.items(')', |reader| {
            let key = reader.name()?;
            reader.expect('=')?;
            let value = reader.value(0)?;
            arguments.insert(key, value).map_or(Ok(()), |_| Err(Malformed))
        })?;
        Ok((name, arguments))
    })?;
    reader.space();
    if calls.is_empty() || reader.rest.next().is_some() { Err(Malformed) } else { Ok(calls) }
}

struct Reader<'t> {
    rest: Peekable<Chars<'t>>,
}

impl Reader<'_> {
    fn space(&mut self) {
        while self.rest.next_if(|c| c.is_whitespace()).is_some() {}
    }

    fn takes(&mut self, wanted: char) -> bool {
        self.space();
        self.rest.next_if_eq(&wanted).is_some()
    }

    fn expect(&mut self, wanted: char) -> Result<(), Malformed> {
        if self.takes(wanted) { Ok(()) } else { Err(Malformed) }
    }

    /// Up to `end`, with commas between.
    fn items<T>(
        &mut self,
        end: char,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let mut items = Vec::new();
        while !self.takes(end) {
            if !items.is_empty() {
                self.expect(',')?;
                if self.takes(end) {
                    break;
                }
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn word(&mut self, fits: impl Fn(char) -> bool) -> String {
        self.space();
        std::iter::from_fn(|| self.rest.next_if(|&c| fits(c))).collect()
    }

    fn name(&mut self) -> Result<String, Malformed> {
        let name = self.word(|c| c.is_alphanumeric() || c == '_' || c == '.');
        let begins = name.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
        if begins { Ok(name) } else { Err(Malformed) }
    }

    fn value(&mut self, depth: usize) -> Result<Json, Malformed> {
        if depth > DEEPEST {
            return Err(Malformed);
        }
        self.space();
        match self.rest.peek().copied().ok_or(Malformed)? {
            quote @ ('\'' | '"') => self.text(quote).map(Json::from),
            '[' => {
                self.expect('[')?;
                self.items(']', |reader| reader.value(depth + 1)).map(Json::from)
            }
            '(' => {
                self.expect('(')?;
                self.items(')', |reader| reader.value(depth + 1)).map(Json::from)
            }
            '{' => {
                self.expect('{')?;
                let mut object = Map::new();
                self.items('}', |reader| {
                    reader.space();
                    let quote =
                        reader.rest.peek().copied().filter(|c| "'\"".contains(*c)).ok_or(Malformed)?;
                    let key = reader.text(quote)?;
                    reader.expect(':')?;
                    object.insert(key, reader.value(depth + 1)?);
                    Ok(())
                })?;
                Ok(Json::Object(object))
            }
            _ => self.literal(),
        }
    }

    fn literal(&mut self) -> Result<Json, Malformed> {
        let word = self.word(|c| c.is_alphanumeric() || "+-._".contains(c));
        match &*word {
            "True" | "true" => Ok(Json::Bool(true)),
            "False" | "false" => Ok(Json::Bool(false)),
            "None" | "null" => Ok(Json::Null),
            number => match serde_json::from_str(number) {
                Ok(json @ Json::Number(_)) => Ok(json),
                _ => Err(Malformed),
            },
        }
    }

    fn text(&mut self, quote: char) -> Result<String, Malformed> {
        let mut text = String::new();
        self.rest.next();
        loop {
            match self.rest.next().ok_or(Malformed)? {
                c if c == quote => return Ok(text),
                '\\' => self.escape(&mut text)?,
                c => text.push(c),
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Result<(), Malformed> {
        let c = self.rest.next().ok_or(Malformed)?;
        match c {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            '\n' => {}
            '\\' | '\'' | '"' => text.push(c),
            'x' | 'u' | 'U' => {
                let digits = match c {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let hex: String = self.rest.by_ref().take(digits).collect();
                let code = u32::from_str_radix(&hex, 16).map_err(|_| Malformed)?;
                text.push(char::from_u32(code).ok_or(Malformed)?);
            }
            // Python keeps what is no escape.
            c => text.extend(['\\', c]),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::{Duration, Instant};

    fn read(text: &str) -> Option<String> {
        let calls = calls(text).ok()?;
        Some(calls.into_iter().map(|(name, args)| format!("{name}{}", Json::Object(args))).collect())
    }

    // BUGLOG F09.
    #[test]
    fn literals_are_typed_and_everything_else_is_text() {
        assert_eq!(
            read("[f(a='x', b={'k':[1,None,True]}), g()]").unwrap(),
            r#"f{"a":"x","b":{"k":[1,null,true]}}g{}"#
        );
        assert_eq!(
            read(r#"[a.b(x=-1.5, y="it's \"\u00e9\x41\"", z=(1, 'two'),)]"#).unwrap(),
            r#"a.b{"x":-1.5,"y":"it's \"éA\"","z":[1,"two"]}"#
        );
        for bad in [
            "[]",
            "[f(1)]",
            "[f(a=b)]",
            "[f(a=1) g()]",
            "[f(a=1]",
            "[f(a=1, a=2)]",
            "[f(a=open('x'))]",
            "[f(a='x)]",
            "[f(a=1+1)]",
            "[f(a={b:1})]",
            "f(a=1)",
            "[f(a=1)] x",
            "[1(a=1)]",
            "[f(a=lambda: 1)]",
            "[f(**{})]",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(read(&format!("[f(a={}{})]", "[".repeat(200), "]".repeat(200))), None);
    }

    // BUGLOG F08.
    #[test]
    fn a_long_unclosed_call_costs_linear_time() {
        let mut sink = Sink::new(std::sync::Arc::new([]), 0);
        let start = Instant::now();
        let mut reader = Pythonic::new(false);
        for c in "[f(".chars().chain("a=1,".repeat(25_000).chars()) {
            assert_eq!(reader.char(c, &mut sink), Ok(Step::More));
        }
        assert!(calls(&reader.text).is_err());
        // 50 ms are asked for; this is a debug build on a busy machine.
        assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
    }
}
