//! A fenced code block while it is open.

use super::code::{CodeState, Piece};
use crate::tui::theme::{Role, Theme};
use ratatui::text::Line;
use std::cell::RefCell;

pub struct Fence {
    /// The opening run of backticks or tildes.
    marker: String,
    pub language: String,
    pub state: CodeState,
    pub lines: Vec<Vec<Piece>>,
    pub shown: RefCell<ShownCode>,
}

/// An open code block's lines as drawn: the first `stable` of them are its `wrapped` complete ones.
#[derive(Default)]
pub struct ShownCode {
    pub width: u16,
    /// Whose colours they have.
    pub theme: u32,
    pub wrapped: usize,
    pub stable: usize,
    pub lines: Vec<Line<'static>>,
}

impl Fence {
    pub fn opened_by(line: &str) -> Option<Self> {
        let body = line.trim_start_matches(' ');
        let first = body.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let run = body.len() - body.trim_start_matches(first).len();
        let info = body[run..].trim();
        if line.len() - body.len() > 3 || run < 3 || (first == '`' && info.contains('`')) {
            return None;
        }
        Some(Self {
            marker: first.to_string().repeat(run),
            language: info.to_owned(),
            state: CodeState::new(info),
            lines: Vec::new(),
            shown: RefCell::default(),
        })
    }

    pub fn is_closed_by(&self, line: &str) -> bool {
        let body = line.trim();
        let first = self.marker.chars().next();
        body.len() >= self.marker.len() && body.chars().all(|c| Some(c) == first)
    }

    /// The incomplete line looks like the beginning of the closing fence.
    pub fn may_be_closed_by(&self, line: &str) -> bool {
        let first = self.marker.chars().next();
        line.trim().chars().all(|c| Some(c) == first)
    }
}

pub fn code_head(language: &str, theme: &Theme) -> Line<'static> {
    let name = if language.is_empty() { "code" } else { language };
    Line::styled(format!("╭ {name}"), theme.style(Role::Border))
}
