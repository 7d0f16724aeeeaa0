//! Sessions as the screen sees them: whether they are saved, and the list of those there are.

use super::picker::{Choice, Item, Picker};
use super::{format, sanitize};
use crate::protocol::{SessionId, SessionRow, WhichSession};
use std::path::PathBuf;

/// What the person chose before the screen opened.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// There is a keeper.
    pub on: bool,
    /// Where it saves; none: it does not.
    pub file: Option<PathBuf>,
    /// To go on with.
    pub resume: Option<WhichSession>,
}

#[derive(Default)]
pub struct Sessions {
    pub next_key: u64,
    /// Why nothing is being saved.
    pub trouble: Option<String>,
    /// Something was saved since the program began.
    pub saved: bool,
}

/// The list of sessions, narrowed by what is found in their texts.
pub struct SessionList {
    pub picker: Picker,
    pub rows: Vec<SessionRow>,
    /// What the rows were found with.
    pub words: Option<String>,
    /// It is deleted when that is said once more.
    pub deleting: Option<SessionId>,
}

impl SessionList {
    pub fn new(words: &str) -> Self {
        let mut picker = Picker::new("sessions", Vec::new());
        picker.query = words.to_owned();
        Self { picker, rows: Vec::new(), words: None, deleting: None }
    }

    /// What was found; the choice stays where it was, as far as it can.
    pub fn found(&mut self, words: String, now_ms: i64, rows: Vec<SessionRow>) {
        let is_narrower = self.words.as_ref() != Some(&words);
        self.picker.items = rows.iter().map(|row| item(row, now_ms)).collect();
        self.picker.shown = (0..rows.len()).collect();
        let last = rows.len().saturating_sub(1);
        self.picker.selected = if is_narrower { 0 } else { self.picker.selected.min(last) };
        (self.rows, self.words) = (rows, Some(words));
    }

    pub fn take_away(&mut self, at: usize) {
        self.rows.remove(at);
        self.picker.items.remove(at);
        self.picker.shown = (0..self.rows.len()).collect();
        self.picker.selected = self.picker.selected.min(self.rows.len().saturating_sub(1));
        self.deleting = None;
    }

    pub fn selected(&self) -> Option<&SessionRow> {
        self.rows.get(*self.picker.shown.get(self.picker.selected)?)
    }
}

fn item(row: &SessionRow, now_ms: i64) -> Item {
    let messages = if row.messages == 1 { "message" } else { "messages" };
    let title = sanitize::one_line(&row.title);
    Item {
        label: if title.trim().is_empty() { "(without words)".to_owned() } else { format::fit(&title, 60) },
        detail: sanitize::one_line(row.snippet.as_deref().unwrap_or(&row.model)),
        note: format!("{} {messages} · {}", row.messages, age(now_ms - row.updated_ms)),
        choice: Choice::Session(row.id),
    }
}

/// `3 h ago`
pub fn age(ms: i64) -> String {
    match ms / 60_000 {
        ..1 => "now".to_owned(),
        minutes @ 1..60 => format!("{minutes} min ago"),
        minutes @ 60..1_440 => format!("{} h ago", minutes / 60),
        minutes => match minutes / 1_440 {
            1 => "yesterday".to_owned(),
            days @ 2..60 => format!("{days} days ago"),
            days @ 60..730 => format!("{} months ago", days / 30),
            days => format!("{} years ago", days / 365),
        },
    }
}
