//! The mouse between two events: what is held, what was clicked before.

use super::layout::Side;
use super::panels::Panel;
use super::selection::Selection;
use ratatui::layout::Position;
use std::time::Duration;

/// A second click on the same place within this is a double click.
const DOUBLE: Duration = Duration::from_millis(400);

#[derive(Default)]
pub struct Pointer {
    /// What the button went down on, while it is down.
    pub held: Option<Held>,
    /// Marked text of the transcript.
    pub selection: Option<Selection>,
    last: Option<(Position, Duration)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    Divider(Side),
    Title(Panel),
    Text,
}

impl Pointer {
    /// A button went down; true when it did so just before.
    pub fn is_double(&mut self, at: Position, now: Duration) -> bool {
        let double = self.last.is_some_and(|(place, then)| place == at && now.saturating_sub(then) < DOUBLE);
        self.last = (!double).then_some((at, now));
        double
    }
}
