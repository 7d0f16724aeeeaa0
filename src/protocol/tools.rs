use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A function that the model may ask to have called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments, an object.
    pub parameters: Value,
}

/// What a request offers, and what the model must make of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tools {
    pub tools: Vec<Tool>,
    pub choice: ToolChoice,
    /// More than one call in one answer.
    pub parallel: bool,
}

impl Default for Tools {
    fn default() -> Self {
        Self { tools: Vec::new(), choice: ToolChoice::Auto, parallel: true }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    #[default]
    Auto,
    /// The tools are not even shown to the model.
    None,
    /// At least one call, of any tool.
    Required,
    /// One call, of this tool.
    Named(String),
}

/// A call as the model made it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The model's own where its format has one, else made up; the answer to the call names it.
    pub id: String,
    pub name: String,
    /// A JSON object as text.
    pub arguments: String,
}

/// A piece of the `index`-th call of an answer. The first piece of a call has its id and name;
/// joined, `arguments` is the whole object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCallDelta {
    pub index: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arguments: String,
    /// It was no call after all: what was told of it is void, and comes as text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retracted: bool,
}

impl ToolCallDelta {
    /// Adds this piece to the calls so far.
    pub fn add_to(&self, calls: &mut Vec<ToolCall>) {
        if self.retracted {
            return calls.truncate(self.index);
        }
        if calls.len() <= self.index {
            calls.resize_with(self.index + 1, ToolCall::default);
        }
        let call = &mut calls[self.index];
        call.id.extend(self.id.as_deref());
        call.name.extend(self.name.as_deref());
        call.arguments.push_str(&self.arguments);
    }
}

/// Families of reasoning parsers by name; `tags:<a>,</a>` is any pair of tags.
pub const REASONING_PARSERS: &[&str] = &[
    "think",
    "deepseek-r1",
    "qwen3",
    "glm",
    "kimi",
    "minimax",
    "minimax-append-think",
    "nemotron",
    "step3",
    "hunyuan",
    "seed-oss",
    "mistral",
    "gemma",
    "granite",
    "gpt-oss",
];

/// Formats of tool calls by name.
pub const TOOL_CALL_PARSERS: &[&str] = &[
    "hermes",
    "llama3-json",
    "pythonic",
    "mistral",
    "qwen3-coder",
    "seed-oss",
    "deepseek-v3",
    "deepseek-v3.1",
    "glm",
    "kimi",
    "granite",
    "gpt-oss",
    "phi-4",
    "functiongemma",
    "gemma4",
    "minimax",
];

/// Whether and how much the model should think first, where its template knows of that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thinking {
    /// `None`: as the template does by itself.
    pub enabled: Option<bool>,
    /// `low`, `medium`, `high`, or whatever else the template takes.
    pub effort: Option<String>,
    /// Thoughts of so many tokens are closed by force.
    pub budget: Option<u32>,
}

impl Thinking {
    /// `on`, `off`, `auto`, or a level of effort.
    ///
    /// # Errors
    /// What would be right.
    pub fn set(&mut self, typed: &str) -> Result<(), &'static str> {
        let is_level = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        (self.enabled, self.effort) = match typed {
            "on" => (Some(true), None),
            "off" => (Some(false), None),
            "auto" => (None, None),
            level if !level.is_empty() && level.len() < 32 && is_level(level) => {
                (Some(true), Some(level.into()))
            }
            _ => return Err("on, off, auto, or a level such as low, medium or high"),
        };
        Ok(())
    }
}
