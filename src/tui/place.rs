//! Places in the transcript: which message is selected, and which line is at the top of the view.
//!
//! A line is named by its entry, never by how many lines stand above: what is far away need not be
//! measured, and nothing moves when something there changes.

use std::cell::Cell;

/// A message or an answer: what can be selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    pub entry: usize,
    pub part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What the person said, or what tools gave back.
    Said,
    Answer(usize),
}

/// A line of an entry; it may lie outside of it, that is in one before or after.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Place {
    pub entry: usize,
    pub line: isize,
    /// Lines that the entry had, and the width: at another width the place is as far down.
    pub of: usize,
    pub width: u16,
}

impl Place {
    pub fn moved(self, by: isize) -> Self {
        Self { line: self.line.saturating_add(by), ..self }
    }
}

/// Where the view stands while it does not follow the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scroll {
    At(Place),
    /// From there it moves as little as brings this into view.
    Show(Place, Sight),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sight {
    Message(Spot),
    /// Its first line at the top of the view.
    Top(Spot),
    /// That of the token mode.
    Token,
    /// That of the search.
    Match,
}

/// What the last frame showed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shown {
    pub top: Place,
    /// Lines in view, above and below it.
    pub view: usize,
    pub above: usize,
    pub below: usize,
    /// Something below was not measured yet: its lines are estimated.
    pub is_estimate: bool,
}

/// The lines of an entry, as they were last counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Of everything that the count depends on.
    pub key: u64,
    pub width: u16,
    pub lines: usize,
}

/// Kept where the entry is, so that it goes when the entry goes.
pub type Measure = Cell<Measured>;

/// Folds what a count depends on into one number.
#[derive(Clone, Copy)]
pub struct Key(pub u64);

impl Key {
    pub fn with(self, value: usize) -> Self {
        Self((self.0.rotate_left(5) ^ value as u64).wrapping_mul(0x517c_c1b7_2722_0a95))
    }
}
