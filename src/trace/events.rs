//! Events as JSON. Tokens and text are most of a trace and are arrays; every other event is written as
//! the protocol has it.
//!
//! | array | event |
//! |---|---|
//! | `["T", seq, id, text, logprob, rank, entropy]` | a token, then its text as a part of the answer |
//! | `["R", ...]` | the same as a part of the thoughts |
//! | `["t", ...]` | a token alone |
//! | `["d", seq, text]`, `["h", seq, text]` | text of the answer, of the thoughts |
//! | `["c", seq, piece]` | a piece of a tool call |
//!
//! A token's eighth element, where there is one, says what does not follow: `b` its bytes, `c` its
//! channel, `h` the text held back and `w` why, `k` its alternatives.

use super::format::Seq;
use crate::protocol::{Channel, Event, HeldBack, Part, SeqId, TokenInfo, ToolCallDelta, TopToken};
use serde::{Deserialize, Serialize};
use serde_json::{Error, Value};

pub fn write(events: &[Event], out: &mut String) -> Result<(), Error> {
    out.push('[');
    let mut left = events;
    while let [event, rest @ ..] = left {
        if left.len() < events.len() {
            out.push(',');
        }
        left = rest;
        match event {
            Event::Token { seq, token } => {
                let kind = match rest.first() {
                    Some(Event::Delta { seq: of, part }) if of == seq => kind_with(token, part),
                    _ => Kind::Alone,
                };
                if kind != Kind::Alone {
                    left = &rest[1..];
                }
                token_array(kind, *seq, token, out)?;
            }
            Event::Delta { seq, part } => {
                let seq = Seq::from(*seq);
                out.push_str(&match part {
                    Part::Text(text) => serde_json::to_string(&("d", seq, text)),
                    Part::Reasoning(text) => serde_json::to_string(&("h", seq, text)),
                    Part::ToolCall(call) => serde_json::to_string(&("c", seq, call)),
                }?);
            }
            other => out.push_str(&serde_json::to_string(other)?),
        }
    }
    out.push(']');
    Ok(())
}

/// What is not understood is left out and counted: a later version may have written it.
pub fn read(values: Vec<Value>) -> (Vec<Event>, usize) {
    let mut events = Vec::with_capacity(values.len());
    let mut unknown = 0;
    for value in values {
        match one(value) {
            Ok(read) => events.extend(read),
            Err(_) => unknown += 1,
        }
    }
    (events, unknown)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Alone,
    Text,
    Reasoning,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Alone => "t",
            Kind::Text => "T",
            Kind::Reasoning => "R",
        }
    }

    /// Of the token, where nothing else is said.
    fn channel(self) -> Channel {
        match self {
            Kind::Alone => Channel::Marker,
            Kind::Text => Channel::Content,
            Kind::Reasoning => Channel::Reasoning,
        }
    }
}

/// A token whose whole text was said at once.
fn kind_with(token: &TokenInfo, part: &Part) -> Kind {
    match part {
        Part::Text(text) if *text == token.text => Kind::Text,
        Part::Reasoning(text) if *text == token.text => Kind::Reasoning,
        _ => Kind::Alone,
    }
}

/// What does not follow from the rest of the token.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Extra {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    b: Option<Vec<u8>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    c: Option<Channel>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    h: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    w: Option<HeldBack>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    f: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    k: Vec<(u32, String, Real, Real)>,
}

fn token_array(kind: Kind, seq: SeqId, token: &TokenInfo, out: &mut String) -> Result<(), Error> {
    let extra = Extra {
        b: (token.bytes != token.text.as_bytes()).then(|| token.bytes.clone()),
        c: (token.channel != kind.channel()).then_some(token.channel),
        h: token.held.clone(),
        w: token.why,
        f: token.forced,
        k: token.top.iter().map(|t| (t.id, t.text.clone(), Real(t.logit), Real(t.logprob))).collect(),
    };
    let (name, seq, text) = (kind.name(), Seq::from(seq), &token.text);
    let (logprob, entropy) = (Real(token.logprob), Real(token.entropy));
    let array = match extra == Extra::default() {
        true => serde_json::to_string(&(name, seq, token.id, text, logprob, token.rank, entropy)),
        false => serde_json::to_string(&(name, seq, token.id, text, logprob, token.rank, entropy, extra)),
    };
    out.push_str(&array?);
    Ok(())
}

fn one(value: Value) -> Result<Vec<Event>, Error> {
    let Value::Array(items) = &value else { return Ok(vec![serde_json::from_value(value)?]) };
    let name = items.first().and_then(Value::as_str).unwrap_or_default();
    let kind = [Kind::Alone, Kind::Text, Kind::Reasoning].into_iter().find(|kind| kind.name() == name);
    match (kind, name) {
        (Some(kind), _) => token(kind, value),
        (None, "d") => {
            let (_, seq, text): (String, Seq, String) = serde_json::from_value(value)?;
            Ok(vec![Event::Delta { seq: seq.into(), part: Part::Text(text) }])
        }
        (None, "h") => {
            let (_, seq, text): (String, Seq, String) = serde_json::from_value(value)?;
            Ok(vec![Event::Delta { seq: seq.into(), part: Part::Reasoning(text) }])
        }
        (None, "c") => {
            let (_, seq, call): (String, Seq, ToolCallDelta) = serde_json::from_value(value)?;
            Ok(vec![Event::Delta { seq: seq.into(), part: Part::ToolCall(call) }])
        }
        (None, _) => Err(serde::de::Error::custom("an event of a later version")),
    }
}

fn token(kind: Kind, mut value: Value) -> Result<Vec<Event>, Error> {
    let items = value.as_array_mut().expect("the caller looked");
    let extra = if items.len() > 7 { serde_json::from_value(items[7].take())? } else { Extra::default() };
    items.truncate(7);
    let (_, seq, id, text, Real(logprob), rank, Real(entropy)): (String, Seq, u32, String, Real, u32, Real) =
        serde_json::from_value(value)?;
    let seq = seq.into();
    let top = extra.k.into_iter().map(|(id, text, Real(logit), Real(logprob))| TopToken {
        id,
        text,
        logit,
        logprob,
    });
    let info = TokenInfo {
        id,
        bytes: extra.b.unwrap_or_else(|| text.clone().into_bytes()),
        logprob,
        rank,
        entropy,
        top: top.collect(),
        forced: extra.f,
        channel: extra.c.unwrap_or(kind.channel()),
        held: extra.h,
        why: extra.w,
        text: text.clone(),
    };
    let part = match kind {
        Kind::Alone => None,
        Kind::Text => Some(Part::Text(text)),
        Kind::Reasoning => Some(Part::Reasoning(text)),
    };
    let mut events = vec![Event::Token { seq, token: Box::new(info) }];
    events.extend(part.map(|part| Event::Delta { seq, part }));
    Ok(events)
}

/// A number of which JSON has no infinity: null is minus infinity, the logarithm of nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Real(pub f32);

impl Serialize for Real {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.is_finite().then_some(self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Real(Option::deserialize(deserializer)?.unwrap_or(f32::NEG_INFINITY)))
    }
}
