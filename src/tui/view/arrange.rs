//! Where chat and panels lie in the room between header and input.

use super::panel::{least, share};
use crate::tui::app::{App, Focus};
use crate::tui::layout::{Arrangement, Layout, Side};
use crate::tui::panels::Panel;
use ratatui::layout::{Constraint, Layout as Split, Rect};

/// The chat keeps so many columns, or half of what there is.
const CHAT: u16 = 40;

pub struct Areas {
    pub chat: Rect,
    /// A panel of one row is folded up to its title.
    pub panels: Vec<(Panel, Rect)>,
    /// The lines between columns.
    pub lines: Vec<(Side, Rect)>,
}

pub fn areas(app: &App, layout: &Layout, body: Rect) -> Areas {
    match layout.arrangement {
        Arrangement::Compact => drawer(app, layout, body),
        _ => columns(app, layout, body),
    }
}

/// The chat over one panel, which grows while it has the focus.
fn drawer(app: &App, layout: &Layout, body: Rect) -> Areas {
    let Some(open) = layout.open.first().copied() else {
        return Areas { chat: body, panels: vec![], lines: vec![] };
    };
    let usual =
        if app.focus == Focus::Panel(open) { body.height * 3 / 5 } else { (body.height * 2 / 5).min(8) };
    let rows = layout.drawer.unwrap_or(usual).min(body.height.saturating_sub(3));
    let [chat, drawer] = Split::vertical([Constraint::Min(0), Constraint::Length(rows)]).areas(body);
    Areas { chat, panels: vec![(open, drawer)], lines: vec![] }
}

fn columns(app: &App, layout: &Layout, body: Rect) -> Areas {
    let sides = [Side::Left, Side::Right].map(|side| (side, layout.column(side)));
    let wanted =
        sides.each_ref().map(|(side, column)| if column.is_empty() { 0 } else { layout.width(*side) });
    let [left, right] = widths(wanted, body.width);
    let line = |width: u16| Constraint::Length(width.min(1));
    let column = |width: u16| Constraint::Length(width.saturating_sub(1));
    let [first, line_1, chat, line_2, last] =
        Split::horizontal([column(left), line(left), Constraint::Min(0), line(right), column(right)])
            .areas(body);
    let mut areas = Areas { chat, panels: vec![], lines: vec![] };
    for ((side, panels), (area, line)) in sides.into_iter().zip([(first, line_1), (last, line_2)]) {
        if !panels.is_empty() {
            areas.lines.push((side, line));
            areas.panels.extend(stacked(app, layout, &panels, area));
        }
    }
    areas
}

/// What two columns get of `width` when they want so much.
fn widths([left, right]: [u16; 2], width: u16) -> [u16; 2] {
    let room = width - CHAT.min(width / 2);
    if left + right <= room {
        return [left, right];
    }
    let fair = (u32::from(left) * u32::from(room) / u32::from(left + right)) as u16;
    [fair, room - fair]
}

fn stacked(app: &App, layout: &Layout, panels: &[Panel], area: Rect) -> Vec<(Panel, Rect)> {
    let first = match app.focus {
        Focus::Panel(panel) => Some(panel),
        Focus::Input | Focus::Transcript => app.panels.recent,
    };
    let weight = |panel: Panel| layout.heights.get(&panel).copied().unwrap_or_else(|| share(panel));
    let mut y = area.y;
    let place = |(panel, rows): (&Panel, u16)| {
        let place = Rect { y, height: rows, ..area };
        y += rows;
        (*panel, place)
    };
    panels.iter().zip(heights(panels, first, weight, area.height)).map(place).collect()
}

/// Rows of panels over each other. Each has its share; where there is not room for all, the one that
/// was looked at last is open, and of the others as many as find room; the rest are titles.
fn heights(panels: &[Panel], first: Option<Panel>, weight: impl Fn(Panel) -> u16, rows: u16) -> Vec<u16> {
    let open = unfolded(panels, first, rows);
    let all: u16 = panels.iter().map(|p| weight(*p)).sum();
    let usual = |panel: Panel| match weight(panel) {
        _ if !open.contains(&panel) => Constraint::Length(1),
        // It has so many lines and no more; the others can use what is left.
        rows_wanted
            if panel == Panel::Metrics && open.len() > 1 && rows_wanted < rows * rows_wanted / all =>
        {
            Constraint::Length(rows_wanted + 1)
        }
        weight => Constraint::Fill(weight),
    };
    let mut wanted: Vec<Constraint> = panels.iter().map(|p| usual(*p)).collect();
    loop {
        let split = Split::vertical(&wanted).split(Rect { x: 0, y: 0, width: 1, height: rows });
        let got: Vec<u16> = split.iter().map(|area| area.height).collect();
        let short = (0..panels.len()).find(|i| {
            matches!(wanted[*i], Constraint::Fill(_)) && got[*i] < least(panels[*i]) && open.len() > 1
        });
        match short {
            Some(i) => wanted[i] = Constraint::Length(least(panels[i])),
            None => return got,
        }
    }
}

/// Which of them have room for more than a title.
fn unfolded(panels: &[Panel], first: Option<Panel>, rows: u16) -> Vec<Panel> {
    let first = first.filter(|panel| panels.contains(panel));
    let others = panels.iter().copied().filter(|panel| Some(*panel) != first);
    let mut left = rows.saturating_sub(panels.len() as u16);
    let mut open = Vec::new();
    for panel in first.into_iter().chain(others) {
        // Whoever looks at one wants to see more of it than its beginning.
        let comfort = if Some(panel) == first { share(panel) * 2 / 3 } else { least(panel) };
        let needs = comfort.saturating_sub(1).min(if open.is_empty() { left } else { u16::MAX });
        if needs <= left {
            left -= needs;
            open.push(panel);
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_given_away_and_whoever_is_open_has_its_least() {
        for rows in 1..80 {
            for n in 1..=Panel::ALL.len() {
                for first in Panel::ALL.map(Some).into_iter().chain([None]) {
                    let panels = &Panel::ALL[..n];
                    let got = heights(panels, first, share, rows);
                    assert!(got.iter().sum::<u16>() <= rows, "{rows} {n} {got:?}");
                    let enough = |(panel, got): (&Panel, &u16)| *got <= 1 || *got >= least(*panel);
                    let open = got.iter().filter(|rows| **rows > 1).count();
                    assert!(open <= 1 || panels.iter().zip(&got).all(enough), "{rows} {n} {first:?} {got:?}");
                }
            }
        }
    }

    #[test]
    fn the_panel_that_is_looked_at_is_open_and_those_without_room_fold() {
        let got = heights(&Panel::ALL, Some(Panel::Metrics), share, 30);
        assert!(got[5] >= least(Panel::Metrics) && got[0] >= least(Panel::Sampling), "{got:?}");
        // The reasoning is content with what the ones before it had no use for.
        assert!(got[1..4] == [1, 1, 1] && got[4] >= least(Panel::Reasoning), "{got:?}");
        assert!(heights(&Panel::ALL[..3], None, share, 36).iter().all(|rows| *rows > 8));
    }

    #[test]
    fn the_chat_keeps_its_columns() {
        assert_eq!(widths([44, 60], 200), [44, 60]);
        assert_eq!(widths([0, 44], 120), [0, 44]);
        assert_eq!(widths([44, 60], 120), [33, 47]);
        assert_eq!(widths([44, 60], 60), [12, 18]);
        assert_eq!(widths([400, 400], 1), [0, 1]);
    }
}
