use crate::grammar::Guide;
use crate::kv::{BlockManager, BlockTable, HashChain, Prefix, SwappedTable};
use crate::model::{Outputs, Row};
use crate::protocol::{Failure, FailureKind, Guided, SamplingParams, SeqId, SequenceState, TokenId, Tool};
use crate::sample::{Phrases, RowError, SamplerState, TokenMask};
use std::sync::Arc;

/// One continuation of one prompt. `num_computed` chases `tokens.len()`: there is no prefill phase
/// and no decode phase, only tokens that are not in the cache yet.
#[derive(Debug)]
pub struct Sequence {
    pub id: SeqId,
    /// The prompt, then what was generated.
    pub tokens: Vec<TokenId>,
    pub prompt_len: usize,
    /// Tokens that it had when its first was to be computed; see [`Row::rope_len`].
    pub rope_len: usize,
    /// Tokens whose keys and values are in the cache, or will be once the launched steps have run.
    pub num_computed: usize,
    /// Tokens that launched steps will draw (vLLM: output placeholders).
    pub in_flight: usize,
    /// Which output row of the newest launched step is its own.
    pub drawn_at: usize,
    /// A launched step forks or scores it: what comes next is not known before that is read.
    pub held: bool,
    pub params: SamplingParams,
    /// Of the parameters' texts.
    pub phrases: Arc<Phrases>,
    /// After the newest token.
    pub sampler: SamplerState,
    pub seed: u64,
    /// Continuations that start when the prompt is computed, this one included.
    pub choices: u32,
    /// One of so many beams at most: its row gives candidates, and the search says what follows.
    pub beam: Option<u32>,
    pub scoring: Option<Scoring>,
    pub state: SequenceState,
    /// Lower is served first, where the policy asks.
    pub priority: i32,
    /// The how-manieth sequence this is.
    pub arrival: u64,
    /// Tokens the engine had computed when it arrived.
    pub arrived_at_tokens: u64,
    /// Of the prompt, found in the prefix cache when first admitted.
    pub cached_tokens: usize,
    pub preemptions: u32,
    /// Step time used of its turn of round robin, in milliseconds.
    pub turn_ms: f32,
    /// Blocks of its prompt that are still being read from disk.
    pub loading: usize,
    /// Has had a row in a batch.
    pub started: bool,
    /// Its `Finished` was sent; it leaves when the step is accounted.
    pub ended: bool,
    pub chain: HashChain,
    pub table: BlockTable,
    /// What it has computed lies in host memory.
    pub swapped: Option<SwappedTable>,
    pub reading: Reading,
    pub guided: Option<Arc<Guided>>,
    /// Where it stands in its grammar; `None` without one, and while that is being compiled.
    pub guide: Option<Box<Guide>>,
    /// What its next token may be, made while the model computes.
    pub mask: Option<TokenMask>,
}

/// How the answer's text is read; a fork reads on in the same way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    pub parse_reasoning: bool,
    pub opens_reasoning: bool,
    pub tools: Arc<[Tool]>,
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

impl Share {
    pub fn num_outputs(&self) -> usize {
        match self.outputs {
            Outputs::None => 0,
            Outputs::Last => 1,
            Outputs::Draws(n) => n,
            Outputs::All => self.tokens,
        }
    }
}

impl Sequence {
    /// Tokens it has, and those that are being drawn.
    pub fn num_tokens(&self) -> usize {
        self.tokens.len() + self.in_flight
    }

    pub fn num_generated(&self) -> usize {
        self.tokens.len() - self.prompt_len
    }

    /// Places of the batch that it takes: a prompt that will fork holds one for each choice or beam.
    pub fn places(&self) -> usize {
        match self.beam {
            Some(width) if self.num_generated() == 0 => width as usize,
            _ => self.choices as usize,
        }
    }

    /// Answer tokens it may still draw, as far as its own limit says.
    pub fn left_to_draw(&self) -> usize {
        let most = self.params.max_tokens.map_or(usize::MAX, |most| most as usize);
        most.saturating_sub(self.num_tokens() - self.prompt_len)
    }

    /// What is being drawn may be its last token: nothing more to schedule before that is known.
    pub fn is_saturated(&self, context: usize) -> bool {
        self.in_flight > 0 && (self.left_to_draw() == 0 || self.num_tokens() >= context)
    }

    /// Whether more than its newest token is to be computed.
    pub fn is_prefill(&self) -> bool {
        self.num_computed + 1 < self.num_tokens() || self.num_computed < self.prompt_len
    }

    /// Whether the prefix cache may be read: a prompt that is scored must run in full.
    pub fn reads_cache(&self) -> bool {
        self.scoring.is_none_or(|scoring| scoring.done == self.prompt_len)
    }

    pub fn prefix(&self) -> Prefix<'_> {
        Prefix { tokens: &self.tokens, chain: &self.chain, priority: self.priority }
    }

    /// Whether the token that this row draws is known already: it was forced while the row was under way.
    pub fn is_past(&self, row: &Row) -> bool {
        let draws = matches!(row.outputs, Outputs::Last | Outputs::Draws(_));
        draws && self.tokens.len() > row.start + row.tokens.len()
    }

    /// Gives its blocks back: all of it is to be computed again.
    pub fn start_over(&mut self, state: SequenceState, kv: &mut BlockManager) {
        kv.release(&mut self.table);
        (self.num_computed, self.state) = (0, state);
    }

    /// How much longer than others' its turn of round robin is.
    pub fn turn_stretch(&self) -> f32 {
        2f32.powi(self.preemptions.min(30) as i32)
    }

    /// So many blocks of its prompt are on their way from disk.
    pub fn load(&mut self, blocks: usize) {
        self.loading = blocks;
        self.wait();
    }

    /// It waits, for whatever is first.
    pub fn wait(&mut self) {
        self.state = match self.loading {
            0 if self.is_compiling() => SequenceState::Compiling,
            0 => SequenceState::Waiting,
            _ => SequenceState::Loading,
        };
    }

    pub fn is_compiling(&self) -> bool {
        self.guided.is_some() && self.guide.is_none()
    }

    /// Goes on in its grammar by a token of the answer. Gives back whether that was the end of it.
    pub fn follow(&mut self, token: TokenId) -> Result<bool, Failure> {
        let Some(guide) = &mut self.guide else { return Ok(false) };
        let gone_wrong = |why| Failure::new(FailureKind::Grammar, format!("the grammar cannot go on: {why}"));
        guide.commit(token).map_err(gone_wrong)
    }

    /// Why no token could be drawn for it.
    pub fn failure_of_row(&mut self, why: &RowError) -> Failure {
        match self.guide.as_mut().map(|guide| guide.state()) {
            Some(Err(why)) => Failure::new(FailureKind::Grammar, format!("the grammar cannot go on: {why}")),
            _ => Failure::new(FailureKind::Internal, why.to_string()),
        }
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
        let left = self.num_tokens() - computed;
        if left > tokens {
            return Share { tokens, outputs: Outputs::None };
        }
        match (outputs, self.choices) {
            (0, _) => Share { tokens: left - 1, outputs: Outputs::None },
            (_, 1) if self.beam.is_none() => Share { tokens: left, outputs: Outputs::Last },
            (_, n) => Share { tokens: left, outputs: Outputs::Draws(outputs.min(n as usize)) },
        }
    }

    /// A launched step will compute this share.
    pub fn advance(&mut self, share: Share) {
        self.num_computed += share.tokens;
        match share.outputs {
            Outputs::None => {}
            Outputs::Last => self.in_flight += 1,
            Outputs::Draws(_) => (self.in_flight, self.held) = (self.in_flight + 1, true),
            Outputs::All => self.held = true,
        }
    }

    /// Another choice of the same prompt, that owns `table` and has computed what it holds. It has no
    /// guide yet, and belongs to no search.
    pub fn fork(&self, choice: u32, table: BlockTable, num_computed: usize) -> Sequence {
        Sequence {
            id: SeqId { choice, ..self.id },
            tokens: self.tokens.clone(),
            num_computed,
            in_flight: 0,
            drawn_at: 0,
            held: false,
            params: self.params.clone(),
            phrases: self.phrases.clone(),
            seed: self.seed.wrapping_add(u64::from(choice - self.id.choice)),
            choices: 1,
            beam: None,
            scoring: None,
            cached_tokens: 0,
            preemptions: 0,
            turn_ms: 0.0,
            loading: 0,
            started: false,
            ended: false,
            chain: self.chain.clone(),
            table,
            swapped: None,
            reading: self.reading.clone(),
            guided: self.guided.clone(),
            guide: None,
            mask: None,
            ..*self
        }
    }
}
