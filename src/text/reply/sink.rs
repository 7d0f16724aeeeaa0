use crate::base::mix;
use crate::protocol::{Part, Tool, ToolCallDelta};
use std::sync::Arc;

/// Where the parts of a reply go, and the call that forms.
#[derive(Clone, Debug)]
pub(super) struct Sink {
    pub parts: Vec<Part>,
    pub tools: Arc<[Tool]>,
    /// Makes the ids of calls that have none of their own.
    seed: u64,
    /// Of the next call, or of the one that forms.
    pub index: usize,
    /// Its name is out.
    pub announced: bool,
    /// Its text so far: what is shown if it turns out to be none.
    pub raw: String,
}

impl Sink {
    pub fn new(tools: Arc<[Tool]>, seed: u64) -> Self {
        Self { parts: Vec::new(), tools, seed, index: 0, announced: false, raw: String::new() }
    }

    pub fn text(&mut self, text: &str) {
        match self.parts.last_mut() {
            _ if text.is_empty() => {}
            Some(Part::Text(before)) => before.push_str(text),
            _ => self.parts.push(Part::Text(text.into())),
        }
    }

    pub fn thought(&mut self, text: &str) {
        match self.parts.last_mut() {
            _ if text.is_empty() => {}
            Some(Part::Reasoning(before)) => before.push_str(text),
            _ => self.parts.push(Part::Reasoning(text.into())),
        }
    }

    pub fn knows(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name)
    }

    /// The call has a name: from now on it is told as it forms.
    pub fn name(&mut self, name: &str, id: Option<String>) {
        let id = id.unwrap_or_else(|| made_up(self.seed, self.index));
        self.announced = true;
        self.parts.push(Part::ToolCall(ToolCallDelta {
            index: self.index,
            id: Some(id),
            name: Some(name.to_owned()),
            ..ToolCallDelta::default()
        }));
    }

    /// More of the arguments, as JSON.
    pub fn arguments(&mut self, json: &str) {
        match self.parts.last_mut() {
            _ if json.is_empty() => {}
            Some(Part::ToolCall(last)) if last.index == self.index => last.arguments.push_str(json),
            _ => self.parts.push(Part::ToolCall(ToolCallDelta {
                index: self.index,
                arguments: json.to_owned(),
                ..ToolCallDelta::default()
            })),
        }
    }

    /// The call is whole.
    pub fn end(&mut self) {
        self.index += 1;
        self.announced = false;
        self.raw.clear();
    }

    /// It is none: what was told of it is taken back, and its text shown.
    pub fn degrade(&mut self) {
        if std::mem::take(&mut self.announced) {
            let index = self.index;
            self.parts.push(Part::ToolCall(ToolCallDelta {
                index,
                retracted: true,
                ..ToolCallDelta::default()
            }));
        }
        let raw = std::mem::take(&mut self.raw);
        self.text(&raw);
    }
}

/// Nine letters and digits, the only form that every template takes (Mistral's insist).
fn made_up(seed: u64, index: usize) -> String {
    const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut bits = mix(seed, index as u64);
    let digits = std::iter::repeat_with(|| {
        let digit = DIGITS[(bits % 36) as usize];
        bits /= 36;
        char::from(digit)
    });
    digits.take(9).collect()
}
