//! How the panels lie around the chat: three arrangements, one in force for each size of window, and
//! what the person changed about it.

use super::panels::{Panel, SizeClass};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrangement {
    /// The chat over one panel.
    Compact,
    /// The chat beside a column of panels.
    Balanced,
    /// The chat between two columns of panels.
    Wide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// What is open and how large, as the person left it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    pub arrangement: Arrangement,
    /// Each column from its top, the columns mixed.
    pub open: Vec<Panel>,
    /// Those of the left column, where there are two.
    #[serde(default)]
    pub left: BTreeSet<Panel>,
    /// Columns of cells, with the line beside them.
    #[serde(default = "narrow")]
    pub left_width: u16,
    #[serde(default = "narrow")]
    pub right_width: u16,
    /// Rows of the panel under the chat; none grows while it has the focus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawer: Option<u16>,
    /// Rows, compared with the others of the column; a panel that is not here has its usual share.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub heights: BTreeMap<Panel, u16>,
}

const NARROW: u16 = 44;
const BROAD: u16 = 60;
/// A column is never narrower, nor is the chat beside it.
pub const LEAST_WIDTH: u16 = 24;
const MOST: u16 = 400;

fn narrow() -> u16 {
    NARROW
}

impl Arrangement {
    pub const ALL: [Arrangement; 3] = [Arrangement::Compact, Arrangement::Balanced, Arrangement::Wide];

    pub fn name(self) -> &'static str {
        match self {
            Arrangement::Compact => "compact",
            Arrangement::Balanced => "balanced",
            Arrangement::Wide => "wide",
        }
    }

    pub fn help(self) -> &'static str {
        match self {
            Arrangement::Compact => "the chat over one panel",
            Arrangement::Balanced => "the chat beside a column of panels",
            Arrangement::Wide => "the chat between two columns",
        }
    }

    /// What a window of this size begins with.
    pub fn of(class: SizeClass) -> Self {
        match class {
            SizeClass::Tiny | SizeClass::Compact => Arrangement::Compact,
            SizeClass::Medium => Arrangement::Balanced,
            SizeClass::Wide => Arrangement::Wide,
        }
    }
}

impl Layout {
    pub fn new(arrangement: Arrangement) -> Self {
        use Panel::{Batch, Kv, Metrics, Reasoning, Sampling};
        let (open, right_width) = match arrangement {
            Arrangement::Compact => (vec![Sampling], NARROW),
            Arrangement::Balanced => (vec![Sampling, Kv, Batch], NARROW),
            Arrangement::Wide => (vec![Sampling, Kv, Batch, Reasoning, Metrics], BROAD),
        };
        Self {
            arrangement,
            open,
            left: [Batch, Metrics].into(),
            left_width: NARROW,
            right_width,
            drawer: None,
            heights: BTreeMap::new(),
        }
    }

    pub fn of(class: SizeClass) -> Self {
        Self::new(Arrangement::of(class))
    }

    pub fn side(&self, panel: Panel) -> Side {
        let left = self.arrangement == Arrangement::Wide && self.left.contains(&panel);
        if left { Side::Left } else { Side::Right }
    }

    /// From its top.
    pub fn column(&self, side: Side) -> Vec<Panel> {
        self.open.iter().copied().filter(|panel| self.side(*panel) == side).collect()
    }

    /// As Tab goes through them.
    pub fn stops(&self) -> Vec<Panel> {
        let mut all = self.column(Side::Right);
        all.extend(self.column(Side::Left));
        all
    }

    /// Opens or closes; where one has room, opening it closes the other. True when it is open now.
    pub fn toggle(&mut self, panel: Panel) -> bool {
        if let Some(at) = self.open.iter().position(|p| *p == panel) {
            self.open.remove(at);
            return false;
        }
        match self.arrangement {
            Arrangement::Compact => self.open = vec![panel],
            // By number, unless the person moved them about.
            _ => {
                let at = self.open.iter().position(|p| *p > panel).unwrap_or(self.open.len());
                self.open.insert(at, panel);
            }
        }
        true
    }

    /// Changes places with the panel above it (or below).
    pub fn move_in_column(&mut self, panel: Panel, down: bool) -> bool {
        let column = self.column(self.side(panel));
        let Some(at) = column.iter().position(|p| *p == panel) else { return false };
        let other = if down { at.checked_add(1) } else { at.checked_sub(1) };
        let Some(other) = other.and_then(|at| column.get(at)) else { return false };
        let place = |wanted: Panel| self.open.iter().position(|p| *p == wanted);
        let (Some(a), Some(b)) = (place(panel), place(*other)) else { return false };
        self.open.swap(a, b);
        true
    }

    /// Into the column on that side. False where there is none, or it stands there already.
    pub fn move_to(&mut self, panel: Panel, side: Side) -> bool {
        if self.arrangement != Arrangement::Wide || self.side(panel) == side {
            return false;
        }
        match side {
            Side::Left => self.left.insert(panel),
            Side::Right => self.left.remove(&panel),
        }
    }

    pub fn width(&self, side: Side) -> u16 {
        match side {
            Side::Left => self.left_width,
            Side::Right => self.right_width,
        }
    }

    pub fn set_width(&mut self, side: Side, width: u16) {
        let width = width.clamp(LEAST_WIDTH, MOST);
        match side {
            Side::Left => self.left_width = width,
            Side::Right => self.right_width = width,
        }
    }

    /// As read from a file: whatever stands there, it can be drawn.
    pub fn made_sound(mut self) -> Self {
        let mut seen = BTreeSet::new();
        self.open.retain(|panel| seen.insert(*panel));
        if self.arrangement == Arrangement::Compact {
            self.open.truncate(1);
        }
        for side in [Side::Left, Side::Right] {
            self.set_width(side, self.width(side));
        }
        self.heights.values_mut().for_each(|rows| *rows = (*rows).clamp(1, MOST));
        self.drawer = self.drawer.map(|rows| rows.clamp(2, MOST));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_change_places_within_their_column_and_between_columns() {
        let mut layout = Layout::new(Arrangement::Wide);
        assert_eq!(layout.column(Side::Left), [Panel::Batch, Panel::Metrics]);
        assert!(layout.move_in_column(Panel::Kv, false));
        assert_eq!(layout.column(Side::Right), [Panel::Kv, Panel::Sampling, Panel::Reasoning]);
        assert!(!layout.move_in_column(Panel::Kv, false), "it is on top");
        assert!(layout.move_to(Panel::Kv, Side::Left));
        assert_eq!(layout.column(Side::Left), [Panel::Kv, Panel::Batch, Panel::Metrics]);
        let mut one = Layout::new(Arrangement::Balanced);
        assert!(!one.move_to(Panel::Kv, Side::Left), "there is one column");
    }

    #[test]
    fn what_opens_again_stands_by_its_number() {
        let mut layout = Layout::new(Arrangement::Balanced);
        assert!(!layout.toggle(Panel::Kv) && layout.toggle(Panel::Kv));
        assert_eq!(layout.open, [Panel::Sampling, Panel::Kv, Panel::Batch]);
        let mut drawer = Layout::new(Arrangement::Compact);
        assert!(drawer.toggle(Panel::Kv));
        assert_eq!(drawer.open, [Panel::Kv]);
    }
}
