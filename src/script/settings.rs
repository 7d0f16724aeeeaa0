use super::{MemoryRow, json};
use crate::base::visible;
use crate::config::SettingRow;
use std::io::{self, Write};
use std::path::Path;

/// `run --dry-run`: what would run, what it would take, and where each value is from.
pub fn print_settings(
    out: &mut impl Write,
    model: &str,
    memory: Option<&MemoryRow>,
    prompt: &str,
    rows: &[SettingRow],
    as_json: bool,
) -> io::Result<()> {
    if as_json {
        return json::write_pretty(
            out,
            &serde_json::json!({ "model": model, "memory": memory, "prompt": prompt, "settings": rows }),
        );
    }
    writeln!(out, "model   {}", visible(model))?;
    if let Some(memory) = memory {
        writeln!(out, "memory  {}", visible(&memory.to_string()))?;
    }
    writeln!(out, "prompt  {}", visible(&format!("{prompt:?}")))?;
    let shown: Vec<String> = rows.iter().map(|row| on_one_line(&row.value)).collect();
    let names = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let values = shown.iter().map(|value| value.chars().count()).max().unwrap_or(0);
    for (row, value) in rows.iter().zip(shown) {
        writeln!(out, "{:names$}  {value:values$}  {}", row.name, row.origin)?;
    }
    Ok(())
}

/// A system prompt may be a page; JSON has it whole.
const LONGEST_VALUE: usize = 160;

fn on_one_line(value: &str) -> String {
    let line = visible(&value.replace('\n', "\\n")).into_owned();
    match line.char_indices().nth(LONGEST_VALUE) {
        None => line,
        Some((end, _)) => format!("{}...", &line[..end]),
    }
}

/// `paths`: names and places, one a line.
pub fn print_paths(out: &mut impl Write, paths: &[(&str, &Path)], as_json: bool) -> io::Result<()> {
    if as_json {
        let map: serde_json::Map<_, _> = paths
            .iter()
            .map(|(name, path)| ((*name).to_owned(), path.display().to_string().into()))
            .collect();
        return json::write_pretty(out, &map);
    }
    let width = paths.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    paths
        .iter()
        .try_for_each(|(name, path)| writeln!(out, "{name:width$}  {}", visible(&path.display().to_string())))
}

/// `inspect template`: the prompt and nothing else, not even a line end; a terminal gets control
/// characters as escapes.
pub fn print_exactly(out: &mut impl Write, text: &str, is_terminal: bool) -> io::Result<()> {
    let text = if is_terminal { visible(text) } else { text.into() };
    out.write_all(text.as_bytes())?;
    out.flush()
}
