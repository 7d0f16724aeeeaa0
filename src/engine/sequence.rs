use crate::kv::{BlockTable, HashChain};
use crate::model::Outputs;
use crate::protocol::{SamplingParams, SeqId, SequenceState, TokenId};

/// One continuation of one prompt. `num_computed` chases `tokens.len()`: there is no prefill phase
/// and no decode phase, only tokens that are not in the cache yet.
#[derive(Debug)]
pub struct Sequence {
    pub id: SeqId,
    /// The prompt, then what was generated.
    pub tokens: Vec<TokenId>,
    pub prompt_len: usize,
    /// Tokens whose keys and values are in the cache.
    pub num_computed: usize,
    pub params: SamplingParams,
    pub seed: u64,
    /// Continuations that start when the prompt is computed, this one included.
    pub choices: u32,
    pub scoring: Option<Scoring>,
    pub state: SequenceState,
    /// Of the prompt, found in the prefix cache when first admitted.
    pub cached_tokens: usize,
    pub preemptions: u32,
    /// Has had a row in a batch.
    pub started: bool,
    /// Its `Finished` was sent; it leaves when the step is accounted.
    pub ended: bool,
    pub chain: HashChain,
    pub table: BlockTable,
}

/// Prompt log-probabilities: how many alternatives, and how many positions are done.
#[derive(Clone, Copy, Debug)]
pub struct Scoring {
    pub top: usize,
    pub done: usize,
}

/// What a sequence does with the tokens and output rows a step has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub tokens: usize,
    pub outputs: Outputs,
}

impl Sequence {
    pub fn num_generated(&self) -> usize {
        self.tokens.len() - self.prompt_len
    }

    /// Whether the prefix cache may be read: a prompt that is scored must run in full.
    pub fn reads_cache(&self) -> bool {
        self.scoring.is_none_or(|scoring| scoring.done == self.prompt_len)
    }

    pub fn push(&mut self, token: TokenId) {
        self.tokens.push(token);
        self.chain.extend(&self.tokens);
    }

    /// Its share of a step when `computed` tokens are in the cache.
    pub fn share(&self, computed: usize, tokens: usize, outputs: usize) -> Share {
        // Scored positions run with an output each; the last one is the one that draws.
        let scored = self.prompt_len - 1;
        if let Some(Scoring { done, .. }) = self.scoring.filter(|scoring| scoring.done < scored) {
            return match computed < done {
                true => Share { tokens: (done - computed).min(tokens), outputs: Outputs::None },
                false => {
                    Share { tokens: (scored - computed).min(tokens).min(outputs), outputs: Outputs::All }
                }
            };
        }
        let left = self.tokens.len() - computed;
        if left > tokens {
            return Share { tokens, outputs: Outputs::None };
        }
        match (outputs, self.choices) {
            (0, _) => Share { tokens: left - 1, outputs: Outputs::None },
            (_, 1) => Share { tokens: left, outputs: Outputs::Last },
            (_, n) => Share { tokens: left, outputs: Outputs::Draws(outputs.min(n as usize)) },
        }
    }

    /// Another choice of the same prompt, that owns `table` and has computed what it holds.
    pub fn fork(&self, choice: u32, table: BlockTable, num_computed: usize) -> Sequence {
        Sequence {
            id: SeqId { choice, ..self.id },
            tokens: self.tokens.clone(),
            prompt_len: self.prompt_len,
            num_computed,
            params: self.params.clone(),
            seed: self.seed.wrapping_add(u64::from(choice - self.id.choice)),
            choices: 1,
            scoring: None,
            state: self.state,
            cached_tokens: 0,
            preemptions: 0,
            started: false,
            ended: false,
            chain: self.chain.clone(),
            table,
        }
    }
}
