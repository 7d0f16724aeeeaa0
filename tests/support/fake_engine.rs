//! An engine without a model: it says a canned answer, word by word, and keeps block tables, steps
//! and sampling traces as a real one would report them. Driven by hand, so that tests need no clock.

#[path = "fake_debugger.rs"]
mod debugger;
#[path = "fake_inspect.rs"]
mod inspect;
#[path = "fake_script.rs"]
mod script;
#[path = "fake_whatif.rs"]
mod whatif;

use glassbox::protocol::*;
pub use script::model_info;
use script::{call, part, script, trace, with_tools};
use std::sync::Arc;

/// Engine time of a step.
pub const STEP_MS: f64 = 7.0;
const BLOCK: usize = 16;
const BLOCKS: usize = 512;
const BUDGET: usize = 512;
const VOCAB: usize = 49_152;

pub struct FakeEngine {
    sequences: Vec<Sequence>,
    /// Those that have ended, to be forked.
    finished: Vec<Sequence>,
    blocks: Vec<BlockView>,
    /// As they were after the step before.
    blocks_before: Vec<BlockView>,
    counters: Counters,
    steps: Vec<Arc<StepRecord>>,
    /// What the step under way has done so far.
    doing: StepRecord,
    /// What each step from now on says of its kernels.
    pub kernels: Vec<OperationTime>,
    step: u64,
    pub paused: bool,
    allowed: u32,
    trace: Option<Arc<SamplingTrace>>,
    pub scheduler: SchedulerSettings,
    /// Sequences that static batching started together.
    batch: usize,
    breakpoints: Vec<SetBreakpoint>,
    breakpoint_ids: u32,
    kv_events: Vec<KvEvent>,
    pub tiers: Vec<TierView>,
    pub memory: MemoryPlan,
    /// Told instead of the tree of what is cached.
    pub tree: Option<CacheTree>,
}

pub struct Sequence {
    seq: SeqId,
    params: SamplingParams,
    prompt: usize,
    cached: usize,
    computed: usize,
    /// What is still to be said, last first.
    left: Vec<(Channel, String)>,
    /// What has been said, as tokens.
    told: Vec<(Channel, String)>,
    said: usize,
    reasoning: usize,
    /// Of prompt and answer.
    ids: Vec<u32>,
    blocks: Vec<u32>,
    /// It has a place in the batch.
    running: bool,
    /// It cannot get one for want of these blocks.
    shortage: Option<Shortage>,
    preemptions: u32,
    arrived: u64,
    first: Option<u64>,
    priority: i32,
}

impl Default for FakeEngine {
    fn default() -> Self {
        Self {
            sequences: Vec::new(),
            finished: Vec::new(),
            blocks: vec![BlockView::default(); BLOCKS],
            blocks_before: vec![BlockView::default(); BLOCKS],
            counters: Counters::default(),
            steps: Vec::new(),
            doing: StepRecord::default(),
            kernels: Vec::new(),
            step: 0,
            paused: false,
            allowed: 0,
            trace: None,
            scheduler: SchedulerSettings { max_num_seqs: 8, ..SchedulerSettings::default() },
            batch: 0,
            breakpoints: Vec::new(),
            breakpoint_ids: 0,
            kv_events: Vec::new(),
            tiers: Vec::new(),
            memory: MemoryPlan::default(),
            tree: None,
        }
    }
}

impl FakeEngine {
    pub fn command(&mut self, command: Command) -> Vec<Event> {
        match command {
            Command::Submit(request) => self.submit(&request),
            Command::Abort(id) => self.end(|s| s.seq.request == id, &FinishReason::Abort),
            Command::SetParams(id, params) => {
                let params = *params;
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
            Command::SetPriority(wanted) => self.set_priority(wanted),
            Command::Inspect(what) => self.inspect(what),
            Command::WhatIf(asked) => self.what_if(*asked),
            Command::MeasureLimits => vec![Event::Limits(Ok(Box::new(DeviceLimits {
                units: "2 threads".into(),
                memory_read: 20e9,
                matrix: 400e9,
                matrix_name: "bytes, AVX2".into(),
                halves: false,
                f32: 90e9,
            })))],
            Command::Count(count) => vec![self.count(&count)],
            Command::Focus(_) | Command::ResetPrefixCache | Command::Shutdown => Vec::new(),
            Command::Fork(request) => self.fork(&request),
            Command::Break(on) => {
                self.breakpoint_ids += 1;
                self.breakpoints.push(SetBreakpoint { id: self.breakpoint_ids, on, hits: 0 });
                Vec::new()
            }
            Command::Clear(which) => {
                self.breakpoints.retain(|b| which.is_some_and(|id| b.id != id));
                Vec::new()
            }
            Command::Configure(settings) => self.configure(*settings),
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
        self.admit(&mut events);
        let mut rows = Vec::new();
        for i in 0..self.sequences.len() {
            if self.sequences[i].running {
                rows.push(self.advance(i, &mut events));
            }
        }
        self.record(rows);
        self.check_breakpoints(&mut events);
        self.step += 1;
        let done = |s: &Sequence| s.left.is_empty() && s.first.is_some();
        let calls = |s: &Sequence| s.told.iter().any(|(channel, _)| *channel == Channel::Tool);
        events.extend(self.end(|s| done(s) && calls(s), &FinishReason::ToolCalls));
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
            free: self.blocks.len() - owned - cached,
            cached,
            owned,
            tiers: self.tiers.clone(),
        };
        let state = |s: &Sequence| match (s.running, s.preemptions) {
            (true, _) => SequenceState::Running,
            (false, 0) => SequenceState::Waiting,
            (false, _) => SequenceState::Preempted,
        };
        let view = |s: &Sequence| SequenceView {
            seq: s.seq,
            state: state(s),
            prompt_tokens: s.prompt,
            cached_tokens: s.cached,
            generated_tokens: s.said,
            computed_tokens: s.computed,
            blocks: s.blocks.clone(),
            params: s.params.clone(),
            preemptions: s.preemptions,
            priority: s.priority,
        };
        Snapshot {
            step: self.step,
            paused: self.paused,
            sequences: self.sequences.iter().map(view).collect(),
            kv,
            counters: self.counters,
            steps: self.steps.iter().rev().take(64).rev().cloned().collect(),
            beams: None,
            sampling: self.trace.clone(),
            scheduler: self.scheduler.clone(),
            breakpoints: self.breakpoints.clone(),
            kv_events: self.kv_events.iter().rev().take(16).rev().cloned().collect(),
            memory: self.memory,
        }
    }

    fn hold(&mut self, pause: bool) -> Vec<Event> {
        self.paused = pause;
        self.allowed = 0;
        vec![Event::Paused(pause)]
    }

    /// A token is four bytes, and a prompt has 24 besides.
    fn count(&self, count: &Count) -> Event {
        let tokens = match &count.what {
            Counted::Prompt(request) => vec![24 + Self::text_of(request).0.len() / 4],
            Counted::Texts(texts) => texts.iter().map(|text| text.len().div_ceil(4)).collect(),
        };
        Event::Counted { ticket: count.ticket, tokens: Ok(tokens) }
    }

    fn text_of(request: &Request) -> (String, usize) {
        match &request.prompt {
            Prompt::Chat(messages) => {
                let all: String = messages.iter().map(|m| m.content.as_str()).collect();
                (all, messages.len())
            }
            Prompt::Text(text) => (text.clone(), 1),
            Prompt::Tokens(ids) => (format!("{ids:?}"), 1),
        }
    }

    fn submit(&mut self, request: &Request) -> Vec<Event> {
        let (text, turns) = Self::text_of(request);
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
        for choice in 0..request.n {
            let thinks = request.parse_reasoning && turns < 3;
            let plain = || match () {
                () if text.contains("weather") => call(),
                () if text.contains("markdown") => script::torture(),
                () => script(choice, thinks),
            };
            let mut left = with_tools(request).unwrap_or_else(plain);
            left.reverse();
            let seq = SeqId { request: request.id, choice };
            self.sequences.push(self.sequence(seq, &request.params, (prompt, cached), left));
        }
        if self.scheduler.batching == Batching::Continuous {
            self.admit(&mut events);
        }
        self.own();
        events
    }

    fn sequence(
        &self,
        seq: SeqId,
        params: &SamplingParams,
        (prompt, cached): (usize, usize),
        left: Vec<(Channel, String)>,
    ) -> Sequence {
        Sequence {
            seq,
            params: params.clone(),
            prompt,
            cached,
            computed: cached,
            left,
            told: Vec::new(),
            said: 0,
            reasoning: 0,
            ids: (0..prompt as u32).collect(),
            blocks: Vec::new(),
            running: false,
            shortage: None,
            preemptions: 0,
            arrived: self.step,
            first: None,
            priority: 0,
        }
    }

    /// Gives places to those that wait. Choices of one request share the blocks of its prompt.
    fn admit(&mut self, events: &mut Vec<Event>) {
        let running = |engine: &Self| engine.sequences.iter().filter(|s| s.running).count();
        let is_static = self.scheduler.batching == Batching::Static;
        if is_static && running(self) > 0 {
            return;
        }
        for i in 0..self.sequences.len() {
            if running(self) >= self.scheduler.max_num_seqs {
                break;
            }
            if self.sequences[i].running || self.sequences[i].shortage.is_some() {
                continue;
            }
            let (seq, prompt, cached) =
                (self.sequences[i].seq, self.sequences[i].prompt, self.sequences[i].cached);
            let sibling = self.sequences.iter().find(|s| s.running && s.seq.request == seq.request);
            let mut blocks = match sibling.map(|s| s.blocks[..prompt / BLOCK].to_vec()) {
                Some(shared) => {
                    self.share(&shared);
                    self.counters.prefix_hits += (prompt / BLOCK * BLOCK) as u64;
                    shared
                }
                None => {
                    self.counters.prefix_hits += cached as u64;
                    self.take(prompt / BLOCK)
                }
            };
            blocks.extend(self.take(1));
            let s = &mut self.sequences[i];
            (s.blocks, s.running) = (blocks, true);
            events.push(Event::Started { seq, cached_tokens: cached });
            self.counters.prefix_queries += prompt as u64;
            self.counters.prompt_tokens += prompt as u64;
        }
        self.batch = running(self);
    }

    fn share(&mut self, blocks: &[u32]) {
        blocks.iter().for_each(|b| self.blocks[*b as usize].references += 1);
        self.doing.blocks_hit += blocks.len();
        self.counters.blocks_shared += blocks.len() as u64;
    }

    fn free(&mut self, blocks: &[u32]) {
        for b in blocks {
            let block = &mut self.blocks[*b as usize];
            block.references -= 1;
            self.doing.blocks_freed += usize::from(block.references == 0);
        }
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
            self.doing.blocks_evicted += usize::from(block.cached);
            *block = BlockView { references: 1, cached: false, owner: None, used: block.used };
        }
        self.doing.blocks_taken += taken.len();
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
                let full = (nth + 1) * BLOCK <= s.computed.min(s.ids.len());
                if full && !block.cached {
                    block.cached = true;
                    let tokens = &s.ids[nth * BLOCK..(nth + 1) * BLOCK];
                    self.kv_events.push(KvEvent::BlockStored {
                        block_hashes: vec![0xa1b2_c3d4_0000_0000 + u64::from(*b)],
                        parent_block_hash: None,
                        token_ids: tokens.to_vec(),
                        block_size: BLOCK,
                        lora_name: None,
                        medium: Medium::Device,
                        group_idx: 0,
                    });
                }
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
        s.ids.push(id);
        s.reasoning += usize::from(channel == Channel::Reasoning);
        let token = TokenInfo {
            id,
            text: text.clone(),
            bytes: text.clone().into_bytes(),
            logprob: -0.34,
            rank: 1,
            entropy: 0.91,
            top: vec![],
            forced: false,
            channel,
            held: if text.starts_with('<') { text.clone() } else { String::new() },
            why: text.starts_with('<').then_some(HeldBack::Tag),
        };
        events.push(Event::Token { seq: s.seq, token: Box::new(token) });
        events.extend(part(&s.told, channel, &text).map(|part| Event::Delta { seq: s.seq, part }));
        s.told.push((channel, text.clone()));
        if (s.prompt + s.said) / BLOCK >= s.blocks.len() {
            let more = self.take(1);
            self.sequences[index].blocks.extend(more);
        }
        self.counters.generated_tokens += 1;
        if self.sequences[..index].iter().all(|s| !s.running) {
            self.trace = Some(Arc::new(trace(&self.sequences[index], id, &text)));
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
        let drew = rows.first().is_some_and(|row| row.sampled.is_some());
        let running = rows.len();
        let idle = match self.scheduler.batching {
            Batching::Static => self.batch.saturating_sub(running),
            Batching::Continuous => 0,
        };
        let (waiting, blocks) = (self.waiting(running), self.changes());
        self.steps.push(Arc::new(StepRecord {
            step: self.step,
            started_ms: self.step as f64 * (STEP_MS + 1.0),
            phases,
            tokens,
            token_budget: BUDGET,
            rows,
            slots: Slots { all: self.scheduler.max_num_seqs, used: running, idle },
            waiting,
            blocks_free: self.blocks.iter().filter(|b| b.references == 0).count(),
            blocks,
            counters: self.counters,
            sampling: self.trace.clone().filter(|_| drew),
            operations: self.kernels.clone(),
            ..std::mem::take(&mut self.doing)
        }));
    }

    /// Since the record before.
    fn changes(&mut self) -> Vec<BlockChange> {
        let mut changes = Vec::new();
        for (i, (before, after)) in self.blocks_before.iter().zip(&mut self.blocks).enumerate() {
            if before != after {
                after.used = self.step;
                changes.push(BlockChange { block: i as u32, before: *before, after: *after });
            }
        }
        self.blocks_before.clone_from(&self.blocks);
        changes
    }

    fn end(&mut self, done: impl Fn(&Sequence) -> bool, reason: &FinishReason) -> Vec<Event> {
        let (ended, left): (Vec<_>, Vec<_>) = self.sequences.drain(..).partition(|s| done(s));
        self.sequences = left;
        let mut events = Vec::new();
        for mut s in ended {
            self.free(&s.blocks);
            s.blocks.clear();
            self.counters.requests_finished += 1;
            let outcome = Box::new(self.outcome(Some(&s), reason.clone(), &s.params));
            events.push(Event::Finished { seq: s.seq, outcome });
            self.finished.push(s);
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
                forced_tokens: 0,
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
            beam: None,
        }
    }
}
