//! What the terminal's window is called.

use crate::tui::app::{App, ModelState};
use crate::tui::{format, sanitize};

/// Cells of the chat's name and of the model's.
const LONGEST: usize = 40;

/// The chat and its model: plain text on one line, whatever they call themselves, and then our name.
pub fn window_title(app: &App) -> String {
    let model = match &app.model {
        ModelState::Ready(info) => Some(info.name.as_str()),
        ModelState::Loading { name, .. } => Some(name.as_str()),
        _ => None,
    };
    let parts = app.chat.title.as_deref().into_iter().chain(model);
    let parts = parts.map(|part| format::fit(&sanitize::one_line(part), LONGEST));
    parts.chain(["glassbox".into()]).collect::<Vec<_>>().join(" · ")
}
