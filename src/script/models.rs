use super::{MemoryRow, json};
use crate::base::visible;
use serde::Serialize;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;

/// A line of `models ls`: of the catalogue, on disk, or both.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelRow {
    pub name: String,
    pub description: String,
    pub licence: String,
    pub bytes: u64,
    /// Of an interrupted fetch, which the next one goes on from.
    pub fetched_bytes: u64,
    pub architecture: Option<String>,
    pub quantization: Option<String>,
    pub parameters: Option<u64>,
    /// Longest prompt plus answer it was made for, in tokens.
    pub context: Option<u64>,
    /// Ready to run: `path` is there and whole.
    pub present: bool,
    pub path: Option<PathBuf>,
    /// Why the file there cannot be used.
    pub problem: Option<String>,
    /// What runs when no model is named.
    pub default: bool,
}

/// `models show`: the row, and what the file says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelCard {
    #[serde(flatten)]
    pub row: ModelRow,
    /// Where it can be fetched, in the order tried.
    pub sources: Vec<String>,
    /// Nothing of the following is known before the file is here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<FileCard>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FileCard {
    /// What the model's name says, part by part.
    pub name_parts: Vec<NamedPart>,
    pub layers: Option<u64>,
    pub vocabulary: Option<u64>,
    /// Block formats of the weights, most bytes first.
    pub formats: Vec<FormatRow>,
    /// Tensors of one name but for their layer, of one format and shape.
    pub tensors: Vec<TensorGroup>,
    /// Of keys and values in f16.
    pub kv_bytes_per_token: Option<u64>,
    /// What layers keep of the past, in words.
    pub cache: String,
    /// `8 of 64`: those that a token sees.
    pub experts: Option<String>,
    pub tokenizer: String,
    pub chat_template: bool,
    /// What tells thoughts and calls of tools from the answer.
    pub reasoning_parser: Option<String>,
    pub tool_call_parser: Option<String>,
    /// What was left out of the model and why.
    pub notes: Vec<String>,
    /// With the settings in force, on each device there is.
    pub runs: Vec<Placement>,
    /// Of the device that it would run on.
    pub memory: Option<MemoryRow>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamedPart {
    pub text: String,
    pub means: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TensorGroup {
    /// `blk.*.attn_q.weight`
    pub name: String,
    pub count: usize,
    pub format: String,
    /// Row length first.
    pub shape: Vec<u64>,
    /// Of all of them.
    pub bytes: u64,
}

/// Whether a model would run on a device, and what that takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placement {
    pub device: String,
    /// It would run here if nothing else were said.
    pub chosen: bool,
    pub memory: MemoryRow,
    /// Formats that the device does not take, which are encoded anew as they are loaded: `IQ2_S as Q8_0`.
    pub encoded: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FormatRow {
    pub format: String,
    pub tensors: usize,
    pub bytes: u64,
    /// glassbox can compute with it.
    pub supported: bool,
}

pub fn print_list(out: &mut impl Write, rows: &[ModelRow], as_json: bool) -> io::Result<()> {
    if as_json {
        return json::write_pretty(out, &rows);
    }
    let names = rows.iter().map(|row| visible(&row.name).chars().count()).max().unwrap_or(0).max(4);
    let licences = rows.iter().map(|row| visible(&row.licence).chars().count()).max().unwrap_or(0).max(7);
    writeln!(out, "{:names$}  {:>9}  {:>8}  {:licences$}  WHERE", "NAME", "SIZE", "CONTEXT", "LICENCE")?;
    for row in rows {
        let context = row.context.map_or_else(String::new, |tokens| tokens.to_string());
        let place = match (&row.path, row.present) {
            (Some(path), true) => match &row.problem {
                Some(problem) => format!("{}: {problem}", path.display()),
                None => path.display().to_string(),
            },
            _ if row.fetched_bytes > 0 => {
                let done = megabytes(row.fetched_bytes);
                format!("{done} fetched; glassbox models pull {} goes on", row.name)
            }
            _ => format!("not here; glassbox models pull {}", row.name),
        };
        let (name, licence) = (visible(&row.name), visible(&row.licence));
        writeln!(
            out,
            "{name:names$}  {:>9}  {context:>8}  {licence:licences$}  {}",
            megabytes(row.bytes),
            visible(&place)
        )?;
    }
    Ok(())
}

pub fn print_card(out: &mut impl Write, card: &ModelCard, as_json: bool) -> io::Result<()> {
    if as_json {
        return json::write_pretty(out, card);
    }
    let mut line = |name: &str, value: &str| match value {
        "" => Ok(()),
        _ => writeln!(out, "{name:13}{}", visible(value)),
    };
    let row = &card.row;
    line("name", &row.name)?;
    line("description", &row.description)?;
    line("licence", &row.licence)?;
    line("size", &megabytes(row.bytes))?;
    line("context", &row.context.map_or_else(String::new, |tokens| format!("{tokens} tokens")))?;
    match (&row.path, row.present) {
        (Some(path), true) => line("path", &path.display().to_string())?,
        _ => line("path", &format!("not here; glassbox models pull {}", row.name))?,
    }
    line("problem", row.problem.as_deref().unwrap_or_default())?;
    line("architecture", row.architecture.as_deref().unwrap_or_default())?;
    let millions = |n: u64| format!("{:.1} M", n as f64 / 1e6);
    line("parameters", &row.parameters.map(millions).unwrap_or_default())?;
    line("quantization", row.quantization.as_deref().unwrap_or_default())?;
    card.sources.iter().try_for_each(|source| line("source", source))?;
    let Some(file) = &card.file else { return Ok(()) };
    let number = |value: Option<u64>| value.map_or_else(String::new, |x| x.to_string());
    let formats = file.formats.iter().map(|f| {
        let note = if f.supported { "" } else { " (not supported)" };
        format!("{} {}{note}", f.format, megabytes(f.bytes))
    });
    let said: Vec<&str> = file.name_parts.iter().map(|part| part.means.as_str()).collect();
    line("reads as", &said.join(", "))?;
    line("layers", &number(file.layers))?;
    line("experts", file.experts.as_deref().unwrap_or_default())?;
    line("vocabulary", &number(file.vocabulary))?;
    line("formats", &formats.collect::<Vec<_>>().join(", "))?;
    line("kv cache", &file.cache)?;
    line("tokenizer", &file.tokenizer)?;
    let without = "none: chat needs --chat-template FILE, or run --raw";
    line("template", if file.chat_template { "yes" } else { without })?;
    line("reasoning", file.reasoning_parser.as_deref().unwrap_or("none"))?;
    line("tool calls", file.tool_call_parser.as_deref().unwrap_or("none"))?;
    file.notes.iter().try_for_each(|note| line("note", note))?;
    for place in &file.runs {
        line(if place.chosen { "runs on" } else { "or on" }, &place.to_string())?;
    }
    print_groups(out, &file.tensors)
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.device, self.memory)?;
        match self.encoded.as_slice() {
            [] => Ok(()),
            encoded => write!(f, "; loaded {}", encoded.join(", ")),
        }
    }
}

fn print_groups(out: &mut impl Write, groups: &[TensorGroup]) -> io::Result<()> {
    if groups.is_empty() {
        return Ok(());
    }
    let width = |text: fn(&TensorGroup) -> usize| groups.iter().map(text).max().unwrap_or(0);
    let (names, formats) = (width(|g| g.name.chars().count()), width(|g| g.format.chars().count()));
    writeln!(out, "\n{:names$}  {:>5}  {:formats$}  {:>9}  SHAPE", "TENSORS", "COUNT", "TYPE", "SIZE")?;
    for group in groups {
        let shape: Vec<String> = group.shape.iter().map(u64::to_string).collect();
        let (name, size) = (visible(&group.name), bytes(group.bytes));
        let (count, format) = (group.count, &group.format);
        writeln!(out, "{name:names$}  {count:>5}  {format:formats$}  {size:>9}  {}", shape.join(" x "))?;
    }
    Ok(())
}

fn bytes(bytes: u64) -> String {
    if bytes < 100_000 { format!("{:.1} kB", bytes as f64 / 1e3) } else { megabytes(bytes) }
}

/// `models pull` and `rm`: what is done, and to which file.
pub fn print_outcome(
    out: &mut impl Write,
    model: &str,
    verb: &'static str,
    path: &std::path::Path,
    as_json: bool,
) -> io::Result<()> {
    let path = path.display().to_string();
    match as_json {
        true => json::write_pretty(out, &serde_json::json!({ "model": model, "status": verb, "path": path })),
        false => writeln!(out, "{} {verb}: {}", visible(model), visible(&path)),
    }
}

fn megabytes(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        1_000_000_000.. => format!("{:.2} GB", bytes as f64 / 1e9),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn row() -> ModelRow {
        ModelRow { name: "tiny".into(), bytes: 98_362_432, context: Some(8192), ..ModelRow::default() }
    }

    fn text(print: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        print(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_model_that_is_not_here_says_how_to_get_it() {
        let listed = text(|out| print_list(out, &[row()], false));
        assert!(listed.contains("98.4 MB") && listed.contains("glassbox models pull tiny"), "{listed}");
        let begun = ModelRow { fetched_bytes: 5_000_000, ..row() };
        assert!(text(|out| print_list(out, &[begun], false)).contains("5.0 MB fetched"));
    }

    #[test]
    fn a_name_from_a_file_cannot_drive_the_terminal() {
        let evil = ModelRow { name: "\x1b[2Jx".into(), present: true, path: Some("/\x1bc".into()), ..row() };
        assert!(!text(|out| print_list(out, std::slice::from_ref(&evil), false)).contains('\x1b'));
        let card = ModelCard { row: evil, ..ModelCard::default() };
        assert!(!text(|out| print_card(out, &card, false)).contains('\x1b'));
    }

    #[test]
    fn the_json_of_a_card_is_flat_where_it_is_a_row() {
        let file = FileCard {
            formats: vec![FormatRow { format: "Q4_1".into(), ..FormatRow::default() }],
            ..FileCard::default()
        };
        let card = ModelCard { row: row(), sources: vec![], file: Some(file) };
        let json: serde_json::Value =
            serde_json::from_str(&text(|out| print_card(out, &card, true))).unwrap();
        assert_eq!((&json["name"], &json["file"]["formats"][0]["format"]), (&"tiny".into(), &"Q4_1".into()));
    }
}
