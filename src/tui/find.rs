//! Find in the transcript: where the text occurs in everything that was said.

use super::chat::{Chat, Entry, Turn};
use super::place::Scroll;
use std::cell::Cell;

pub struct Find {
    pub query: String,
    /// Keys go into the field.
    pub typing: bool,
    pub matches: Vec<Match>,
    /// The one that is shown, among them.
    pub at: usize,
    /// Where the view stood before.
    pub before: Option<Scroll>,
    /// The line of the match shown, and which one in it, as last drawn.
    pub line: Cell<Option<(usize, usize, usize)>>,
}

/// The `nth` occurrence in a text of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    pub entry: usize,
    pub within: Within,
    pub nth: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    Said,
    /// Of a tool call.
    Result(usize),
    Thoughts(usize),
    Answer(usize),
}

impl Find {
    pub fn new(query: String, before: Option<Scroll>) -> Self {
        Self { query, typing: true, matches: Vec::new(), at: 0, before, line: Cell::default() }
    }

    /// Searches anew; the match shown stays the one it was, if it still is one.
    pub fn search(&mut self, chat: &Chat) {
        let shown = self.matches.get(self.at).copied();
        self.matches = matches(chat, &self.query);
        let same = shown.and_then(|shown| self.matches.iter().position(|m| *m == shown));
        self.at = same.unwrap_or(self.at.min(self.matches.len().saturating_sub(1)));
    }

    pub fn shown(&self) -> Option<Match> {
        self.matches.get(self.at).copied()
    }

    /// To the next match, or by -1 to the one before, round at the end.
    pub fn step(&mut self, by: isize) {
        let length = self.matches.len().max(1) as isize;
        self.at = (self.at as isize + by).rem_euclid(length) as usize;
    }
}

/// Every occurrence, in the order of the transcript.
fn matches(chat: &Chat, query: &str) -> Vec<Match> {
    let mut all = Vec::new();
    let needle = Needle::new(query);
    if needle.is_empty() {
        return all;
    }
    for (entry, one) in chat.entries.iter().enumerate() {
        let Entry::Turn(turn) = one else { continue };
        for (within, text) in texts(turn) {
            all.extend((0..needle.count(text)).map(|nth| Match { entry, within, nth }));
        }
    }
    all
}

fn texts(turn: &Turn) -> impl Iterator<Item = (Within, &str)> {
    let results = turn.calls.iter().enumerate().map(|(nth, call)| (Within::Result(nth), call.told()));
    let answers = turn.answers.iter().enumerate().flat_map(|(nth, answer)| {
        [(Within::Thoughts(nth), answer.reasoning.as_str()), (Within::Answer(nth), answer.text.as_str())]
    });
    std::iter::once((Within::Said, turn.text.as_str())).chain(results).chain(answers)
}

/// What is looked for. A query without capitals finds them too.
pub struct Needle {
    query: Vec<char>,
    any_case: bool,
    /// Signs of markdown, which are not seen, are passed over.
    skips_signs: bool,
}

impl Needle {
    pub fn new(query: &str) -> Self {
        Self {
            query: query.chars().collect(),
            any_case: !query.chars().any(char::is_uppercase),
            skips_signs: !query.contains(['*', '`']),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.query.is_empty()
    }

    pub fn count(&self, text: &str) -> usize {
        let seen = |c: &char| !(self.skips_signs && matches!(c, '*' | '`'));
        let text: Vec<char> = text.chars().filter(seen).map(|c| if c == '\n' { ' ' } else { c }).collect();
        self.find(&text).len()
    }

    /// Where it begins, none within another.
    pub fn find(&self, text: &[char]) -> Vec<usize> {
        let mut found = Vec::new();
        let mut at = 0;
        while at + self.query.len() <= text.len() && !self.is_empty() {
            let here = &text[at..at + self.query.len()];
            if here.iter().zip(&self.query).all(|(a, b)| self.same(*a, *b)) {
                found.push(at);
                at += self.query.len();
            } else {
                at += 1;
            }
        }
        found
    }

    /// Where it begins in `line` and ends in `next`, if it is broken over the two: where a line was
    /// broken a space is gone.
    pub fn over_break(&self, line: &[char], next: &[char]) -> Option<(usize, usize)> {
        let free = self.find(line).last().map_or(0, |last| last + self.len());
        let start = line.len().saturating_sub(self.len().saturating_sub(1)).max(free);
        let head = &next[..next.len().min(self.len().saturating_sub(1))];
        let joined: Vec<char> = line[start..].iter().chain(&[' ']).chain(head).copied().collect();
        let at = *self.find(&joined).first()?;
        let end = (start + at + self.len()).checked_sub(line.len() + 1)?;
        (start + at < line.len() && end > 0).then_some((start + at, end))
    }

    pub fn len(&self) -> usize {
        self.query.len()
    }

    fn same(&self, text: char, query: char) -> bool {
        text == query || (self.any_case && text.to_lowercase().eq(query.to_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capitals_matter_only_where_they_are_typed() {
        assert_eq!(Needle::new("sky").count("Sky sky SKY"), 3);
        assert_eq!(Needle::new("Sky").count("Sky sky SKY"), 1);
        assert_eq!(Needle::new("größe").count("GRÖSSE Größe"), 1);
        assert_eq!(Needle::new("").count("x"), 0);
    }

    #[test]
    fn what_is_broken_over_two_lines_is_found_once() {
        let over = |query: &str, a: &str, b: &str| {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            Needle::new(query).over_break(&chars(a), &chars(b))
        };
        assert_eq!(over("short waves", "it scatters short", "waves more"), Some((12, 5)));
        assert_eq!(over("short waves", "short waves", "short waves"), None);
        assert_eq!(over("t w", "short", "waves"), Some((4, 1)));
        assert_eq!(over("short", "short", "waves"), None);
        assert_eq!(over("short ", "short", "waves"), None);
        assert_eq!(over("a b", "", "b"), None);
        assert_eq!(over("", "a", "b"), None);
    }

    #[test]
    fn markdown_is_found_as_it_is_read() {
        assert_eq!(Needle::new("short waves").count("**short**\nwaves"), 1);
        assert_eq!(Needle::new("**short").count("**short** waves"), 1);
        assert_eq!(Needle::new("aa").count("aaaaa"), 2);
    }
}
