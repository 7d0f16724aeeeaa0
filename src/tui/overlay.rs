//! What lies over everything and takes the keys while it is open.

use super::picker::Picker;
use super::sessions::SessionList;
use std::cell::Cell;

pub enum Overlay {
    Help(Help),
    Picker(Box<Picker>),
    Sessions(Box<SessionList>),
}

/// Keys and commands, narrowed by typing.
#[derive(Default)]
pub struct Help {
    pub query: String,
    /// First line shown.
    pub scroll: usize,
    /// The last that can be the first, as last drawn.
    pub end: Cell<usize>,
}

impl Help {
    pub fn scroll_by(&mut self, by: isize) {
        self.scroll = self.scroll.min(self.end.get()).saturating_add_signed(by).min(self.end.get());
    }
}
