//! What lies where on the screen: noted while it is drawn, asked when the mouse is used.

use super::panels::Panel;
use super::place::Spot;
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
    /// A row of the list in the overlay.
    Row(usize),
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

    /// Where something lies.
    pub fn of(&self, target: Target) -> Option<(Rect, Target)> {
        self.0.borrow().iter().rev().find(|(_, noted)| *noted == target).copied()
    }

    /// What lies on top there, and its area.
    pub fn at(&self, at: Position) -> Option<(Rect, Target)> {
        self.0.borrow().iter().rev().find(|(area, _)| area.contains(at)).copied()
    }
}
