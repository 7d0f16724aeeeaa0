use super::GrammarError;
use crate::protocol::TokenId;
use crate::text::TextModel;
use llguidance::Matcher;
use std::fmt;
use std::sync::Arc;

/// Where one sequence stands in its grammar.
pub struct Guide {
    matcher: Matcher,
    text: Arc<TextModel>,
}

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// More must come.
    Open,
    /// It may end here, or go on.
    CanEnd,
    /// It has ended: nothing can be added.
    Ended,
}

impl Guide {
    pub(super) fn new(matcher: Matcher, text: Arc<TextModel>) -> Self {
        Self { matcher, text }
    }

    /// Which tokens may follow: a bit a token, 1 is allowed, the lowest bit of the first word is
    /// token 0. At the end, the end tokens of the model and nothing else.
    ///
    /// # Errors
    /// What comes next cannot be found out within the limits of effort.
    pub fn mask(&mut self) -> Result<Vec<u32>, GrammarError> {
        if self.matcher.is_stopped() && !self.matcher.is_error() {
            return Ok(self.only_end());
        }
        Ok(self.matcher.compute_mask().map_err(GrammarError::from)?.into())
    }

    fn only_end(&self) -> Vec<u32> {
        let mut bits = vec![0; self.text.vocab_size().div_ceil(32)];
        for id in self.text.end_tokens() {
            bits[*id as usize / 32] |= 1 << (id % 32);
        }
        bits
    }

    /// The token that came. Gives back whether that is the end: nothing can be added.
    ///
    /// # Errors
    /// It is none of those that may follow, or as of [`mask`](Self::mask).
    pub fn commit(&mut self, token: TokenId) -> Result<bool, GrammarError> {
        self.matcher.consume_token(token).map_err(GrammarError::from)?;
        match self.matcher.is_error() {
            true => self.state().map(|_| false),
            false => Ok(self.matcher.is_stopped()),
        }
    }

    /// # Errors
    /// As of [`mask`](Self::mask).
    pub fn state(&mut self) -> Result<State, GrammarError> {
        if self.matcher.is_error() {
            return Err(GrammarError::new(self.matcher.get_error().unwrap_or_default()));
        }
        if self.matcher.is_stopped() {
            return Ok(State::Ended);
        }
        let can_end = self.matcher.is_accepting().map_err(GrammarError::from)?;
        Ok(if can_end { State::CanEnd } else { State::Open })
    }

    /// The tokens that must follow, as the model's tokenizer writes them: its own ways to write the
    /// same text are the only ones that a mask would leave. They are not committed yet.
    pub fn forced(&mut self) -> Vec<TokenId> {
        if self.matcher.is_stopped() { Vec::new() } else { self.matcher.compute_ff_tokens() }
    }

    /// As many of these tokens as the grammar takes are committed, and counted.
    ///
    /// # Errors
    /// As of [`mask`](Self::mask).
    pub fn try_commit(&mut self, tokens: &[TokenId]) -> Result<usize, GrammarError> {
        self.matcher.try_consume_tokens(tokens).map_err(GrammarError::from)
    }

    /// Takes back the last `tokens` commits.
    ///
    /// # Errors
    /// There were fewer.
    pub fn rollback(&mut self, tokens: usize) -> Result<(), GrammarError> {
        self.matcher.rollback(tokens).map_err(GrammarError::from)
    }

    /// The same place once more, that goes its own way and shares nothing.
    pub fn fork(&self) -> Self {
        Self { matcher: self.matcher.deep_clone(), text: self.text.clone() }
    }

    /// Text that must follow, whatever its tokens.
    pub fn forced_text(&mut self) -> String {
        match self.matcher.is_stopped() {
            true => String::new(),
            false => String::from_utf8_lossy(&self.matcher.compute_ff_bytes()).into_owned(),
        }
    }
}

impl fmt::Debug for Guide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guide").field("stopped", &self.matcher.is_stopped()).finish_non_exhaustive()
    }
}
