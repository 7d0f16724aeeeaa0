use super::best_of::BestOf;
use super::intake::Accepted;
use super::repetition::repeats_itself;
use super::sequence::Sequence;
use super::stream::Stream;
use crate::base::{Clock, mix};
use crate::protocol::{
    BeamScore, Event, Failure, FinishReason, Outcome, RequestId, SamplingParams, ScoredToken, SeqId, Timings,
    TokenId, TokenInfo, TopToken, Usage,
};
use crate::sample::Sampled;
use crate::text::{OutputOptions, OutputParser, TextModel};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Token -> text -> parts -> events, and the only place that ends a choice.
///
/// The registry of open choices is here and not in the scheduler's queues: a step can fail while a
/// sequence is in neither, and every choice is still owed its one `Finished`.
pub struct Output {
    text: Arc<TextModel>,
    clock: Clock,
    /// Longest prompt plus answer, in tokens.
    max_len: usize,
    open: BTreeMap<SeqId, Stream>,
    /// What is said of requests whose best choices are told at the end.
    held: BTreeMap<RequestId, BestOf>,
    /// What closes thoughts.
    closing: Arc<[TokenId]>,
    finished: u64,
    /// Spent on following grammars.
    grammar: Duration,
}

impl Output {
    pub fn new(text: Arc<TextModel>, clock: Clock, max_len: usize) -> Self {
        let closing = text.closes_thoughts().into();
        let (open, held) = (BTreeMap::new(), BTreeMap::new());
        Self { text, clock, max_len, open, held, closing, finished: 0, grammar: Duration::ZERO }
    }

    /// For requests to come.
    pub fn set_longest(&mut self, max_len: usize) {
        self.max_len = max_len;
    }

    /// From here on every choice of the request is owed one `Finished`.
    pub fn open(&mut self, accepted: &Accepted) {
        if accepted.request.best_of.is_some() {
            self.held.insert(accepted.request.id, BestOf::new(accepted.choices));
        }
        for choice in 0..accepted.runs() {
            let parser = self.parser(accepted, choice);
            let seq = SeqId { request: accepted.request.id, choice };
            self.open.insert(seq, Stream::new(parser, accepted, choice));
        }
    }

    /// What reads an answer of this request.
    pub fn parser(&self, accepted: &Accepted, choice: u32) -> OutputParser {
        self.text.output(OutputOptions {
            stop: accepted.request.params.stop.clone(),
            include_stop: accepted.request.params.include_stop_str_in_output,
            parse_reasoning: accepted.request.parse_reasoning,
            opens_reasoning: accepted.opens_reasoning,
            tools: accepted.tools.clone(),
            call_seed: mix(accepted.seed ^ u64::from(choice), accepted.request.id.0),
        })
    }

    /// Beam search found this choice; its tokens follow.
    pub fn found(&mut self, seq: SeqId, score: BeamScore, first_token: Duration) {
        if let Some(stream) = self.open.get_mut(&seq) {
            stream.found(score, first_token);
        }
    }

    pub fn is_open(&self, request: RequestId) -> bool {
        self.of_request(request).next().is_some()
    }

    /// A choice has its first row in a batch.
    pub fn start(&mut self, seq: &Sequence, events: &mut Vec<Event>) {
        if let Some(stream) = self.open.get_mut(&seq.id) {
            stream.start(self.clock.now(), seq.cached_tokens);
            self.say(seq.id, Event::Started { seq: seq.id, cached_tokens: seq.cached_tokens }, events);
        }
    }

    /// To the front end, or to the others of a request that waits for its best.
    fn say(&mut self, seq: SeqId, event: Event, events: &mut Vec<Event>) {
        match self.held.get_mut(&seq.request) {
            Some(best_of) => best_of.hold(seq.choice, event),
            None => events.push(event),
        }
    }

    pub fn preempted(&mut self, seq: SeqId) {
        if let Some(stream) = self.open.get_mut(&seq) {
            stream.timings.preemptions += 1;
        }
    }

    /// The sequence's newest token; `forced`: it was not drawn. Gives back whether it was the last.
    pub fn token(
        &mut self,
        seq: &mut Sequence,
        sampled: Sampled,
        forced: bool,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some(stream) = self.open.get_mut(&seq.id) else { return true };
        let end = is_end(&self.text, &seq.params, sampled.token);
        let thought = stream.answer_from().is_none();
        let pushed = stream.push(sampled.token, forced, end, self.clock.now());
        let thought = thought || stream.answer_from().is_none();
        let guided = self.follow(seq, sampled.token, thought);
        let top = seq.params.logprobs.unwrap_or(0) as usize;
        let token = Box::new(TokenInfo {
            id: sampled.token,
            text: self.text.piece_text(sampled.token),
            bytes: self.text.piece(sampled.token).into_owned(),
            logprob: sampled.logprob,
            rank: sampled.rank,
            entropy: sampled.entropy,
            top: with_texts(&self.text, sampled.top, top),
            forced,
            channel: pushed.channel,
            held: pushed.held,
            why: pushed.why,
        });
        self.say(seq.id, Event::Token { seq: seq.id, token }, events);
        for part in pushed.parts {
            self.say(seq.id, Event::Delta { seq: seq.id, part }, events);
        }
        // vLLM's order: end token, stop string, length, repetition. A grammar's end is an end like the
        // model's own.
        let full = seq.tokens.len() >= self.max_len;
        let spent = seq.params.max_tokens.is_some_and(|most| seq.num_generated() >= most as usize);
        let circles = seq.num_generated() >= seq.params.min_tokens as usize
            && repeats_itself(&seq.tokens[seq.prompt_len..], &seq.params);
        let reason = match pushed.stopped {
            _ if end || guided == Ok(true) => Some(FinishReason::Stop),
            Some(stop) => Some(FinishReason::StopString(stop)),
            None if guided.is_err() => guided.err().map(FinishReason::Error),
            None if full || spent => Some(FinishReason::Length),
            None if circles => Some(FinishReason::Repetition),
            None => None,
        };
        let Some(reason) = reason else { return false };
        self.close(seq.id, reason, events);
        true
    }

    /// Whether a token ends its grammar. Thoughts are no affair of it, unless asked to be.
    fn follow(&mut self, seq: &mut Sequence, token: TokenId, thought: bool) -> Result<bool, Failure> {
        if !seq.guided.as_ref().is_some_and(|guided| !thought || guided.in_reasoning) {
            return Ok(false);
        }
        let begun = self.clock.now();
        let followed = seq.follow(token);
        self.grammar += self.clock.now() - begun;
        followed
    }

    /// The tokens that a sequence's grammar leaves no choice about.
    pub fn forced(&mut self, seq: &mut Sequence) -> Vec<TokenId> {
        if !self.obeys(seq) {
            return Vec::new();
        }
        let begun = self.clock.now();
        let forced = seq.guide.as_mut().map_or_else(Vec::new, |guide| guide.forced());
        self.grammar += self.clock.now() - begun;
        forced
    }

    pub fn grammar_time(&self) -> Duration {
        self.grammar
    }

    /// Whether the sequence thinks, and this token would end its thoughts and begin the answer in one.
    pub fn straddles(&self, seq: SeqId, token: TokenId) -> bool {
        self.open.get(&seq).is_some_and(|stream| stream.straddles(token))
    }

    /// Whether it thinks, and may be about to say that it is done.
    pub fn closes_thoughts(&self, seq: SeqId) -> bool {
        self.open.get(&seq).is_some_and(Stream::closes_thoughts)
    }

    /// How many of the sequence's tokens were thoughts; `None` while it thinks, or is not open.
    pub fn answer_from(&self, seq: SeqId) -> Option<usize> {
        self.open.get(&seq)?.answer_from()
    }

    /// Nothing was said yet, and a tag that comes now opens thoughts.
    pub fn may_think(&self, seq: SeqId) -> bool {
        self.open.get(&seq).is_some_and(Stream::may_think)
    }

    /// The tokens that must close the sequence's thoughts now; mostly none.
    pub fn closing(&mut self, seq: SeqId) -> Arc<[TokenId]> {
        let over = self.open.get_mut(&seq).is_some_and(Stream::is_over_budget);
        if over { self.closing.clone() } else { Arc::default() }
    }

    /// A branch begins with what its parent had said: the text again, without a token drawn.
    pub fn retell(&mut self, seq: &Sequence, events: &mut Vec<Event>) {
        let Some(stream) = self.open.get_mut(&seq.id) else { return };
        for token in &seq.tokens[seq.prompt_len..] {
            let parts = stream.retell(*token);
            events.extend(parts.into_iter().map(|part| Event::Delta { seq: seq.id, part }));
        }
    }

    /// The K likeliest tokens after prompt positions from `first_position` on, and what came next there.
    pub fn scored(
        &self,
        id: RequestId,
        first_position: usize,
        rows: impl Iterator<Item = Vec<TopToken>>,
        next: Vec<ScoredToken>,
        events: &mut Vec<Event>,
    ) {
        let rows = rows.map(|row| with_texts(&self.text, row, usize::MAX)).collect();
        events.push(Event::PromptLogprobs { id, first_position, rows, next });
    }

    /// New parameters for a request's open choices, as told to its owner.
    pub fn set_params(&mut self, request: RequestId, params: &SamplingParams, events: &mut Vec<Event>) {
        let mut applied = Vec::new();
        for (id, stream) in self.open.range_mut(choices_of(request)) {
            stream.params = params.clone();
            if let Some(seed) = params.seed {
                stream.seed = seed.wrapping_add(u64::from(id.choice));
            }
            let (at, params) = (stream.usage.completion_tokens, Box::new(params.clone()));
            applied.push((*id, Event::ParamsApplied { seq: *id, at, params }));
        }
        applied.into_iter().for_each(|(seq, event)| self.say(seq, event, events));
    }

    /// The stop strings in force; they are fixed when a request starts.
    pub fn stops(&self, request: RequestId) -> Option<(&[String], bool)> {
        let (_, stream) = self.of_request(request).next()?;
        Some((&stream.params.stop, stream.params.include_stop_str_in_output))
    }

    /// Ends one choice, if it is open: what was held back is shown, then `Finished`.
    pub fn close(&mut self, seq: SeqId, reason: FinishReason, events: &mut Vec<Event>) {
        let Some(stream) = self.open.remove(&seq) else { return };
        self.finished += u64::from(!self.is_open(seq.request));
        let (parts, outcome) = stream.finish(reason, self.clock.now());
        parts.into_iter().for_each(|part| self.say(seq, Event::Delta { seq, part }, events));
        self.say(seq, Event::Finished { seq, outcome: Box::new(outcome) }, events);
        if !self.is_open(seq.request)
            && let Some(best_of) = self.held.remove(&seq.request)
        {
            events.extend(best_of.tell(seq.request));
        }
    }

    pub fn close_request(&mut self, id: RequestId, reason: &FinishReason, events: &mut Vec<Event>) {
        let choices: Vec<SeqId> = self.of_request(id).map(|(seq, _)| *seq).collect();
        choices.into_iter().for_each(|seq| self.close(seq, reason.clone(), events));
    }

    pub fn close_all(&mut self, reason: &FinishReason, events: &mut Vec<Event>) {
        while let Some(seq) = self.open.keys().next().copied() {
            self.close(seq, reason.clone(), events);
        }
    }

    /// A request that never was opened ends too, in every choice it asked for.
    pub fn refuse(&mut self, accepted: &Accepted, why: &Failure, events: &mut Vec<Event>) {
        self.finished += 1;
        events.extend(refused(accepted, why));
    }

    /// Requests of which every choice has ended.
    pub fn finished(&self) -> u64 {
        self.finished
    }

    fn of_request(&self, request: RequestId) -> impl Iterator<Item = (&SeqId, &Stream)> {
        self.open.range(choices_of(request))
    }
}

/// The end of a request that was never let in.
pub fn refused<'a>(accepted: &'a Accepted, why: &'a Failure) -> impl Iterator<Item = Event> + 'a {
    (0..accepted.choices).map(move |choice| Event::Finished {
        seq: SeqId { request: accepted.request.id, choice },
        outcome: Box::new(Outcome {
            reason: FinishReason::Error(why.clone()),
            usage: Usage { prompt_tokens: accepted.prompt_tokens, ..Usage::default() },
            timings: Timings::default(),
            seed: accepted.seed.wrapping_add(u64::from(choice)),
            params: accepted.request.params.clone(),
            beam: None,
        }),
    })
}

fn with_texts(text: &TextModel, mut top: Vec<TopToken>, most: usize) -> Vec<TopToken> {
    top.truncate(most);
    top.iter_mut().for_each(|token| token.text = text.piece_text(token.id));
    top
}

/// Whether the token ends an answer with these parameters.
pub fn is_end(text: &TextModel, params: &SamplingParams, token: TokenId) -> bool {
    (!params.ignore_eos && text.end_tokens().contains(&token)) || params.stop_token_ids.contains(&token)
}

fn choices_of(request: RequestId) -> std::ops::RangeInclusive<SeqId> {
    SeqId { request, choice: 0 }..=SeqId { request, choice: u32::MAX }
}
