//! The tokens of the draft, in the rule over the input.

use crate::tui::app::App;
use crate::tui::format;
use crate::tui::theme::Role;
use ratatui::text::{Line, Span};

/// ` draft 132 tok · 1,204/8,192 · fits 6,988 `, as much of it as the engine has counted.
pub fn line(app: &App, width: u16) -> Line<'static> {
    let Some(draft) = app.counting.known.draft else { return Line::default() };
    let muted = app.theme.style(Role::Muted);
    let count = |n: usize| format::count(n as u64);
    let mut spans = vec![Span::styled(format!(" draft {} tok ", count(draft)), muted)];
    let limit = app.ready().map(|info| info.context_length);
    if let Some((prompt, limit)) = app.counting.known.prompt.zip(limit) {
        let (left, role) = match limit.checked_sub(prompt).filter(|left| *left > 0) {
            Some(left) if left * 10 < limit => (format!("fits {}", count(left)), Role::Warn),
            Some(left) => (format!("fits {}", count(left)), Role::Muted),
            None => (format!("{} too many", count(prompt + 1 - limit)), Role::Bad),
        };
        if width >= 60 {
            spans.push(Span::styled(format!("· {}/{} ", count(prompt), count(limit)), muted));
        }
        spans.push(Span::styled(format!("· {left} "), app.theme.style(role)));
    }
    Line::from(spans)
}
