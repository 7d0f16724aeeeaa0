use super::json::Malformed;

/// The head of a gpt-oss message: `<|start|>assistant<|channel|>commentary to=functions.f
/// <|constrain|>json<|message|>` (openai-harmony's format, with every part but the channel optional).
#[derive(Clone, Debug)]
pub(super) struct Header {
    text: String,
}

/// Where a message goes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Addressed {
    /// It is on the channel `analysis`.
    pub thoughts: bool,
    /// A function that it calls.
    pub tool: Option<String>,
}

const LONGEST: usize = 300;
const MESSAGE: &str = "<|message|>";
const CHANNEL: &str = "<|channel|>";

impl Header {
    pub fn new(begin: String) -> Self {
        Self { text: begin }
    }

    /// More of it; where the message goes, once that is known.
    pub fn push(&mut self, piece: &str) -> Result<Option<Addressed>, Malformed> {
        self.text.push_str(piece);
        if self.text.ends_with(MESSAGE) {
            return read(&self.text[..self.text.len() - MESSAGE.len()]).map(Some);
        }
        let ends = ["<|end|>", "<|return|>", "<|call|>"].iter().any(|tag| self.text.ends_with(tag));
        if ends || self.text.len() > LONGEST { Err(Malformed) } else { Ok(None) }
    }
}

fn read(head: &str) -> Result<Addressed, Malformed> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| !c.is_whitespace() && *c != '<').collect()
    };
    let (_, behind) = head.split_once(CHANNEL).ok_or(Malformed)?;
    let channel = word(behind);
    if !["analysis", "commentary", "final"].contains(&&*channel) {
        return Err(Malformed);
    }
    let recipient = head.split_once("to=").map(|(_, behind)| word(behind));
    let tool = recipient.and_then(|to| to.strip_prefix("functions.").map(str::to_owned));
    Ok(Addressed { thoughts: channel == "analysis", tool: tool.filter(|name| !name.is_empty()) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn head(text: &str) -> Result<Option<Addressed>, Malformed> {
        Header::new(String::new()).push(text)
    }

    #[test]
    fn channels_recipients_and_their_order() {
        let to = |text: &str| head(text).unwrap().unwrap();
        assert_eq!(to("<|channel|>analysis<|message|>"), Addressed { thoughts: true, tool: None });
        assert_eq!(
            to("<|start|>assistant<|channel|>final<|message|>"),
            Addressed { thoughts: false, tool: None }
        );
        let call = Addressed { thoughts: false, tool: Some("f".into()) };
        assert_eq!(to("<|channel|>commentary to=functions.f <|constrain|>json<|message|>"), call);
        assert_eq!(to("<|start|>assistant to=functions.f<|channel|>commentary json<|message|>"), call);
        assert_eq!(to("<|channel|>commentary to=browser.open<|message|>").tool, None);
    }

    #[test]
    fn a_malformed_head_is_none() {
        for bad in
            ["<|message|>", "<|channel|>other<|message|>", "<|channel|>final<|end|>", "assistant<|message|>"]
        {
            assert_eq!(head(bad), Err(Malformed), "{bad}");
        }
        assert_eq!(head(&"x".repeat(400)), Err(Malformed));
        assert_eq!(head("<|channel|>ana"), Ok(None));
    }
}
