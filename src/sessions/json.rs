//! JSON: the messages as chat APIs know them, and beside them all that only we know.

use super::messages;
use crate::protocol::{Message, Role, StoredSession, ToolCall};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Of our own part.
const VERSION: u64 = 1;

pub fn write(session: &StoredSession) -> String {
    // Where files lie on this computer is nobody else's business.
    let mut session = session.clone();
    session.meta.model_path.clear();
    let session = &session;
    let messages: Vec<Value> = messages::messages(session).iter().map(written).collect();
    let whole = json!({
        "title": session.meta.title,
        "model": session.meta.model,
        "messages": messages,
        "glassbox": { "version": VERSION, "session": session },
    });
    format!("{whole:#}\n")
}

fn written(message: &Message) -> Value {
    let mut fields = Map::new();
    fields.insert("role".into(), message.role.name().into());
    fields.insert("content".into(), message.content.as_str().into());
    if let Some(reasoning) = &message.reasoning {
        fields.insert("reasoning_content".into(), reasoning.as_str().into());
    }
    if !message.tool_calls.is_empty() {
        let call = |call: &ToolCall| {
            let function = json!({ "name": call.name, "arguments": call.arguments });
            json!({ "id": call.id, "type": "function", "function": function })
        };
        fields.insert("tool_calls".into(), message.tool_calls.iter().map(call).collect());
    }
    if let Some(id) = &message.tool_call_id {
        fields.insert("tool_call_id".into(), id.as_str().into());
    }
    if let (Role::Tool, Some(name)) = (message.role, &message.name) {
        fields.insert("name".into(), name.as_str().into());
    }
    Value::Object(fields)
}

/// An array of messages, an object that has one, or what [`write()`] wrote.
///
/// # Errors
/// What is wrong, and where: a line, or a JSON pointer.
pub fn read(text: &str) -> Result<StoredSession, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    if let Some(own) = value.get("glassbox") {
        return read_own(own);
    }
    let (at, list) = match &value {
        Value::Array(list) => ("", list),
        Value::Object(fields) => match fields.get("messages") {
            Some(Value::Array(list)) => ("/messages", list),
            Some(other) => return Err(wrong("/messages", "an array", other)),
            None => return Err("at the top: there is no \"messages\"".into()),
        },
        other => return Err(wrong("", "an array of messages, or an object that has one", other)),
    };
    let messages = list.iter().enumerate().map(|(i, one)| message(&format!("{at}/{i}"), one));
    let mut session = messages::session(messages.collect::<Result<_, _>>()?);
    let text = |name| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    (session.meta.title, session.meta.model) = (text("title"), text("model"));
    session.meta.named = !session.meta.title.is_empty();
    Ok(session)
}

fn read_own(own: &Value) -> Result<StoredSession, String> {
    match own.get("version").and_then(Value::as_u64) {
        Some(VERSION) => {}
        _ => return Err(wrong("/glassbox/version", "1", own.get("version").unwrap_or(&Value::Null))),
    }
    let session = own.get("session").unwrap_or(&Value::Null);
    let mut session = StoredSession::deserialize(session).map_err(|e| format!("/glassbox/session: {e}"))?;
    session.turns.sort_by_key(|turn| turn.number);
    match session.turns.windows(2).find(|two| two[0].number == two[1].number) {
        Some(two) => Err(format!("/glassbox/session/turns: two have the number {}", two[0].number)),
        None => Ok(session),
    }
}

fn message(at: &str, value: &Value) -> Result<Message, String> {
    let Value::Object(fields) = value else { return Err(wrong(at, "a message", value)) };
    let role = match fields.get("role").and_then(Value::as_str) {
        Some("system" | "developer") => Role::System,
        Some("user" | "human") => Role::User,
        Some("assistant" | "model") => Role::Assistant,
        Some("tool" | "function") => Role::Tool,
        _ => {
            let found = fields.get("role").unwrap_or(&Value::Null);
            return Err(wrong(&format!("{at}/role"), "system, user, assistant or tool", found));
        }
    };
    let mut message = Message::new(role, content(&format!("{at}/content"), fields.get("content"))?);
    let string = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    message.reasoning = string("reasoning_content").or_else(|| string("reasoning"));
    message.tool_call_id = string("tool_call_id");
    message.name = string("name");
    message.tool_calls = calls(&format!("{at}/tool_calls"), fields.get("tool_calls"))?;
    Ok(message)
}

fn content(at: &str, value: Option<&Value>) -> Result<String, String> {
    match value {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().enumerate().map(|(i, one)| part(&format!("{at}/{i}"), one));
            Ok(texts.collect::<Result<Vec<_>, _>>()?.join(""))
        }
        Some(other) => Err(wrong(at, "a string, or an array of parts", other)),
    }
}

/// Pictures and the like are named where they stood: nothing here can show them.
fn part(at: &str, value: &Value) -> Result<String, String> {
    if let Value::String(text) = value {
        return Ok(text.clone());
    }
    match (value.get("type").and_then(Value::as_str), value.get("text").and_then(Value::as_str)) {
        (_, Some(text)) => Ok(text.to_owned()),
        (Some("text" | "input_text" | "output_text"), None) => {
            Err(wrong(&format!("{at}/text"), "a string", value.get("text").unwrap_or(&Value::Null)))
        }
        (Some(kind), None) => Ok(format!("[{kind}]")),
        (None, None) => Err(wrong(at, "a part with a type", value)),
    }
}

fn calls(at: &str, value: Option<&Value>) -> Result<Vec<ToolCall>, String> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(calls)) => {
            calls.iter().enumerate().map(|(i, one)| call(&format!("{at}/{i}"), one)).collect()
        }
        Some(other) => Err(wrong(at, "an array of calls", other)),
    }
}

fn call(at: &str, value: &Value) -> Result<ToolCall, String> {
    let function = value.get("function").unwrap_or(value);
    let name = function.get("name").and_then(Value::as_str);
    let name = name.ok_or_else(|| wrong(&format!("{at}/function/name"), "a name", value))?;
    let arguments = match function.get("arguments") {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => "{}".into(),
        Some(object) => object.to_string(),
    };
    let id = value.get("id").and_then(Value::as_str).unwrap_or_default();
    Ok(ToolCall { id: id.into(), name: name.into(), arguments })
}

fn wrong(at: &str, expected: &str, found: &Value) -> String {
    let at = if at.is_empty() { "at the top" } else { at };
    let mut found = found.to_string();
    if found.chars().count() > 60 {
        found = found.chars().take(60).chain(['…']).collect();
    }
    format!("{at}: this must be {expected}, not {found}")
}
