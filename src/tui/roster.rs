//! The sequences of a step, in the order the batch panel lists them: those that ran, those that gave
//! way, those that got nothing.

use super::history::Seen;
use crate::protocol::{Preemption, RowRecord, SeqId, SequenceState, SequenceView, Waiting};

/// What a sequence got of a step.
#[derive(Clone, Copy)]
pub enum Got<'a> {
    Row(&'a RowRecord),
    /// It gave its blocks back, and why it has not come back.
    Preempted(&'a Preemption, Option<&'a Waiting>),
    /// It has a place, and yet nothing.
    Skipped(&'a Waiting),
    Waits(&'a Waiting),
    /// The step does not name it: it came after.
    Nothing,
}

#[derive(Clone, Copy)]
pub struct Entry<'a> {
    pub seq: SeqId,
    pub got: Got<'a>,
    /// What else is known of it.
    pub view: Option<&'a SequenceView>,
}

pub fn roster<'a>(seen: &'a Seen<'a>) -> Vec<Entry<'a>> {
    let sequences = &seen.snapshot.sequences;
    let entry = |seq, got| Entry { seq, got, view: sequences.iter().find(|s| s.seq == seq) };
    let mut all: Vec<Entry> = Vec::new();
    if let Some(step) = seen.step {
        all.extend(step.rows.iter().map(|row| entry(row.seq, Got::Row(row))));
        let waits = |seq| step.waiting.iter().find(|w| w.seq == seq);
        all.extend(step.preempted.iter().map(|p| entry(p.seq, Got::Preempted(p, waits(p.seq)))));
        let gave_way = |seq| step.preempted.iter().any(|p| p.seq == seq);
        all.extend(step.waiting.iter().filter(|w| !gave_way(w.seq)).map(|w| {
            let known = entry(w.seq, Got::Waits(w));
            let runs = known.view.is_some_and(|view| view.state == SequenceState::Running);
            if runs { Entry { got: Got::Skipped(w), ..known } } else { known }
        }));
    }
    if seen.back == 0 {
        let new: Vec<&SequenceView> =
            sequences.iter().filter(|s| !all.iter().any(|known| known.seq == s.seq)).collect();
        all.extend(new.into_iter().map(|view| Entry { seq: view.seq, got: Got::Nothing, view: Some(view) }));
    }
    all
}
