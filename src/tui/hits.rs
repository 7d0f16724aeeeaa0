//! What lies where on the screen: noted while it is drawn, asked when the mouse is used.

use super::layout::Side;
use super::panels::Panel;
use super::place::Spot;
use crate::protocol::SeqId;
use ratatui::layout::{Position, Rect};
use std::cell::RefCell;

/// Something that can be pointed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Input,
    Transcript,
    Message(Spot),
    /// Of the answer that is read token by token.
    Token(usize),
    /// Of the token that is looked at.
    Alternative(usize),
    Scrollbar,
    Tab(usize),
    Panel(Panel),
    /// Its first row.
    Title(Panel),
    /// In its title.
    Number(Panel),
    /// The line between the chat and that column of panels.
    Divider(Side),
    /// What lies over everything, between its rows.
    Overlay,
    /// Beside it.
    Outside,
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

    /// Where it lies.
    pub fn area(&self, target: Target) -> Option<Rect> {
        self.0.borrow().iter().rev().find(|(_, noted)| *noted == target).map(|(area, _)| *area)
    }

    /// How many there are: what is noted later can be found by it.
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Puts what was noted from the `from`-th on where it was drawn in the end.
    pub fn place(&self, from: usize, place: impl Fn(Rect) -> Rect) {
        self.0.borrow_mut().iter_mut().skip(from).for_each(|(area, _)| *area = place(*area));
    }
}
