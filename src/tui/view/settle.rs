//! The last look at a finished picture: what one terminal would draw differently from another does
//! not leave. A wide character half covered by what lies over it, or over the edge, becomes blank;
//! of a run of combining marks as many stay as any script needs.

use crate::base::is_dangerous;
use ratatui::buffer::{Buffer, Cell, CellWidth};

/// The longest joined emoji has ten.
const CHARACTERS: usize = 16;

pub fn settle(buf: &mut Buffer) {
    let width = usize::from(buf.area.width).max(1);
    for row in buf.content.chunks_mut(width) {
        for x in 0..row.len() {
            let symbol = row[x].symbol();
            // ASCII is neither wide nor marked.
            if symbol.len() < 2 {
                continue;
            }
            if symbol.len() > CHARACTERS || symbol.chars().any(is_dangerous) {
                tame(&mut row[x]);
            }
            let end = x + usize::from(row[x].cell_width());
            let covered = end > row.len() || row[x + 1..end].iter().any(|cell| cell.symbol() != " ");
            if covered {
                row[x].set_symbol(" ");
            }
        }
    }
}

/// So many characters, and none that is invisible: whoever let one through forgot to write it out.
fn tame(cell: &mut Cell) {
    let safe = cell.symbol().chars().filter(|c| !is_dangerous(*c)).take(CHARACTERS);
    let kept: String = safe.collect();
    cell.set_symbol(if kept.is_empty() { " " } else { &kept });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(row: &[&str]) -> Vec<String> {
        let mut buf = Buffer::with_lines([" ".repeat(row.len())]);
        for (cell, symbol) in buf.content.iter_mut().zip(row) {
            cell.set_symbol(symbol);
        }
        settle(&mut buf);
        buf.content.iter().map(|cell| cell.symbol().to_owned()).collect()
    }

    #[test]
    fn half_a_wide_character_becomes_blank() {
        assert_eq!(settled(&["日", " ", "本", "│"]), ["日", " ", " ", "│"]);
        assert_eq!(settled(&["a", "日"]), ["a", " "]);
    }

    #[test]
    fn marks_of_every_script_stay_and_runs_of_them_end() {
        let kiss = "👩🏽\u{200d}❤\u{fe0f}\u{200d}💋\u{200d}👨🏽";
        assert_eq!(settled(&[kiss, " "])[0], kiss);
        let run = format!("z{}", "\u{301}".repeat(400));
        assert_eq!(settled(&[&run])[0].chars().count(), CHARACTERS);
        assert_eq!(settled(&["a\u{e0041}", "\u{202e}"]), ["a", " "]);
    }
}
