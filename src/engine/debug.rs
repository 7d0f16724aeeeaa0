//! What a step did, as far as breakpoints ask; kept only while there are some.

use super::breakpoints::{Drawn, Seen};
use super::step::{Engine, Pace};
use crate::protocol::{Event, SeqId, SequenceState, StepRecord, TokenId, WatchedState};
use crate::sample::Sampled;
use crate::text::TextModel;
use std::collections::HashMap;

#[derive(Debug, Default)]
pub struct Watched {
    drawn: Vec<Token>,
    /// Ended since the last step.
    ended: Vec<SeqId>,
    /// As of the last step.
    states: HashMap<SeqId, WatchedState>,
}

#[derive(Debug)]
struct Token {
    seq: SeqId,
    id: TokenId,
    text: String,
    entropy: f32,
    logprob: f32,
}

impl Watched {
    pub fn drew(&mut self, seq: SeqId, sampled: &Sampled, text: &TextModel) {
        let Sampled { token: id, entropy, logprob, .. } = *sampled;
        self.drawn.push(Token { seq, id, text: text.piece_text(id), entropy, logprob });
    }

    pub fn finished(&mut self, seq: SeqId) {
        self.ended.push(seq);
    }

    /// States that sequences got into since the last call. One that came and went within the step had
    /// a row in it: it ran.
    fn changes(
        &mut self,
        now: HashMap<SeqId, WatchedState>,
        rows: impl Iterator<Item = SeqId>,
    ) -> Vec<(SeqId, WatchedState)> {
        let running = WatchedState::Is(SequenceState::Running);
        let new = now.iter().filter(|(seq, state)| self.states.get(seq) != Some(state));
        let mut changes: Vec<_> = new.map(|(seq, state)| (*seq, *state)).collect();
        let ran = rows.filter(|seq| !now.contains_key(seq) && self.states.get(seq) != Some(&running));
        changes.extend(ran.map(|seq| (seq, running)));
        // Also those that a failed step took away.
        self.ended.extend(self.states.keys().filter(|seq| !now.contains_key(seq)));
        self.ended.sort_unstable();
        self.ended.dedup();
        changes.extend(self.ended.drain(..).map(|seq| (seq, WatchedState::Finished)));
        changes.sort_by_key(|(seq, _)| *seq);
        self.states = now;
        changes
    }
}

impl Engine {
    /// Pauses where the step that was just taken met a breakpoint.
    pub(super) fn break_after(&mut self, record: &StepRecord, events: &mut Vec<Event>) {
        if self.breakpoints.is_empty() {
            return;
        }
        let now = self.scheduler.all().map(|seq| (seq.id, WatchedState::Is(seq.state))).collect();
        let states = self.watched.changes(now, record.rows.iter().map(|row| row.seq));
        let tokens = std::mem::take(&mut self.watched.drawn);
        let drawn: Vec<Drawn> = tokens
            .iter()
            .map(|token| Drawn {
                seq: token.seq,
                id: token.id,
                text: &token.text,
                entropy: token.entropy,
                logprob: token.logprob,
            })
            .collect();
        let total_blocks = self.kv.pool().total();
        let seen = Seen { record, total_blocks, drawn: &drawn, states: &states };
        if let Some((id, why)) = self.breakpoints.check(&seen) {
            events.push(Event::Broke { id, step: record.step, why });
            self.set_pace(Pace::Steps(0), events);
        }
    }

    /// Sequences are in the states they are in: only what changes from here on is news.
    pub(super) fn watch_from_here(&mut self) {
        let now = self.scheduler.all().map(|seq| (seq.id, WatchedState::Is(seq.state))).collect();
        self.watched = Watched { states: now, ..Watched::default() };
    }
}
