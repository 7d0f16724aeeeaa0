use super::body::{Step, Stepped};
use super::json::{Malformed, Scanner};
use super::sink::Sink;

/// `name<sep>{..}`: the tags between the parts of such a call.
#[derive(Debug)]
pub(in crate::text) struct NamedSpec {
    /// Behind the word `function` (DeepSeek V3).
    pub kind: Option<&'static str>,
    /// Between a name and the id that follows it (Mistral).
    pub id: Option<&'static str>,
    /// In front of the arguments. A `{` begins them as well.
    pub arguments: &'static [&'static str],
}

/// Longest name that is still taken for one.
const LONGEST_NAME: usize = 128;

#[derive(Clone, Debug)]
pub(super) struct Named {
    spec: &'static NamedSpec,
    phase: Phase,
    name: String,
    id: Option<String>,
    scanner: Scanner,
    /// [`watch`](Self::watch), for each phase but the last.
    tags: [Vec<&'static str>; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Kind,
    Name,
    Id,
    Arguments,
}

impl Named {
    pub fn new(spec: &'static NamedSpec) -> Self {
        let phase = if spec.kind.is_some() { Phase::Kind } else { Phase::Name };
        let arguments = spec.arguments.to_vec();
        let name = arguments.iter().chain(&spec.id).copied().collect();
        let tags = [spec.kind.into_iter().collect(), name, arguments];
        Self { spec, phase, name: String::new(), id: None, scanner: Scanner::new(), tags }
    }

    /// The name has been told already.
    pub fn arguments(spec: &'static NamedSpec) -> Self {
        Self { phase: Phase::Arguments, ..Self::new(spec) }
    }

    pub fn watch(&self) -> &[&'static str] {
        self.tags.get(self.phase as usize).map_or(&[], |tags| tags)
    }

    pub fn in_string(&self) -> bool {
        self.scanner.in_string()
    }

    pub fn tag(&mut self, tag: &str) -> Stepped {
        self.phase = match self.phase {
            Phase::Kind if self.name.trim() == "function" => {
                self.name.clear();
                Phase::Name
            }
            Phase::Name if self.spec.id == Some(tag) => {
                self.id = Some(String::new());
                Phase::Id
            }
            Phase::Name | Phase::Id => Phase::Arguments,
            Phase::Kind | Phase::Arguments => return Err(Malformed),
        };
        Ok(Step::More)
    }

    pub fn char(&mut self, c: char, sink: &mut Sink) -> Stepped {
        match self.phase {
            Phase::Arguments => return self.argument(c, sink),
            Phase::Name if c == '{' && self.spec.kind.is_none() => {
                self.phase = Phase::Arguments;
                return self.argument(c, sink);
            }
            Phase::Id => self.id.get_or_insert_default().push(c),
            Phase::Kind | Phase::Name if c.is_whitespace() && (self.name.is_empty() || c == '\n') => {}
            Phase::Kind | Phase::Name => self.name.push(c),
        }
        let in_name = |c: char| c.is_alphanumeric() || "_-.:/$".contains(c);
        let fits = self.name.len() <= LONGEST_NAME && self.name.chars().all(in_name);
        let short_id = self.id.as_ref().is_none_or(|id| id.len() <= LONGEST_NAME);
        if fits && short_id { Ok(Step::More) } else { Err(Malformed) }
    }

    fn argument(&mut self, c: char, sink: &mut Sink) -> Stepped {
        let mut json = String::new();
        self.scanner.write(c, &mut json);
        self.scanner.feed(c)?;
        if self.scanner.depth() == 0 && !self.scanner.is_done() {
            return Ok(Step::More);
        }
        if !sink.announced {
            self.announce(sink)?;
        }
        sink.arguments(&json);
        if self.scanner.is_done() {
            sink.end();
            return Ok(Step::Done);
        }
        Ok(Step::More)
    }

    /// Kimi's name is an id: `functions.NAME:INDEX`, and must come back as one.
    fn announce(&mut self, sink: &mut Sink) -> Result<(), Malformed> {
        let name = self.name.trim();
        let native = name.strip_prefix("functions.").and_then(|rest| rest.rsplit_once(':'));
        let (name, id) = match native.filter(|(_, index)| index.bytes().all(|b| b.is_ascii_digit())) {
            Some((tool, _)) => (tool, Some(name.to_owned())),
            None => (name, self.id.take().map(|id| id.trim().to_owned()).filter(|id| !id.is_empty())),
        };
        if name.is_empty() {
            return Err(Malformed);
        }
        sink.name(name, id);
        Ok(())
    }
}
