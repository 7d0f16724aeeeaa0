use super::intake::Accepted;
use crate::protocol::{
    BeamScore, Channel, FinishReason, Outcome, Part, SamplingParams, Timings, TokenId, Usage,
};
use crate::text::{OutputParser, Pushed};
use std::time::Duration;

/// One open choice: its text so far, and its times.
pub struct Stream {
    parser: OutputParser,
    pub params: SamplingParams,
    pub seed: u64,
    pub usage: Usage,
    pub timings: Timings,
    arrival: Duration,
    started: Option<Duration>,
    first_token: Option<Duration>,
    last_token: Duration,
    /// A stop string was found: what the parser still holds belongs to it.
    stopped: bool,
    /// Tokens taken over from the sequence that this one branches from.
    retold: usize,
    beam: Option<BeamScore>,
    /// Tokens before the answer itself; `None` while it thinks.
    answer_from: Option<usize>,
    /// Most tokens of thoughts; none once they were closed by force.
    budget: Option<u32>,
}

impl Stream {
    pub fn new(parser: OutputParser, accepted: &Accepted, choice: u32) -> Self {
        Self {
            answer_from: (!parser.is_thinking()).then_some(0),
            parser,
            params: accepted.request.params.clone(),
            seed: accepted.seed.wrapping_add(u64::from(choice)),
            usage: Usage { prompt_tokens: accepted.prompt_tokens, ..Usage::default() },
            timings: Timings::default(),
            arrival: accepted.arrival,
            started: None,
            first_token: None,
            last_token: accepted.arrival,
            stopped: false,
            retold: 0,
            beam: None,
            budget: accepted.request.thinking.budget,
        }
    }

    pub fn start(&mut self, now: Duration, cached_tokens: usize) {
        self.started = Some(now);
        self.usage.cached_tokens = cached_tokens;
    }

    /// Its tokens were found by beam search, the first of them then.
    pub fn found(&mut self, score: BeamScore, first_token: Duration) {
        (self.beam, self.first_token) = (Some(score), Some(first_token));
    }

    /// An end token completes no text: the parser never sees it.
    pub fn push(&mut self, token: TokenId, forced: bool, end: bool, now: Duration) -> Pushed {
        self.first_token.get_or_insert(now);
        self.last_token = now;
        self.usage.completion_tokens += 1;
        self.usage.forced_tokens += usize::from(forced);
        if end {
            return Pushed { channel: Channel::Marker, ..Pushed::default() };
        }
        let pushed = self.parse(token);
        self.stopped |= pushed.stopped.is_some();
        pushed
    }

    /// Whether its thoughts have used up their budget; true once.
    pub fn is_over_budget(&mut self) -> bool {
        let spent = |budget: &u32| self.usage.reasoning_tokens >= *budget as usize;
        let over = self.parser.is_thinking() && self.budget.as_ref().is_some_and(spent);
        if over {
            self.budget = None;
        }
        over
    }

    fn parse(&mut self, token: TokenId) -> Pushed {
        let pushed = self.parser.push(token);
        self.usage.reasoning_tokens += usize::from(pushed.channel == Channel::Reasoning);
        let thinks = self.parser.is_thinking();
        self.answer_from = match self.answer_from {
            _ if thinks => None,
            // The token that ended the thoughts is not part of the answer.
            None => Some(self.usage.completion_tokens),
            begun => begun,
        };
        pushed
    }

    /// How many tokens were thoughts; `None` while it thinks.
    pub fn answer_from(&self) -> Option<usize> {
        self.answer_from
    }

    pub fn closes_thoughts(&self) -> bool {
        self.parser.is_thinking() && self.parser.holds_tag()
    }

    /// Where a tag is several tokens, the last one may run on into the answer.
    pub fn straddles(&self, token: TokenId) -> bool {
        let mut parser = self.parser.clone();
        let pushed = parser.push(token);
        !parser.is_thinking() && pushed.parts.iter().any(|part| !matches!(part, Part::Reasoning(_)))
    }

    /// Nothing was said yet, and a tag that comes now opens thoughts.
    pub fn may_think(&self) -> bool {
        self.usage.completion_tokens == 0 && self.parser.may_think()
    }

    /// A token that was drawn for another sequence, of which this one is a branch.
    pub fn retell(&mut self, token: TokenId) -> Vec<Part> {
        self.retold += 1;
        self.usage.completion_tokens += 1;
        self.parse(token).parts
    }

    /// What was held back, and the whole story.
    pub fn finish(mut self, reason: FinishReason, now: Duration) -> (Vec<Part>, Outcome) {
        let parts = if self.stopped { Vec::new() } else { self.parser.finish() };
        let reason = match reason {
            FinishReason::Stop if self.parser.calls() > 0 => FinishReason::ToolCalls,
            other => other,
        };
        let timings = self.times(now);
        let Self { usage, seed, params, beam, .. } = self;
        let outcome = Outcome { reason, usage, timings, seed, params, beam };
        (parts, outcome)
    }

    fn times(&self, now: Duration) -> Timings {
        let ms = |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64() * 1e3;
        let e2el_ms = ms(self.arrival, now);
        let queue_ms = ms(self.arrival, self.started.unwrap_or(now));
        let mut times = Timings { e2el_ms, queue_ms, ..self.timings };
        let Some(first) = self.first_token else { return times };
        times.ttft_ms = ms(self.arrival, first);
        let computed = (self.usage.prompt_tokens + self.retold).saturating_sub(self.usage.cached_tokens);
        times.prompt_tokens_per_second = per_second(computed, times.ttft_ms - queue_ms);
        match self.usage.completion_tokens - self.retold - 1 {
            0 => times.tokens_per_second = per_second(1, e2el_ms),
            gaps => {
                let streamed = ms(first, self.last_token);
                times.itl_ms_mean = streamed / gaps as f64;
                times.tpot_ms = (e2el_ms - times.ttft_ms) / gaps as f64;
                times.tokens_per_second = per_second(gaps, streamed);
            }
        }
        times
    }
}

/// 0 where no time passed: there is no rate to speak of.
fn per_second(count: usize, ms: f64) -> f64 {
    if ms > 0.0 { count as f64 * 1e3 / ms } else { 0.0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::protocol::{Prompt, Request, RequestId};
    use crate::text::{OutputOptions, TextModel, VocabSpec};

    const TOKENS: [&str; 11] = ["<", "/", "t", "h", "i", "n", "k", ">", ">{", ">Ċ", "a"];

    fn id(text: &str) -> TokenId {
        TOKENS.iter().position(|token| *token == text).unwrap() as TokenId
    }

    /// Where the closing tag is no token of its own.
    #[test]
    fn a_token_that_ends_thoughts_and_begins_the_answer_is_known_before_it_comes() {
        let spec = VocabSpec {
            model: "gpt2".into(),
            pre: Some("gpt-2".into()),
            tokens: TOKENS.into_iter().collect(),
            ..VocabSpec::default()
        };
        let text = TextModel::new(spec).unwrap().with_reasoning(true);
        let options =
            OutputOptions { parse_reasoning: true, opens_reasoning: true, ..OutputOptions::default() };
        let request = Request::new(RequestId(1), Prompt::Text("x".into()), SamplingParams::default());
        let accepted = Accepted::new(request, Duration::ZERO);
        let mut stream = Stream::new(text.output(options), &accepted, 0);
        assert_eq!((stream.answer_from(), stream.closes_thoughts()), (None, false));
        for token in ["a", "<", "/", "t", "h", "i", "n", "k"] {
            stream.push(id(token), false, false, Duration::ZERO);
        }
        assert!(stream.closes_thoughts());
        assert_eq!(
            [">", ">{", ">Ċ", "a"].map(|token| stream.straddles(id(token))),
            [false, true, false, false]
        );
        stream.push(id(">"), false, false, Duration::ZERO);
        assert_eq!(stream.answer_from(), Some(9));
    }
}
