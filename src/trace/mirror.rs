use super::format::{BlockForm, Preempted, Row, Seq, SequenceForm, StepLine, ViewLine, WaitingPatch, ms, us};
use super::waterfall;
use crate::protocol::{
    BeamView, BlockChange, BlockView, Counters, Preemption, RowRecord, SamplingParams, SamplingTrace,
    SchedulerSettings, SeqId, SequenceState, SequenceView, SetBreakpoint, Slots, Snapshot, StepRecord,
    TierView, Waiting,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The engine's state as the lines so far tell it. Writer and reader keep the same one, so that a line
/// holds only what it changes: the writer makes a line by comparing, then takes it as the reader will.
#[derive(Clone, Default)]
pub struct Mirror {
    pub step: u64,
    pub blocks: Vec<BlockView>,
    /// Free, cached, owned.
    pub counts: [usize; 3],
    pub counters: Counters,
    pub sequences: Arc<Vec<Arc<Known>>>,
    pub tiers: Arc<Vec<TierView>>,
    pub scheduler: Arc<SchedulerSettings>,
    pub breakpoints: Arc<Vec<SetBreakpoint>>,
    pub sampling: Option<Arc<SamplingTrace>>,
    pub beams: Option<Arc<BeamView>>,
    token_budget: usize,
    slots: Slots,
    waiting: Vec<Waiting>,
    blocks_free: usize,
    busy_us: u64,
    bytes_read: Trend,
    flops: Trend,
    /// Of the last waterfall.
    params: Option<SamplingParams>,
}

/// A sequence, but for its parameters: those are known from its request.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    pub seq: SeqId,
    pub state: SequenceState,
    pub prompt: usize,
    pub cached: usize,
    pub generated: usize,
    pub computed: usize,
    pub preemptions: u32,
    pub blocks: Arc<Vec<u32>>,
}

/// A counter that grows along a straight line while one sequence decodes: by as much as in the step
/// before, and what that was more than in the one before it.
#[derive(Clone, Copy, Default)]
struct Trend {
    growth: i64,
    change: i64,
}

impl Trend {
    fn ahead(self, now: u64) -> u64 {
        now.wrapping_add_signed(self.growth.wrapping_add(self.change))
    }

    fn grew(&mut self, from: u64, to: u64) {
        let growth = to.wrapping_sub(from) as i64;
        *self = Self { growth, change: growth.wrapping_sub(self.growth) };
    }
}

/// The name of a counter in a line, and where it is.
type Counter = (&'static str, fn(&mut Counters) -> &mut u64);

const COUNTERS: [Counter; 12] = [
    ("q", |c| &mut c.prefix_queries),
    ("h", |c| &mut c.prefix_hits),
    ("e", |c| &mut c.evictions),
    ("w", |c| &mut c.copies_on_write),
    ("s", |c| &mut c.blocks_shared),
    ("S", |c| &mut c.swaps),
    ("P", |c| &mut c.preemptions),
    ("p", |c| &mut c.prompt_tokens),
    ("g", |c| &mut c.generated_tokens),
    ("f", |c| &mut c.requests_finished),
    ("b", |c| &mut c.bytes_read),
    ("x", |c| &mut c.flops),
];
/// Microseconds in steps, where the phases do not add up to it.
const BUSY: &str = "y";
/// Rounding is not worth a correction below this.
const BUSY_SLACK_US: i64 = 100;

impl Mirror {
    pub fn new(blocks: usize, scheduler: SchedulerSettings) -> Self {
        Self {
            blocks: vec![BlockView::default(); blocks],
            counts: [blocks, 0, 0],
            scheduler: Arc::new(scheduler),
            ..Self::default()
        }
    }

    // ---- steps ----

    /// The line that makes the reader's mirror what this record says.
    pub fn write_step(&mut self, record: &StepRecord) -> StepLine {
        let p = record.phases;
        let rows: Vec<Row> = record.rows.iter().map(Row::from).collect();
        let slots = record.slots;
        let mut kinds = vec![
            record.blocks_taken,
            record.blocks_freed,
            record.blocks_hit,
            record.blocks_evicted,
            record.blocks_copied,
            record.blocks_saved,
            record.blocks_loaded,
        ];
        kinds.truncate(kinds.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1));
        let block = |change: &BlockChange| form(change.block, &change.after, record.step);
        let mut line = StepLine {
            s: record.step,
            a: us(record.started_ms),
            p: [us(p.schedule_ms), us(p.forward_ms), us(p.sample_ms), us(p.output_ms)],
            n: (record.tokens != summed(&record.rows)).then_some(record.tokens),
            r: rows,
            m: (record.token_budget != self.token_budget).then_some(record.token_budget),
            l: (slots != self.slots).then_some([slots.all, slots.used, slots.idle]),
            w: WaitingPatch::between(&self.waiting, &record.waiting),
            x: record.preempted.iter().map(Preempted::from).collect(),
            k: kinds,
            f: (record.blocks_free != self.blocks_free).then_some(record.blocks_free),
            b: record.blocks.iter().map(block).collect(),
            c: BTreeMap::new(),
            u: record.sampling.as_ref().and_then(|trace| waterfall::write(trace, &mut self.params.clone())),
            e: record.beams.clone(),
        };
        // An engine that does not count leaves all of them at zero.
        if record.counters != Counters::default() {
            let (counters, busy_us) = self.counters_after(&line);
            line.c = growth(counters, busy_us, record.counters);
        }
        self.read_step(&line);
        line
    }

    pub fn read_step(&mut self, line: &StepLine) -> StepRecord {
        self.step = line.s;
        let rows: Vec<RowRecord> = line.r.iter().map(RowRecord::from).collect();
        let preempted: Vec<Preemption> = line.x.iter().map(Preemption::from).collect();
        if let Some([all, used, idle]) = line.l {
            self.slots = Slots { all, used, idle };
        }
        if let Some(patch) = &line.w {
            patch.apply(&mut self.waiting);
        }
        self.token_budget = line.m.unwrap_or(self.token_budget);
        self.blocks_free = line.f.unwrap_or(self.blocks_free);
        let before = self.counters;
        (self.counters, self.busy_us) = self.counters_after(line);
        grow(&mut self.counters, &mut self.busy_us, &line.c);
        self.bytes_read.grew(before.bytes_read, self.counters.bytes_read);
        self.flops.grew(before.flops, self.counters.flops);
        advance(Arc::<Vec<_>>::make_mut(&mut self.sequences), &rows, &preempted);
        let blocks = line.b.iter().map(|form| self.set_block(form)).collect::<Vec<_>>();
        let kind = |i: usize| line.k.get(i).copied().unwrap_or(0);
        self.follow_blocks(&blocks, kind(4) > 0);
        let sampling =
            line.u.as_ref().and_then(|value| waterfall::read(value, &mut self.params)).map(Arc::new);
        self.sampling = sampling.clone().or(self.sampling.take());
        self.beams = line.e.clone().or(self.beams.take());
        let [schedule_ms, forward_ms, sample_ms, output_ms] = line.p.map(ms);
        StepRecord {
            step: line.s,
            started_ms: ms(line.a),
            phases: crate::protocol::Phases { schedule_ms, forward_ms, sample_ms, output_ms },
            tokens: line.n.unwrap_or_else(|| summed(&rows)),
            token_budget: self.token_budget,
            rows,
            slots: self.slots,
            waiting: self.waiting.clone(),
            preempted,
            blocks_taken: kind(0),
            blocks_freed: kind(1),
            blocks_hit: kind(2),
            blocks_evicted: kind(3),
            blocks_copied: kind(4),
            blocks_saved: kind(5),
            blocks_loaded: kind(6),
            blocks_free: self.blocks_free,
            blocks,
            counters: self.counters,
            sampling,
            beams: line.e.clone(),
            operations: Vec::new(),
        }
    }

    /// What a step does to the counters by itself: its tokens, its time, and what goes on as it did.
    fn counters_after(&self, line: &StepLine) -> (Counters, u64) {
        let drawn = line.r.iter().filter(|row| RowRecord::from(*row).sampled.is_some()).count() as u64;
        let busy_us = self.busy_us + line.p.iter().sum::<u64>();
        let generated_tokens = self.counters.generated_tokens + drawn;
        let bytes_read = self.bytes_read.ahead(self.counters.bytes_read);
        let flops = self.flops.ahead(self.counters.flops);
        (Counters { generated_tokens, bytes_read, flops, busy_ms: ms(busy_us), ..self.counters }, busy_us)
    }

    /// A block that was nobody's and is somebody's is the end of that one's table; where the step
    /// copied blocks and the last one of that table lost an owner, it is the copy, in its place.
    fn follow_blocks(&mut self, changes: &[BlockChange], copied: bool) {
        let lost = |block: u32| {
            let mut of = changes.iter().filter(|c| c.block == block);
            of.any(|c| c.after.references < c.before.references)
        };
        for change in changes.iter().filter(|c| c.before.references == 0 && c.after.references == 1) {
            let owner = change.after.owner;
            let of = self.sequences.iter().position(|known| Some(known.seq) == owner);
            if let Some(at) = of.filter(|at| !self.sequences[*at].blocks.contains(&change.block)) {
                let known = Arc::make_mut(&mut Arc::make_mut(&mut self.sequences)[at]);
                let table = Arc::make_mut(&mut known.blocks);
                if copied && table.last().is_some_and(|last| lost(*last)) {
                    table.pop();
                }
                table.push(change.block);
            }
        }
    }

    /// Gives back what it was and what it is.
    fn set_block(&mut self, form: &BlockForm) -> BlockChange {
        let at = form.block as usize;
        if at >= self.blocks.len() {
            self.counts[0] += at + 1 - self.blocks.len();
            self.blocks.resize(at + 1, BlockView::default());
        }
        let after = BlockView {
            references: form.references,
            cached: form.cached,
            owner: form.owner.map(SeqId::from),
            used: form.used.unwrap_or(self.step),
        };
        let before = std::mem::replace(&mut self.blocks[at], after);
        self.counts[class(&before)] = self.counts[class(&before)].saturating_sub(1);
        self.counts[class(&after)] += 1;
        BlockChange { block: form.block, before, after }
    }

    // ---- snapshots ----

    /// What a snapshot says beyond its steps; `t` is left for the caller to set.
    pub fn write_view(&mut self, snapshot: &Snapshot) -> ViewLine {
        let step = self.step;
        let mut line = ViewLine { v: step, ..ViewLine::default() };
        let at: HashMap<SeqId, usize> =
            self.sequences.iter().enumerate().map(|(i, known)| (known.seq, i)).collect();
        for view in &snapshot.sequences {
            let known = at.get(&view.seq).map(|i| &*self.sequences[*i]);
            line.q.extend(sequence_form(known, view));
        }
        let here: HashSet<SeqId> = snapshot.sequences.iter().map(|view| view.seq).collect();
        let gone = self.sequences.iter().map(|known| known.seq).filter(|seq| !here.contains(seq));
        line.g = gone.map(Seq::from).collect();
        self.read_sequences(&line);
        let in_order = self.sequences.iter().map(|k| k.seq).eq(snapshot.sequences.iter().map(|s| s.seq));
        if !in_order {
            line.o = Some(snapshot.sequences.iter().map(|view| view.seq.into()).collect());
        }
        let (mine, theirs) = (&self.blocks, &snapshot.kv.blocks);
        let changed = theirs.iter().enumerate().filter(|(i, block)| mine.get(*i) != Some(block));
        line.b = changed.map(|(i, block)| form(i as u32, block, step)).collect();
        line.c = growth(self.counters, self.busy_us, snapshot.counters);
        line.z = (*self.tiers != snapshot.kv.tiers).then(|| snapshot.kv.tiers.clone());
        line.scheduler = (*self.scheduler != snapshot.scheduler).then(|| snapshot.scheduler.clone());
        line.breakpoints = (*self.breakpoints != snapshot.breakpoints).then(|| snapshot.breakpoints.clone());
        let sampling = snapshot.sampling.as_ref().filter(|new| !same_token(self.sampling.as_ref(), new));
        line.u = sampling.and_then(|trace| waterfall::write(trace, &mut self.params.clone()));
        self.read_view(&line);
        let counts = [snapshot.kv.free, snapshot.kv.cached, snapshot.kv.owned];
        if self.counts != counts {
            line.n = Some(counts);
            self.counts = counts;
        }
        line
    }

    /// Gives back the blocks that it changed.
    pub fn read_view(&mut self, line: &ViewLine) -> Vec<BlockChange> {
        self.read_sequences(line);
        let blocks = line.b.iter().map(|form| self.set_block(form)).collect();
        self.counts = line.n.unwrap_or(self.counts);
        grow(&mut self.counters, &mut self.busy_us, &line.c);
        if let Some(tiers) = &line.z {
            self.tiers = Arc::new(tiers.clone());
        }
        if let Some(scheduler) = &line.scheduler {
            self.scheduler = Arc::new(scheduler.clone());
        }
        if let Some(breakpoints) = &line.breakpoints {
            self.breakpoints = Arc::new(breakpoints.clone());
        }
        if let Some(trace) = line.u.as_ref().and_then(|value| waterfall::read(value, &mut self.params)) {
            self.sampling = Some(Arc::new(trace));
        }
        blocks
    }

    fn read_sequences(&mut self, line: &ViewLine) {
        if line.q.is_empty() && line.g.is_empty() && line.o.is_none() {
            return;
        }
        let sequences = Arc::make_mut(&mut self.sequences);
        let gone: HashSet<SeqId> = line.g.iter().map(|seq| SeqId::from(*seq)).collect();
        sequences.retain(|known| !gone.contains(&known.seq));
        let at: HashMap<SeqId, usize> =
            sequences.iter().enumerate().map(|(i, known)| (known.seq, i)).collect();
        for form in &line.q {
            let old = at.get(&form.0.into()).copied();
            let new = Arc::new(known(form, old.map(|i| &*sequences[i])));
            match old {
                Some(i) => sequences[i] = new,
                None => sequences.push(new),
            }
        }
        if let Some(order) = &line.o {
            let place: HashMap<SeqId, usize> =
                order.iter().enumerate().map(|(i, seq)| (SeqId::from(*seq), i)).collect();
            sequences.sort_by_key(|known| place.get(&known.seq).copied().unwrap_or(usize::MAX));
        }
    }
}

/// What the rows of a step do to their sequences.
fn advance(sequences: &mut [Arc<Known>], rows: &[RowRecord], preempted: &[Preemption]) {
    for (nth, row) in rows.iter().enumerate() {
        // Rows are in the order of the running sequences, which stand first.
        let here = sequences.get(nth).is_some_and(|known| known.seq == row.seq);
        let at = if here { Some(nth) } else { sequences.iter().position(|known| known.seq == row.seq) };
        if let Some(at) = at {
            let known = Arc::make_mut(&mut sequences[at]);
            known.state = SequenceState::Running;
            known.computed = row.computed + row.tokens;
            known.generated += usize::from(row.sampled.is_some());
        }
    }
    for gone in preempted {
        if let Some(known) = sequences.iter_mut().find(|known| known.seq == gone.seq) {
            let known = Arc::make_mut(known);
            known.state = SequenceState::Preempted;
            known.preemptions += 1;
            known.computed = if gone.swapped { known.computed } else { 0 };
            known.blocks = Arc::default();
        }
    }
}

fn summed(rows: &[RowRecord]) -> usize {
    rows.iter().map(|row| row.tokens).sum()
}

/// 0 free, 1 cached, 2 owned.
fn class(block: &BlockView) -> usize {
    match (block.references, block.cached) {
        (0, false) => 0,
        (0, true) => 1,
        _ => 2,
    }
}

fn form(block: u32, view: &BlockView, step: u64) -> BlockForm {
    let used = (view.used != step).then_some(view.used);
    BlockForm {
        block,
        references: view.references,
        cached: view.cached,
        owner: view.owner.map(Seq::from),
        used,
    }
}

fn same_token(mine: Option<&Arc<SamplingTrace>>, theirs: &SamplingTrace) -> bool {
    mine.is_some_and(|mine| (mine.seq, mine.index) == (theirs.seq, theirs.index))
}

/// By how much each counter must grow to be what it is.
fn growth(mut from: Counters, busy_us: u64, mut to: Counters) -> BTreeMap<String, i64> {
    let difference = |to: u64, from: u64| to.wrapping_sub(from) as i64;
    let changed =
        COUNTERS.iter().map(|(name, at)| ((*name).to_owned(), difference(*at(&mut to), *at(&mut from))));
    let mut grown: BTreeMap<String, i64> = changed.filter(|(_, by)| *by != 0).collect();
    let busy = difference(us(to.busy_ms), busy_us);
    if busy.abs() > BUSY_SLACK_US {
        grown.insert(BUSY.to_owned(), busy);
    }
    grown
}

fn grow(counters: &mut Counters, busy_us: &mut u64, by: &BTreeMap<String, i64>) {
    for (name, at) in COUNTERS {
        if let Some(by) = by.get(name) {
            let counter = at(counters);
            *counter = counter.wrapping_add_signed(*by);
        }
    }
    *busy_us = busy_us.saturating_add_signed(by.get(BUSY).copied().unwrap_or(0));
    counters.busy_ms = ms(*busy_us);
}

fn sequence_form(known: Option<&Known>, view: &SequenceView) -> Option<SequenceForm> {
    let same_table = known.map_or(0, |known| {
        known.blocks.iter().zip(&view.blocks).take_while(|(mine, theirs)| mine == theirs).count()
    });
    let unchanged = known.is_some_and(|k| {
        (k.state, k.prompt, k.cached, k.generated, k.computed, k.preemptions)
            == (
                view.state,
                view.prompt_tokens,
                view.cached_tokens,
                view.generated_tokens,
                view.computed_tokens,
                view.preemptions,
            )
            && same_table == view.blocks.len()
            && same_table == k.blocks.len()
    });
    (!unchanged).then(|| {
        SequenceForm(
            view.seq.into(),
            view.state,
            view.prompt_tokens,
            view.cached_tokens,
            view.generated_tokens,
            view.computed_tokens,
            view.preemptions,
            same_table,
            view.blocks[same_table..].to_vec(),
        )
    })
}

fn known(form: &SequenceForm, old: Option<&Known>) -> Known {
    let &SequenceForm(seq, state, prompt, cached, generated, computed, preemptions, kept, ref more) = form;
    let kept = old.map_or(&[][..], |old| &old.blocks[..kept.min(old.blocks.len())]);
    let blocks = if more.is_empty() && old.is_some_and(|old| old.blocks.len() == kept.len()) {
        old.map(|old| old.blocks.clone()).unwrap_or_default()
    } else {
        Arc::new([kept, more].concat())
    };
    Known { seq: seq.into(), state, prompt, cached, generated, computed, preemptions, blocks }
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
