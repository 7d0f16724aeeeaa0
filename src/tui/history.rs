//! What the panels show: the newest state or, while someone scrolls through the steps, the one after
//! an earlier step. That is made of the newest by undoing what the steps since then did.

use super::app::App;
use crate::protocol::{
    BlockView, Reason, SamplingParams, SeqId, SequenceState, SequenceView, Snapshot, StepRecord,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// The state as it was after one step.
pub struct Seen<'a> {
    pub snapshot: Arc<Snapshot>,
    /// None before the first.
    pub step: Option<&'a Arc<StepRecord>>,
    /// The one before it, where it is still known.
    pub before: Option<&'a Arc<StepRecord>>,
    /// Steps from the newest.
    pub back: usize,
}

/// The earlier state that was made last: every panel of a picture shows the same.
#[derive(Default)]
pub struct Then(RefCell<Option<Made>>);

struct Made {
    now: Arc<Snapshot>,
    step: u64,
    then: Arc<Snapshot>,
}

impl Then {
    /// The state after `step`, seen from `now`.
    fn get(&self, now: &Arc<Snapshot>, step: u64, make: impl FnOnce() -> Snapshot) -> Arc<Snapshot> {
        let mut made = self.0.borrow_mut();
        match &*made {
            Some(made) if Arc::ptr_eq(&made.now, now) && made.step == step => made.then.clone(),
            _ => {
                let then = Arc::new(make());
                *made = Some(Made { now: now.clone(), step, then: then.clone() });
                then
            }
        }
    }
}

pub fn seen(app: &App) -> Seen<'_> {
    let steps: Vec<&Arc<StepRecord>> = app.meter.steps.iter().collect();
    let back = back(app);
    let Some(at) = steps.len().checked_sub(back + 1) else {
        return Seen { snapshot: app.snapshot.clone(), step: None, before: None, back: 0 };
    };
    let snapshot = match back {
        0 => app.snapshot.clone(),
        _ => app.then.get(&app.snapshot, steps[at].step, || after(&app.snapshot, &steps, at)),
    };
    Seen { snapshot, step: Some(steps[at]), before: at.checked_sub(1).map(|i| steps[i]), back }
}

/// Steps between the newest and the one that is shown.
pub fn back(app: &App) -> usize {
    app.panels.batch.step_back.min(app.meter.steps.len().saturating_sub(1))
}

/// How many tokens each sequence drew after the step that is shown.
pub fn later_tokens(app: &App) -> HashMap<SeqId, usize> {
    let mut later = HashMap::new();
    for record in app.meter.steps.iter().rev().take(back(app)) {
        for row in record.rows.iter().filter(|row| row.sampled.is_some()) {
            *later.entry(row.seq).or_default() += 1;
        }
    }
    later
}

/// The state after `steps[at]`. What steps do not record, such as events and tiers, is left out.
fn after(now: &Snapshot, steps: &[&Arc<StepRecord>], at: usize) -> Snapshot {
    let record = steps[at];
    let mut blocks = now.kv.blocks.clone();
    let mut put = |block: u32, view: BlockView| {
        if let Some(slot) = blocks.get_mut(block as usize) {
            *slot = view;
        }
    };
    for later in steps[at + 1..].iter().rev() {
        later.blocks.iter().rev().for_each(|change| put(change.block, change.before));
    }
    // Blocks also change between steps, as when a request is stopped: of those the last step up to
    // this one that touched them knows best.
    for earlier in &steps[..=at] {
        earlier.blocks.iter().for_each(|change| put(change.block, change.after));
    }
    let mut then = now.clone();
    then.step = record.step;
    then.counters = record.counters;
    then.sampling = steps[..=at].iter().rev().find_map(|step| step.sampling.clone());
    then.beams = steps[..=at].iter().rev().find_map(|step| step.beams.clone());
    then.sequences = sequences(now, record, &blocks);
    then.kv_events.clear();
    then.kv.tiers.clear();
    // The pool keeps a block or more to itself, which it does not count.
    let all = now.kv.owned + now.kv.cached + now.kv.free;
    let uncounted = owned(&now.kv.blocks).saturating_sub(now.kv.owned);
    then.kv.owned = owned(&blocks).saturating_sub(uncounted);
    then.kv.cached = blocks.iter().filter(|b| b.references == 0 && b.cached).count();
    then.kv.free = all.saturating_sub(then.kv.owned + then.kv.cached);
    then.kv.blocks = blocks;
    then
}

fn owned(blocks: &[BlockView]) -> usize {
    blocks.iter().filter(|b| b.references > 0).count()
}

/// Those the step names. Of a block that several shared, a sequence is known to be an owner only
/// while it still has it.
fn sequences(now: &Snapshot, record: &StepRecord, blocks: &[BlockView]) -> Vec<SequenceView> {
    let view = |seq: SeqId| {
        let known = now.sequences.iter().find(|s| s.seq == seq);
        let owns = |id: usize| blocks.get(id).is_some_and(|b| b.owner == Some(seq) || b.references > 1);
        let table = match known {
            Some(s) => s.blocks.iter().copied().filter(|id| owns(*id as usize)).collect(),
            None => {
                (0..blocks.len()).filter(|id| blocks[*id].owner == Some(seq)).map(|id| id as u32).collect()
            }
        };
        let base = known.cloned().unwrap_or_else(|| SequenceView {
            seq,
            state: SequenceState::Running,
            prompt_tokens: 0,
            cached_tokens: 0,
            generated_tokens: 0,
            computed_tokens: 0,
            blocks: Vec::new(),
            params: SamplingParams::default(),
            preemptions: 0,
            priority: 0,
        });
        SequenceView { blocks: table, ..base }
    };
    let running = record.rows.iter().map(|row| SequenceView {
        state: SequenceState::Running,
        computed_tokens: row.computed + row.tokens,
        ..view(row.seq)
    });
    let preempted =
        record.preempted.iter().map(|p| SequenceView { state: SequenceState::Preempted, ..view(p.seq) });
    let waiting = record.waiting.iter().filter(|w| !record.preempted.iter().any(|p| p.seq == w.seq));
    let waiting = waiting.map(|w| {
        let view = view(w.seq);
        let state = match w.reason {
            Reason::Loading { .. } => SequenceState::Loading,
            Reason::Grammar => SequenceState::Compiling,
            _ if view.blocks.is_empty() => SequenceState::Waiting,
            _ => SequenceState::Running,
        };
        SequenceView { state, ..view }
    });
    running.chain(preempted).chain(waiting).collect()
}
