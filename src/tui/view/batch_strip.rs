//! The last steps as a strip of small columns, tokens of each, with a cursor on the one that is shown.

use super::paint;
use crate::tui::app::App;
use crate::tui::format;
use crate::tui::history::Seen;
use crate::tui::theme::Role;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

const NAME: &str = "per step ";

/// The strip's values, oldest first, and the place of the step that is `back` among them.
fn strip_of(app: &App, back: usize, room: usize) -> (Vec<f64>, usize) {
    let steps = &app.meter.steps;
    let room = room.min(steps.len());
    // The newest are in view as long as the chosen one is with them.
    let newer = (back + 1).saturating_sub(room);
    let newest = steps.iter().rev().skip(newer).take(room);
    let values: Vec<f64> = newest.rev().map(|step| step.tokens as f64).collect();
    let at = values.len().saturating_sub(1 + back - newer);
    (values, at)
}

fn numbers(app: &App, back: usize) -> String {
    let rate = app.meter.tokens_per_second(back).map_or("-".into(), format::rate);
    format!(" {rate} tok/s")
}

pub fn strip(app: &App, back: usize, width: usize) -> Line<'static> {
    let numbers = numbers(app, back);
    let (values, at) = strip_of(app, back, width.saturating_sub(numbers.len() + NAME.len()));
    let room = values.len();
    let columns: Vec<char> = paint::sparkline(values.into_iter(), room).chars().collect();
    let style = app.theme.style(Role::Accent);
    let text = |from: usize, to: usize| columns[from.min(room)..to.min(room)].iter().collect::<String>();
    let cursor = if back > 0 { style.add_modifier(Modifier::REVERSED) } else { style };
    Line::from(vec![
        Span::styled(NAME, app.theme.style(Role::Muted)),
        Span::styled(text(0, at), style),
        Span::styled(text(at, at + 1), cursor),
        Span::styled(text(at + 1, room), style),
        Span::styled(numbers, app.theme.style(Role::Text)),
    ])
}

/// A mark under the strip's chosen step, while that is not the newest.
pub fn cursor(app: &App, seen: &Seen, width: usize) -> Option<Line<'static>> {
    let step = seen.step.filter(|_| seen.back > 0)?;
    let room = width.saturating_sub(numbers(app, seen.back).len() + NAME.len());
    let (_, at) = strip_of(app, seen.back, room);
    let text = format!("step {}", format::count(step.step));
    let before = NAME.len() + at;
    // The words stand on the side that has room.
    let line = match before + 2 + text.len() <= width {
        true => format!("{}▲ {text}", " ".repeat(before)),
        false => format!("{}▲", format::pad_left(&format!("{text} "), before)),
    };
    Some(Line::styled(line, app.theme.style(Role::Warn)))
}
