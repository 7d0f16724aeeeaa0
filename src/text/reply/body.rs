use super::families::{BodyKind, HARMONY_BODY};
use super::gemma::Gemma;
use super::json::Malformed;
use super::named::Named;
use super::objects::Objects;
use super::parameters::Parameters;
use super::pythonic::Pythonic;
use super::sink::Sink;

/// What one more piece of a call made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    More,
    /// The call, or the list of calls, is whole.
    Done,
}

pub(super) type Stepped = Result<Step, Malformed>;

/// The inside of a call, in one of the formats.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Objects(Objects),
    Named(Named),
    Xml(Parameters),
    Pythonic(Pythonic),
    Gemma(Gemma),
    /// The first character will tell which.
    Either(&'static super::named::NamedSpec),
}

impl Body {
    /// `bare`: no tag said that this is a call, so the tool must be a known one.
    pub fn new(kind: BodyKind, bare: bool) -> Self {
        match kind {
            BodyKind::Objects => Body::Objects(Objects::new(bare)),
            BodyKind::Named(spec) => Body::Named(Named::new(spec)),
            BodyKind::Either(spec) => Body::Either(spec),
            BodyKind::Xml(spec) => Body::Xml(Parameters::new(spec)),
            BodyKind::Pythonic => Body::Pythonic(Pythonic::new(bare)),
            BodyKind::Gemma(quote) => Body::Gemma(Gemma::new(quote)),
        }
    }

    /// gpt-oss: the header has named the tool, the object comes.
    pub fn harmony() -> Self {
        Body::Named(Named::arguments(&HARMONY_BODY))
    }

    /// Tags that mean something now.
    pub fn watch(&self) -> &[&'static str] {
        match self {
            Body::Named(named) => named.watch(),
            Body::Xml(parameters) => parameters.watch(),
            Body::Gemma(gemma) => gemma.watch(),
            Body::Objects(_) | Body::Pythonic(_) | Body::Either(_) => &[],
        }
    }

    /// Whether a token that is a tag elsewhere is text here.
    pub fn takes_text(&self) -> bool {
        match self {
            Body::Objects(objects) => objects.in_string(),
            Body::Named(named) => named.in_string(),
            Body::Xml(parameters) => parameters.in_value(),
            Body::Pythonic(pythonic) => pythonic.in_string(),
            Body::Gemma(gemma) => gemma.in_string(),
            Body::Either(_) => false,
        }
    }

    pub fn char(&mut self, c: char, sink: &mut Sink) -> Stepped {
        match self {
            Body::Objects(objects) => objects.char(c, sink),
            Body::Named(named) => named.char(c, sink),
            Body::Xml(parameters) => parameters.char(c, sink),
            Body::Pythonic(pythonic) => pythonic.char(c, sink),
            Body::Gemma(gemma) => gemma.char(c, sink),
            Body::Either(_) if c.is_whitespace() => Ok(Step::More),
            Body::Either(spec) => {
                *self = match c {
                    '[' | '{' => Body::Objects(Objects::new(false)),
                    _ => Body::Named(Named::new(spec)),
                };
                self.char(c, sink)
            }
        }
    }

    pub fn tag(&mut self, tag: &str, sink: &mut Sink) -> Stepped {
        match self {
            Body::Named(named) => named.tag(tag),
            Body::Xml(parameters) => parameters.tag(tag, sink),
            Body::Gemma(gemma) => gemma.tag(sink),
            Body::Objects(_) | Body::Pythonic(_) | Body::Either(_) => Err(Malformed),
        }
    }

    /// The reply ends here: is the call whole all the same?
    pub fn finish(&mut self, sink: &mut Sink) -> Stepped {
        match self {
            Body::Xml(parameters) => parameters.finish(sink),
            _ => Err(Malformed),
        }
    }
}
