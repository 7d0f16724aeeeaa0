//! For a room full of people: one panel and the chat, a blank row between two rows, wide margins,
//! spaced headings, and under the panel's name what it answers.

use super::{panel, selection, transcript};
use crate::tui::app::{App, Focus};
use crate::tui::hits::Target;
use crate::tui::panels::{Panel, SizeClass};
use crate::tui::theme::Role;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;

pub fn draw(app: &App, class: SizeClass, body: Rect, buf: &mut Buffer) {
    let narrow = class == SizeClass::Compact;
    let margin = if narrow { 1 } else { body.width / 24 };
    let room = Rect { x: body.x + margin, width: body.width - 2 * margin, ..body };
    let halves = [Constraint::Fill(1), Constraint::Length(margin), Constraint::Fill(1)];
    let [chat, _, right] = match narrow {
        true => {
            Layout::vertical([Constraint::Fill(1), Constraint::Length(0), Constraint::Fill(1)]).areas(room)
        }
        false => Layout::horizontal(halves).areas(room),
    };
    let Some(shown) = shown(app, class) else {
        return spread_chat(app, "chat", room, buf);
    };
    spread_chat(app, "chat", chat, buf);
    spread_panel(app, shown, right, buf);
}

/// Rows of a panel: more facts than these are not taken in from afar.
const FACTS: u16 = 12;

/// The panel with the focus, else the last that had it, else the first.
pub fn shown(app: &App, class: SizeClass) -> Option<Panel> {
    let open = app.panels.open(class);
    let recent = app.panels.recent.filter(|panel| open.contains(panel));
    match app.focus {
        Focus::Panel(panel) => Some(panel),
        Focus::Input => recent.or_else(|| open.first().copied()),
    }
}

fn spread_chat(app: &App, name: &str, area: Rect, buf: &mut Buffer) {
    let under = heading(app, name, "", false, area, buf);
    let spread = Spread::new(app, under);
    let mut tall = Buffer::empty(spread.from);
    transcript::draw(app, spread.from, &mut tall);
    selection::draw(app, spread.from, &mut tall);
    spread.onto(app, &tall, buf);
}

fn spread_panel(app: &App, shown: Panel, area: Rect, buf: &mut Buffer) {
    let focused = app.focus == Focus::Panel(shown);
    let under = heading(app, shown.title(), shown.question(), focused, area, buf);
    app.hits.note(area, Target::Panel(shown));
    let under = Rect { height: under.height.min(2 * FACTS), ..under };
    let spread = Spread::new(app, under);
    let mut tall = Buffer::empty(spread.from);
    panel::content(app, shown, spread.from, &mut tall);
    spread.onto(app, &tall, buf);
}

/// `S A M P L I N G`, what it answers under it, and the room that is left.
fn heading(app: &App, name: &str, caption: &str, focused: bool, area: Rect, buf: &mut Buffer) -> Rect {
    let letters: Vec<String> = name.to_uppercase().chars().map(String::from).collect();
    let role = if focused { Role::Focus } else { Role::Heading };
    let lines = [
        Line::default(),
        Line::styled(letters.join(" "), app.theme.style(role)),
        Line::styled(caption.to_owned(), app.theme.style(Role::Muted)),
    ];
    super::paint::lines(&lines, area, buf);
    let used = (lines.len() as u16 + 1).min(area.height);
    Rect { y: area.y + used, height: area.height - used, ..area }
}

/// Rows that are drawn one under the other, and shown with a blank one between them.
struct Spread {
    from: Rect,
    to: Rect,
    noted: usize,
}

impl Spread {
    fn new(app: &App, to: Rect) -> Self {
        Self { from: Rect { height: to.height.div_ceil(2), ..to }, to, noted: app.hits.len() }
    }

    fn onto(self, app: &App, tall: &Buffer, buf: &mut Buffer) {
        let row = |y: u16| self.to.y + (y - self.to.y) * 2;
        for y in self.from.rows().map(|row| row.y).filter(|y| row(*y) < self.to.bottom()) {
            for x in self.from.left()..self.from.right() {
                buf[(x, row(y))] = tall[(x, y)].clone();
            }
        }
        app.hits.place(self.noted, |area| {
            if !self.from.contains(area.as_position()) {
                return area;
            }
            Rect { y: row(area.y), height: area.height * 2, ..area }.intersection(self.to)
        });
    }
}
