use super::estimate::Estimate;
use super::limits::Held;
use super::plan::Plan;
use super::sequence::{Sequence, Share};
use super::sequences::{Key, Sequences};
use crate::kv::{BlockManager, Hits};
use crate::model::RopeLengths;
use crate::protocol::{
    Batching, Reason, RequestId, RowKind, SchedulerSettings, SchedulingPolicy, SequenceState, Slots, Waiting,
};
use std::collections::{HashMap, VecDeque};

/// Who gets how many tokens in a step, as vLLM V1's scheduler: running sequences first, each given
/// tokens until it catches up or the budget is used; then the queue, head first. When blocks run
/// out, a running sequence gives way (`preempt`). `queue` orders those that wait, `limits` holds them
/// back.
#[derive(Debug)]
pub struct Scheduler {
    pub sequences: Sequences,
    /// Of a model with recurrent layers whose prefixes are cached: tokens of a block. What is cached of a state
    /// is how it stood at the end of a step that ended with a block.
    pub(super) border: Option<usize>,
    pub(super) rope: RopeLengths,
    /// In the order of admission; round robin turns it.
    pub(super) running: Vec<Key>,
    /// The first is looked at first.
    pub(super) waiting: VecDeque<Key>,
    pub(super) settings: SchedulerSettings,
    pub(super) bounds: Bounds,
    pub(super) estimate: Estimate,
    /// Shares of running sequences, before they become rows: a victim's is taken back.
    pub(super) shares: Vec<(Key, Share)>,
    /// The running sequences when the plan began.
    order: Vec<Key>,
    /// Memory of prefix lookups, used again.
    pub(super) hits: Hits,
    /// While sequences are admitted.
    pub(super) held: Held,
    /// Static batching: members of the batch still to be admitted, and its size.
    pub(super) forming: usize,
    pub(super) batch_size: usize,
    /// Steps since one had a prompt in it.
    pub(super) since_prefill: u32,
    /// The last step that took prompts left some waiting.
    pub(super) prefill_capacity_bound: bool,
    /// Who lets whom fill the cache with their common prefix first.
    pub(super) in_batch: HashMap<Key, Key>,
    pub(super) steps: u64,
    /// Sequences that ever arrived, and tokens computed so far.
    pub(super) arrivals: u64,
    pub(super) tokens_done: u64,
}

/// What the model can take in a step.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub tokens: usize,
    pub outputs: usize,
    /// Longest sequence.
    pub context: usize,
}

impl Scheduler {
    pub fn new(settings: SchedulerSettings, bounds: Bounds) -> Self {
        Self {
            sequences: Sequences::default(),
            border: None,
            rope: RopeLengths::Same,
            running: Vec::new(),
            waiting: VecDeque::new(),
            estimate: Estimate::new(settings.schedule_conservativeness),
            settings,
            bounds,
            shares: Vec::new(),
            order: Vec::new(),
            hits: Hits::default(),
            held: Held::default(),
            forming: 0,
            batch_size: 0,
            since_prefill: 0,
            prefill_capacity_bound: false,
            in_batch: HashMap::new(),
            steps: 0,
            arrivals: 0,
            tokens_done: 0,
        }
    }

    /// Plans a step. While `round` steps of the last plan's round are left, that may be the same rows
    /// again; gives back whether it is.
    pub fn schedule(&mut self, round: u32, kv: &mut BlockManager, plan: &mut Plan) -> bool {
        self.steps += 1;
        kv.begin_step(self.steps);
        plan.clear(self.budget(), self.bounds.outputs);
        if round > 0 && self.repeat(round, kv, plan) {
            return true;
        }
        self.turn();
        let deferred = self.defers_prefills();
        self.continue_running(deferred, kv, plan);
        let passed_over = plan.skipped.len();
        let why = match plan.preempted.len() {
            0 => self.admit_waiting(deferred, kv, plan),
            // Admitting now would take the very blocks that were just given up.
            victims => Some(Reason::Preempting { victims }),
        };
        self.note_waiting(why, passed_over, plan);
        self.look_ahead(kv, plan);
        self.close(plan);
        false
    }

    // ---- phase one: those that run ----

    fn continue_running(&mut self, deferred: Option<Reason>, kv: &mut BlockManager, plan: &mut Plan) {
        let threshold = self.long_prefill_threshold();
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(&self.running);
        for (at, key) in order.iter().copied().enumerate() {
            // A victim of one before it.
            if self.sequences[key].state != SequenceState::Running {
                continue;
            }
            match self.share_of_running(key, at, threshold, deferred, plan) {
                Ok(None) => {}
                Ok(Some(_)) if self.sequences[key].outgrew(self.rope) => self.begin_anew(key, kv),
                Ok(Some(share)) => self.make_room(key, share, kv, plan),
                Err(reason) => plan.skipped.push(Waiting { seq: self.sequences[key].id, reason }),
            }
        }
        self.order = order;
        self.make_rows(kv, plan);
    }

    /// What the running sequence at place `at` may have of this step; `None` when it has all it
    /// will ever need.
    fn share_of_running(
        &self,
        key: Key,
        at: usize,
        threshold: usize,
        deferred: Option<Reason>,
        plan: &Plan,
    ) -> Result<Option<Share>, Reason> {
        let seq = &self.sequences[key];
        let places = self.settings.max_num_seqs;
        if seq.held {
            return Err(Reason::InFlight);
        }
        if seq.is_saturated(self.bounds.context) {
            return Ok(None);
        }
        if let Some(reason) = deferred.filter(|_| seq.is_prefill()) {
            return Err(reason);
        }
        // It is to begin anew, with all of its tokens.
        if seq.in_flight > 0 && seq.outgrew(self.rope) {
            return Err(Reason::InFlight);
        }
        // Lowered while more were running.
        if at >= places {
            return Err(Reason::Slots { running: places, most: places });
        }
        let share = seq.share(seq.num_computed, threshold.min(plan.tokens_left), plan.outputs_left);
        let share = self.to_border(seq.num_computed, share);
        if share.tokens == 0 { Err(self.used_up(plan)) } else { Ok(Some(share)) }
    }

    /// The shares become rows, in the order of the queue.
    pub(super) fn make_rows(&mut self, kv: &mut BlockManager, plan: &mut Plan) {
        for (key, share) in self.shares.drain(..) {
            let seq = &mut self.sequences[key];
            plan.push(key, seq, share);
            offer(seq, kv);
        }
    }

    // ---- phase two: those that wait ----

    /// Admits from the head of the queue; gives back why the first that was not skipped must wait.
    fn admit_waiting(
        &mut self,
        deferred: Option<Reason>,
        kv: &mut BlockManager,
        plan: &mut Plan,
    ) -> Option<Reason> {
        self.form_batch();
        self.order_waiting(kv);
        let why = self.admit_from_head(deferred, kv, plan);
        if deferred.is_none() {
            self.prefill_capacity_bound = self.waiting.iter().any(|key| self.skips(*key).is_none());
        }
        why
    }

    fn admit_from_head(
        &mut self,
        deferred: Option<Reason>,
        kv: &mut BlockManager,
        plan: &mut Plan,
    ) -> Option<Reason> {
        let threshold = self.long_prefill_threshold();
        self.held = Held { places: self.places(), blocks: None };
        let mut at = 0;
        while at < self.waiting.len() {
            let key = self.waiting[at];
            if let Some(reason) = self.skips(key) {
                plan.skipped.push(Waiting { seq: self.sequences[key].id, reason });
                at += 1;
                continue;
            }
            if let Err(reason) = self.admit(key, threshold, deferred, kv, plan) {
                return Some(reason);
            }
            self.waiting.remove(at);
            self.running.push(key);
            self.hold(key, kv);
        }
        None
    }

    /// Why a waiting sequence lets those behind it pass.
    fn skips(&self, key: Key) -> Option<Reason> {
        let seq = &self.sequences[key];
        match seq.loading {
            0 if seq.is_compiling() => Some(Reason::Grammar),
            0 if seq.held => Some(Reason::InFlight),
            0 => None,
            blocks => Some(Reason::Loading { blocks }),
        }
    }

    fn admit(
        &mut self,
        key: Key,
        threshold: usize,
        deferred: Option<Reason>,
        kv: &mut BlockManager,
        plan: &mut Plan,
    ) -> Result<(), Reason> {
        self.has_place(self.held.places)?;
        if let Some(reason) = deferred.filter(|_| self.sequences[key].is_prefill()) {
            return Err(reason);
        }
        let computed = self.look_up(key, kv);
        let seq = &self.sequences[key];
        let left = plan.tokens_left;
        let share = self.to_border(computed, seq.share(computed, threshold.min(left), plan.outputs_left));
        if share.tokens == 0 {
            return Err(self.used_up(plan));
        }
        let prompt = (seq.num_tokens() - computed).min(threshold);
        if !self.settings.enable_chunked_prefill && prompt > left && prompt <= self.budget() {
            return Err(Reason::Unsplit { prompt, left });
        }
        self.estimate_allows(seq, computed, kv)?;
        self.take_blocks(key, computed, share, kv, plan)?;

        let seq = &mut self.sequences[key];
        if !seq.started {
            seq.cached_tokens = computed;
            plan.prefix_queries += if seq.reads_cache() { seq.tokens.len() } else { 0 };
            plan.prefix_hits += computed;
        }
        (seq.num_computed, seq.state) = (computed, SequenceState::Running);
        plan.charge(share);
        plan.push(key, seq, share);
        offer(seq, kv);
        self.forming = self.forming.saturating_sub(1);
        Ok(())
    }

    /// Tokens that need not be computed: held, swapped out, or found in the cache.
    pub(super) fn look_up(&mut self, key: Key, kv: &mut BlockManager) -> usize {
        self.fit_rope(key, kv);
        let seq = &self.sequences[key];
        self.hits.clear();
        if !seq.table.is_empty() || seq.swapped.is_some() {
            return seq.num_computed;
        }
        if seq.reads_cache() {
            kv.find_prefix(seq.prefix(), seq.tokens.len(), &mut self.hits);
        }
        self.hits.tokens()
    }

    fn take_blocks(
        &mut self,
        key: Key,
        computed: usize,
        share: Share,
        kv: &mut BlockManager,
        plan: &mut Plan,
    ) -> Result<(), Reason> {
        let reserved = self.reserved(kv);
        let seq = &mut self.sequences[key];
        let len = computed + share.tokens;
        // The whole sequence must fit, and so must what running prompts have still to compute:
        // otherwise two half-computed prompts could each wait for the other's blocks.
        let whole = if self.settings.scheduler_reserve_full_isl { seq.num_tokens() } else { len };
        let taken = if !seq.table.is_empty() {
            kv.grow(&mut seq.table, computed, len, &mut plan.moves)
        } else {
            let table = match &mut seq.swapped {
                Some(swapped) => kv.swap_in(seq.id, swapped, len, whole, reserved, &mut plan.moves),
                None => kv.admit(seq.id, &self.hits, len, whole, reserved, &mut plan.moves),
            };
            table.map(|table| (seq.table, seq.swapped) = (table, None))
        };
        let Err(shortage) = taken else { return Ok(()) };
        // Round robin: whoever waits for a turn gives way to whose turn it is.
        match self.take_from_holder(key, shortage, kv, plan) {
            true => self.take_blocks(key, computed, share, kv, plan),
            false => Err(Reason::Blocks(shortage)),
        }
    }

    /// `passed_over`: where the reasons begin of those that let others pass, in the queue's order.
    pub(super) fn note_waiting(&self, why: Option<Reason>, passed_over: usize, plan: &mut Plan) {
        let mut noted = passed_over..plan.skipped.len();
        let mut why = why;
        for (ahead, key) in self.waiting.iter().enumerate() {
            let seq = &self.sequences[*key];
            if noted.start < noted.end && plan.skipped[noted.start].seq == seq.id {
                noted.start += 1;
                continue;
            }
            let reason = match why {
                Some(reason @ (Reason::Preempting { .. } | Reason::Round { .. } | Reason::Batch { .. })) => {
                    reason
                }
                _ => why.take().unwrap_or_else(|| self.behind(key, ahead)),
            };
            plan.skipped.push(Waiting { seq: seq.id, reason });
        }
    }

    fn behind(&self, key: &Key, ahead: usize) -> Reason {
        let first = self.in_batch.get(key).and_then(|first| self.sequences.get(*first));
        match first.filter(|first| first.state != SequenceState::Running) {
            Some(first) => Reason::InBatchPrefix { by: first.id },
            None => Reason::Behind { ahead },
        }
    }

    pub(super) fn close(&mut self, plan: &mut Plan) {
        let prefills = plan.rows.iter().any(|row| row.kind == RowKind::Prefill);
        self.since_prefill = if prefills { 0 } else { self.since_prefill.saturating_add(1) };
        self.tokens_done += plan.batch.tokens.len() as u64;
        self.estimate.step(&plan.rows);
        let idle = match self.settings.batching {
            Batching::Static => self.batch_size.saturating_sub(self.running.len() + self.forming),
            Batching::Continuous => 0,
        };
        plan.slots = Slots { all: self.settings.max_num_seqs, used: plan.rows.len(), idle };
        plan.seal();
    }

    pub(super) fn budget(&self) -> usize {
        self.settings.max_num_batched_tokens.min(self.bounds.tokens)
    }

    pub(super) fn context(&self) -> usize {
        self.bounds.context
    }

    // ---- between steps ----

    pub fn settings(&self) -> &SchedulerSettings {
        &self.settings
    }

    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    pub fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Running, then waiting in the order of the queue.
    pub fn all(&self) -> impl Iterator<Item = &Sequence> {
        self.running.iter().chain(&self.waiting).map(|key| &self.sequences[*key])
    }

    pub fn of_request(&mut self, request: RequestId) -> impl Iterator<Item = &mut Sequence> {
        self.sequences.iter_mut().filter(move |seq| seq.id.request == request)
    }

    /// Whether `policy = priority` ranks sequences.
    pub(super) fn by_priority(&self) -> bool {
        self.settings.scheduling_policy == SchedulingPolicy::Priority
    }
}

/// Makes the full blocks of a scheduled sequence known to the prefix cache.
fn offer(seq: &mut Sequence, kv: &mut BlockManager) {
    let len = seq.num_computed.min(seq.tokens.len());
    let Sequence { table, tokens, chain, priority, .. } = seq;
    kv.offer(table, crate::kv::Prefix { tokens, chain, priority: *priority }, len);
}
