use super::body::Body;
use super::families::ToolFormat;
use super::harmony::Header;
use super::rules::{Families, Mark, Move, Rules};
use super::sink::Sink;
use crate::protocol::{Channel, Part, Tool};
use std::collections::VecDeque;
use std::sync::Arc;

/// Splits thoughts and calls from the answer, in a reply that comes in pieces.
///
/// It takes a character, or a token that is a marker, at a time, and decides at the first one that
/// leaves no choice: the result does not depend on the pieces. Thoughts are opened by the prompt, or by
/// a tag at the very start of the reply; a tag anywhere else is part of the answer, and kept. Thoughts
/// that are never closed are all there is. A call that turns out to be none becomes text again.
#[derive(Clone, Debug)]
pub(in crate::text) struct Reader {
    pub(super) rules: Arc<Rules>,
    pub(super) format: Option<&'static ToolFormat>,
    /// Behind an opening tag, not part of the thoughts.
    pub(super) label: &'static str,
    pub(super) state: State,
    /// What may still become a tag.
    pub(super) held: String,
    /// White space whose place is not known yet.
    pub(super) space: String,
    /// The thoughts were opened by a typed tag: a typed one closes them.
    pub(super) literal: bool,
    /// A call ended the thoughts.
    pub(super) unclosed: bool,
    /// Calls are messages.
    pub(super) harmony: bool,
    pub(super) sink: Sink,
    pub(super) found_tag: bool,
    /// Pieces to be read before the next one; empty between two pushes.
    pub(super) queue: VecDeque<Symbol>,
}

#[derive(Clone, Debug)]
pub(super) enum State {
    /// Nothing but white space so far. `opened`: the prompt has opened the thoughts already.
    Start {
        opened: bool,
    },
    /// Behind the opening tag: so many bytes of the label have come. Line breaks are no thoughts.
    Opened {
        label: usize,
    },
    Thinking,
    /// Behind a closing tag, where white space is not part of the answer.
    Closed,
    Answer,
    /// Among calls, where white space and closing tags are dropped. `fresh`: none has come yet, and what
    /// has come is kept in `Sink::raw`.
    Section {
        fresh: bool,
    },
    Call(Box<Body>),
    /// Harmony: inside of a header, and between two messages.
    Header(Header),
    Between,
}

/// One piece of a reply.
#[derive(Clone, Debug)]
pub(super) enum Symbol {
    Char(char),
    /// No part of a tag.
    Plain(char),
    Mark(Mark),
}

/// How a reply is to be read.
#[derive(Clone, Debug, Default)]
pub(in crate::text) struct Reading {
    pub reasoning: bool,
    /// The prompt has opened the thoughts.
    pub opened: bool,
    pub tools: Arc<[Tool]>,
    /// Makes ids for calls that have none.
    pub seed: u64,
}

impl Reader {
    pub fn new(families: &Families, reading: Reading) -> Self {
        let calls = !reading.tools.is_empty() && families.tools.is_some();
        let rules = Rules::new(families, reading.reasoning, calls);
        let reasoning = families.reasoning.as_ref().filter(|_| reading.reasoning);
        let opened = reasoning.is_some_and(|r| !r.kept && (reading.opened || r.implicit));
        let mut sink = Sink::new(reading.tools, reading.seed);
        if let Some(kept) = reasoning.filter(|r| r.kept && reading.opened) {
            sink.text(&kept.open[0]);
        }
        Self {
            rules: Arc::new(rules),
            format: families.tools.filter(|_| calls),
            label: reasoning.map_or("", |r| r.label),
            state: State::Start { opened },
            held: String::new(),
            space: String::new(),
            literal: false,
            unclosed: false,
            harmony: reasoning.is_some_and(|r| r.harmony),
            sink,
            found_tag: false,
            queue: VecDeque::new(),
        }
    }

    /// Appends to `parts` what is certain by now. True if a tag was found and dropped.
    pub fn push(&mut self, text: &str, parts: &mut Vec<Part>) -> bool {
        text.chars().for_each(|c| self.take(Symbol::Char(c)));
        parts.append(&mut self.sink.parts);
        std::mem::take(&mut self.found_tag)
    }

    /// The same for a token that is a marker.
    pub fn mark(&mut self, mark: &Mark, parts: &mut Vec<Part>) -> bool {
        self.take(Symbol::Mark(mark.clone()));
        parts.append(&mut self.sink.parts);
        std::mem::take(&mut self.found_tag)
    }

    /// No more text will come.
    pub fn finish(&mut self, parts: &mut Vec<Part>) {
        let held = std::mem::take(&mut self.held);
        for c in held.chars() {
            self.plain(c);
            // What a change of state puts back is no tag any more.
            while let Some(Symbol::Char(c)) = self.queue.pop_front() {
                self.plain(c);
            }
        }
        match std::mem::replace(&mut self.state, State::Answer) {
            State::Call(mut body) => match body.finish(&mut self.sink) {
                Ok(_) => {}
                Err(_) => self.sink.degrade(),
            },
            State::Header(_) | State::Section { fresh: true } => self.sink.degrade(),
            State::Start { opened: true } => self.sink.thought(&std::mem::take(&mut self.space)),
            State::Start { opened: false } => self.sink.text(&std::mem::take(&mut self.space)),
            State::Opened { label } if label < self.label.len() => self.sink.thought(&self.label[..label]),
            _ => {}
        }
        parts.append(&mut self.sink.parts);
    }

    /// Text that has come and is shown to nobody yet.
    pub fn held(&self) -> String {
        let call = if self.sink.announced { "" } else { &self.sink.raw };
        [&self.space, call, &self.held].concat()
    }

    /// Whether what is held may become a call, rather than a tag.
    pub fn holds_call(&self) -> bool {
        !self.sink.announced && !self.sink.raw.is_empty()
    }

    pub fn is_thinking(&self) -> bool {
        matches!(self.state, State::Start { opened: true } | State::Opened { .. } | State::Thinking)
    }

    /// Whether what comes now may still open thoughts.
    pub fn may_think(&self) -> bool {
        let opens = |(_, meaning): &(String, Move)| matches!(meaning, Move::OpenThoughts | Move::Header);
        matches!(self.state, State::Start { opened: false }) && self.rules.start.iter().any(opens)
    }

    pub fn calls(&self) -> usize {
        self.sink.index
    }

    pub fn channel(&self) -> Channel {
        match self.state {
            _ if self.is_thinking() => Channel::Reasoning,
            State::Section { .. } | State::Call(_) => Channel::Tool,
            State::Header(_) | State::Between => Channel::Marker,
            _ => Channel::Content,
        }
    }

    fn take(&mut self, symbol: Symbol) {
        self.queue.push_back(symbol);
        while let Some(symbol) = self.queue.pop_front() {
            match symbol {
                Symbol::Mark(mark) if self.held.is_empty() => self.token(mark),
                Symbol::Plain(c) if self.held.is_empty() => self.plain(c),
                Symbol::Mark(_) | Symbol::Plain(_) => {
                    self.queue.push_front(symbol);
                    self.release_first();
                }
                Symbol::Char(c) => {
                    self.held.push(c);
                    self.typed();
                }
            }
        }
    }

    /// The held text is a tag, may become one, or begins with a character that is none.
    fn typed(&mut self) {
        if let Some(tag) = self.watched(&self.held, true) {
            self.held.clear();
            self.tag(tag, true);
        } else if !self.may_become_tag() {
            self.release_first();
        }
    }

    /// No tag begins with the first held character; the others are looked at again.
    fn release_first(&mut self) {
        let held = std::mem::take(&mut self.held);
        let mut chars = held.chars();
        let first = chars.next();
        chars.rev().for_each(|c| self.queue.push_front(Symbol::Char(c)));
        first.into_iter().for_each(|c| self.plain(c));
    }

    /// What `text` means here.
    pub(super) fn watched(&self, text: &str, typed: bool) -> Option<Found> {
        let found = match &self.state {
            State::Call(body) => Found::Inner(body.watch().iter().find(|tag| **tag == text)?),
            _ => Found::Outer(self.rules_now().iter().find(|(tag, _)| tag == text)?.clone()),
        };
        let opens = matches!(found, Found::Outer((_, Move::OpenThoughts)));
        (!typed || self.counts_typed(text, opens)).then_some(found)
    }

    fn may_become_tag(&self) -> bool {
        let begins = |tag: &str, opens| tag.starts_with(&self.held) && self.counts_typed(tag, opens);
        match &self.state {
            State::Call(body) => body.watch().iter().any(|tag| begins(tag, false)),
            _ => self.rules_now().iter().any(|(tag, meaning)| begins(tag, *meaning == Move::OpenThoughts)),
        }
    }

    /// A marker that is a token does not count when it is typed; but what opens a reply does, and then
    /// what closes it.
    fn counts_typed(&self, tag: &str, opens: bool) -> bool {
        opens || self.literal || !self.rules.solid.contains(tag)
    }

    fn rules_now(&self) -> &[(String, Move)] {
        match self.state {
            State::Start { opened: true } => &self.rules.reopened,
            State::Start { .. } => &self.rules.start,
            State::Opened { .. } | State::Thinking => &self.rules.thinking,
            State::Closed => &self.rules.closed,
            State::Answer if self.unclosed => &self.rules.unclosed,
            State::Answer => &self.rules.answer,
            State::Section { .. } => &self.rules.section,
            State::Between => &self.rules.between,
            State::Header(_) | State::Call(_) => &[],
        }
    }
}

pub(super) enum Found {
    /// In a call.
    Inner(&'static str),
    Outer((String, Move)),
}
