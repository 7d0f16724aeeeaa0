//! Changes of the sampling parameters in this session, to be undone and done again.

use crate::protocol::SamplingParams;
use std::collections::BTreeMap;

/// So many can be undone; the oldest is forgotten first.
const KEPT: usize = 200;

/// The parameters, and who set them in this session.
#[derive(Clone)]
pub struct State {
    pub params: SamplingParams,
    pub set_here: Vec<&'static str>,
    pub set_by_preset: BTreeMap<&'static str, String>,
}

#[derive(Default)]
pub struct Changes {
    past: Vec<State>,
    undone: Vec<State>,
}

impl Changes {
    /// Remembers how it was before a change.
    pub fn before(&mut self, state: State) {
        self.undone.clear();
        self.past.push(state);
        let over = self.past.len().saturating_sub(KEPT);
        self.past.drain(..over);
    }

    /// How it was before the newest change, where one is left to undo.
    pub fn undo(&mut self, now: State) -> Option<State> {
        let before = self.past.pop()?;
        self.undone.push(now);
        Some(before)
    }

    pub fn redo(&mut self, now: State) -> Option<State> {
        let after = self.undone.pop()?;
        self.past.push(now);
        Some(after)
    }

    /// How many can be undone, and done again.
    pub fn left(&self) -> (usize, usize) {
        (self.past.len(), self.undone.len())
    }
}
