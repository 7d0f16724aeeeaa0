//! A row of logits in, a token out: the sampling pipeline, one stage a function; penalties;
//! log-probabilities; the counter-based generator.
//!
//! | file | what stands there |
//! |---|---|
//! | `pipeline` | [`sample`]: the stages in their order, and what is said of the token drawn |
//! | `field` | what can still be drawn: a row, or a list once a stage has cut |
//! | `bias`, `penalties`, `dry` | stages that change or forbid single tokens |
//! | `cuts` | stages that take tokens away by how likely they are |
//! | `steer` | stages that follow the text: temperature, Mirostat, adaptive-p |
//! | `trace` | the waterfall of one token, for the sampling panel |
//! | `peaks`, `select`, `softmax` | passes over a row: the k likeliest, sums of exponentials |
//! | `random` | a number from a seed and a position |

mod bias;
mod cuts;
mod dry;
mod field;
mod peaks;
mod penalties;
mod pipeline;
mod random;
mod select;
mod softmax;
mod steer;
#[cfg(test)]
mod tests;
mod trace;
#[cfg(test)]
mod twin;

pub use pipeline::{Scratch, sample};
pub use random::uniform;

use crate::protocol::{SamplingParams, SamplingTrace, SeqId, TokenId, TopToken};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Which tokens may be drawn: a bit a token, 1 is allowed. Made by guided decoding.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenMask(pub Vec<u32>);

impl TokenMask {
    pub fn allows(&self, id: TokenId) -> bool {
        self.0.get(id as usize / 32).is_some_and(|bits| bits >> (id % 32) & 1 == 1)
    }

    /// How many tokens are allowed.
    pub fn count(&self) -> usize {
        self.0.iter().map(|bits| bits.count_ones() as usize).sum()
    }

    /// Every allowed token, in order.
    pub fn ids(&self) -> impl Iterator<Item = TokenId> + '_ {
        let rest = |bits: &u32| Some(bits & (bits - 1)).filter(|rest| *rest != 0);
        self.0.iter().zip(0..).filter(|(bits, _)| **bits != 0).flat_map(move |(bits, word)| {
            std::iter::successors(Some(*bits), rest).map(move |bits| 32 * word + bits.trailing_zeros())
        })
    }

    pub fn forbid(&mut self, id: TokenId) {
        if let Some(bits) = self.0.get_mut(id as usize / 32) {
            *bits &= !(1 << (id % 32));
        }
    }

    pub fn allow(&mut self, id: TokenId) {
        if let Some(bits) = self.0.get_mut(id as usize / 32) {
            *bits |= 1 << (id % 32);
        }
    }
}

/// Texts of a request as tokens; intake knows the vocabulary, this layer does not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phrases {
    /// `bad_words`, each in every way that it may be written.
    pub bad_words: Vec<Vec<TokenId>>,
    /// `dry_sequence_breakers`: a token that begins one, and what must follow it.
    pub breakers: BTreeMap<TokenId, Vec<Vec<TokenId>>>,
}

/// What the sampler remembers of a sequence from token to token. Comes with a row and goes back with
/// the token drawn, so that it belongs to the sequence: preemption does not touch it, a fork copies it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplerState {
    /// Mirostat's bound on the surprise, in bits; `None` before the first token.
    mu: Option<f32>,
    /// Adaptive-p: decayed sums of the probabilities drawn and of their weights.
    drawn: Option<(f32, f32)>,
}

/// What to do with one row of logits.
pub struct SampleRow<'a> {
    pub seq: SeqId,
    pub params: &'a SamplingParams,
    /// The seed in force; with the position it keys the generator, so that a request's tokens do
    /// not depend on its neighbours.
    pub seed: u64,
    /// The prompt, then the tokens generated so far. The token drawn gets index `tokens.len()`.
    pub tokens: &'a [TokenId],
    pub prompt_len: usize,
    /// End tokens of the model, masked while fewer than `min_tokens` are generated.
    pub end_tokens: &'a [TokenId],
    pub mask: Option<&'a TokenMask>,
    pub phrases: &'a Phrases,
    pub state: SamplerState,
    /// Draw a token (else the row is only scored).
    pub draw: bool,
    /// Of a row that is only scored: whose log-probability and rank are wanted. `None`: the likeliest's.
    pub target: Option<TokenId>,
    /// How many of the likeliest tokens to return.
    pub top: usize,
    /// Nothing is drawn: return in `top` so many of the likeliest that may follow, best first, with the
    /// log-probability of the raw distribution (after bias and penalties, masked ones left out). 0 is off.
    pub beams: usize,
    /// Return the whole waterfall with this many candidates; 0 is none.
    pub trace: usize,
    /// Where the row is copied to when a token is drawn from it.
    pub keep: Option<&'a Cell<Vec<f32>>>,
}

/// What came of one row. Texts are left empty: the engine knows the vocabulary, this layer does not.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    pub token: TokenId,
    /// Natural log-probability and rank (1 is the likeliest) of `token`, and of the `top`: of the raw
    /// row, or after every stage ([`LogprobsMode`](crate::protocol::LogprobsMode)).
    pub logprob: f32,
    pub rank: u32,
    /// Of the raw distribution, in nats.
    pub entropy: f32,
    pub top: Vec<TopToken>,
    pub state: SamplerState,
    pub trace: Option<Box<SamplingTrace>>,
}

/// A row that no token can be drawn from. Ends that request and no other.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RowError {
    #[error("the model's logits are not numbers (NaN) at position {position}")]
    NotANumber { position: usize },
    #[error("every token is masked at position {position}")]
    AllMasked { position: usize },
}
