//! Token mode: an answer is read token by token, each with what might have stood in its place.

use super::app::App;
use super::chat::Answer;
use super::drawn::{Drawn, DrawnTokens};
use super::{format, looked};
use crate::protocol::{Candidate, Channel, SamplingTrace, SeqId};
use ratatui::layout::Position;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

pub struct Reading {
    pub seq: SeqId,
    /// The token that is looked at.
    pub at: usize,
    /// Every token has the colour, and the sign, of its probability.
    pub coloured: bool,
    /// The alternative that is chosen, by its place in the list; none is the token itself.
    pub choice: Option<usize>,
    pub rows: RefCell<Rows>,
    /// Where the token was drawn.
    pub drawn_at: Cell<Option<Position>>,
}

/// Which tokens stand on which line.
#[derive(Default)]
pub struct Rows {
    width: usize,
    coloured: bool,
    /// The first token of each line.
    starts: Vec<usize>,
    laid: usize,
    /// Cells of the last line; none when the next token begins a new one.
    used: Option<usize>,
}

impl Reading {
    pub fn new(seq: SeqId, at: usize) -> Self {
        Self { seq, at, coloured: false, choice: None, rows: RefCell::default(), drawn_at: Cell::default() }
    }

    /// The token in the line above or under this one, as far to the right.
    pub fn beside(&self, tokens: &DrawnTokens, by: isize) -> usize {
        let rows = self.rows.borrow();
        let row = rows.row_of(self.at);
        let Some(other) = row.checked_add_signed(by).filter(|other| *other < rows.len()) else {
            return if by < 0 { 0 } else { tokens.len().saturating_sub(1) };
        };
        let wide = |token: usize| tokens.get(token).map_or(0, |t| format::width(&piece(&t, self.coloured)));
        let column: usize = (rows.range(row).0..self.at).map(wide).sum();
        let (first, end) = rows.range(other);
        let mut at = 0;
        let passed = |token: &usize| {
            at += wide(*token);
            at <= column
        };
        (first + (first..end).take_while(passed).count()).min(end.saturating_sub(1))
    }
}

impl Rows {
    /// Lays out what is new.
    pub fn lay(&mut self, tokens: &DrawnTokens, width: usize, coloured: bool) {
        if (self.width, self.coloured) != (width, coloured) || self.laid > tokens.len() {
            *self = Self { width, coloured, ..Self::default() };
        }
        while let Some(token) = tokens.get(self.laid) {
            let wide = format::width(&piece(&token, coloured)).min(width);
            match self.used {
                Some(used) if used + wide <= width => self.used = Some(used + wide),
                _ => {
                    self.starts.push(self.laid);
                    self.used = Some(wide);
                }
            }
            if token.ends_line() {
                self.used = None;
            }
            self.laid += 1;
        }
    }

    pub fn len(&self) -> usize {
        self.starts.len()
    }

    pub fn row_of(&self, token: usize) -> usize {
        self.starts.partition_point(|start| *start <= token).saturating_sub(1)
    }

    /// First token of a line, and the first of the next.
    pub fn range(&self, row: usize) -> (usize, usize) {
        let start = |row: usize| self.starts.get(row).copied().unwrap_or(self.laid);
        (start(row), start(row + 1))
    }
}

/// A token as token mode writes it, with the sign of its probability where they are coloured.
pub fn piece(token: &Drawn, coloured: bool) -> String {
    let mut text = token.shown();
    if text.is_empty() {
        text.push('∅');
    }
    text.extend(sign(token).filter(|_| coloured));
    text
}

/// Tenths of its probability, small; nothing where it was all but certain.
fn sign(token: &Drawn) -> Option<char> {
    let probability = match token.probability() {
        Some(probability) => probability,
        None => return Some('₊'),
    };
    let tenths = ((probability * 10.0) as u32).min(9);
    (!token.forced && probability < 0.95).then(|| char::from_u32('₀' as u32 + tenths)).flatten()
}

/// What might have stood in a token's place.
pub struct Alternatives {
    /// Best first; empty where nobody knows.
    pub candidates: Vec<Candidate>,
    pub entropies: Option<(f32, f32)>,
    /// Why there are none.
    pub why: Option<String>,
}

/// The waterfall of a token, a branch's kept ones from its parent.
pub fn trace(app: &App, seq: SeqId, index: usize) -> Option<&Arc<SamplingTrace>> {
    app.traces.get(origin(app, seq, index), index)
}

/// The sequence that drew the token: a branch keeps tokens of its parent.
pub fn origin(app: &App, seq: SeqId, index: usize) -> SeqId {
    let parent = app.chat.answer(seq).and_then(|answer| answer.from);
    match parent {
        Some((parent, kept)) if index < kept && parent != seq => origin(app, parent, index),
        _ => seq,
    }
}

pub fn alternatives(app: &App, answer: &Answer, index: usize) -> Alternatives {
    let trace = trace(app, answer.seq, index);
    let candidates = trace.map_or_else(Vec::new, |trace| trace.candidates.clone());
    let why = trace.is_none().then(|| unknown(app, answer, index));
    Alternatives { candidates, entropies: trace.map(|t| (t.entropy, t.final_entropy)), why }
}

/// Why the waterfall of a token is not known.
fn unknown(app: &App, answer: &Answer, index: usize) -> String {
    let token = answer.drawn.get(index);
    if token.is_some_and(|token| token.score.is_none()) {
        return "put there by the fork: it was not drawn".into();
    }
    looked::why_not(app, origin(app, answer.seq, index), index)
}

impl Answer {
    /// Where token mode begins: at the newest token while it streams, else at its first own word.
    pub fn first_read(&self) -> usize {
        let last = self.drawn.len().saturating_sub(1);
        match self.outcome {
            None => last,
            Some(_) => self.drawn.iter().position(|t| t.channel == Channel::Content).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::TokenInfo;

    fn tokens(texts: &[&str]) -> DrawnTokens {
        let mut drawn = DrawnTokens::default();
        for text in texts {
            drawn.push(&TokenInfo {
                id: 1,
                text: (*text).into(),
                bytes: text.as_bytes().to_vec(),
                logprob: -0.7,
                rank: 1,
                entropy: 1.0,
                top: vec![],
                forced: false,
                channel: Channel::Content,
                held: String::new(),
                why: None,
            });
        }
        drawn
    }

    #[test]
    fn lines_break_between_tokens_and_after_line_breaks() {
        let drawn = tokens(&["The", " sky", " is", "\n", "blue", " today"]);
        let reading = Reading::new(SeqId::default(), 2);
        let mut rows = Rows::default();
        rows.lay(&drawn, 8, false);
        assert_eq!(
            (0..rows.len()).map(|row| rows.range(row)).collect::<Vec<_>>(),
            [(0, 2), (2, 4), (4, 5), (5, 6)]
        );
        *reading.rows.borrow_mut() = rows;
        assert_eq!(
            (reading.beside(&drawn, -1), reading.beside(&drawn, 1), reading.beside(&drawn, 9)),
            (0, 4, 5)
        );
    }

    #[test]
    fn a_probability_has_a_sign_besides_its_colour() {
        let drawn = tokens(&["a"]);
        assert_eq!(drawn.get(0).map(|token| piece(&token, true)).as_deref(), Some("a₄"));
        assert_eq!(drawn.get(0).map(|token| piece(&token, false)).as_deref(), Some("a"));
    }
}
