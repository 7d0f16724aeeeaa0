use super::stop::overlap;
use super::vocab::{END_THINK, THINK};
use crate::protocol::{Channel, Part};

/// A model that wants a tool may call it without closing its thoughts first; the call ends them.
const TOOL_CALL: &str = "<tool_call>";

/// Splits `<think>` spans from the answer, in a text that arrives in pieces.
///
/// Thoughts are opened by the template, or by a tag at the very start of the reply. A tag anywhere
/// else is part of the answer, and kept. Thoughts that are never closed are all there is.
#[derive(Clone, Debug)]
pub(super) struct ReasoningSplitter {
    state: State,
    /// What may still become a tag.
    held: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Nothing but white space so far. `opened`: the template has opened the thoughts already.
    Start {
        opened: bool,
    },
    /// Right after the opening tag, where line breaks are not part of the thoughts.
    Opened,
    Thinking,
    /// Right after the closing tag, where white space is not part of the answer.
    Closed,
    /// `unclosed`: a tool call ended the thoughts, and a late closing tag is still to be dropped.
    Answer {
        unclosed: bool,
    },
}

impl ReasoningSplitter {
    pub fn new(opened: bool) -> Self {
        Self { state: State::Start { opened }, held: String::new() }
    }

    /// Appends to `parts` what is certain by now. True if a tag was found and dropped.
    pub fn push(&mut self, text: &str, parts: &mut Vec<Part>) -> bool {
        self.held.push_str(text);
        let mut found_tag = false;
        while let Some((next, is_tag)) = self.step(parts) {
            self.state = next;
            found_tag |= is_tag;
        }
        found_tag
    }

    /// No more text will come.
    pub fn finish(&mut self, parts: &mut Vec<Part>) {
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Closed | State::Opened => {}
            _ => self.emit(held, parts),
        }
    }

    pub fn held(&self) -> &str {
        &self.held
    }

    pub fn may_open(&self) -> bool {
        self.state == State::Start { opened: false } && self.held.is_empty()
    }

    pub fn channel(&self) -> Channel {
        match self.state {
            State::Start { opened: true } | State::Opened | State::Thinking => Channel::Reasoning,
            _ => Channel::Content,
        }
    }

    /// One move on the held text: the state after it and whether a tag was dropped, or none when more
    /// text is needed.
    fn step(&mut self, parts: &mut Vec<Part>) -> Option<(State, bool)> {
        match self.state {
            State::Start { opened } => {
                let rest = self.held.trim_start();
                if let Some(after) = rest.strip_prefix(THINK) {
                    self.held = after.to_owned();
                    return Some((State::Opened, true));
                }
                let undecided = THINK.starts_with(rest);
                let next = if opened { State::Opened } else { State::Answer { unclosed: false } };
                (!undecided).then_some((next, false))
            }
            State::Opened => self.skip(|c| c == '\n' || c == '\r', State::Thinking),
            State::Thinking => {
                let close = self.held.find(END_THINK);
                let call = self.held.find(TOOL_CALL);
                match (close, call) {
                    (Some(at), call) if call.is_none_or(|call| at < call) => {
                        self.emit_before(at, END_THINK.len(), parts);
                        Some((State::Closed, true))
                    }
                    (_, Some(at)) => {
                        self.emit_before(at, 0, parts);
                        Some((State::Answer { unclosed: true }, false))
                    }
                    _ => self.emit_unless_tag(&[END_THINK, TOOL_CALL], parts),
                }
            }
            State::Closed => self.skip(char::is_whitespace, State::Answer { unclosed: false }),
            State::Answer { unclosed: true } => match self.held.find(END_THINK) {
                Some(at) => {
                    self.emit_before(at, END_THINK.len(), parts);
                    Some((State::Closed, true))
                }
                None => self.emit_unless_tag(&[END_THINK], parts),
            },
            State::Answer { unclosed: false } => self.emit_unless_tag(&[], parts),
        }
    }

    fn skip(&mut self, skipped: impl Fn(char) -> bool, next: State) -> Option<(State, bool)> {
        let rest = self.held.trim_start_matches(skipped);
        self.held = rest.to_owned();
        (!self.held.is_empty()).then_some((next, false))
    }

    fn emit_before(&mut self, at: usize, dropped: usize, parts: &mut Vec<Part>) {
        let rest = self.held.split_off(at + dropped);
        let mut text = std::mem::replace(&mut self.held, rest);
        text.truncate(at);
        self.emit(text, parts);
    }

    fn emit_unless_tag(&mut self, tags: &[&str], parts: &mut Vec<Part>) -> Option<(State, bool)> {
        let kept = tags.iter().map(|tag| overlap(&self.held, tag)).max().unwrap_or(0);
        self.emit_before(self.held.len() - kept, 0, parts);
        None
    }

    fn emit(&self, text: String, parts: &mut Vec<Part>) {
        if !text.is_empty() {
            parts.push(match self.channel() {
                Channel::Reasoning => Part::Reasoning(text),
                _ => Part::Text(text),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// (thoughts, answer).
    fn split<'t>(opened: bool, pieces: impl IntoIterator<Item = &'t str>) -> (String, String) {
        let mut splitter = ReasoningSplitter::new(opened);
        let mut parts = Vec::new();
        for piece in pieces {
            splitter.push(piece, &mut parts);
        }
        splitter.finish(&mut parts);
        let (mut thoughts, mut answer) = (String::new(), String::new());
        for part in parts {
            match part {
                Part::Reasoning(text) => thoughts += &text,
                Part::Text(text) => answer += &text,
                Part::ToolCall(_) => unreachable!("no tools"),
            }
        }
        (thoughts, answer)
    }

    fn pair(thoughts: &str, answer: &str) -> (String, String) {
        (thoughts.into(), answer.into())
    }

    // BUGLOG R01.
    #[test]
    fn thoughts_the_template_opened_do_not_land_in_the_answer() {
        assert_eq!(split(true, ["step ", "</think>", "42"]), pair("step ", "42"));
        // Some models open them once more.
        assert_eq!(split(true, ["\n<thi", "nk>\nstep", "</think>42"]), pair("step", "42"));
    }

    // BUGLOG R02.
    #[test]
    fn a_tag_over_two_pieces_does_not_leak() {
        let pieces = ["internal", " reasoning</thi", "nk>answer"];
        assert_eq!(split(true, pieces), pair("internal reasoning", "answer"));
        assert_eq!(split(true, ["a</thi", "ng>b"]), pair("a</thing>b", ""));
    }

    // BUGLOG R03.
    #[test]
    fn tags_inside_the_answer_are_kept() {
        let answer = "Use `<think>draft</think>` as the example";
        assert_eq!(split(false, [answer]), pair("", answer));
        let reply = format!("<think>hm</think>\n\n{answer}");
        assert_eq!(split(false, [reply.as_str()]), pair("hm", answer));
    }

    // BUGLOG R04.
    #[test]
    fn thoughts_that_are_cut_off_are_all_thoughts() {
        assert_eq!(split(true, ["still thinking </th"]), pair("still thinking </th", ""));
        assert_eq!(split(false, ["<think>", "\nstill"]), pair("still", ""));
        assert_eq!(split(true, []), pair("", ""));
    }

    // BUGLOG R07.
    #[test]
    fn a_tool_call_ends_the_thoughts() {
        let pieces = ["<think>plan<tool", "_call>{..}</tool_call>", "answer"];
        assert_eq!(split(false, pieces), pair("plan", "<tool_call>{..}</tool_call>answer"));
        let pieces = ["<think>plan<tool_call>{}</tool_call></thi", "nk>\nanswer</think>"];
        assert_eq!(split(false, pieces), pair("plan", "<tool_call>{}</tool_call>answer</think>"));
    }

    #[test]
    fn only_a_tag_at_the_start_opens_thoughts() {
        assert_eq!(split(false, [" \n", "<think>", "\n\n  a", "</think>", "\n\n", " b"]), pair("  a", "b"));
        assert_eq!(split(false, [" <thin", "g> x"]), pair("", " <thing> x"));
        assert_eq!(split(false, ["<th"]), pair("", "<th"));
        assert_eq!(split(false, ["  \n"]), pair("", "  \n"));
    }

    proptest! {
        #[test]
        fn the_split_does_not_depend_on_the_pieces(
            text in r"(<think>|</think>|<tool_call>|</thi|<|\n| |a|é){0,12}", size in 1usize..6, opened: bool,
        ) {
            let chars: Vec<char> = text.chars().collect();
            let pieces: Vec<String> = chars.chunks(size).map(|piece| piece.iter().collect()).collect();
            prop_assert_eq!(split(opened, pieces.iter().map(String::as_str)), split(opened, [text.as_str()]));
        }
    }
}
