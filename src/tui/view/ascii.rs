//! `--ascii`: one pass over the finished picture, so that no drawing code has two versions.

use ratatui::buffer::Buffer;

/// Each row: what is drawn, and what stands in for it.
const REPLACEMENTS: [(&str, &str); 28] = [
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
    ("◁", "<"),
    ("▾↓", "v"),
    ("↑", "^"),
    ("✂", "x"),
    ("●✓☑◆", "*"),
    ("◇", "o"),
    ("◈", "@"),
    ("▲", "^"),
    ("←", "<"),
    ("×", "x"),
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
