//! What a block is, as each colour mode of the map sees it: a shape first, a colour second.

use crate::protocol::BlockView;
use crate::tui::app::App;
use crate::tui::kv_panel::BlockColours;
use crate::tui::theme::{Role, Theme};
use ratatui::style::Style;

/// A row of a mode's legend.
pub struct Kind {
    pub shape: char,
    pub role: Role,
    /// Empty for what needs no word.
    pub word: &'static str,
    /// It fills its place: nothing else can be put there before it goes.
    pub full: bool,
}

const fn kind(shape: char, role: Role, word: &'static str, full: bool) -> Kind {
    Kind { shape, role, word, full }
}

/// Belongs to the pool itself: the null block.
const KEPT: Kind = kind('×', Role::Faint, "", true);
const FREE: Kind = kind('·', Role::Faint, "free", false);

const OWNER: [Kind; 5] = [
    kind('█', Role::Accent, "owned", true),
    kind('▓', Role::Heading, "shared", true),
    kind(':', Role::Muted, "cached", false),
    FREE,
    KEPT,
];
const SHARES: [Kind; 7] = [
    kind('█', Role::Accent, "of one", true),
    kind('2', Role::Good, "of 2", true),
    kind('3', Role::Warn, "of 3", true),
    kind('+', Role::Bad, "of more", true),
    kind(':', Role::Muted, "cached", false),
    FREE,
    KEPT,
];
const STATE: [Kind; 5] = [
    kind('█', Role::Accent, "owned", true),
    kind('▓', Role::Good, "owned, cached", true),
    kind(':', Role::Warn, "evictable", false),
    FREE,
    KEPT,
];
const AGE: [Kind; 6] = [
    kind('█', Role::Heading, "this step", true),
    kind('▓', Role::Good, "to 8 ago", true),
    kind('▒', Role::Accent, "to 64", true),
    kind('░', Role::Muted, "to 512", true),
    kind(':', Role::Muted, "older", true),
    kind('·', Role::Faint, "never", false),
];
const TIER: [Kind; 5] = [
    kind('█', Role::Accent, "device", true),
    kind('▓', Role::Good, "host", true),
    kind('▒', Role::Thought, "disk", true),
    kind('·', Role::Faint, "nothing", false),
    KEPT,
];

/// Which row of the legend a block belongs to, and whose it is where that is its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    pub kind: u8,
    /// The hue of its one owner.
    pub owner: Option<u8>,
}

/// After so many, colours and letters both begin again.
const HUES: usize = 78;

/// The rows of a mode's legend.
pub fn kinds(colours: BlockColours) -> &'static [Kind] {
    match colours {
        BlockColours::Owner => &OWNER,
        BlockColours::Shares => &SHARES,
        BlockColours::State => &STATE,
        BlockColours::Age => &AGE,
        BlockColours::Tier => &TIER,
    }
}

/// What a block of the device is, after `step`.
#[inline]
pub fn class(colours: BlockColours, block: &BlockView, step: u64) -> Class {
    let kept = block.references == 1 && block.owner.is_none();
    let kind = match colours {
        BlockColours::Owner if kept => 4,
        BlockColours::Owner => match (block.references, block.cached) {
            (0, false) => 3,
            (0, true) => 2,
            (1, _) => {
                let hue = |owner| (App::hue(owner) % HUES) as u8;
                return Class { kind: 0, owner: block.owner.map(hue) };
            }
            _ => 1,
        },
        BlockColours::Shares if kept => 6,
        BlockColours::Shares => match (block.references, block.cached) {
            (0, false) => 5,
            (0, true) => 4,
            (n, _) => n.min(4) as u8 - 1,
        },
        BlockColours::State if kept => 4,
        BlockColours::State => match (block.references, block.cached) {
            (0, false) => 3,
            (0, true) => 2,
            (_, true) => 1,
            (_, false) => 0,
        },
        BlockColours::Age => match (block.used, step.saturating_sub(block.used)) {
            (0, _) => 5,
            (_, 0..=1) => 0,
            (_, 2..=8) => 1,
            (_, 9..=64) => 2,
            (_, 65..=512) => 3,
            _ => 4,
        },
        BlockColours::Tier if kept => 4,
        BlockColours::Tier => match block.references > 0 || block.cached {
            true => 0,
            false => 3,
        },
    };
    Class { kind, owner: None }
}

impl Class {
    pub fn style(self, colours: BlockColours, theme: &Theme) -> Style {
        match self.owner {
            Some(hue) => theme.sequence(hue.into()),
            None => theme.style(kinds(colours)[self.kind as usize].role),
        }
    }
}
