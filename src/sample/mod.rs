//! A row of logits in, a token out: the sampling pipeline, one stage a function; penalties;
//! log-probabilities; the counter-based generator.
//!
//! | file | what stands there |
//! |---|---|
//! | `pipeline` | [`sample`]: the stages in their order, and what is said of the token drawn |
//! | `edits` | what changes single logits: the mask, `min_tokens`, the penalties |
//! | `field` | what cuts the vocabulary: top-k, top-p, min-p; and the draw |
//! | `trace` | the waterfall of one token, for the sampling panel |
//! | `select`, `softmax` | passes over a row: the k likeliest, sums of exponentials |
//! | `random` | a number from a seed and a position |

mod edits;
mod field;
mod pipeline;
mod random;
mod select;
mod softmax;
#[cfg(test)]
mod tests;
mod trace;

pub use pipeline::{Scratch, sample};
pub use random::uniform;

use crate::protocol::{SamplingParams, SamplingTrace, SeqId, TokenId, TopToken};

/// Which tokens may be drawn: a bit a token, 1 is allowed. Made by guided decoding.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenMask(pub Vec<u32>);

impl TokenMask {
    pub fn allows(&self, id: TokenId) -> bool {
        self.0.get(id as usize / 32).is_some_and(|bits| bits >> (id % 32) & 1 == 1)
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
    /// Draw a token (else the row is only scored).
    pub draw: bool,
    /// How many of the likeliest tokens to return.
    pub top: usize,
    /// Return the whole waterfall with this many candidates; 0 is none.
    pub trace: usize,
}

/// What came of one row. Texts are left empty: the engine knows the vocabulary, this layer does not.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    pub token: TokenId,
    /// Raw natural log-probability and rank (1 is the likeliest) of `token`.
    pub logprob: f32,
    pub rank: u32,
    /// Of the raw distribution, in nats.
    pub entropy: f32,
    pub top: Vec<TopToken>,
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
