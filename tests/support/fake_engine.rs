//! An engine without a model: it says a canned answer, word by word, and keeps block tables, steps
//! and sampling traces as a real one would report them. Driven by hand, so that tests need no clock.

use glassbox::protocol::*;
use std::sync::Arc;

/// Engine time of a step.
pub const STEP_MS: f64 = 7.0;
const BLOCK: usize = 16;
const BLOCKS: usize = 512;
const BUDGET: usize = 512;
const VOCAB: usize = 49_152;

pub struct FakeEngine {
    sequences: Vec<Sequence>,
    blocks: Vec<BlockView>,
    counters: Counters,
    steps: Vec<Arc<StepRecord>>,
    step: u64,
    pub paused: bool,
    allowed: u32,
    trace: Option<Arc<SamplingTrace>>,
}

struct Sequence {
    seq: SeqId,
    params: SamplingParams,
    prompt: usize,
    cached: usize,
    computed: usize,
    /// What is still to be said, last first.
    left: Vec<(Channel, String)>,
    said: usize,
    reasoning: usize,
    blocks: Vec<u32>,
    arrived: u64,
    first: Option<u64>,
}

pub const THOUGHTS: &str = "The user asks about the sky. Rayleigh scattering: short wavelengths scatter more, \
as the inverse fourth power of the wavelength. I should say it briefly and show a small example.";

pub const ANSWER: &str = "The sky is blue because air scatters **short wavelengths** more than long ones.\n\n\
- Blue light (450 nm) scatters about *four times* as much as red (650 nm).\n\
- At sunset the light's path is longer, so mostly red is left.\n\n\
```rust\n/// Rayleigh: the inverse fourth power of the wavelength.\n\
fn scattering(nm: f64) -> f64 {\n    (550.0 / nm).powi(4) // relative to green\n}\n```\n\n\
| colour | nm | relative |\n|---|---:|---:|\n| blue | 450 | 2.23 |\n| red | 650 | 0.51 |\n\n\
So `scattering(450.0)` is larger: the sky looks blue.\n";

pub fn model_info() -> ModelInfo {
    ModelInfo {
        name: "smollm2-135m".into(),
        path: "/models/SmolLM2-135M-Instruct.Q4_1.gguf".into(),
        architecture: "llama".into(),
        parameters: 134_515_008,
        quantization: "Q4_1".into(),
        file_bytes: 98_362_432,
        layers: 30,
        vocab_size: VOCAB,
        context_length: 8192,
        trained_context_length: 8192,
        has_chat_template: true,
        reasoning_parser: Some("think".into()),
        device: "CPU (2 threads, AVX2)".into(),
        device_reason: "no CUDA device found".into(),
        kv_blocks: BLOCKS,
        block_size: BLOCK,
        kv_bytes_per_token: 23_040,
        weights_bytes: 96_400_000,
        load_ms: 212.0,
    }
}

impl Default for FakeEngine {
    fn default() -> Self {
        Self {
            sequences: Vec::new(),
            blocks: vec![BlockView::default(); BLOCKS],
            counters: Counters::default(),
            steps: Vec::new(),
            step: 0,
            paused: false,
            allowed: 0,
            trace: None,
        }
    }
}

impl FakeEngine {
    pub fn command(&mut self, command: Command) -> Vec<Event> {
        match command {
            Command::Submit(request) => self.submit(&request),
            Command::Abort(id) => self.end(|s| s.seq.request == id, &FinishReason::Abort),
            Command::SetParams(id, params) => {
                let mut events = Vec::new();
                for s in self.sequences.iter_mut().filter(|s| s.seq.request == id) {
                    s.params = params.clone();
                    events.push(Event::ParamsApplied {
                        seq: s.seq,
                        at: s.said,
                        params: Box::new(params.clone()),
                    });
                }
                events
            }
            Command::Pause => self.hold(true),
            Command::Resume => self.hold(false),
            Command::Step(n) => {
                self.allowed += n;
                Vec::new()
            }
            Command::Focus(_) | Command::ResetPrefixCache | Command::Shutdown => Vec::new(),
            Command::Fork(_) | Command::Break(_) | Command::Clear(_) | Command::Configure(_) => Vec::new(),
            Command::Replay(_) => Vec::new(),
        }
    }

    pub fn is_idle(&self) -> bool {
        self.sequences.is_empty() || (self.paused && self.allowed == 0)
    }

    /// One step: the first chunk of each new prompt, or a token of each sequence.
    pub fn step(&mut self) -> Vec<Event> {
        if self.is_idle() {
            return Vec::new();
        }
        self.allowed = self.allowed.saturating_sub(1);
        let mut events = Vec::new();
        let mut rows = Vec::new();
        for i in 0..self.sequences.len() {
            rows.push(self.advance(i, &mut events));
        }
        self.record(rows);
        self.step += 1;
        let done = |s: &Sequence| s.left.is_empty() && s.first.is_some();
        events.extend(self.end(done, &FinishReason::Stop));
        events
    }

    pub fn snapshot(&self) -> Snapshot {
        let owned = self.blocks.iter().filter(|b| b.references > 0).count();
        let cached = self.blocks.iter().filter(|b| b.references == 0 && b.cached).count();
        let kv = KvView {
            block_size: BLOCK,
            bytes_per_block: BLOCK * 23_040,
            blocks: self.blocks.clone(),
            free: BLOCKS - owned - cached,
            cached,
            owned,
            tiers: Vec::new(),
        };
        let view = |s: &Sequence| SequenceView {
            seq: s.seq,
            state: SequenceState::Running,
            prompt_tokens: s.prompt,
            cached_tokens: s.cached,
            generated_tokens: s.said,
            computed_tokens: s.computed,
            blocks: s.blocks.clone(),
            params: s.params.clone(),
            preemptions: 0,
        };
        Snapshot {
            step: self.step,
            paused: self.paused,
            sequences: self.sequences.iter().map(view).collect(),
            kv,
            counters: self.counters,
            steps: self.steps.iter().rev().take(64).rev().cloned().collect(),
            sampling: self.trace.clone(),
            ..Snapshot::default()
        }
    }

    fn hold(&mut self, pause: bool) -> Vec<Event> {
        self.paused = pause;
        self.allowed = 0;
        vec![Event::Paused(pause)]
    }

    fn submit(&mut self, request: &Request) -> Vec<Event> {
        let (text, turns) = match &request.prompt {
            Prompt::Chat(messages) => {
                let all: String = messages.iter().map(|m| m.content.as_str()).collect();
                (all, messages.len())
            }
            Prompt::Text(text) => (text.clone(), 1),
            Prompt::Tokens(ids) => (format!("{ids:?}"), 1),
        };
        let prompt = 24 + text.len() / 4;
        if prompt > 8192 {
            let message =
                format!("the prompt has {prompt} tokens and the context 8192: {} too many", prompt - 8192);
            let reason = FinishReason::Error(Failure::new(FailureKind::TooLong, message));
            let outcome = |choice| Event::Finished {
                seq: SeqId { request: request.id, choice },
                outcome: Box::new(self.outcome(None, reason.clone(), &request.params)),
            };
            return (0..request.n).map(outcome).collect();
        }
        let mut events =
            vec![Event::Accepted { id: request.id, prompt_tokens: prompt, rendered: text.clone() }];
        let cached = if turns > 1 { (prompt / 2) / BLOCK * BLOCK } else { 0 };
        let shared = self.take(prompt / BLOCK);
        for choice in 0..request.n {
            let seq = SeqId { request: request.id, choice };
            events.push(Event::Started { seq, cached_tokens: cached });
            self.counters.prefix_queries += prompt as u64;
            self.counters.prefix_hits += if choice > 0 { prompt / BLOCK * BLOCK } else { cached } as u64;
            self.counters.prompt_tokens += prompt as u64;
            let mut blocks = shared.clone();
            if choice > 0 {
                blocks.iter().for_each(|b| self.blocks[*b as usize].references += 1);
            }
            blocks.extend(self.take(1));
            let mut left = script(choice, request.parse_reasoning && turns < 3);
            left.reverse();
            self.sequences.push(Sequence {
                seq,
                params: request.params.clone(),
                prompt,
                cached,
                computed: cached,
                left,
                said: 0,
                reasoning: 0,
                blocks,
                arrived: self.step,
                first: None,
            });
        }
        self.own();
        events
    }

    /// Blocks nobody owns, free ones before cached ones.
    fn take(&mut self, n: usize) -> Vec<u32> {
        let unowned =
            |cached: bool| move |(_, b): &(usize, &BlockView)| b.references == 0 && b.cached == cached;
        let free = self.blocks.iter().enumerate().filter(unowned(false));
        let rest = self.blocks.iter().enumerate().filter(unowned(true));
        let taken: Vec<u32> = free.chain(rest).take(n).map(|(i, _)| i as u32).collect();
        for i in &taken {
            let block = &mut self.blocks[*i as usize];
            self.counters.evictions += u64::from(block.cached);
            *block = BlockView { references: 1, cached: false, owner: None, used: 0 };
        }
        taken
    }

    fn own(&mut self) {
        for block in &mut self.blocks {
            block.owner = None;
        }
        for s in self.sequences.iter().rev() {
            for (nth, b) in s.blocks.iter().enumerate() {
                let block = &mut self.blocks[*b as usize];
                block.owner = Some(s.seq);
                block.cached |= (nth + 1) * BLOCK <= s.computed;
            }
        }
    }

    fn advance(&mut self, index: usize, events: &mut Vec<Event>) -> RowRecord {
        let step = self.step;
        let s = &mut self.sequences[index];
        let computed = s.computed;
        let target = s.prompt + s.said;
        let tokens = (target - computed).clamp(1, 256);
        s.computed += tokens;
        let kind = if tokens > 1 { RowKind::Prefill } else { RowKind::Decode };
        if s.computed < target {
            return RowRecord { seq: s.seq, kind, tokens, computed, sampled: None };
        }
        let (channel, text) = s.left.pop().unwrap_or((Channel::Marker, "<|im_end|>".into()));
        let id = text.bytes().fold(17, |h: u32, b| (h * 31 + u32::from(b)) % VOCAB as u32);
        s.first.get_or_insert(step);
        s.said += 1;
        s.reasoning += usize::from(channel == Channel::Reasoning);
        let token = TokenInfo {
            id,
            text: text.clone(),
            bytes: text.clone().into_bytes(),
            logprob: -0.34,
            rank: 1,
            entropy: 0.91,
            top: vec![],
            channel,
            held: if text.starts_with('<') { text.clone() } else { String::new() },
        };
        events.push(Event::Token { seq: s.seq, token: Box::new(token) });
        let part = match channel {
            Channel::Content => Some(Part::Text(text.clone())),
            Channel::Reasoning => Some(Part::Reasoning(text.clone())),
            Channel::Marker => None,
        };
        events.extend(part.map(|part| Event::Delta { seq: s.seq, part }));
        if (s.prompt + s.said) / BLOCK >= s.blocks.len() {
            let more = self.take(1);
            self.sequences[index].blocks.extend(more);
        }
        self.counters.generated_tokens += 1;
        if index == 0 {
            self.trace = Some(Arc::new(trace(&self.sequences[0], id, &text)));
        }
        RowRecord { seq: self.sequences[index].seq, kind, tokens, computed, sampled: Some(id) }
    }

    fn record(&mut self, rows: Vec<RowRecord>) {
        self.own();
        let tokens: usize = rows.iter().map(|r| r.tokens).sum();
        let wobble = (self.step * 7 % 5) as f64 * 0.2;
        let phases =
            Phases { schedule_ms: 0.1, forward_ms: STEP_MS - 0.9 + wobble, sample_ms: 0.5, output_ms: 0.2 };
        self.counters.busy_ms += phases.total_ms();
        self.counters.bytes_read += 98_000_000;
        self.counters.flops += 270_000_000 * tokens as u64;
        self.steps.push(Arc::new(StepRecord {
            step: self.step,
            started_ms: self.step as f64 * (STEP_MS + 1.0),
            phases,
            tokens,
            token_budget: BUDGET,
            rows,
            blocks_free: self.blocks.iter().filter(|b| b.references == 0).count(),
            ..StepRecord::default()
        }));
    }

    fn end(&mut self, done: impl Fn(&Sequence) -> bool, reason: &FinishReason) -> Vec<Event> {
        let (ended, left): (Vec<_>, Vec<_>) = self.sequences.drain(..).partition(|s| done(s));
        self.sequences = left;
        let mut events = Vec::new();
        for s in ended {
            for b in &s.blocks {
                self.blocks[*b as usize].references -= 1;
            }
            self.counters.requests_finished += 1;
            let outcome = Box::new(self.outcome(Some(&s), reason.clone(), &s.params));
            events.push(Event::Finished { seq: s.seq, outcome });
        }
        self.own();
        events
    }

    fn outcome(&self, s: Option<&Sequence>, reason: FinishReason, params: &SamplingParams) -> Outcome {
        let ms = |steps: u64| steps as f64 * (STEP_MS + 1.0);
        let ttft = s.map_or(0.0, |s| ms(s.first.unwrap_or(self.step) + 1 - s.arrived));
        let total = s.map_or(0.0, |s| ms(self.step - s.arrived));
        let said = s.map_or(0, |s| s.said);
        let tpot = if said > 1 { (total - ttft) / (said - 1) as f64 } else { 0.0 };
        Outcome {
            reason,
            usage: Usage {
                prompt_tokens: s.map_or(0, |s| s.prompt),
                cached_tokens: s.map_or(0, |s| s.cached),
                completion_tokens: said,
                reasoning_tokens: s.map_or(0, |s| s.reasoning),
            },
            timings: Timings {
                ttft_ms: ttft,
                itl_ms_mean: tpot,
                tpot_ms: tpot,
                e2el_ms: total,
                tokens_per_second: if tpot > 0.0 { 1e3 / tpot } else { 0.0 },
                prompt_tokens_per_second: s.map_or(0.0, |s| (s.prompt - s.cached) as f64 / ttft * 1e3),
                ..Timings::default()
            },
            seed: params.seed.unwrap_or(1234) + s.map_or(0, |s| u64::from(s.seq.choice)),
            params: params.clone(),
        }
    }
}

/// What a choice says: thoughts between their tags, then the answer.
fn script(choice: u32, think: bool) -> Vec<(Channel, String)> {
    let words = |channel, text: &str| -> Vec<(Channel, String)> {
        text.split_inclusive(' ').map(|w| (channel, w.to_owned())).collect()
    };
    let mut all = Vec::new();
    if think {
        all.push((Channel::Marker, "<think>".into()));
        all.extend(words(Channel::Reasoning, THOUGHTS));
        all.push((Channel::Marker, "</think>".into()));
    }
    let start = ["", "In short: ", "Physics says this. ", "Look up: "][choice as usize % 4];
    all.extend(words(Channel::Content, &format!("{start}{ANSWER}")));
    all
}

fn trace(s: &Sequence, drawn: u32, text: &str) -> SamplingTrace {
    let others = [" the", " a", " light", "\n", " scattering", "\u{1b}[31m", " 空", " it", " of"];
    let share = [0.712, 0.124, 0.059, 0.041, 0.021, 0.012, 0.008, 0.005, 0.003, 0.002];
    let cut = [
        None,
        None,
        None,
        None,
        Some(Stage::MinP),
        Some(Stage::MinP),
        Some(Stage::TopP),
        Some(Stage::TopP),
        Some(Stage::TopK),
        Some(Stage::TopK),
    ];
    let names = std::iter::once(text.to_owned()).chain(others.map(str::to_owned));
    let candidates = names.zip(share).zip(cut).enumerate().map(|(i, ((text, raw), cut_by))| Candidate {
        id: if i == 0 { drawn } else { i as u32 },
        text,
        logit: 18.0 - i as f32,
        raw_probability: raw,
        probability: if cut_by.is_some() { 0.0 } else { raw / 0.936 },
        cut_by,
    });
    let p = &s.params;
    let stage = |stage, survivors, active| StageView { stage, survivors, active };
    let top_k = if p.top_k == 0 { VOCAB } else { p.top_k as usize };
    SamplingTrace {
        seq: s.seq,
        index: s.said.saturating_sub(1),
        params: p.clone(),
        stages: vec![
            stage(Stage::Raw, VOCAB, true),
            stage(Stage::Penalties, VOCAB, p.repetition_penalty != 1.0),
            stage(Stage::Temperature, VOCAB, p.temperature != 1.0),
            stage(Stage::TopK, top_k, p.top_k > 0),
            stage(Stage::TopP, top_k.min(6), p.top_p < 1.0),
            stage(Stage::MinP, 4, p.min_p > 0.0),
        ],
        candidates: candidates.collect(),
        vocab_size: VOCAB,
        entropy: 0.91,
        final_entropy: 0.71,
        drawn,
    }
}
