//! The input and the slash completion above it.

use super::paint;
use crate::tui::app::{App, Focus, ModelState};
use crate::tui::completion;
use crate::tui::format;
use crate::tui::theme::Role;
use crate::tui::update::EXAMPLE;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

const PROMPT: u16 = 2;

/// One to ten, never over a third of the screen.
pub fn rows(app: &App, area: Rect) -> u16 {
    let width = area.width.saturating_sub(PROMPT + 2);
    app.composer.rows(width).min((area.height / 3).max(1))
}

pub fn draw(app: &App, area: Rect, buf: &mut Buffer) -> Option<Position> {
    if area.width <= PROMPT || area.height == 0 {
        return None;
    }
    let style = app.theme.style(if app.focus == Focus::Input { Role::Accent } else { Role::Muted });
    buf.set_string(area.x, area.y, "›", style);
    let text = Rect { x: area.x + PROMPT, width: area.width - PROMPT, ..area };
    app.composer.draw(text, buf, &app.theme, &placeholder(app))
}

fn placeholder(app: &App) -> String {
    if app.replay.is_some() {
        return "A recording: Tab goes to the panels, where space, n and b play it".into();
    }
    if app.tools.question.is_some() {
        return "The question above waits for y, n, d, a or Esc".into();
    }
    match &app.model {
        ModelState::Ready(_) if app.chat.turns().next().is_none() => {
            format!("Ask anything. Enter alone asks: {EXAMPLE}")
        }
        ModelState::Ready(_) if app.chat.is_running() => "Write the next message meanwhile".into(),
        ModelState::Ready(_) => "Message".into(),
        ModelState::Loading { .. } => "Write now; it is sent when the model is ready".into(),
        _ if app.fetch.is_some() => "Write now; it is sent when the model is ready".into(),
        _ if app.offer().is_some() => "Enter fetches the model above; or write, and it is sent later".into(),
        _ => "/model chooses a model".into(),
    }
}

/// What the line may become, above the input.
pub fn completion(app: &App, below: Rect, buf: &mut Buffer) {
    let offered = completion::offered(app);
    if app.focus != Focus::Input || offered.is_empty() || below.y < 4 {
        return;
    }
    let height = (offered.len() as u16).min(below.y - 2).min(10);
    let width = below.width.min(if below.width < 160 { 80 } else { 100 });
    let area = Rect { x: below.x, y: below.y - height, width, height };
    Clear.render(area, buf);
    let chosen = app.completion.min(offered.len() - 1);
    let names = offered.iter().map(|c| format::width(&c.shown) + 2).max().unwrap_or(0);
    let names = names.clamp(30, usize::from(width) / 2 + 4);
    let first = (chosen + 1).saturating_sub(height.into());
    for (row, (i, choice)) in area.rows().zip(offered.iter().enumerate().skip(first)) {
        let line = Line::from(vec![
            Span::styled(format::pad(&format!(" {}", choice.shown), names), app.theme.style(Role::Key)),
            Span::styled(
                format::fit_words(&choice.help, usize::from(width) - names),
                app.theme.style(Role::Muted),
            ),
        ]);
        paint::line(row.x, row.y, &line, row, buf);
        if i == chosen {
            buf.set_style(row, app.theme.style(Role::Selection));
        }
    }
}
