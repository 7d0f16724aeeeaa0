//! Marked text of the transcript, and where the pointer finds the transcript at all.

use super::transcript::{GUTTER, MEASURE};
use crate::tui::app::App;
use crate::tui::hits::Target;
use crate::tui::theme::Role;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

/// Columns before the text: the margin and the gutter.
pub const BEFORE_TEXT: u16 = 1 + GUTTER;

/// After the transcript: reads from the picture what is marked, and marks it.
pub fn draw(app: &App, area: Rect, buf: &mut Buffer) {
    // Under what the transcript noted in itself.
    app.hits.note_below(area, Target::Transcript);
    let Some(selection) = &app.pointer.selection else { return };
    let top = app.top_line();
    let text = Rect { x: area.x + BEFORE_TEXT, width: area.width.saturating_sub(BEFORE_TEXT + 1), ..area };
    let wrapped = usize::from(area.width.saturating_sub(2).min(MEASURE).saturating_sub(GUTTER + 1));
    for (row, line) in text.rows().zip(top..) {
        let shown = read(row, buf);
        selection.see(line, &shown, wrapped);
        let Some((from, to)) = selection.columns(line) else { continue };
        let end = to.min(shown.width()).max(from);
        let from = from.min(usize::from(row.width));
        let width = (end - from.min(end)).min(usize::from(row.width) - from) as u16;
        buf.set_style(Rect { x: row.x + from as u16, width, ..row }, app.theme.style(Role::Selection));
    }
}

/// A row as text, without the cells that wide characters hide.
fn read(row: Rect, buf: &Buffer) -> String {
    let mut text = String::new();
    let mut hidden = 0;
    for x in row.left()..row.right() {
        let symbol = buf.cell((x, row.y)).map_or(" ", |cell| cell.symbol());
        if hidden == 0 {
            text.push_str(symbol);
            hidden = symbol.width().max(1);
        }
        hidden -= 1;
    }
    text.truncate(text.trim_end().len());
    text
}
