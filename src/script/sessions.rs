//! What `glassbox sessions` says.

use super::json;
use crate::base::visible;
use crate::protocol::SessionRow;
use chrono::{Local, TimeZone};
use std::io::{self, IsTerminal, Write};
use std::path::Path;

pub fn print_sessions(out: &mut impl Write, rows: &[SessionRow], as_json: bool) -> io::Result<()> {
    if as_json {
        return json::write_pretty(out, &rows);
    }
    if rows.is_empty() {
        return writeln!(out, "no sessions");
    }
    let model = rows.iter().map(|row| visible(&row.model).chars().count()).max().unwrap_or(0).max(5);
    writeln!(out, "{:>5}  {:16}  {:>8}  {:model$}  TITLE", "ID", "LAST", "MESSAGES", "MODEL")?;
    for row in rows {
        let (last, name) = (time(row.updated_ms), visible(&row.model));
        let title = visible(&row.title);
        writeln!(out, "{:>5}  {last:16}  {:>8}  {name:model$}  {title}", row.id.0, row.messages)?;
        if let Some(snippet) = &row.snippet {
            writeln!(out, "{:>5}  {}", "", visible(&snippet.replace('\n', " ")))?;
        }
    }
    Ok(())
}

/// Of now and of here.
fn time(ms: i64) -> String {
    let time = Local.timestamp_millis_opt(ms).single();
    time.map_or_else(String::new, |time| time.format("%Y-%m-%d %H:%M").to_string())
}

/// A whole conversation; a terminal gets its control characters as escapes.
pub fn print_session(out: &mut impl Write, text: &str, exactly: bool) -> io::Result<()> {
    if exactly || !io::stdout().is_terminal() {
        return out.write_all(text.as_bytes());
    }
    text.lines().try_for_each(|line| writeln!(out, "{}", visible(line)))
}

pub fn print_exported(out: &mut impl Write, path: &Path) -> io::Result<()> {
    writeln!(out, "{}", visible(&path.display().to_string()))
}

pub fn print_removed(out: &mut impl Write, rows: &[SessionRow], as_json: bool) -> io::Result<()> {
    if as_json {
        return json::write_pretty(out, &rows);
    }
    rows.iter().try_for_each(|row| writeln!(out, "deleted {}: {}", row.id.0, visible(&row.title)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::protocol::SessionId;

    #[test]
    fn a_title_cannot_drive_the_terminal() {
        let row = SessionRow {
            id: SessionId(3),
            title: "\x1b]0;pwned\x07".into(),
            model: "\x1bc".into(),
            messages: 2,
            created_ms: 0,
            updated_ms: 0,
            snippet: Some("a\n\x1b[2J".into()),
        };
        let mut out = Vec::new();
        print_sessions(&mut out, std::slice::from_ref(&row), false).unwrap();
        print_removed(&mut out, &[row], false).unwrap();
        let said = String::from_utf8(out).unwrap();
        assert!(!said.contains('\x1b') && said.contains("deleted 3"), "{said}");
    }
}
