use super::families::{HARMONY_ENDS, Reasoning, ToolFormat};
use crate::protocol::TokenId;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A token that may be one of a family's markers.
#[derive(Clone, Debug)]
pub(in crate::text) struct Mark {
    pub text: Arc<str>,
    /// A control token: where it has no meaning it has no text either.
    pub silent: bool,
}

/// The families of one model, and which of their markers are tokens of its vocabulary. Such a marker
/// counts as a token only: the same text typed out in small pieces stays text.
#[derive(Clone, Debug, Default)]
pub(in crate::text) struct Families {
    pub reasoning: Option<Reasoning>,
    pub tools: Option<&'static ToolFormat>,
    pub marks: HashMap<TokenId, Mark>,
}

/// What a tag does where it is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    OpenThoughts,
    CloseThoughts,
    /// A model that wants a tool may call it without closing its thoughts first; the call ends them.
    /// (Looked for also where no tool was offered.)
    CallInThoughts,
    OpenAnswer,
    CloseAnswer,
    OpenSection,
    /// Of a call, or of all of them.
    CloseCall,
    Call,
    /// The first character of a call that has no tag.
    BareCall,
    /// Harmony: `<|start|>` or `<|channel|>`.
    Header,
    EndMessage,
}

pub(super) type Watched = Vec<(String, Move)>;

/// The tags that are looked for in each state, for one reply.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub start: Watched,
    /// The same where the prompt has opened the thoughts.
    pub reopened: Watched,
    pub thinking: Watched,
    pub closed: Watched,
    pub answer: Watched,
    /// A call ended the thoughts, and a late closing tag is still to be dropped.
    pub unclosed: Watched,
    pub section: Watched,
    pub between: Watched,
    /// Markers that are tokens.
    pub solid: HashSet<String>,
}

impl Rules {
    /// `calls`: tools were offered. `reasoning`: thoughts are wanted apart.
    pub fn new(families: &Families, reasoning: bool, calls: bool) -> Self {
        let reasoning = families.reasoning.as_ref().filter(|family| reasoning && !family.kept);
        let format = families.tools;
        let open: Watched = reasoning.map(|r| rows(&r.open, Move::OpenThoughts)).unwrap_or_default();
        let close: Watched = reasoning.map(|r| rows(&r.close, Move::CloseThoughts)).unwrap_or_default();
        let offered = format.filter(|_| calls);
        let call: Watched = offered.map(calls_of).unwrap_or_default();
        let bare: Watched =
            offered.and_then(|f| f.bare).map(|c| (c.to_string(), Move::BareCall)).into_iter().collect();
        let (open_answer, close_answer) = reasoning
            .and_then(|r| r.answer)
            .map(|(open, close)| (rows(&[open], Move::OpenAnswer), rows(&[close], Move::CloseAnswer)))
            .unwrap_or_default();
        let ends =
            offered.map(|f| [rows(f.close, Move::CloseCall), section_end(f)].concat()).unwrap_or_default();
        // A whole tag, and no mere word such as `functools`.
        let ends_thoughts = |(tag, _): &(String, Move)| tag.ends_with(['>', ']']);
        let tags = format.map(calls_of).unwrap_or_default();
        let thoughts_end = tags.into_iter().filter(ends_thoughts).map(|(tag, _)| tag);
        let thinking: Watched =
            close.iter().cloned().chain(thoughts_end.map(|tag| (tag, Move::CallInThoughts))).collect();
        let mut rules = Self {
            start: [&open[..], &open_answer, &call, &bare].concat(),
            reopened: [&open[..], &thinking].concat(),
            thinking,
            closed: [&open_answer[..], &call, &bare].concat(),
            answer: [&close_answer[..], &call].concat(),
            unclosed: [&close[..], &call].concat(),
            section: [&call[..], &ends, &bare].concat(),
            between: Vec::new(),
            solid: families.marks.values().map(|mark| mark.text.to_string()).collect(),
        };
        if reasoning.is_some_and(|family| family.harmony) {
            rules.add_harmony();
        }
        rules
    }

    fn add_harmony(&mut self) {
        let ends = rows(HARMONY_ENDS, Move::EndMessage);
        let heads = rows(&["<|start|>", "<|channel|>"], Move::Header);
        self.start.extend_from_slice(&heads);
        self.thinking = [&ends[..], &heads].concat();
        self.reopened = self.thinking.clone();
        for watched in [&mut self.closed, &mut self.answer, &mut self.unclosed, &mut self.between] {
            watched.extend(ends.iter().chain(&heads).cloned());
        }
    }
}

fn rows(tags: &[impl AsRef<str>], meaning: Move) -> Watched {
    tags.iter().map(|tag| (tag.as_ref().to_owned(), meaning)).collect()
}

fn calls_of(format: &'static ToolFormat) -> Watched {
    let section = format.section.map(|(begin, _)| (begin.to_owned(), Move::OpenSection));
    section.into_iter().chain(rows(format.open, Move::Call)).collect()
}

fn section_end(format: &'static ToolFormat) -> Watched {
    format.section.map(|(_, end)| rows(&[end], Move::CloseCall)).unwrap_or_default()
}
