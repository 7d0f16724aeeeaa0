use super::body::{Step, Stepped};
use super::json::{Malformed, escaped};
use super::sink::Sink;
use super::typed::Types;
use std::fmt::Write;

/// Calls as tags around each argument, without quotes: what a value is, the tool's schema says.
#[derive(Debug)]
pub(in crate::text) struct XmlSpec {
    pub name_end: &'static str,
    /// Around an argument's name.
    pub key: (&'static str, &'static str),
    /// Around its value; the first may be empty.
    pub value: (&'static str, &'static str),
    pub end: &'static str,
    /// One line break on either side of a value belongs to the format.
    pub trims: bool,
}

const LONGEST_NAME: usize = 128;

#[derive(Clone, Debug)]
pub(super) struct Parameters {
    spec: &'static XmlSpec,
    phase: Phase,
    tool: String,
    key: String,
    types: Types,
    /// A value that is not text, until it is whole.
    value: String,
    /// Of the text value: nothing has come yet; a line break that may be the last.
    fresh: bool,
    line_break: bool,
    any: bool,
    /// [`watch`](Self::watch), for each phase.
    tags: [Vec<&'static str>; 5],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Name,
    Between,
    Key,
    BeforeValue,
    Value,
}

impl Parameters {
    pub fn new(spec: &'static XmlSpec) -> Self {
        let name = match spec.name_end {
            "\n" => vec!["\n", spec.key.0, spec.end],
            end => vec![end],
        };
        let tags =
            [name, vec![spec.key.0, spec.end], vec![spec.key.1], vec![spec.value.0], vec![spec.value.1]];
        Self {
            spec,
            phase: Phase::Name,
            tool: String::new(),
            key: String::new(),
            types: Types::default(),
            value: String::new(),
            fresh: true,
            line_break: false,
            any: false,
            tags,
        }
    }

    pub fn watch(&self) -> &[&'static str] {
        &self.tags[self.phase as usize]
    }

    pub fn in_value(&self) -> bool {
        self.phase == Phase::Value
    }

    pub fn char(&mut self, c: char, sink: &mut Sink) -> Stepped {
        match self.phase {
            Phase::Name if c.is_whitespace() && self.tool.is_empty() => {}
            Phase::Name => push_name(&mut self.tool, c)?,
            Phase::Key => push_name(&mut self.key, c)?,
            Phase::Between | Phase::BeforeValue if c.is_whitespace() => {}
            Phase::Between | Phase::BeforeValue => return Err(Malformed),
            Phase::Value if self.types.is_text() => self.text(c, sink),
            Phase::Value => self.value.push(c),
        }
        Ok(Step::More)
    }

    pub fn tag(&mut self, tag: &str, sink: &mut Sink) -> Stepped {
        if self.phase == Phase::Name {
            if tag == "\n" && self.tool.is_empty() {
                return Ok(Step::More);
            }
            let name = self.tool.trim().to_owned();
            if name.is_empty() {
                return Err(Malformed);
            }
            sink.name(&name, None);
            (self.tool, self.phase) = (name, Phase::Between);
            if tag == self.spec.name_end {
                return Ok(Step::More);
            }
        }
        match self.phase {
            Phase::Between if tag == self.spec.end => return self.close(sink),
            Phase::Between => self.phase = Phase::Key,
            Phase::Key if self.spec.value.0.is_empty() => self.begin_value(sink)?,
            Phase::Key => self.phase = Phase::BeforeValue,
            Phase::BeforeValue => self.begin_value(sink)?,
            Phase::Value => self.end_value(sink),
            Phase::Name => {}
        }
        Ok(Step::More)
    }

    /// Without its last tag a call is whole, but not inside of an argument.
    pub fn finish(&mut self, sink: &mut Sink) -> Stepped {
        if self.phase == Phase::Between { self.close(sink) } else { Err(Malformed) }
    }

    fn begin_value(&mut self, sink: &mut Sink) -> Result<(), Malformed> {
        let key = std::mem::take(&mut self.key);
        let key = key.trim();
        if key.is_empty() {
            return Err(Malformed);
        }
        self.types = Types::of(&sink.tools, &self.tool, key);
        let mut json = String::new();
        let _ = write!(json, "{}\"{}\": ", if self.any { ", " } else { "{" }, escaped(key));
        if self.types.is_text() {
            json.push('"');
        }
        sink.arguments(&json);
        (self.any, self.fresh, self.line_break, self.phase) = (true, true, false, Phase::Value);
        Ok(())
    }

    fn text(&mut self, c: char, sink: &mut Sink) {
        if self.spec.trims {
            if std::mem::take(&mut self.fresh) && c == '\n' {
                return;
            }
            if std::mem::replace(&mut self.line_break, c == '\n') {
                sink.arguments("\\n");
            }
            if self.line_break {
                return;
            }
        }
        sink.arguments(&escaped(c.encode_utf8(&mut [0; 4])));
    }

    fn end_value(&mut self, sink: &mut Sink) {
        self.phase = Phase::Between;
        if self.types.is_text() {
            return sink.arguments("\"");
        }
        let value = std::mem::take(&mut self.value);
        let value = match self.spec.trims {
            true => {
                let value = value.strip_prefix('\n').unwrap_or(&value);
                value.strip_suffix('\n').unwrap_or(value)
            }
            false => &value,
        };
        sink.arguments(&self.types.read(value).to_string());
    }

    fn close(&mut self, sink: &mut Sink) -> Stepped {
        sink.arguments(if self.any { "}" } else { "{}" });
        sink.end();
        Ok(Step::Done)
    }
}

fn push_name(name: &mut String, c: char) -> Result<(), Malformed> {
    name.push(c);
    if name.len() > LONGEST_NAME || "<>{}\n".contains(c) { Err(Malformed) } else { Ok(()) }
}
