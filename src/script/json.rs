//! The JSON forms of an answer. Field names are part of the interface: they are added to, never
//! changed.

use super::answer::{Answer, Choice, ToolRun, Work};
use crate::base::is_dangerous;
use crate::protocol::{
    BeamScore, FailureKind, ModelInfo, SamplingParams, StepRecord, Timings, TokenInfo, ToolCall,
    ToolCallDelta, TopToken, Usage,
};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// `run --json`.
#[derive(Serialize)]
struct Report<'a> {
    model: &'a str,
    device: &'a str,
    /// Why there; empty where that needs no words.
    device_reason: &'a str,
    /// With `--quantize`: what that lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    quantized: Option<&'a str>,
    seed: Option<u64>,
    text: &'a str,
    reasoning: &'a str,
    tool_calls: &'a [ToolCall],
    /// With `--run-tools`: what was called before this answer.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tool_results: &'a [ToolRun],
    finish_reason: &'static str,
    usage: Usage,
    timings: TimingsJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    work: Option<Work>,
    params: &'a SamplingParams,
    #[serde(skip_serializing_if = "Option::is_none")]
    beam: Option<BeamScore>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<Vec<TokenJson<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    choices: Option<Vec<ChoiceJson<'a>>>,
}

#[derive(Serialize)]
struct ChoiceJson<'a> {
    index: usize,
    seed: Option<u64>,
    text: &'a str,
    reasoning: &'a str,
    tool_calls: &'a [ToolCall],
    finish_reason: &'static str,
    usage: Usage,
    timings: TimingsJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    beam: Option<BeamScore>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<Vec<TokenJson<'a>>>,
}

/// Milliseconds to the microsecond, rates to the thousandth.
#[derive(Serialize)]
pub struct TimingsJson {
    load_ms: f64,
    ttft_ms: f64,
    itl_ms_mean: f64,
    tpot_ms: f64,
    e2el_ms: f64,
    tokens_per_second: f64,
}

#[derive(Serialize)]
pub struct TokenJson<'a> {
    id: u32,
    text: &'a str,
    bytes: &'a [u8],
    logprob: f32,
    rank: u32,
    top: Vec<TopJson<'a>>,
}

#[derive(Serialize)]
struct TopJson<'a> {
    id: u32,
    text: &'a str,
    logprob: f32,
}

impl TimingsJson {
    pub fn new(info: &ModelInfo, t: &Timings) -> Self {
        let round = |x: f64| (x * 1e3).round() / 1e3;
        Self {
            load_ms: round(info.load_ms),
            ttft_ms: round(t.ttft_ms),
            itl_ms_mean: round(t.itl_ms_mean),
            tpot_ms: round(t.tpot_ms),
            e2el_ms: round(t.e2el_ms),
            tokens_per_second: round(t.tokens_per_second),
        }
    }
}

impl<'a> From<&'a TokenInfo> for TokenJson<'a> {
    fn from(token: &'a TokenInfo) -> Self {
        let top = |t: &'a TopToken| TopJson { id: t.id, text: &t.text, logprob: t.logprob };
        Self {
            id: token.id,
            text: &token.text,
            bytes: &token.bytes,
            logprob: token.logprob,
            rank: token.rank,
            top: token.top.iter().map(top).collect(),
        }
    }
}

/// The object of `run --json`. The top level is the first choice, its usage that of all.
pub fn report(answer: &Answer, with_tokens: bool) -> impl Serialize + '_ {
    let first = &answer.choices[0];
    let all = || answer.choices.iter().enumerate().map(|c| choice(answer, c, with_tokens)).collect();
    Report {
        model: &answer.info.name,
        device: &answer.info.device,
        device_reason: &answer.info.device_reason,
        quantized: answer.info.quantized.as_deref(),
        seed: answer.seed_of(0),
        text: &first.text,
        reasoning: &first.reasoning,
        tool_calls: &first.tool_calls,
        tool_results: &answer.tool_results,
        finish_reason: first.finish_reason(),
        usage: answer.usage(),
        timings: timings(&answer.info, first),
        work: answer.work,
        params: first.outcome.as_ref().map_or(&answer.params, |o| &o.params),
        beam: beam(first),
        tokens: tokens(first, with_tokens),
        choices: (answer.choices.len() > 1).then(all),
    }
}

fn choice<'a>(answer: &Answer, (index, choice): (usize, &'a Choice), with_tokens: bool) -> ChoiceJson<'a> {
    ChoiceJson {
        index,
        seed: answer.seed_of(index),
        text: &choice.text,
        reasoning: &choice.reasoning,
        tool_calls: &choice.tool_calls,
        finish_reason: choice.finish_reason(),
        usage: answer.usage_of(choice),
        timings: timings(&answer.info, choice),
        beam: beam(choice),
        tokens: tokens(choice, with_tokens),
    }
}

fn beam(choice: &Choice) -> Option<BeamScore> {
    choice.outcome.as_ref()?.beam
}

fn tokens(choice: &Choice, wanted: bool) -> Option<Vec<TokenJson<'_>>> {
    wanted.then(|| choice.tokens.iter().map(TokenJson::from).collect())
}

fn timings(info: &ModelInfo, choice: &Choice) -> TimingsJson {
    TimingsJson::new(info, &choice.outcome.as_ref().map_or_else(Timings::default, |o| o.timings))
}

/// A line of `--output-format ndjson`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line<'a> {
    Start {
        model: &'a str,
        device: &'a str,
        device_reason: &'a str,
        prompt_tokens: usize,
        choices: usize,
    },
    Delta {
        choice: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning: Option<&'a str>,
    },
    ToolCall {
        choice: u32,
        #[serde(flatten)]
        piece: &'a ToolCallDelta,
    },
    ToolResult(&'a ToolRun),
    Token {
        choice: u32,
        #[serde(flatten)]
        token: TokenJson<'a>,
    },
    Step(&'a StepRecord),
    Finish {
        choice: u32,
        finish_reason: &'static str,
        seed: u64,
        usage: Usage,
        timings: TimingsJson,
        params: &'a SamplingParams,
    },
    Error {
        kind: FailureKind,
        message: &'a str,
    },
}

/// One line of JSON. What a terminal would obey or hide is written as `\u` escapes: the same text to
/// any reader of JSON, and harmless when shown.
pub fn write_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_string(value).map_err(io::Error::other)?;
    writeln!(out, "{}", escaped(&json))
}

/// The same over several lines, for reports that people read too.
pub fn write_pretty(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
    writeln!(out, "{}", escaped(&json))
}

/// Outside of strings JSON has no such characters but line breaks, so every one is in a string.
fn escaped(json: &str) -> Cow<'_, str> {
    if !json.chars().any(is_dangerous) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match is_dangerous(c) {
            true => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                write!(out, "\\u{unit:04x}").expect("a String takes everything");
            }),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn escapes_keep_the_value_and_disarm_the_text() {
        let text = "a\x1b[2J\u{9b}31m \u{202e}x \u{e0041} \n\"q\"";
        let mut out = Vec::new();
        write_line(&mut out, &text).unwrap();
        let line = String::from_utf8(out).unwrap();
        assert!(!line.trim_end().chars().any(is_dangerous), "{line:?}");
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
    }
}
