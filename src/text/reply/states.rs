//! What each state of the [`Reader`] does with a tag, a token or a character.

use super::body::{Body, Step, Stepped};
use super::harmony::Header;
use super::reader::{Found, Reader, State, Symbol};
use super::rules::{Mark, Move};

impl Reader {
    pub(super) fn token(&mut self, mark: Mark) {
        if let State::Header(_) = self.state {
            return self.header(&mark.text, Symbol::Mark(mark.clone()));
        }
        if let Some(found) = self.watched(&mark.text, false) {
            return self.tag(found, false);
        }
        match &self.state {
            State::Call(body) if !body.takes_text() => self.degrade(Symbol::Mark(mark)),
            State::Section { .. } | State::Between => {
                self.leave_calls();
                self.queue.push_front(Symbol::Mark(mark));
            }
            State::Call(_) => mark.text.chars().for_each(|c| self.plain(c)),
            _ if mark.silent => {}
            _ => mark.text.chars().rev().for_each(|c| self.queue.push_front(Symbol::Plain(c))),
        }
    }

    pub(super) fn tag(&mut self, found: Found, typed: bool) {
        let (tag, meaning) = match found {
            Found::Inner(tag) => return self.inner_tag(tag),
            Found::Outer(found) => found,
        };
        self.found_tag |= meaning != Move::CallInThoughts;
        self.space.clear();
        self.state = match meaning {
            Move::OpenThoughts => {
                self.literal = typed && self.rules.solid.contains(&tag);
                State::Opened { label: 0 }
            }
            Move::CloseThoughts => {
                (self.unclosed, self.literal) = (false, false);
                State::Closed
            }
            Move::CallInThoughts => {
                self.unclosed = true;
                self.queue.push_front(Symbol::Mark(Mark { text: tag.into(), silent: false }));
                State::Answer
            }
            Move::OpenAnswer | Move::CloseAnswer => State::Closed,
            Move::OpenSection => {
                self.sink.raw = tag;
                State::Section { fresh: true }
            }
            Move::CloseCall => State::Section { fresh: false },
            Move::Call | Move::BareCall => return self.begin_call(&tag, meaning == Move::BareCall),
            Move::Header => {
                self.sink.raw = tag.clone();
                State::Header(Header::new(tag))
            }
            Move::EndMessage => State::Between,
        };
    }

    fn begin_call(&mut self, tag: &str, bare: bool) {
        let Some(format) = self.format else { return };
        let fresh = matches!(self.state, State::Section { fresh: true });
        if !fresh {
            self.sink.raw.clear();
        }
        self.state = State::Call(Box::new(Body::new(format.body, bare)));
        match bare {
            true => tag.chars().for_each(|c| self.queue.push_front(Symbol::Char(c))),
            false => self.sink.raw.push_str(tag),
        }
    }

    fn inner_tag(&mut self, tag: &'static str) {
        let State::Call(body) = &mut self.state else { return };
        let before = self.sink.raw.len();
        self.sink.raw.push_str(tag);
        let stepped = body.tag(tag, &mut self.sink);
        self.stepped(stepped, before, || Symbol::Mark(Mark { text: tag.into(), silent: false }));
    }

    fn stepped(&mut self, stepped: Stepped, before: usize, symbol: impl FnOnce() -> Symbol) {
        match stepped {
            Ok(Step::More) => {}
            Ok(Step::Done) if self.harmony => self.state = State::Between,
            Ok(Step::Done) => self.state = State::Section { fresh: false },
            Err(_) => {
                self.sink.raw.truncate(before);
                self.degrade(symbol());
            }
        }
    }

    /// The call is none: its text is shown, and what ended it is read as the answer.
    fn degrade(&mut self, symbol: Symbol) {
        self.sink.degrade();
        self.state = State::Answer;
        self.queue.push_front(symbol);
    }

    /// A character that is no part of a tag.
    pub(super) fn plain(&mut self, c: char) {
        let mut buffer = [0; 4];
        let text: &str = c.encode_utf8(&mut buffer);
        match &mut self.state {
            State::Start { .. } if c.is_whitespace() => self.space.push(c),
            State::Start { opened } => {
                self.state = if *opened { State::Opened { label: 0 } } else { State::Answer };
                self.put_back(c);
                let space = std::mem::take(&mut self.space);
                space.chars().rev().for_each(|c| self.put_back(c));
            }
            State::Opened { label } if self.label[*label..].starts_with(c) => *label += c.len_utf8(),
            State::Opened { label } => {
                let begun = 0 < *label && *label < self.label.len();
                if begun || !matches!(c, '\n' | '\r') {
                    self.sink.thought(&self.label[..if begun { *label } else { 0 }]);
                    self.state = State::Thinking;
                    self.put_back(c);
                }
            }
            State::Thinking => self.sink.thought(text),
            State::Closed if c.is_whitespace() => {}
            State::Closed => {
                self.state = State::Answer;
                self.put_back(c);
            }
            State::Answer => self.sink.text(text),
            State::Section { fresh: true } if c.is_whitespace() => self.sink.raw.push(c),
            State::Section { .. }
                if c.is_whitespace() || self.format.is_some_and(|f| f.between.contains(c)) => {}
            State::Between if c.is_whitespace() => {}
            State::Section { .. } | State::Between => {
                self.leave_calls();
                self.put_back(c);
            }
            State::Call(body) => {
                let before = self.sink.raw.len();
                self.sink.raw.push(c);
                let stepped = body.char(c, &mut self.sink);
                self.stepped(stepped, before, || Symbol::Char(c));
            }
            State::Header(_) => self.header(text, Symbol::Char(c)),
        }
    }

    fn put_back(&mut self, c: char) {
        self.queue.push_front(Symbol::Char(c));
    }

    /// What comes behind calls, or in their place.
    fn leave_calls(&mut self) {
        if matches!(self.state, State::Section { fresh: true }) {
            self.sink.degrade();
        }
        self.state = State::Answer;
    }

    fn header(&mut self, piece: &str, symbol: Symbol) {
        let State::Header(header) = &mut self.state else { return };
        let Ok(addressed) = header.push(piece) else { return self.degrade(symbol) };
        self.sink.raw.push_str(piece);
        let Some(to) = addressed else { return };
        self.found_tag = true;
        match to.tool.filter(|_| self.format.is_some()) {
            Some(tool) => {
                self.sink.name(&tool, None);
                self.state = State::Call(Box::new(Body::harmony()));
            }
            None => {
                self.sink.raw.clear();
                self.state = if to.thoughts { State::Thinking } else { State::Answer };
            }
        }
    }
}
