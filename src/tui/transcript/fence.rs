//! A fenced code block while it is open.

use super::code::{CodeState, Piece};
use crate::tui::theme::{Role, Theme};
use ratatui::text::Line;
use std::cell::RefCell;

pub struct Fence {
    /// The opening run of backticks or tildes.
    marker: String,
    pub language: String,
    /// Spaces before it, as in a list: its lines have them too.
    pub indent: usize,
    pub state: CodeState,
    pub lines: Vec<Vec<Piece>>,
    pub shown: RefCell<ShownCode>,
}

/// An open code block's lines as drawn: the first `stable` of them are its `wrapped` complete ones.
#[derive(Default)]
pub struct ShownCode {
    /// Width and colours that they were drawn for.
    pub look: u64,
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
            indent: line.len() - body.len(),
            state: CodeState::new(info),
            lines: Vec::new(),
            shown: RefCell::default(),
        })
    }

    /// A line of its code.
    pub fn code<'a>(&self, line: &'a str) -> &'a str {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        &line[spaces.min(self.indent)..]
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

/// What stands in each fenced block of a text, the last perhaps still open.
pub fn code_blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(Fence, String)> = None;
    for line in text.lines() {
        match &mut open {
            None => open = Fence::opened_by(line).map(|fence| (fence, String::new())),
            Some((fence, _)) if fence.is_closed_by(line) => blocks.extend(open.take().map(|(_, code)| code)),
            Some((fence, code)) => *code += &format!("{}\n", fence.code(line)),
        }
    }
    blocks.extend(open.map(|(_, code)| code));
    blocks.retain(|code| !code.is_empty());
    blocks
}

pub fn code_head(language: &str, theme: &Theme) -> Line<'static> {
    let name = if language.is_empty() { "code" } else { language };
    Line::styled(format!("╭ {name}"), theme.style(Role::Border))
}

#[cfg(test)]
mod tests {
    use super::code_blocks;

    #[test]
    fn code_blocks_are_found_also_while_they_stream() {
        assert_eq!(code_blocks("a\n```rs\nx\n```\nb\n~~~\ny\n```\nz\n~~~"), ["x\n", "y\n```\nz\n"]);
        assert_eq!(code_blocks("```rs\nx\n```\n```\nhalf"), ["x\n", "half\n"]);
        assert!(code_blocks("none").is_empty());
    }
}
