use super::estimate::Estimate;
use super::plan::Plan;
use super::sequence::{Sequence, Share};
use super::sequences::{Key, Sequences};
use crate::kv::{BlockManager, Hits};
use crate::protocol::{
    Batching, Reason, RequestId, SchedulePolicy, SchedulerSettings, SchedulingPolicy, SequenceState, Slots,
    Waiting,
};
use std::collections::VecDeque;

/// Who gets how many tokens in a step, as vLLM V1's scheduler: running sequences first, each given
/// tokens until it catches up or the budget is used; then the queue, head first. When blocks run
/// out, a running sequence gives way (`preempt`). `queue` orders those that wait.
#[derive(Debug)]
pub struct Scheduler {
    pub sequences: Sequences,
    /// In the order of admission; round robin turns it.
    pub(super) running: Vec<Key>,
    /// The first is looked at first.
    pub(super) waiting: VecDeque<Key>,
    pub(super) settings: SchedulerSettings,
    bounds: Bounds,
    pub(super) estimate: Estimate,
    /// Shares of running sequences, before they become rows: a victim's is taken back.
    pub(super) shares: Vec<(Key, Share)>,
    /// The running sequences when the plan began.
    order: Vec<Key>,
    /// Memory of prefix lookups, used again.
    pub(super) hits: Hits,
    /// Static batching: members of the batch still to be admitted, and its size.
    forming: usize,
    batch_size: usize,
    /// Steps since one had a prompt in it.
    since_prefill: u32,
    pub(super) steps: u64,
    /// Sequences that ever arrived, and tokens computed so far.
    arrivals: u64,
    pub(super) tokens_done: u64,
}

/// What running sequences hold while others are admitted beside them, counted once for a step.
#[derive(Debug, Default)]
struct Held {
    /// Places of the batch.
    places: usize,
    /// Blocks that they still need; counted when first asked for.
    blocks: Option<usize>,
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
            running: Vec::new(),
            waiting: VecDeque::new(),
            estimate: Estimate::new(settings.schedule_conservativeness),
            settings,
            bounds,
            shares: Vec::new(),
            order: Vec::new(),
            hits: Hits::default(),
            forming: 0,
            batch_size: 0,
            since_prefill: 0,
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
        self.continue_running(kv, plan);
        let passed_over = plan.skipped.len();
        let why = match plan.preempted.len() {
            0 => self.admit_waiting(kv, plan),
            // Admitting now would take the very blocks that were just given up.
            victims => Some(Reason::Preempting { victims }),
        };
        self.note_waiting(why, passed_over, plan);
        self.look_ahead(kv, plan);
        self.close(plan);
        false
    }

    /// The same rows again, each for its next token, when there is nothing to decide: all of them
    /// decode and have their blocks (`num_scheduler_steps`). False, and nothing planned, otherwise.
    fn repeat(&mut self, left: u32, kv: &mut BlockManager, plan: &mut Plan) -> bool {
        let decodes =
            |seq: &Sequence| !seq.held && !seq.is_prefill() && !seq.is_saturated(self.bounds.context);
        if self.running.is_empty()
            || self.running.len() > plan.tokens_left.min(plan.outputs_left)
            || self.running.len() > self.settings.max_num_seqs
            || !self.running.iter().all(|key| decodes(&self.sequences[*key]))
        {
            return false;
        }
        for key in &self.running {
            let seq = &mut self.sequences[*key];
            let (computed, len) = (seq.num_computed, seq.num_computed + 1);
            if kv.grow(&mut seq.table, computed, len, &mut plan.moves).is_err() {
                // What grew stays: the plan that is made instead goes on from there.
                return false;
            }
        }
        for at in 0..self.running.len() {
            let seq = &self.sequences[self.running[at]];
            let share = seq.share(seq.num_computed, 1, 1);
            plan.charge(share);
            self.shares.push((self.running[at], share));
        }
        self.make_rows(kv, plan);
        self.note_waiting(Some(Reason::Round { left }), plan.skipped.len(), plan);
        self.close(plan);
        true
    }

    // ---- phase one: those that run ----

    fn continue_running(&mut self, kv: &mut BlockManager, plan: &mut Plan) {
        self.turn();
        self.order.clear();
        self.order.extend(&self.running);
        let (threshold, deferred) = (self.long_prefill_threshold(), self.defers_prefills());
        let order = std::mem::take(&mut self.order);
        for (at, key) in order.iter().copied().enumerate() {
            // A victim of one before it.
            if self.sequences[key].state != SequenceState::Running {
                continue;
            }
            match self.share_of_running(key, at, threshold, deferred, plan) {
                Ok(None) => {}
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
        // Lowered while more were running.
        if at >= places {
            return Err(Reason::Slots { running: places, most: places });
        }
        let share = seq.share(seq.num_computed, threshold.min(plan.tokens_left), plan.outputs_left);
        if share.tokens == 0 { Err(self.used_up(plan)) } else { Ok(Some(share)) }
    }

    /// The shares become rows, in the order of the queue.
    fn make_rows(&mut self, kv: &mut BlockManager, plan: &mut Plan) {
        for (key, share) in self.shares.drain(..) {
            let seq = &mut self.sequences[key];
            plan.push(key, seq, share);
            offer(seq, kv);
        }
    }

    /// While there are other sequences, a long prompt may not take the whole budget.
    fn long_prefill_threshold(&self) -> usize {
        let s = &self.settings;
        let sequences = self.running.len() + self.waiting.len();
        match s.long_prefill_token_threshold {
            0 => usize::MAX,
            _ if sequences <= 1 => usize::MAX,
            threshold if s.long_prefill_token_threshold_adaptive => threshold.max(self.budget() / sequences),
            threshold => threshold,
        }
    }

    /// `prefill_schedule_interval`: prompts, running and waiting ones, sit out while something decodes.
    fn defers_prefills(&self) -> Option<Reason> {
        let of = self.settings.prefill_schedule_interval;
        let steps = self.since_prefill;
        let decoding = || self.running.iter().any(|key| !self.sequences[*key].is_prefill());
        (of > 1 && steps + 1 < of && decoding()).then_some(Reason::Interval { steps, of })
    }

    // ---- phase two: those that wait ----

    /// Admits from the head of the queue; gives back why the first that was not skipped must wait.
    fn admit_waiting(&mut self, kv: &mut BlockManager, plan: &mut Plan) -> Option<Reason> {
        self.form_batch();
        self.order_waiting(kv);
        let threshold = self.long_prefill_threshold();
        let mut held = Held::default();
        self.running.iter().for_each(|key| held.places += self.sequences[*key].places());
        let mut at = 0;
        while at < self.waiting.len() {
            let key = self.waiting[at];
            if let Some(reason) = self.skips(key) {
                plan.skipped.push(Waiting { seq: self.sequences[key].id, reason });
                at += 1;
                continue;
            }
            if let Err(reason) = self.admit(key, threshold, &mut held, kv, plan) {
                return Some(reason);
            }
            self.waiting.remove(at);
            self.running.push(key);
            held.places += self.sequences[key].places();
            held.blocks = held.blocks.map(|blocks| blocks + self.still_needed(key, kv));
        }
        None
    }

    /// Why a waiting sequence lets those behind it pass.
    fn skips(&self, key: Key) -> Option<Reason> {
        let seq = &self.sequences[key];
        match seq.loading {
            0 if seq.held => Some(Reason::InFlight),
            0 => None,
            blocks => Some(Reason::Loading { blocks }),
        }
    }

    fn admit(
        &mut self,
        key: Key,
        threshold: usize,
        held: &mut Held,
        kv: &mut BlockManager,
        plan: &mut Plan,
    ) -> Result<(), Reason> {
        self.has_place(held.places)?;
        if let Some(reason) = self.defers_prefills() {
            return Err(reason);
        }
        let computed = self.look_up(key, kv);
        let seq = &self.sequences[key];
        let left = plan.tokens_left;
        let share = seq.share(computed, threshold.min(left), plan.outputs_left);
        if share.tokens == 0 {
            return Err(self.used_up(plan));
        }
        let prompt = seq.num_tokens() - computed;
        if !self.settings.enable_chunked_prefill && prompt > left && prompt <= self.budget() {
            return Err(Reason::Unsplit { prompt, left });
        }
        self.estimate_allows(seq, computed, kv)?;
        let reserved = self.reserved(held, kv);
        self.take_blocks(key, computed, share, reserved, kv, plan)?;

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
    fn look_up(&mut self, key: Key, kv: &mut BlockManager) -> usize {
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
        reserved: usize,
        kv: &mut BlockManager,
        plan: &mut Plan,
    ) -> Result<(), Reason> {
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
        match taken {
            Ok(()) => Ok(()),
            // Round robin: whoever waits for a turn gives way to whose turn it is.
            Err(_) if self.take_from_holder(key, kv) => {
                self.take_blocks(key, computed, share, reserved, kv, plan)
            }
            Err(shortage) => Err(Reason::Blocks(shortage)),
        }
    }

    /// Blocks that running sequences still need for tokens they have, and those of the watermark.
    fn reserved(&self, held: &mut Held, kv: &BlockManager) -> usize {
        if self.running.is_empty() {
            return 0;
        }
        let watermark = (self.settings.watermark * kv.pool().total() as f32).ceil() as usize;
        let count = || self.running.iter().map(|key| self.still_needed(*key, kv)).sum();
        watermark + *held.blocks.get_or_insert_with(count)
    }

    /// Blocks kept for a running sequence until it has computed all its tokens.
    fn still_needed(&self, key: Key, kv: &BlockManager) -> usize {
        let seq = &self.sequences[key];
        match self.settings.scheduler_reserve_full_isl {
            true => kv.still_needed(&seq.table, seq.num_tokens()),
            false => 0,
        }
    }

    fn has_place(&self, places: usize) -> Result<(), Reason> {
        if self.settings.batching == Batching::Static && self.forming == 0 {
            return Err(Reason::Batch { running: self.running.len() });
        }
        let s = &self.settings;
        let most = s.max_num_active_seqs.unwrap_or(s.max_num_seqs).min(s.max_num_seqs);
        match places < most {
            true => Ok(()),
            false if s.schedule_policy == SchedulePolicy::RoundRobin => {
                Err(Reason::Turn { slice_ms: s.time_slice_ms, ahead: self.running.len() })
            }
            false => Err(Reason::Slots { running: places.min(most), most }),
        }
    }

    /// Static batching: a new batch is whoever waits when the last one has finished.
    fn form_batch(&mut self) {
        if self.running.is_empty() {
            self.forming = self.waiting.len().min(self.settings.max_num_seqs);
            self.batch_size = self.forming;
        }
    }

    fn used_up(&self, plan: &Plan) -> Reason {
        match plan.tokens_left {
            0 => Reason::Budget { tokens: self.budget() },
            _ => Reason::Outputs { outputs: self.bounds.outputs },
        }
    }

    /// `passed_over`: where the reasons begin of those that let others pass, in the queue's order.
    fn note_waiting(&self, why: Option<Reason>, passed_over: usize, plan: &mut Plan) {
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
                _ => why.take().unwrap_or(Reason::Behind { ahead }),
            };
            plan.skipped.push(Waiting { seq: seq.id, reason });
        }
    }

    fn close(&mut self, plan: &mut Plan) {
        use crate::protocol::RowKind::Prefill;
        let prefills = plan.rows.iter().any(|row| row.kind == Prefill);
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

    /// Blocks for the tokens of a whole round, where they are free.
    fn look_ahead(&mut self, kv: &mut BlockManager, plan: &mut Plan) {
        let ahead = self.settings.num_scheduler_steps as usize - 1;
        if ahead == 0 || plan.rows.iter().any(|row| row.kind == crate::protocol::RowKind::Prefill) {
            return;
        }
        for row in &plan.rows {
            let seq = &mut self.sequences[row.key];
            let most = self.bounds.context.min(seq.num_computed + ahead.min(seq.left_to_draw()));
            // A shortage only ends the round early.
            let _ = kv.grow(&mut seq.table, seq.num_computed, most.max(seq.num_computed), &mut plan.moves);
        }
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

    /// New settings, from the next step on; those the model cannot take are refused whole.
    pub fn configure(&mut self, settings: SchedulerSettings) -> Result<(), String> {
        if settings.max_num_batched_tokens > self.bounds.tokens {
            return Err(format!(
                "max_num_batched_tokens can be at most {}, for which the model's memory was planned",
                self.bounds.tokens
            ));
        }
        if settings.schedule_conservativeness != self.settings.schedule_conservativeness {
            self.estimate = Estimate::new(settings.schedule_conservativeness);
        }
        self.settings = settings;
        self.forming = self.forming.min(self.settings.max_num_seqs);
        self.restore_order();
        Ok(())
    }

    /// A new sequence, behind all that rank as high.
    pub fn push(&mut self, mut seq: Sequence) -> Key {
        (seq.arrival, seq.arrived_at_tokens) = (self.arrivals, self.tokens_done);
        self.arrivals += 1;
        let key = self.sequences.insert(seq);
        self.enqueue(key);
        key
    }

    /// A sequence that has computed something and may go on at once, if there is a place.
    pub fn push_running(&mut self, mut seq: Sequence, kv: &mut BlockManager) -> Key {
        if self.running.len() < self.settings.max_num_seqs && self.settings.batching == Batching::Continuous {
            (seq.arrival, seq.arrived_at_tokens) = (self.arrivals, self.tokens_done);
            self.arrivals += 1;
            seq.state = SequenceState::Running;
            let key = self.sequences.insert(seq);
            self.running.push(key);
            return key;
        }
        kv.release(&mut seq.table);
        (seq.num_computed, seq.state) = (0, SequenceState::Waiting);
        self.push(seq)
    }

    /// Takes out sequences that ended, and puts `born` behind their parents. Those for which no
    /// place is left wait at the front of the queue.
    pub fn settle(&mut self, born: &mut Vec<(Key, Sequence)>, kv: &mut BlockManager) {
        let Self { running, waiting, sequences, .. } = self;
        let ended = |sequences: &Sequences, key: &Key| sequences[*key].ended;
        let any = running.iter().chain(&*waiting).any(|key| ended(sequences, key));
        if born.is_empty() && !any {
            return;
        }
        let alive = running.iter().filter(|key| !ended(sequences, key)).count();
        let mut free = self.settings.max_num_seqs.saturating_sub(alive);
        let mut overflow = Vec::new();
        let mut newest = None;
        for (parent, mut child) in born.drain(..) {
            // Behind its older siblings. A parent may have lost its place while its last step ran.
            let before = newest.filter(|(of, _)| *of == parent).map_or(parent, |(_, sibling)| sibling);
            let behind = running.iter().position(|key| *key == before);
            match behind {
                _ if child.ended => kv.release(&mut child.table),
                Some(at) if free > 0 && child.num_computed > 0 => {
                    free -= 1;
                    child.state = SequenceState::Running;
                    let key = sequences.insert(child);
                    running.insert(at + 1, key);
                    newest = Some((parent, key));
                }
                _ => {
                    kv.release(&mut child.table);
                    (child.num_computed, child.state) = (0, SequenceState::Waiting);
                    overflow.push(sequences.insert(child));
                }
            }
        }
        let mut stays = |key: &mut Key| {
            let stays = !ended(sequences, key);
            if !stays {
                drop_sequence(sequences, *key, kv);
            }
            stays
        };
        running.retain_mut(&mut stays);
        waiting.retain_mut(&mut stays);
        overflow.into_iter().rev().for_each(|key| self.requeue(key));
    }

    /// Takes every sequence of the request out, wherever it is; its blocks are free at once.
    pub fn remove(&mut self, request: RequestId, kv: &mut BlockManager) {
        let Self { running, waiting, sequences, .. } = self;
        let mut keep = |key: &mut Key| {
            let other = sequences[*key].id.request != request;
            if !other {
                drop_sequence(sequences, *key, kv);
            }
            other
        };
        running.retain_mut(&mut keep);
        waiting.retain_mut(&mut keep);
    }

    /// Forgets all sequences; their tables are void.
    pub fn reset(&mut self) {
        self.waiting.clear();
        self.running.clear();
        self.shares.clear();
        self.sequences.clear();
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

    /// Every living sequence stands in exactly one queue, and in the right one.
    pub fn check(&self) -> Result<(), String> {
        let queued = self.running.len() + self.waiting.len();
        if queued != self.sequences.len() {
            return Err(format!("{queued} places in queues for {} sequences", self.sequences.len()));
        }
        let mut seen: std::collections::HashSet<Key> = std::collections::HashSet::with_capacity(queued);
        for (key, runs) in
            self.running.iter().map(|k| (k, true)).chain(self.waiting.iter().map(|k| (k, false)))
        {
            let Some(seq) = self.sequences.get(*key) else {
                return Err("a queue holds a sequence that is gone".into());
            };
            if !seen.insert(*key) || runs != (seq.state == SequenceState::Running) {
                return Err(format!("sequence {} is {:?} and stands in a wrong queue", seq.id, seq.state));
            }
        }
        Ok(())
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

fn drop_sequence(sequences: &mut Sequences, key: Key, kv: &mut BlockManager) {
    let Some(mut seq) = sequences.remove(key) else { return };
    kv.release(&mut seq.table);
    if let Some(swapped) = seq.swapped {
        kv.drop_swapped(swapped);
    }
}
