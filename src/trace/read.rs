use super::format::{Header, Line, VERSION};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{self, BufRead};

/// Why a file cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("cannot read {file}: {source}")]
    Io { file: String, source: io::Error },
    #[error("{file} is no trace: {why}")]
    NotATrace { file: String, why: String },
    #[error("{file}, line {line}: {why}")]
    Garbage { file: String, line: usize, why: String },
}

/// A file's lines with their numbers, and what is to be said about them.
pub struct Lines {
    pub header: Header,
    pub lines: Vec<(usize, Line)>,
    pub notes: Vec<String>,
}

/// Reads to the end. A last line that was cut off, lines and keys of later versions are left out, with a
/// note; anything else that is no line of a trace is an error.
pub fn read(mut from: impl BufRead, file: &str) -> Result<Lines, TraceError> {
    let mut reading = Reading { file, line: 0, bytes: Vec::new() };
    let header = reading.header(&mut from)?;
    let mut lines = Vec::new();
    let (mut later, mut new_keys, mut cut) = (0, BTreeSet::new(), false);
    while reading.next(&mut from)? {
        if reading.bytes.trim_ascii().is_empty() {
            continue;
        }
        let value: Value = match serde_json::from_slice(&reading.bytes) {
            Ok(value) => value,
            Err(_) if !reading.bytes.ends_with(b"\n") => {
                cut = true;
                break;
            }
            Err(error) => return Err(reading.garbage(&error)),
        };
        let (line, unknown) = Line::read(value).map_err(|error| reading.garbage(&error))?;
        match line {
            Some(line) => {
                lines.push((reading.line, line));
                new_keys.extend(unknown);
            }
            None => later += 1,
        }
    }
    let mut notes = Vec::new();
    if header.glassbox_trace > VERSION {
        let (theirs, by) = (header.glassbox_trace, &header.glassbox);
        notes.push(format!(
            "{file} is a trace of version {theirs}, by glassbox {by}; what version {VERSION} knows of it is shown"
        ));
    }
    if cut {
        notes.push(format!("the last line of {file} was cut off and is left out"));
    }
    if later > 0 {
        let (lines, are) = if later == 1 { ("line", "is") } else { ("lines", "are") };
        notes.push(format!("{later} {lines} of {file} {are} of a kind that this version does not know"));
    }
    if !new_keys.is_empty() {
        let keys: Vec<String> = new_keys.into_iter().collect();
        notes.push(format!("keys of {file} that this version does not know: {}", keys.join(", ")));
    }
    Ok(Lines { header, lines, notes })
}

struct Reading<'a> {
    file: &'a str,
    /// Counted from 1.
    line: usize,
    bytes: Vec<u8>,
}

impl Reading<'_> {
    /// False at the end.
    fn next(&mut self, from: &mut impl BufRead) -> Result<bool, TraceError> {
        self.bytes.clear();
        self.line += 1;
        let read = from.read_until(b'\n', &mut self.bytes);
        read.map(|n| n > 0).map_err(|source| TraceError::Io { file: self.file.to_owned(), source })
    }

    fn header(&mut self, from: &mut impl BufRead) -> Result<Header, TraceError> {
        let is_there = self.next(from)?;
        let not = |why: &str| TraceError::NotATrace { file: self.file.to_owned(), why: why.to_owned() };
        if !is_there {
            return Err(not("it is empty"));
        }
        let value: Value =
            serde_json::from_slice(&self.bytes).map_err(|_| not("its first line is not JSON"))?;
        if value.get("glassbox_trace").is_none() {
            return Err(not("its first line has no \"glassbox_trace\""));
        }
        serde_json::from_value(value).map_err(|error| self.garbage(&error))
    }

    fn garbage(&self, why: &serde_json::Error) -> TraceError {
        TraceError::Garbage { file: self.file.to_owned(), line: self.line, why: why.to_string() }
    }
}
