use super::phrases::phrases;
use super::sequence::{Reading, Scoring, Sequence};
use crate::base::Clock;
use crate::kv::{BlockTable, CacheSpec, ExtraKeys, HashChain, most_blocks};
use crate::model::{ModelLimits, RopeLengths};
use crate::protocol::{
    Command, Count, Counted, Event, Failure, FailureKind, ForkRequest, Prompt, Request, RequestId,
    SamplingParams, SeqId, SequenceState, TokenId, Tool, ToolChoice, Tools, WhatIf, WhatIfAnswer,
};
use crate::sample::{Phrases, SamplerState};
use crate::text::{Specials, TextModel};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Most continuations of one request, and most alternatives at a prompt position.
const MOST_CHOICES: u32 = 64;
const MOST_LOGPROBS: u32 = 1000;

/// Everything slow or refusable about a request happens here, before the engine sees it: the
/// template, the tokenizer, every limit.
pub struct Intake {
    text: Arc<TextModel>,
    clock: Clock,
    bounds: Lengths,
    block_size: usize,
    rope: RopeLengths,
}

/// How long a sequence may get, in tokens, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    pub context: usize,
    /// What all blocks of the KV cache hold.
    pub pool: usize,
}

/// What the engine is to do next, in order of arrival.
#[allow(clippy::large_enum_variant)]
pub enum Work {
    Add(Box<Accepted>, Box<Sequence>),
    /// A request that ends at once, in each of its choices.
    Refuse(Box<Accepted>, Failure),
    /// A branch, with the texts of its parameters as tokens.
    Fork(ForkRequest, Arc<Phrases>),
    SetParams(RequestId, SamplingParams, Arc<Phrases>),
    /// With the texts of its parameters as tokens.
    WhatIf(Box<WhatIf>, Arc<Phrases>),
    /// An answer that the engine has nothing to add to.
    Say(Event),
    /// Anything else that is not a request.
    Control(Command),
    Note(String),
}

/// A request with all that intake found out about it.
pub struct Accepted {
    pub request: Request,
    /// How many continuations are told: `n`, or 1 where `n` is out of range.
    pub choices: u32,
    /// 0 where the prompt was never tokenized.
    pub prompt_tokens: usize,
    pub rendered: String,
    pub opens_reasoning: bool,
    /// Whose calls are looked for in the answer.
    pub tools: Arc<[Tool]>,
    /// Of the first choice.
    pub seed: u64,
    pub arrival: Duration,
}

impl Lengths {
    /// `context` is already what the settings allow.
    pub fn of(limits: &ModelLimits, context: usize) -> Self {
        let ModelLimits { groups, max_batched_tokens, block_size, num_blocks, .. } = limits;
        let fits = |tokens| most_blocks(groups, tokens, *max_batched_tokens, *block_size) < *num_blocks;
        // States take no more for longer sequences.
        if groups.iter().all(|spec| *spec == CacheSpec::Recurrent) {
            return Self { context, pool: if fits(1) { usize::MAX } else { 0 } };
        }
        // All groups keep at most a block for each block of tokens.
        let (mut pool, mut too_long) = (0, num_blocks * block_size + 1);
        while too_long - pool > 1 {
            let middle = pool.midpoint(too_long);
            if fits(middle) { pool = middle } else { too_long = middle }
        }
        Self { context, pool }
    }

    pub fn longest(&self) -> usize {
        self.context.min(self.pool)
    }

    /// An answer needs room for one token at least.
    fn check(&self, prompt: usize) -> Result<(), Failure> {
        if prompt < self.longest() {
            return Ok(());
        }
        let tokens = |n: usize| if n == 1 { "1 token".to_owned() } else { format!("{n} tokens") };
        let message = match self.pool < self.context {
            false => format!(
                "the prompt has {}; the context holds {}, and the answer needs at least one: shorten \
                 the prompt or start a new chat",
                tokens(prompt),
                self.context
            ),
            true => format!(
                "the prompt has {}; the KV cache holds {} in all, and the answer needs at least one: \
                 shorten the prompt or give the KV cache more memory",
                tokens(prompt),
                self.pool
            ),
        };
        Err(Failure::new(FailureKind::TooLong, message))
    }
}

impl Intake {
    pub fn new(text: Arc<TextModel>, clock: Clock, bounds: Lengths, block_size: usize) -> Self {
        Self { text, clock, bounds, block_size, rope: RopeLengths::Same }
    }

    pub fn with_rope(mut self, lengths: RopeLengths) -> Self {
        self.rope = lengths;
        self
    }

    pub fn take(&self, command: Command) -> Work {
        match command {
            Command::Submit(request) => self.prepare(*request),
            Command::Fork(fork) => match self.check_fork(&fork) {
                Ok(()) => {
                    let phrases = self.phrases(&fork.params);
                    Work::Fork(*fork, phrases)
                }
                Err(why) => Work::Refuse(Box::new(super::fork::accepted(&fork, self.clock.now())), why),
            },
            Command::SetParams(id, params) => match self.check_params(&params) {
                Ok(()) => {
                    let phrases = self.phrases(&params);
                    Work::SetParams(id, *params, phrases)
                }
                Err(why) => Work::Note(format!("the sampling parameters stay as they were: {why}")),
            },
            Command::WhatIf(asked) => match self.check_params(&asked.params) {
                Ok(()) => {
                    let phrases = self.phrases(&asked.params);
                    Work::WhatIf(asked, phrases)
                }
                Err(why) => Work::Say(unanswered(*asked, &why)),
            },
            Command::Count(count) => {
                let Count { ticket, what } = *count;
                Work::Say(Event::Counted { ticket, tokens: self.count(&what) })
            }
            other => Work::Control(other),
        }
    }

    /// Nothing is refused for its length: how long it is was the question.
    fn count(&self, what: &Counted) -> Result<Vec<usize>, Failure> {
        let counted = catch_unwind(AssertUnwindSafe(|| match what {
            Counted::Prompt(request) => {
                self.check_tools(request)?;
                let built = self.text.prompt_with(&request.prompt, &request.tools, &request.thinking)?;
                Ok(vec![built.ids.len()])
            }
            Counted::Texts(texts) => {
                Ok(texts.iter().map(|text| self.text.encode(text, Specials::Text).len()).collect())
            }
        }));
        counted.unwrap_or_else(|panic| {
            let why = format!("the tokens could not be counted: {}", panic_message(&*panic));
            Err(Failure::new(FailureKind::Internal, why))
        })
    }

    fn prepare(&self, request: Request) -> Work {
        let mut accepted = Accepted::new(request, self.clock.now());
        // A panic in a tokenizer or template ends this request and no other.
        let built = catch_unwind(AssertUnwindSafe(|| self.build(&mut accepted)));
        match built {
            Ok(Ok(sequence)) => Work::Add(Box::new(accepted), Box::new(sequence)),
            Ok(Err(failure)) => Work::Refuse(Box::new(accepted), failure),
            Err(panic) => {
                let why = format!("the prompt could not be prepared: {}", panic_message(&*panic));
                Work::Refuse(Box::new(accepted), Failure::new(FailureKind::Internal, why))
            }
        }
    }

    fn build(&self, accepted: &mut Accepted) -> Result<Sequence, Failure> {
        let request = &accepted.request;
        if accepted.choices != request.n {
            return Err(bad(format!("n must be a whole number from 1 to {MOST_CHOICES}, not {}", request.n)));
        }
        if accepted.runs() < request.n || accepted.runs() > MOST_CHOICES {
            let most = accepted.runs();
            return Err(bad(format!("best_of must be from n ({}) to {MOST_CHOICES}, not {most}", request.n)));
        }
        if request.prompt_logprobs.is_some_and(|k| k > MOST_LOGPROBS) {
            return Err(bad(format!("prompt_logprobs must be at most {MOST_LOGPROBS}")));
        }
        self.check_params(&request.params)?;
        check_beam(request)?;
        if let Prompt::Tokens(ids) = &request.prompt {
            self.check_ids("prompt", ids)?;
        }
        self.check_tools(request)?;
        let built = self.text.prompt_with(&request.prompt, &request.tools, &request.thinking)?;
        if built.ids.is_empty() {
            return Err(bad("the prompt is empty".to_owned()));
        }
        self.bounds.check(built.ids.len())?;
        accepted.prompt_tokens = built.ids.len();
        accepted.rendered = built.rendered;
        accepted.opens_reasoning = built.opens_reasoning;
        if accepted.request.tools.choice != ToolChoice::None {
            accepted.tools = accepted.request.tools.tools.clone().into();
        }
        if accepted.request.guided.is_none() {
            accepted.request.guided = self.text.guided_calls(&accepted.request.tools)?;
        }
        search_in_grammar(accepted)?;
        Ok(self.sequence(accepted, built.ids))
    }

    /// The sequence that computes the prompt, for all choices of the request.
    fn sequence(&self, accepted: &Accepted, tokens: Vec<TokenId>) -> Sequence {
        let request = &accepted.request;
        let rope = self.rope.kind(tokens.len());
        let keys = ExtraKeys { lora: None, cache_salt: request.cache_salt.clone(), rope };
        let mut chain = HashChain::new(self.block_size, keys);
        chain.extend(&tokens);
        Sequence {
            id: SeqId { request: request.id, choice: 0 },
            prompt_len: tokens.len(),
            rope_len: tokens.len(),
            tokens,
            num_computed: 0,
            in_flight: 0,
            drawn_at: 0,
            held: false,
            params: request.params.clone(),
            phrases: self.phrases(&request.params),
            sampler: SamplerState::default(),
            seed: accepted.seed,
            choices: if request.beam.is_some() { 1 } else { accepted.runs() },
            beam: request.beam.map(|beam| beam.width),
            scoring: request.prompt_logprobs.map(|top| Scoring { top: top as usize, done: 0 }),
            state: SequenceState::Waiting,
            priority: request.priority,
            arrival: 0,
            arrived_at_tokens: 0,
            cached_tokens: 0,
            preemptions: 0,
            turn_ms: 0.0,
            loading: 0,
            started: false,
            ended: false,
            chain,
            table: BlockTable::default(),
            swapped: None,
            reading: Reading {
                parse_reasoning: request.parse_reasoning,
                opens_reasoning: accepted.opens_reasoning,
                tools: accepted.tools.clone(),
            },
            guided: request.guided.clone().map(Arc::new),
            guide: None,
            mask: None,
        }
    }

    fn check_tools(&self, request: &Request) -> Result<(), Failure> {
        let Tools { tools, choice, .. } = &request.tools;
        for (at, tool) in tools.iter().enumerate() {
            let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            if tool.name.is_empty() || tool.name.len() > 64 || !tool.name.chars().all(fits) {
                return Err(bad(format!(
                    "tools[{at}].name: {:?} is not 1 to 64 letters, digits, _, - or .",
                    tool.name
                )));
            }
            if tools[..at].iter().any(|other| other.name == tool.name) {
                return Err(bad(format!("tools[{at}].name: {} is there twice", tool.name)));
            }
            if !tool.parameters.is_object() {
                return Err(bad(format!("tools[{at}].parameters: a JSON Schema must be an object")));
            }
        }
        match choice {
            ToolChoice::Required if tools.is_empty() => Err(bad("tool_choice required needs tools".into())),
            ToolChoice::Named(name) if !tools.iter().any(|tool| tool.name == *name) => {
                Err(bad(format!("tool_choice: there is no tool {name:?} among the request's tools")))
            }
            _ => Ok(()),
        }
    }

    fn check_fork(&self, fork: &ForkRequest) -> Result<(), Failure> {
        self.check_params(&fork.params)?;
        self.check_ids("then", &fork.then)
    }

    fn check_params(&self, params: &SamplingParams) -> Result<(), Failure> {
        params.check().map_err(|out_of_range| bad(out_of_range.to_string()))?;
        self.check_ids("stop_token_ids", &params.stop_token_ids)?;
        self.check_ids("banned_token_ids", &params.banned_token_ids)?;
        self.check_ids("allowed_token_ids", &params.allowed_token_ids)?;
        let biased: Vec<TokenId> = params.logit_bias.keys().copied().collect();
        self.check_ids("logit_bias", &biased)
    }

    fn phrases(&self, params: &SamplingParams) -> Arc<Phrases> {
        Arc::new(phrases(&self.text, params))
    }

    fn check_ids(&self, what: &str, ids: &[TokenId]) -> Result<(), Failure> {
        let vocab = self.text.vocab_size();
        match ids.iter().find(|id| **id as usize >= vocab) {
            Some(id) => Err(bad(format!("{what}: token {id} is not among the {vocab} of the vocabulary"))),
            None => Ok(()),
        }
    }
}

impl Accepted {
    /// How many continuations run: all of them, where the best are told.
    pub fn runs(&self) -> u32 {
        self.request.best_of.unwrap_or(self.choices)
    }

    pub fn new(request: Request, arrival: Duration) -> Self {
        Self {
            choices: if (1..=MOST_CHOICES).contains(&request.n) { request.n } else { 1 },
            seed: request.params.seed.unwrap_or_else(draw_seed),
            prompt_tokens: 0,
            rendered: String::new(),
            opens_reasoning: false,
            tools: Arc::default(),
            request,
            arrival,
        }
    }
}

/// 32 bits: unguessable is not needed, typing it again is.
fn draw_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}

/// A search follows its grammar from the first token on: it cannot wait until the thoughts of every
/// beam have ended.
fn search_in_grammar(accepted: &mut Accepted) -> Result<(), Failure> {
    let opens = accepted.opens_reasoning;
    let (Some(_), Some(guided)) = (accepted.request.beam, &mut accepted.request.guided) else {
        return Ok(());
    };
    if opens && !std::mem::replace(&mut guided.in_reasoning, true) {
        let why =
            "beam search cannot wait for thoughts to end: turn them off, or let the grammar hold in them";
        return Err(bad(why.into()));
    }
    guided.in_reasoning = true;
    Ok(())
}

fn check_beam(request: &Request) -> Result<(), Failure> {
    let Some(beam) = request.beam else { return Ok(()) };
    beam.check().map_err(|out_of_range| bad(out_of_range.to_string()))?;
    if request.n > beam.width {
        let (width, n) = (beam.width, request.n);
        return Err(bad(format!("n must be at most the beam width of {width}, not {n}")));
    }
    match (request.prompt_logprobs, request.best_of) {
        (None, None) => Ok(()),
        (Some(_), _) => Err(bad("prompt_logprobs and beam search do not go together".into())),
        (_, Some(_)) => Err(bad("best_of and beam search do not go together: --choices are its best".into())),
    }
}

/// A question whose parameters, or engine, are none.
pub fn unanswered(asked: WhatIf, why: &Failure) -> Event {
    Event::WhatIf(Box::new(WhatIfAnswer { asked, trace: Err(why.to_string()) }))
}

fn bad(message: String) -> Failure {
    Failure::new(FailureKind::BadRequest, message)
}

/// What a panic said.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without words")
}
