//! A markdown table in the room there is: columns by display width, cells wrapped where they must be.

use super::wrap::wrap;
use crate::tui::theme::{Role, Theme};
use pulldown_cmark::Alignment;
use ratatui::text::{Line, Span};

/// Between two columns.
const BETWEEN: &str = " │ ";
/// A column narrower than this is of no use: rows are listed then, one value under the other.
const NARROWEST: usize = 6;

type Cell = Vec<Span<'static>>;

pub struct Table {
    alignments: Vec<Alignment>,
    /// The first is the header.
    rows: Vec<Vec<Cell>>,
    row: Vec<Cell>,
}

impl Table {
    pub fn new(alignments: Vec<Alignment>) -> Self {
        Self { alignments, rows: Vec::new(), row: Vec::new() }
    }

    pub fn cell(&mut self, cell: Cell) {
        self.row.push(cell);
    }

    pub fn end_row(&mut self) {
        let mut row = std::mem::take(&mut self.row);
        row.resize(self.alignments.len(), Vec::new());
        self.rows.push(row);
    }

    /// As lines of at most `room` cells.
    pub fn lines(&self, room: usize, theme: &Theme) -> Vec<Line<'static>> {
        let natural: Vec<usize> = (0..self.alignments.len()).map(|column| self.natural(column)).collect();
        let between = BETWEEN.chars().count() * natural.len().saturating_sub(1);
        match fitted(&natural, room.saturating_sub(between)) {
            Some(widths) => self.grid(&widths, widths != natural, theme),
            None => self.listed(room, theme),
        }
    }

    fn natural(&self, column: usize) -> usize {
        self.rows.iter().map(|row| width(&row[column])).max().unwrap_or(0).max(1)
    }

    fn grid(&self, widths: &[usize], is_wrapped: bool, theme: &Theme) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        for (nth, row) in self.rows.iter().enumerate() {
            if nth > 0 && (nth == 1 || is_wrapped) {
                let role = if nth == 1 { Role::Border } else { Role::Faint };
                lines.push(Line::styled(rule(widths), theme.style(role)));
            }
            lines.extend(self.row(row, widths, nth == 0, theme));
        }
        // A line's own style is lost among the prefixes of quotes and items.
        lines.into_iter().map(|line| Line::from_iter(super::wrap::spans(line))).collect()
    }

    fn row(&self, row: &[Cell], widths: &[usize], is_head: bool, theme: &Theme) -> Vec<Line<'static>> {
        let head = theme.style(Role::Heading);
        let cells: Vec<Vec<Line>> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| {
                let line = Line::from(cell.clone());
                wrap(&if is_head { line.style(head) } else { line }, *width, 0)
            })
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let border = theme.style(Role::Border);
        let line = |y: usize| {
            let mut spans = Vec::new();
            for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
                if column > 0 {
                    spans.push(Span::styled(BETWEEN, border));
                }
                let is_last = column + 1 == widths.len();
                let alignment = self.alignments[column];
                spans.extend(aligned(cell.get(y).cloned().unwrap_or_default(), *width, alignment, is_last));
            }
            Line::from(spans)
        };
        (0..height).map(line).collect()
    }

    /// Each row as `header: value` lines, a blank line between two rows.
    fn listed(&self, room: usize, theme: &Theme) -> Vec<Line<'static>> {
        let Some((head, rows)) = self.rows.split_first() else { return Vec::new() };
        let mut lines = Vec::new();
        for (nth, row) in rows.iter().enumerate() {
            if nth > 0 {
                lines.push(Line::default());
            }
            for (name, cell) in head.iter().zip(row) {
                let style = theme.style(Role::Heading);
                let mut spans: Vec<Span> =
                    name.iter().map(|s| Span::styled(s.content.clone(), style.patch(s.style))).collect();
                spans.push(Span::styled(": ", style));
                spans.extend(cell.clone());
                lines.extend(wrap(&Line::from(spans), room, 2));
            }
        }
        lines
    }
}

/// Widths that fit into `room` together: the widest give way first. None where they cannot.
fn fitted(natural: &[usize], room: usize) -> Option<Vec<usize>> {
    let floor: usize = natural.iter().map(|width| (*width).min(NARROWEST)).sum();
    if floor > room {
        return None;
    }
    let mut widths = natural.to_vec();
    while widths.iter().sum::<usize>() > room {
        let over = widths.iter().sum::<usize>() - room;
        let widest = widths.iter().copied().max()?;
        let next = widths.iter().copied().filter(|w| *w < widest).max().unwrap_or(0).max(NARROWEST);
        let many = widths.iter().filter(|w| **w == widest).count();
        let less = (widest - next.min(widest - 1)).min(over.div_ceil(many));
        let mut left = over;
        for width in widths.iter_mut().filter(|w| **w == widest) {
            let cut = less.min(left);
            *width -= cut;
            left -= cut;
        }
    }
    Some(widths)
}

fn rule(widths: &[usize]) -> String {
    widths.iter().map(|width| "─".repeat(*width)).collect::<Vec<_>>().join("─┼─")
}

fn aligned(line: Line<'static>, width: usize, alignment: Alignment, is_last: bool) -> Vec<Span<'static>> {
    // Where a cell was wrapped, the space it was broken at is no part of it.
    let text = line.to_string();
    let trimmed = line.width() - (text.len() - text.trim_end_matches(' ').len());
    let fill = width.saturating_sub(trimmed);
    let (left, right) = match alignment {
        Alignment::Right => (fill, 0),
        Alignment::Center => (fill / 2, fill - fill / 2),
        Alignment::Left | Alignment::None => (0, fill),
    };
    let mut spans = vec![Span::raw(" ".repeat(left))];
    let mut kept: Vec<Span> = super::wrap::spans(line).collect();
    if let Some(last) = kept.last_mut() {
        *last = Span::styled(last.content.trim_end_matches(' ').to_owned(), last.style);
    }
    spans.append(&mut kept);
    if !is_last {
        spans.push(Span::raw(" ".repeat(right)));
    }
    spans
}

fn width(cell: &Cell) -> usize {
    cell.iter().map(|span| crate::tui::format::width(&span.content)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_column_gives_way_first() {
        assert_eq!(fitted(&[5, 10], 20), Some(vec![5, 10]));
        assert_eq!(fitted(&[5, 40, 12], 40), Some(vec![5, 23, 12]));
        assert_eq!(fitted(&[30, 30], 41), Some(vec![20, 21]));
        assert_eq!(fitted(&[30, 30, 30], 17), None);
    }
}
