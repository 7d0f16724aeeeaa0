//! A panel's frame, and which file draws what is in it.

use super::{batch, beams, kv, metrics, paint, reasoning, sampling};
use crate::tui::app::{App, Focus};
use crate::tui::format;
use crate::tui::history;
use crate::tui::hits::Target;
use crate::tui::panels::Panel;
use crate::tui::theme::Role;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// The height a panel wants, compared with the others in its column.
pub fn share(panel: Panel) -> u16 {
    match panel {
        Panel::Sampling => 18,
        Panel::Kv => 10,
        Panel::Batch => 11,
        Panel::Beams => 14,
        Panel::Reasoning => 12,
        Panel::Metrics => 16,
    }
}

/// With fewer rows, its title counted, it says nothing: it is folded up.
pub fn least(panel: Panel) -> u16 {
    match panel {
        Panel::Sampling => 9,
        Panel::Kv | Panel::Batch | Panel::Beams | Panel::Metrics => 6,
        Panel::Reasoning => 5,
    }
}

pub fn draw(app: &App, panel: Panel, area: Rect, buf: &mut Buffer) {
    if area.is_empty() || area.width < 8 {
        return;
    }
    let focused = app.focus == Focus::Panel(panel);
    let border = app.theme.style(if focused { Role::Focus } else { Role::Border });
    let name = app.theme.style(if focused { Role::Focus } else { Role::Muted });
    let mut title = Line::from(vec![
        Span::styled(format!(" {} ", panel as u8), app.theme.style(Role::Accent)),
        Span::styled(format!("{} ", panel.title()), name),
    ]);
    title.spans.extend(earlier(app));
    let note = match area.height {
        1 => Line::styled(" … ", app.theme.style(Role::Muted)),
        _ if focused => note(app),
        _ => Line::default(),
    };
    let inside = paint::titled(title, note, area, border, buf);
    app.hits.note(area, Target::Panel(panel));
    app.hits.note(Rect { height: 1, ..area }, Target::Title(panel));
    app.hits.note(Rect { x: area.x + 1, width: 3, height: 1, ..area }, Target::Number(panel));
    content(app, panel, inside, buf);
}

/// What is under its title.
pub fn content(app: &App, panel: Panel, inside: Rect, buf: &mut Buffer) {
    let focused = app.focus == Focus::Panel(panel);
    if inside.is_empty() {
        return;
    }
    let size = (usize::from(inside.width), usize::from(inside.height));
    let lines = match panel {
        Panel::Sampling => sampling::lines(app, size, focused),
        Panel::Kv => kv::lines(app, inside, focused),
        Panel::Batch => batch::lines(app, inside, focused),
        Panel::Beams => beams::lines(app, inside, focused),
        Panel::Reasoning => reasoning::lines(app, size),
        Panel::Metrics => metrics::lines(app, size),
    };
    let lines: Vec<Line> = lines.into_iter().map(|l| paint::fit_line(l, size.0)).collect();
    paint::lines(&lines, inside, buf);
}

/// Every panel shows the chosen step, and says so while that is not the newest.
fn earlier(app: &App) -> Option<Span<'static>> {
    let back = history::back(app);
    let step = app.meter.steps.iter().rev().nth(back).filter(|_| back > 0)?;
    let text = format!(" at step {}, {} back ", format::count(step.step), format::count(back as u64));
    Some(Span::styled(text, app.theme.style(Role::Warn)))
}

fn note(app: &App) -> Line<'static> {
    let text = if app.panels.zoomed { " z back " } else { " z zoom " };
    Line::styled(text, app.theme.style(Role::Muted))
}
