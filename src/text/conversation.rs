use crate::protocol::{Message, Role, Tool, ToolCall, ToolChoice, Tools};
use serde_json::{Value as Json, json};

/// A chat as a template gets it: messages, and the tools that the model is shown.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    pub messages: Vec<Message>,
    pub tools: Vec<Tool>,
}

/// What Qwen's template says of tools, for models whose template says nothing; the answer is read as
/// `hermes`.
const HERMES: (&str, &str) = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n\
     You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n",
    "</tools>\n\nFor each function call, return a json object with function name and arguments within \
     <tool_call></tool_call> XML tags:\n<tool_call>\n\
     {\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>",
);

impl Conversation {
    /// With [`ToolChoice::None`] the tools are not shown.
    pub fn new(messages: &[Message], tools: &Tools) -> Self {
        let shown = if tools.choice == ToolChoice::None { &[][..] } else { &tools.tools };
        Self { messages: messages.to_vec(), tools: shown.to_vec() }
    }

    /// Every text in it, changed: what people, tools and models wrote, down to the strings of schemas
    /// and arguments.
    pub fn map_texts(&self, change: &dyn Fn(&str) -> String) -> Self {
        let message = |message: &Message| Message {
            role: message.role,
            content: change(&message.content),
            reasoning: message.reasoning.as_deref().map(change),
            tool_calls: message.tool_calls.iter().map(|call| map_call(call, change)).collect(),
            tool_call_id: message.tool_call_id.as_deref().map(change),
            name: message.name.as_deref().map(change),
        };
        let tool = |tool: &Tool| Tool {
            name: change(&tool.name),
            description: change(&tool.description),
            parameters: map_json(&tool.parameters, change),
        };
        Self {
            messages: self.messages.iter().map(message).collect(),
            tools: self.tools.iter().map(tool).collect(),
        }
    }

    pub fn uses_tools(&self) -> bool {
        let of_tools = |m: &Message| m.role == Role::Tool || !m.tool_calls.is_empty();
        !self.tools.is_empty() || self.messages.iter().any(of_tools)
    }

    pub fn has_calls(&self) -> bool {
        self.messages.iter().any(|message| !message.tool_calls.is_empty())
    }

    pub fn has_system(&self) -> bool {
        self.messages.iter().any(|message| message.role == Role::System)
    }

    /// As OpenAI's API has them. `as_text`: arguments are a string, otherwise an object.
    pub fn messages_json(&self, as_text: bool) -> Json {
        self.messages.iter().map(|message| message_json(message, as_text)).collect()
    }

    pub fn tools_json(&self) -> Json {
        self.tools.iter().map(tool_json).collect()
    }

    /// Without anything that a template must know of tools: they are told in the system message, calls
    /// and results in the text of their messages.
    pub fn told_in_text(&self) -> Self {
        let mut messages: Vec<Message> = self.messages.iter().map(in_text).collect();
        if !self.tools.is_empty() {
            let lines: String = self.tools.iter().map(|tool| format!("{}\n", tool_json(tool))).collect();
            let told = [HERMES.0, &lines, HERMES.1].concat();
            match messages.first_mut().filter(|first| first.role == Role::System) {
                Some(system) => system.content = format!("{}\n\n{told}", system.content),
                None => messages.insert(0, Message::new(Role::System, told)),
            }
        }
        Self { messages, tools: Vec::new() }
    }

    /// The system messages' text before the first user message's own.
    pub fn without_system(&self) -> Self {
        let is_system = |message: &&Message| message.role == Role::System;
        let instructions: Vec<&str> =
            self.messages.iter().filter(is_system).map(|m| m.content.as_str()).collect();
        let instructions = instructions.join("\n\n");
        let mut rest: Vec<Message> = self.messages.iter().filter(|m| !is_system(m)).cloned().collect();
        match rest.iter_mut().find(|message| message.role == Role::User) {
            Some(user) => user.content = format!("{instructions}\n\n{}", user.content),
            None => rest.insert(0, Message::new(Role::User, instructions)),
        }
        Self { messages: rest, tools: self.tools.clone() }
    }

    pub fn without_reasoning(&self) -> Self {
        let bare = |message: &Message| Message { reasoning: None, ..message.clone() };
        Self { messages: self.messages.iter().map(bare).collect(), tools: self.tools.clone() }
    }
}

/// From a private-use plane: the first character that nothing in the chat contains.
pub(super) fn unused_character(chat: &Conversation) -> char {
    // Characters beyond ASCII stand in this JSON as they are.
    let all = json!([chat.messages_json(true), chat.tools_json()]).to_string();
    // An escape in a call's arguments may stand for one.
    let all = all.to_ascii_lowercase();
    let spelled = |mark: char| -> String {
        mark.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
    };
    ('\u{F0000}'..='\u{FFFFD}')
        .find(|&mark| !all.contains(mark) && !all.contains(&spelled(mark)))
        .expect("no chat holds all 65,534 of them")
}

fn map_call(call: &ToolCall, change: &dyn Fn(&str) -> String) -> ToolCall {
    let arguments = match serde_json::from_str::<Json>(&call.arguments) {
        Ok(json) => map_json(&json, change).to_string(),
        Err(_) => change(&call.arguments),
    };
    ToolCall { id: change(&call.id), name: change(&call.name), arguments }
}

fn map_json(json: &Json, change: &dyn Fn(&str) -> String) -> Json {
    match json {
        Json::String(text) => Json::from(change(text)),
        Json::Array(items) => items.iter().map(|item| map_json(item, change)).collect(),
        Json::Object(fields) => {
            fields.iter().map(|(key, value)| (change(key), map_json(value, change))).collect()
        }
        other => other.clone(),
    }
}

fn message_json(message: &Message, as_text: bool) -> Json {
    let mut json = json!({ "role": message.role.name(), "content": message.content });
    let fields = [
        ("reasoning_content", &message.reasoning),
        ("tool_call_id", &message.tool_call_id),
        ("name", &message.name),
    ];
    for (name, text) in fields.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?))) {
        json[name] = json!(text);
    }
    if !message.tool_calls.is_empty() {
        json["tool_calls"] = message.tool_calls.iter().map(|call| call_json(call, as_text)).collect();
    }
    json
}

fn call_json(call: &ToolCall, as_text: bool) -> Json {
    let object =
        serde_json::from_str::<Json>(&call.arguments).ok().filter(|json| json.is_object() && !as_text);
    let arguments = object.unwrap_or_else(|| json!(call.arguments));
    json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": arguments } })
}

fn tool_json(tool: &Tool) -> Json {
    json!({
        "type": "function",
        "function": { "name": tool.name, "description": tool.description, "parameters": tool.parameters },
    })
}

fn in_text(message: &Message) -> Message {
    match message.role {
        Role::Tool => {
            Message::new(Role::User, format!("<tool_response>\n{}\n</tool_response>", message.content))
        }
        _ => {
            let call = |call: &ToolCall| {
                let ToolCall { name, arguments, .. } = call;
                format!(
                    "<tool_call>\n{{\"name\": {}, \"arguments\": {arguments}}}\n</tool_call>",
                    json!(name)
                )
            };
            let calls: Vec<String> = message.tool_calls.iter().map(call).collect();
            let texts = [&message.content, &calls.join("\n")];
            let content: Vec<&str> = texts.into_iter().map(|t| &**t).filter(|t| !t.is_empty()).collect();
            Message { content: content.join("\n"), tool_calls: Vec::new(), ..message.clone() }
        }
    }
}
