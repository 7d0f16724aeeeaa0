//! The end of a long answer is told to someone who looks elsewhere.

use crate::config::Notify;
use crate::protocol::Event;
use crate::tui::app::{App, Effect};
use crate::tui::{format, sanitize};

/// Who waits less long has not gone away.
const LONG_MS: f64 = 10_000.0;

/// After the events were taken. Of several answers side by side the last one is told.
pub fn ended(app: &App, ended_ms: Option<f64>, effects: &mut Vec<Effect>) {
    let Some(took) = ended_ms.filter(|ms| *ms >= LONG_MS) else { return };
    if !app.looked_away || app.tabs.all(&app.chat).any(|chat| chat.is_running()) {
        return;
    }
    match app.options.notify {
        Notify::Off => {}
        Notify::Bell => effects.push(Effect::Bell),
        Notify::Desktop => {
            let chat = app.chat.title.as_deref().map(sanitize::one_line);
            let about = chat.map_or(String::new(), |title| format!(" in {title}"));
            let text = format!("the answer{about} is there, after {}", format::millis(took));
            effects.push(Effect::Notify(format::fit(&text, 120)));
        }
    }
}

/// How long the longest of the answers took that end here.
pub fn longest(events: &[Event]) -> Option<f64> {
    let took = events.iter().filter_map(|event| match event {
        Event::Finished { outcome, .. } => Some(outcome.timings.e2el_ms),
        _ => None,
    });
    took.max_by(f64::total_cmp)
}
