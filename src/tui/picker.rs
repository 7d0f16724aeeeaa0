//! A list that is narrowed by typing: the palette, models, themes, sessions, presets, finds.

use super::keymap::Action;
use crate::protocol::SessionId;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use nucleo_matcher::Utf32Str;
use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};

/// An entry, and what choosing it does.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub label: String,
    /// Said after it, in less light.
    pub detail: String,
    /// At the right edge: a key, a date, a size.
    pub note: String,
    pub choice: Choice,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    Action(Action),
    /// As if this line had been sent.
    Command(String),
    /// Put into the input, to be gone on with.
    Draft(String),
    Tab(usize),
    Theme(String),
    /// Of the sampling panel: go to this parameter.
    Parameter(usize),
    /// Take the values of this one of the built-in presets.
    Preset(usize),
    Session(SessionId),
}

pub struct Picker {
    pub title: String,
    pub query: String,
    pub items: Vec<Item>,
    /// Of `items`, those that match, best first.
    pub shown: Vec<usize>,
    /// Of `shown`.
    pub selected: usize,
    /// The theme to go back to, where entries are tried on as they are passed.
    pub before: Option<String>,
    matcher: nucleo_matcher::Matcher,
}

impl Picker {
    pub fn new(title: impl Into<String>, items: Vec<Item>) -> Self {
        let shown = (0..items.len()).collect();
        let matcher = nucleo_matcher::Matcher::new(nucleo_matcher::Config::DEFAULT);
        Self { title: title.into(), query: String::new(), items, shown, selected: 0, before: None, matcher }
    }

    pub fn selected(&self) -> Option<&Item> {
        self.items.get(*self.shown.get(self.selected)?)
    }

    /// Other items under the same query.
    pub fn replace(&mut self, items: Vec<Item>) {
        let selected = self.selected;
        self.items = items;
        self.narrow();
        self.selected = selected.min(self.shown.len().saturating_sub(1));
    }

    /// Another letter of what is looked for, or one less.
    pub fn type_letter(&mut self, letter: Option<char>) {
        match letter {
            Some(c) => self.query.push(c),
            None => drop(self.query.pop()),
        }
        self.narrow();
    }

    /// A key that moves in the list; false for any other.
    pub fn navigate(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Down | KeyCode::Tab => self.move_by(1),
            KeyCode::Up | KeyCode::BackTab => self.move_by(-1),
            KeyCode::Char('n') if control => self.move_by(1),
            KeyCode::Char('p') if control => self.move_by(-1),
            KeyCode::PageDown => self.move_by(10),
            KeyCode::PageUp => self.move_by(-10),
            KeyCode::Home => self.move_by(isize::MIN),
            KeyCode::End => self.move_by(isize::MAX),
            _ => return false,
        }
        true
    }

    pub fn move_by(&mut self, by: isize) {
        let last = self.shown.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }

    /// The characters of a label that are what is looked for, in order.
    pub fn matched(&self, label: &str) -> Vec<u32> {
        let mut matcher = self.matcher.clone();
        let mut places = Vec::new();
        self.pattern().indices(Utf32Str::new(label, &mut Vec::new()), &mut matcher, &mut places);
        places.sort_unstable();
        places.dedup();
        places
    }

    fn pattern(&self) -> Pattern {
        Pattern::parse(&self.query, CaseMatching::Smart, Normalization::Smart)
    }

    fn narrow(&mut self) {
        let pattern = self.pattern();
        let mut buffer = Vec::new();
        let mut scored: Vec<(u32, usize)> = Vec::new();
        for (i, item) in self.items.iter().enumerate() {
            let text = format!("{} {}", item.label, item.detail);
            let score = pattern.score(Utf32Str::new(&text, &mut buffer), &mut self.matcher);
            scored.extend(score.map(|score| (score, i)));
        }
        scored.sort_by_key(|(score, i)| (std::cmp::Reverse(*score), *i));
        self.shown = scored.into_iter().map(|(_, i)| i).collect();
        self.selected = 0;
    }
}
