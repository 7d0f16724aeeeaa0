//! What the terminal's window is called.

use crate::tui::app::{App, ModelState};
use crate::tui::{format, sanitize};

const LONGEST: usize = 80;

/// The chat and its model: plain text on one line, whatever they call themselves.
pub fn window_title(app: &App) -> String {
    let model = match &app.model {
        ModelState::Ready(info) => Some(info.name.as_str()),
        ModelState::Loading { name, .. } => Some(name.as_str()),
        _ => None,
    };
    let parts = app.chat.title.as_deref().into_iter().chain(model).chain(["glassbox"]);
    let title = parts.map(sanitize::one_line).collect::<Vec<_>>().join(" · ");
    format::fit(&title, LONGEST)
}
