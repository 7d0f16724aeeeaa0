use super::specials::Specials;
use super::template::TemplateError;
use super::vocab::THINK;
use super::TextModel;
use crate::protocol::{Failure, FailureKind, Message, Prompt, Role, TokenId};
use serde_json::{Value as Json, json};

/// A prompt as the model gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct BuiltPrompt {
    pub ids: Vec<TokenId>,
    /// The same as text, exactly as the template wrote it.
    pub rendered: String,
    /// It ends inside `<think>`: the reply begins with thoughts.
    pub opens_reasoning: bool,
}

impl TextModel {
    /// Template, then tokens, with exactly one BOS where the model wants one. What a message says is
    /// text: none of it becomes a control token, whatever it looks like.
    pub fn prompt(&self, prompt: &Prompt) -> Result<BuiltPrompt, Failure> {
        let built = match prompt {
            Prompt::Chat(messages) => self.chat(messages)?,
            Prompt::Text(text) => BuiltPrompt {
                ids: self.with_one_bos(self.encode(text, Specials::Text)),
                rendered: text.clone(),
                opens_reasoning: self.ends_in_think(text),
            },
            Prompt::Tokens(ids) => self.given_tokens(ids)?,
        };
        match built.ids.is_empty() {
            true => Err(Failure::new(FailureKind::BadRequest, "the prompt is empty")),
            false => Ok(built),
        }
    }

    fn chat(&self, messages: &[Message]) -> Result<BuiltPrompt, Failure> {
        if messages.is_empty() {
            return Err(Failure::new(FailureKind::BadRequest, "a chat needs at least one message"));
        }
        let mark = unused_character(messages);
        let messages: Vec<Message> = messages.iter().map(|message| self.defused(message, mark)).collect();
        let marked = self
            .render_chat(&messages)
            .map_err(|error| Failure::new(FailureKind::Template, error.to_string()))?;
        Ok(BuiltPrompt {
            ids: self.with_one_bos(self.encode_defused(&marked, Specials::Parse, Some(mark))),
            opens_reasoning: self.ends_in_think(&marked),
            rendered: marked.replace(mark, ""),
        })
    }

    fn defused(&self, message: &Message, mark: char) -> Message {
        Message {
            role: message.role,
            content: self.defuse(&message.content, mark),
            reasoning: message.reasoning.as_deref().map(|text| self.defuse(text, mark)),
        }
    }

    /// What a template refuses is tried once more in a form it may take: without a system role, then
    /// without earlier thoughts.
    fn render_chat(&self, messages: &[Message]) -> Result<String, TemplateError> {
        let refused = match self.render_messages(messages) {
            Err(TemplateError::Raised(reason)) => reason,
            rendered => return rendered,
        };
        let has_system = messages.iter().any(|message| message.role == Role::System);
        if has_system && refused.to_lowercase().contains("system") {
            return self.render_messages(&without_system(messages));
        }
        if messages.iter().any(|message| message.reasoning.is_some()) {
            return self.render_messages(&without_reasoning(messages));
        }
        Err(TemplateError::Raised(refused))
    }

    fn render_messages(&self, messages: &[Message]) -> Result<String, TemplateError> {
        let messages: Vec<Json> = messages.iter().map(as_json).collect();
        self.render(&json!({ "messages": messages, "add_generation_prompt": true }))
    }

    fn given_tokens(&self, ids: &[TokenId]) -> Result<BuiltPrompt, Failure> {
        let size = self.vocab_size();
        if let Some(id) = ids.iter().find(|&&id| id as usize >= size) {
            let message = format!("token {id} is not in the vocabulary of {size}");
            return Err(Failure::new(FailureKind::BadRequest, message));
        }
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.piece(id)).copied().collect();
        let rendered = String::from_utf8_lossy(&bytes).into_owned();
        Ok(BuiltPrompt { ids: ids.to_vec(), opens_reasoning: self.ends_in_think(&rendered), rendered })
    }

    /// A template may write BOS, and the vocabulary may ask for it: together that is still one.
    fn with_one_bos(&self, mut ids: Vec<TokenId>) -> Vec<TokenId> {
        let Some(bos) = self.bos else { return ids };
        let written = ids.iter().take_while(|&&id| id == bos).count();
        if written > 0 || self.prompt_bos.is_some() {
            ids.splice(..written, [bos]);
        }
        ids
    }

    fn ends_in_think(&self, text: &str) -> bool {
        self.reasoning_parser().is_some() && text.trim_end().ends_with(THINK)
    }
}

/// From a private-use plane: the first character that no message contains.
fn unused_character(messages: &[Message]) -> char {
    let texts = || messages.iter().flat_map(|m| [Some(&m.content), m.reasoning.as_ref()]).flatten();
    ('\u{F0000}'..='\u{FFFFD}')
        .find(|&mark| !texts().any(|text| text.contains(mark)))
        .expect("no message holds all 65,534 of them")
}

fn as_json(message: &Message) -> Json {
    let mut json = json!({ "role": message.role.name(), "content": message.content });
    if let Some(reasoning) = &message.reasoning {
        json["reasoning_content"] = json!(reasoning);
    }
    json
}

/// The system messages' text before the first user message's own.
fn without_system(messages: &[Message]) -> Vec<Message> {
    let is_system = |message: &&Message| message.role == Role::System;
    let instructions: Vec<&str> = messages.iter().filter(is_system).map(|m| m.content.as_str()).collect();
    let instructions = instructions.join("\n\n");
    let mut rest: Vec<Message> = messages.iter().filter(|m| !is_system(m)).cloned().collect();
    match rest.iter_mut().find(|message| message.role == Role::User) {
        Some(user) => user.content = format!("{instructions}\n\n{}", user.content),
        None => rest.insert(0, Message::new(Role::User, instructions)),
    }
    rest
}

fn without_reasoning(messages: &[Message]) -> Vec<Message> {
    messages.iter().map(|message| Message { reasoning: None, ..message.clone() }).collect()
}
