//! Conditions that stop the engine, as typed after `/break` and as shown.

use super::{RequestId, SequenceState, TokenId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Stops the engine after the first step that did this.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Breakpoint {
    /// Any sequence gave its blocks back.
    Preemption,
    /// Any cached block was dropped.
    Eviction,
    /// Any shared block was copied because it was about to be written.
    CopyOnWrite,
    /// A sequence drew this token.
    Token { request: Option<RequestId>, token: TokenMatch },
    /// Of the distribution that a token was drawn from, before the sampler's stages, in nats.
    Entropy(Threshold),
    /// Of the drawn token, in the same distribution.
    Probability(Threshold),
    /// Share of the blocks that sequences own.
    KvUse { above: f32 },
    /// The request got into this state.
    State { request: Option<RequestId>, state: WatchedState },
    /// This step was taken.
    Step(u64),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenMatch {
    Id(TokenId),
    /// The token's text contains this.
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    Above(f32),
    Below(f32),
}

/// States one can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchedState {
    Is(SequenceState),
    Finished,
}

/// A breakpoint in force. Ids are counted from 1 and never used again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetBreakpoint {
    pub id: u32,
    pub on: Breakpoint,
    pub hits: u64,
}

/// What was typed after `/break` and is none; [`fmt::Display`] says what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; breakpoints are: {forms}", forms = Breakpoint::FORMS.join(", "))]
pub struct BadBreakpoint(String);

impl Breakpoint {
    /// One of each, as typed.
    pub const FORMS: [&str; 9] = [
        "preemption",
        "eviction",
        "copy-on-write",
        "token 1234 or token \"text\" (token of 3 \"text\": of request 3)",
        "entropy > 2.5",
        "probability < 0.05",
        "kv > 80%",
        "state finished (state preempted of 3)",
        "step 120",
    ];
}

impl FromStr for Breakpoint {
    type Err = BadBreakpoint;

    fn from_str(typed: &str) -> Result<Self, Self::Err> {
        let typed = typed.trim();
        let end = typed.find(|c: char| !c.is_alphabetic() && c != '-' && c != '_').unwrap_or(typed.len());
        let (word, rest) = (typed[..end].to_lowercase().replace('_', "-"), typed[end..].trim());
        let alone = |breakpoint| match rest {
            "" => Ok(breakpoint),
            _ => Err(bad(format!("{word} stands alone, without {rest:?}"))),
        };
        match word.as_str() {
            "preemption" => alone(Breakpoint::Preemption),
            "eviction" => alone(Breakpoint::Eviction),
            "copy-on-write" | "cow" => alone(Breakpoint::CopyOnWrite),
            "token" => token(rest),
            "entropy" => threshold(&word, rest, f32::MAX).map(Breakpoint::Entropy),
            "probability" | "p" => threshold(&word, rest, 1.0).map(Breakpoint::Probability),
            "kv" => kv_use(rest),
            "state" => state(rest),
            "step" => match rest.parse() {
                Ok(step @ 1..) => Ok(Breakpoint::Step(step)),
                _ => Err(bad(format!("step takes a number from 1, not {rest:?}"))),
            },
            "" => Err(bad("nothing to stop at".into())),
            _ => Err(bad(format!("{word:?} is no breakpoint"))),
        }
    }
}

fn bad(why: String) -> BadBreakpoint {
    BadBreakpoint(why)
}

/// `1234`, `"text"`, `text`, each with `of 3` in front of it.
fn token(rest: &str) -> Result<Breakpoint, BadBreakpoint> {
    let of = rest.strip_prefix("of ").and_then(|of| of.trim_start().split_once(' '));
    let (request, what) = match of.and_then(|(id, what)| Some((id.parse().ok()?, what.trim()))) {
        Some((id, what)) => (Some(RequestId(id)), what),
        None => (None, rest),
    };
    let wrong = || bad(format!("token takes an id or a text in quotes, not {what:?}"));
    let token = match (what.parse(), what.starts_with('"')) {
        (Ok(id), _) => TokenMatch::Id(id),
        (_, true) => TokenMatch::Text(serde_json::from_str(what).map_err(|_| wrong())?),
        (_, false) => TokenMatch::Text(what.to_owned()),
    };
    match &token {
        TokenMatch::Text(text) if text.is_empty() => Err(wrong()),
        _ => Ok(Breakpoint::Token { request, token }),
    }
}

/// `> 2.5` or `< 0.1`, up to `most`.
fn threshold(name: &str, rest: &str, most: f32) -> Result<Threshold, BadBreakpoint> {
    let limit = |number: &str| number.trim().parse().ok().filter(|x: &f32| (0.0..=most).contains(x));
    let found = match (rest.strip_prefix('>'), rest.strip_prefix('<')) {
        (Some(number), _) => limit(number).map(Threshold::Above),
        (_, Some(number)) => limit(number).map(Threshold::Below),
        (None, None) => None,
    };
    let range = if most == 1.0 { "from 0 to 1" } else { "from 0" };
    found.ok_or_else(|| bad(format!("{name} takes > or < and a number {range}, not {rest:?}")))
}

/// `> 80%` or `> 0.8`.
fn kv_use(rest: &str) -> Result<Breakpoint, BadBreakpoint> {
    let number = rest.strip_prefix('>').map(str::trim);
    let share = number.and_then(|number| match number.strip_suffix('%') {
        Some(percent) => percent.trim().parse().ok().map(|x: f64| (x / 100.0) as f32),
        None => number.parse().ok(),
    });
    let above = share.filter(|share| (0.0..=1.0).contains(share));
    above
        .map(|above| Breakpoint::KvUse { above })
        .ok_or_else(|| bad(format!("kv takes > and a share such as 80% or 0.8, not {rest:?}")))
}

/// `finished`, `running of 3`.
fn state(rest: &str) -> Result<Breakpoint, BadBreakpoint> {
    let (name, of) = rest.split_once(' ').unwrap_or((rest, ""));
    let known = WatchedState::ALL.into_iter().find(|state| state.name() == name.to_lowercase());
    let state = known.ok_or_else(|| {
        let names = WatchedState::ALL.map(WatchedState::name).join(", ");
        bad(format!("state takes one of {names}, not {name:?}"))
    })?;
    let request = match of.trim() {
        "" => None,
        of => {
            let id = of.strip_prefix("of ").and_then(|id| id.trim().parse().ok());
            Some(RequestId(id.ok_or_else(|| bad(format!("of takes a request's number, not {of:?}")))?))
        }
    };
    Ok(Breakpoint::State { request, state })
}

impl WatchedState {
    pub const ALL: [WatchedState; 6] = [
        WatchedState::Is(SequenceState::Waiting),
        WatchedState::Is(SequenceState::Loading),
        WatchedState::Is(SequenceState::Compiling),
        WatchedState::Is(SequenceState::Running),
        WatchedState::Is(SequenceState::Preempted),
        WatchedState::Finished,
    ];

    pub fn name(self) -> &'static str {
        match self {
            WatchedState::Is(SequenceState::Waiting) => "waiting",
            WatchedState::Is(SequenceState::Loading) => "loading",
            WatchedState::Is(SequenceState::Compiling) => "compiling",
            WatchedState::Is(SequenceState::Running) => "running",
            WatchedState::Is(SequenceState::Preempted) => "preempted",
            WatchedState::Finished => "finished",
        }
    }
}

impl Threshold {
    pub fn is_met(self, x: f32) -> bool {
        match self {
            Threshold::Above(limit) => x > limit,
            Threshold::Below(limit) => x < limit,
        }
    }
}

impl fmt::Display for Breakpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Breakpoint::Preemption => f.write_str("preemption"),
            Breakpoint::Eviction => f.write_str("eviction"),
            Breakpoint::CopyOnWrite => f.write_str("copy-on-write"),
            Breakpoint::Token { request, token } => {
                f.write_str("token ")?;
                if let Some(RequestId(id)) = request {
                    write!(f, "of {id} ")?;
                }
                match token {
                    TokenMatch::Id(id) => write!(f, "{id}"),
                    TokenMatch::Text(text) => write!(f, "{}", serde_json::Value::from(text.as_str())),
                }
            }
            Breakpoint::Entropy(threshold) => write!(f, "entropy {threshold}"),
            Breakpoint::Probability(threshold) => write!(f, "probability {threshold}"),
            Breakpoint::KvUse { above } => match percent(*above) {
                Some(percent) => write!(f, "kv > {percent}%"),
                None => write!(f, "kv > {above}"),
            },
            Breakpoint::State { request, state } => {
                f.write_str("state ")?;
                f.write_str(state.name())?;
                request.map_or(Ok(()), |RequestId(id)| write!(f, " of {id}"))
            }
            Breakpoint::Step(step) => write!(f, "step {step}"),
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threshold::Above(limit) => write!(f, "> {limit}"),
            Threshold::Below(limit) => write!(f, "< {limit}"),
        }
    }
}

/// In percent with at most two decimals, where that is exactly this share.
fn percent(share: f32) -> Option<f64> {
    let percent = (f64::from(share) * 1e4).round() / 1e2;
    ((percent / 100.0) as f32 == share).then_some(percent)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_shown_can_be_typed_again() {
        for shown in [
            "preemption",
            "eviction",
            "copy-on-write",
            "token 1234",
            "token \" Paris\"",
            "token of 3 \"a \\\"b\\\"\\n\"",
            "token of 3 17",
            "entropy > 2.5",
            "entropy < 0.1",
            "probability < 0.05",
            "kv > 80%",
            "kv > 12.35%",
            "kv > 0.123456",
            "state finished",
            "state running of 3",
            "state waiting",
            "state loading",
            "state preempted of 12",
            "step 120",
        ] {
            let breakpoint: Breakpoint = shown.parse().unwrap_or_else(|e| panic!("{shown}: {e}"));
            assert_eq!(breakpoint.to_string(), shown);
        }
    }

    #[test]
    fn short_and_loose_forms_are_understood() {
        for (typed, shown) in [
            ("cow", "copy-on-write"),
            ("copy_on_write", "copy-on-write"),
            (" Eviction ", "eviction"),
            ("p<0.05", "probability < 0.05"),
            ("kv>0.8", "kv > 80%"),
            ("token Paris", "token \"Paris\""),
            ("token of", "token \"of\""),
            ("token \"12\"", "token \"12\""),
        ] {
            assert_eq!(typed.parse::<Breakpoint>().unwrap().to_string(), shown, "{typed}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_the_forms_are_listed() {
        for (typed, wanted) in [
            ("", "nothing to stop at"),
            ("preemption 3", "stands alone"),
            ("sunset", "\"sunset\" is no breakpoint"),
            ("token", "an id or a text in quotes"),
            ("token \"open", "an id or a text in quotes"),
            ("token \"\"", "an id or a text in quotes"),
            ("entropy 2.5", "takes > or <"),
            ("entropy > -1", "a number from 0"),
            ("entropy > NaN", "a number from 0"),
            ("p < 5", "a number from 0 to 1"),
            ("kv > 80", "80% or 0.8"),
            ("kv < 80%", "80% or 0.8"),
            ("state asleep", "waiting, loading, compiling, running, preempted, finished"),
            ("state running of x", "a request's number"),
            ("step 0", "a number from 1"),
        ] {
            let why = typed.parse::<Breakpoint>().unwrap_err().to_string();
            assert!(why.contains(wanted) && why.contains("copy-on-write"), "{typed}: {why}");
        }
    }
}
