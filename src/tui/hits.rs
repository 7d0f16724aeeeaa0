//! What lies where on the screen: noted while it is drawn, asked when the mouse is used.

use super::panels::Panel;
use crate::protocol::SeqId;
use ratatui::layout::{Position, Rect};
use std::cell::RefCell;

/// Something that can be pointed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Input,
    Transcript,
    Tab(usize),
    Panel(Panel),
    /// A row of the list in the overlay.
    Row(usize),
    /// The map of KV blocks: so many in each of its cells, and rows of cells in a line.
    Blocks {
        per_cell: usize,
        levels: usize,
    },
    /// A row of the prefix cache's tree.
    CacheRow(usize),
    /// A sequence in the batch panel.
    Sequence(SeqId),
    /// A row of the branch tree.
    Branch(usize),
}

/// The newest picture's places. Drawing starts with `clear`; what is drawn later lies on top.
#[derive(Default)]
pub struct Hits(RefCell<Vec<(Rect, Target)>>);

impl Hits {
    pub fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    pub fn note(&self, area: Rect, target: Target) {
        self.0.borrow_mut().push((area, target));
    }

    /// What lies on top there, and its area.
    pub fn at(&self, at: Position) -> Option<(Rect, Target)> {
        self.0.borrow().iter().rev().find(|(area, _)| area.contains(at)).copied()
    }
}
