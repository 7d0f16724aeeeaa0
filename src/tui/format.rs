//! Numbers and texts as the screen writes them. Widths are terminal cells, never characters.

use ratatui::buffer::CellWidth;
use unicode_segmentation::UnicodeSegmentation;

/// Cells a text takes.
pub fn width(text: &str) -> usize {
    text.graphemes(true).map(cells).sum()
}

/// Cells of one grapheme cluster; control characters are not drawn and take none.
pub fn cells(grapheme: &str) -> usize {
    if grapheme.chars().any(char::is_control) { 0 } else { grapheme.cell_width() as usize }
}

/// The text, cut to `limit` cells with `…` where it is longer.
pub fn fit(text: &str, limit: usize) -> String {
    if width(text) <= limit {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for grapheme in text.graphemes(true) {
        used += cells(grapheme);
        if used >= limit {
            break;
        }
        kept.push_str(grapheme);
    }
    if limit > 0 {
        kept.push('…');
    }
    kept
}

/// The text, cut after the last word that fits in `limit` cells, with `…` where it is longer.
pub fn fit_words(text: &str, limit: usize) -> String {
    let fitted = fit(text, limit);
    match fitted.strip_suffix('…') {
        Some(cut) if fitted != text && !text[cut.len()..].starts_with(' ') => {
            let whole = cut.rfind(' ').map_or(cut, |space| &cut[..space]);
            format!("{}…", whole.trim_end_matches([' ', ',', ';', ':']))
        }
        _ => fitted,
    }
}

/// Exactly `to` cells: cut or filled with spaces on the right.
pub fn pad(text: &str, to: usize) -> String {
    let mut fitted = fit(text, to);
    let fill = to - width(&fitted).min(to);
    fitted.extend(std::iter::repeat_n(' ', fill));
    fitted
}

/// Exactly `to` cells, filled on the left.
pub fn pad_left(text: &str, to: usize) -> String {
    let fitted = fit(text, to);
    " ".repeat(to - width(&fitted).min(to)) + &fitted
}

/// `12,345`.
pub fn count(n: impl TryInto<u64>) -> String {
    let digits = n.try_into().unwrap_or(u64::MAX).to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 block`, `2,048 blocks`.
pub fn plural(n: usize, what: &str) -> String {
    format!("{} {what}{}", count(n as u64), if n == 1 { "" } else { "s" })
}

/// `98 MB`, `1.12 GB`: decimal units, as download sizes are given.
pub fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} B"),
        1_000..1_000_000 => format!("{:.0} kB", n as f64 / 1e3),
        1_000_000..10_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{:.0} MB", n as f64 / 1e6),
        _ => format!("{:.2} GB", n as f64 / 1e9),
    }
}

/// `8.3 ms`, `83 ms`, `1.2 s`.
pub fn millis(ms: f64) -> String {
    match ms {
        ms if !ms.is_finite() => "-".into(),
        ms if ms < 9.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms if ms < 99_950.0 => format!("{:.1} s", ms / 1e3),
        ms => format!("{:.0} s", ms / 1e3),
    }
}

/// Time left or spent, coarse: `12 s`, `3 min`.
pub fn seconds(s: f64) -> String {
    match s {
        s if !s.is_finite() => "-".into(),
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// Tokens per second: `148`, `9.4`.
pub fn rate(per_second: f64) -> String {
    match per_second {
        x if !x.is_finite() => "-".into(),
        x if x < 10.0 => format!("{x:.1}"),
        x => count(x.round() as u64),
    }
}

/// Two decimals; never `-0.00`.
pub fn decimal(x: f32) -> String {
    let text = format!("{x:.2}");
    if text == "-0.00" { "0.00".into() } else { text }
}

/// `71.2%`; never `100.0%` for what is less.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        x if !x.is_finite() => "-".into(),
        x if (99.95..100.0).contains(&x) => "99.9%".into(),
        x if x > 0.0 && x < 0.05 => "<0.1%".into(),
        x => format!("{x:.1}%"),
    }
}

/// A token's text in quotes, with line breaks and the like written out.
pub fn quoted(token: &str) -> String {
    let escaped = token.replace('\n', "\\n").replace('\t', "\\t");
    format!("\"{}\"", super::sanitize::visible(&escaped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_cells_not_characters() {
        // BUGLOG X13: a status line measured in characters drifts by one per wide character.
        assert_eq!(width("Qwen3-日本語🦙"), 14);
        assert_eq!(fit("Qwen3-日本語🦙", 10), "Qwen3-日…");
        assert_eq!(width(&pad("日本語", 5)), 5);
        assert_eq!(pad_left("7", 3), "  7");
        assert_eq!(fit("abc", 0), "");
        assert_eq!(fit_words("one two, three", 10), "one two…");
        assert_eq!(fit_words("one two", 7), "one two");
        assert_eq!(fit_words("onetwothree", 5), "onet…");
    }

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(count(1_234_567_u64), "1,234,567");
        assert_eq!(count(12_u64), "12");
        assert_eq!((bytes(98_362_432), bytes(1_117_320_768)), ("98 MB".into(), "1.12 GB".into()));
        assert_eq!(
            (millis(8.31), millis(83.2), millis(1234.0)),
            ("8.3 ms".into(), "83 ms".into(), "1.2 s".into())
        );
        assert_eq!(
            (percent(0.9999), percent(1.0), percent(0.0001)),
            ("99.9%".into(), "100.0%".into(), "<0.1%".into())
        );
        assert_eq!(
            (decimal(-0.0), decimal(-0.004), decimal(-0.3)),
            ("0.00".into(), "0.00".into(), "-0.30".into())
        );
        assert_eq!(quoted(" a\n\u{1b}"), "\" a\\n\\x1b\"");
    }
}
