use super::body::{Step, Stepped};
use super::json::{Malformed, Scanner};
use super::sink::Sink;
use serde_json::Value as Json;

/// `{"name": "f", "arguments": {..}}`, or a list of such. The object's own end counts, not what its
/// strings look like.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    /// The tool must be a known one.
    strict: bool,
    list: bool,
    /// Of the object that is open.
    object: Option<Object>,
    /// In a list: objects so far.
    any: bool,
}

#[derive(Clone, Debug)]
struct Object {
    scanner: Scanner,
    /// Behind the colon of a member of the outer object.
    in_value: bool,
    key: String,
    value: String,
    id: Option<String>,
    named: bool,
    arguments: Arguments,
}

#[derive(Clone, Debug, PartialEq)]
enum Arguments {
    None,
    /// They came before the name.
    Held(String),
    Told,
}

impl Objects {
    pub fn new(strict: bool) -> Self {
        Self { strict, list: false, object: None, any: false }
    }

    pub fn in_string(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.scanner.in_string())
    }

    pub fn char(&mut self, c: char, sink: &mut Sink) -> Stepped {
        let Some(object) = &mut self.object else { return self.between(c, sink) };
        object.char(c, self.strict, sink)?;
        if !object.scanner.is_done() {
            return Ok(Step::More);
        }
        object.close(sink)?;
        (self.object, self.any) = (None, true);
        Ok(if self.list { Step::More } else { Step::Done })
    }

    fn between(&mut self, c: char, sink: &mut Sink) -> Stepped {
        match c {
            '{' => {
                self.object = Some(Object::new());
                self.char(c, sink)
            }
            '[' if !self.list => {
                self.list = true;
                Ok(Step::More)
            }
            ']' if self.list && self.any => Ok(Step::Done),
            ',' | ';' if self.any => Ok(Step::More),
            c if c.is_whitespace() => Ok(Step::More),
            _ => Err(Malformed),
        }
    }
}

impl Object {
    fn new() -> Self {
        Self {
            scanner: Scanner::new(),
            in_value: false,
            key: String::new(),
            value: String::new(),
            id: None,
            named: false,
            arguments: Arguments::None,
        }
    }

    fn char(&mut self, c: char, strict: bool, sink: &mut Sink) -> Result<(), Malformed> {
        let mut json = String::new();
        self.scanner.write(c, &mut json);
        let (outer, text) = (self.scanner.depth(), self.scanner.in_string());
        self.scanner.feed(c)?;
        let inside = outer > 1 || self.scanner.depth() > 1;
        match c {
            '{' if outer == 0 => {}
            ':' if outer == 1 && !text => self.begin_value()?,
            ',' | '}' if outer == 1 && !text => self.end_value(strict, sink)?,
            _ if !self.in_value => self.key.push_str(&json),
            _ if inside && self.streams(c) => {
                self.arguments = Arguments::Told;
                sink.arguments(&json);
            }
            _ => self.value.push_str(&json),
        }
        Ok(())
    }

    /// Arguments that are an object are passed on as they come, once the name is known.
    fn streams(&self, c: char) -> bool {
        let begins = self.arguments == Arguments::Told || c == '{';
        self.named && is_arguments(&self.key) && begins && self.value.trim().is_empty()
    }

    /// Only what a call has: any other object is no call, and is known to be none at its first key.
    fn begin_value(&mut self) -> Result<(), Malformed> {
        let key = std::mem::take(&mut self.key);
        self.key = key.trim().trim_matches('"').to_owned();
        self.in_value = true;
        let known = is_arguments(&self.key) || ["name", "id", "type", "index"].contains(&&*self.key);
        let again = (self.key == "name" && self.named)
            || (is_arguments(&self.key) && self.arguments != Arguments::None);
        if known && !again { Ok(()) } else { Err(Malformed) }
    }

    fn end_value(&mut self, strict: bool, sink: &mut Sink) -> Result<(), Malformed> {
        self.in_value = false;
        let (key, value) = (std::mem::take(&mut self.key), std::mem::take(&mut self.value));
        let text = || serde_json::from_str::<String>(value.trim()).map_err(|_| Malformed);
        match &*key {
            "id" => self.id = text().ok(),
            "name" => {
                let name = text()?;
                if name.is_empty() || (strict && !sink.knows(&name)) {
                    return Err(Malformed);
                }
                sink.name(&name, self.id.take());
                self.named = true;
                if let Arguments::Held(json) = &self.arguments {
                    sink.arguments(json);
                    self.arguments = Arguments::Told;
                }
            }
            key if is_arguments(key) && self.arguments == Arguments::None => {
                let json = as_object(value.trim())?;
                match self.named {
                    true => {
                        sink.arguments(&json);
                        self.arguments = Arguments::Told;
                    }
                    false => self.arguments = Arguments::Held(json),
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self, sink: &mut Sink) -> Result<(), Malformed> {
        if !self.named {
            return Err(Malformed);
        }
        if self.arguments == Arguments::None {
            sink.arguments("{}");
        }
        sink.end();
        Ok(())
    }
}

fn is_arguments(key: &str) -> bool {
    key == "arguments" || key == "parameters"
}

/// Some models write the object as text once more, and `null` where there are none.
fn as_object(value: &str) -> Result<String, Malformed> {
    match serde_json::from_str(value) {
        Ok(Json::Object(_)) => Ok(value.to_owned()),
        Ok(Json::Null) => Ok("{}".to_owned()),
        Ok(Json::String(text)) if text.trim().is_empty() => Ok("{}".to_owned()),
        Ok(Json::String(text)) if serde_json::from_str::<Json>(&text).is_ok_and(|json| json.is_object()) => {
            Ok(text)
        }
        _ => Err(Malformed),
    }
}
