//! Tokens that nobody draws: those a grammar leaves no choice about, and whatever else must be said.
//!
//! They are told as drawn ones are, and the next step computes them in one pass with the token before
//! them. A step that is under way has a row for the first of them: its result is dropped.

use super::debug::Watched;
use super::output::Output;
use super::sequence::Sequence;
use super::stats::Stats;
use crate::protocol::{Event, TokenId};
use crate::sample::{Sampled, SamplerState};
use crate::text::TextModel;

/// All that is told of a new token.
pub(super) struct Teller<'a> {
    pub output: &'a mut Output,
    pub stats: &'a mut Stats,
    /// `None` while there are no breakpoints.
    pub watched: Option<&'a mut Watched>,
    pub text: &'a TextModel,
}

impl Teller<'_> {
    /// The sequence grows by a token. Gives back whether it was the last.
    pub fn tell(
        &mut self,
        seq: &mut Sequence,
        sampled: Sampled,
        forced: bool,
        events: &mut Vec<Event>,
    ) -> bool {
        seq.push(sampled.token);
        if let Some(watched) = &mut self.watched {
            watched.drew(seq.id, &sampled, self.text);
        }
        self.stats.generated(forced);
        self.output.token(seq, sampled, forced, events)
    }

    /// The sequence grows by these tokens, as far as its limits allow. Gives back whether one was the
    /// last.
    pub fn force(&mut self, seq: &mut Sequence, tokens: &[TokenId], events: &mut Vec<Event>) -> bool {
        if !tokens.is_empty() {
            seq.in_flight = 0;
        }
        tokens.iter().any(|token| self.tell(seq, certain(*token), true, events))
    }

    /// Thoughts that have used up their budget are closed with what the model's family writes there
    /// (vLLM: `thinking_token_budget`). Gives back whether that was the last.
    pub fn close_thoughts(&mut self, seq: &mut Sequence, events: &mut Vec<Event>) -> bool {
        let closing = self.output.closing(seq.id);
        self.force(seq, &closing, events)
    }

    /// What the grammar leaves no choice about. Not where log-probabilities are asked for: only the
    /// model knows those.
    pub fn fast_forward(&mut self, seq: &mut Sequence, events: &mut Vec<Event>) -> bool {
        if seq.params.logprobs.is_some() {
            return false;
        }
        let forced = self.output.forced(seq);
        self.force(seq, &forced, events)
    }
}

/// Of the distribution that is left, it has all.
fn certain(token: TokenId) -> Sampled {
    Sampled {
        token,
        logprob: 0.0,
        rank: 1,
        entropy: 0.0,
        top: Vec::new(),
        state: SamplerState::default(),
        trace: None,
    }
}
