//! `--ascii`: one pass over the finished picture, so that no drawing code has two versions.

use ratatui::buffer::Buffer;

/// Each row: what is drawn, and what stands in for it.
const REPLACEMENTS: [(&str, &str); 44] = [
    ("─━╌", "-"),
    ("│┃▎‖", "|"),
    ("╭╮╰╯┌┐└┘├┤┬┴┼", "+"),
    ("█▉▊▋▌■", "#"),
    ("▍▏", " "),
    ("▓", "%"),
    ("▒", "="),
    ("░", "."),
    ("▁", "_"),
    ("▂", "."),
    ("▃", "-"),
    ("▄", "="),
    ("▅", "+"),
    ("▆", "*"),
    ("▇", "#"),
    ("·•", "-"),
    ("…", "~"),
    ("›▸→◀‹▶", ">"),
    ("▲", "^"),
    ("▾↓", "v"),
    ("↑", "^"),
    ("✂", "x"),
    ("●✓☑◆", "*"),
    ("◇", "o"),
    ("◈", "@"),
    ("▲", "^"),
    ("←", "<"),
    ("×", "x"),
    ("◦▪", "-"),
    ("☐", "o"),
    ("↵", "$"),
    ("⇥", ">"),
    ("∅", "0"),
    ("₀", "0"),
    ("₁", "1"),
    ("₂", "2"),
    ("₃", "3"),
    ("₄", "4"),
    ("₅", "5"),
    ("₆", "6"),
    ("₇", "7"),
    ("₈", "8"),
    ("₉", "9"),
    ("₊", "+"),
];

pub fn replace(buf: &mut Buffer) {
    for cell in &mut buf.content {
        let symbol = cell.symbol();
        if symbol.is_ascii() {
            continue;
        }
        if let Some((_, ascii)) = REPLACEMENTS.iter().find(|(drawn, _)| drawn.contains(symbol)) {
            cell.set_symbol(ascii);
        }
    }
}
