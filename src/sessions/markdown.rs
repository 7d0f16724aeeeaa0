//! Markdown for reading, which also reads back. A comment says where each part begins, and a line of a
//! message that looks like one gets a backslash, which is taken away again.
//!
//! Markdown of others has no such comments: there a heading names who speaks, outside of code.

use super::messages;
use crate::protocol::{Message, Role, StoredSession, ToolCall};
use serde_json::{Value, json};

const MARK: &str = "<!-- glassbox:";

pub fn write(session: &StoredSession) -> String {
    let title = session.meta.title.replace('\n', " ");
    let head = json!({ "title": session.meta.title, "model": session.meta.model });
    let mut out = format!("{}# {title}\n\n", mark("session", &head));
    for message in messages::messages(session) {
        match message.role {
            Role::System => section(&mut out, "system", "## System", &message.content),
            Role::User => section(&mut out, "user", "## User", &message.content),
            Role::Assistant => assistant(&mut out, &message),
            Role::Tool => {
                let about = json!({ "id": message.tool_call_id, "name": message.name });
                let name = message.name.as_deref().unwrap_or_default().replace('\n', " ");
                out += &format!("{}## Tool {name}\n\n", mark("tool", &about));
                out += &fenced("", &message.content);
            }
        }
    }
    out
}

fn assistant(out: &mut String, message: &Message) {
    *out += &format!("{}## Assistant\n\n", mark("assistant", &Value::Null));
    if let Some(thoughts) = &message.reasoning {
        *out += &mark("thoughts", &Value::Null);
        *out += &format!("{DETAILS}\n\n{}\n\n</details>\n\n", escaped(thoughts));
        *out += &mark("text", &Value::Null);
        *out += "\n";
    }
    if !message.content.is_empty() {
        *out += &format!("{}\n\n", escaped(&message.content));
    }
    for call in &message.tool_calls {
        let about = json!({ "id": call.id, "name": call.name });
        *out += &format!("{}{}", mark("call", &about), fenced("json", &call.arguments));
    }
}

const DETAILS: &str = "<details><summary>Thoughts</summary>";

fn section(out: &mut String, name: &str, heading: &str, text: &str) {
    *out += &format!("{}{heading}\n\n{}\n\n", mark(name, &Value::Null), escaped(text));
}

/// A line of its own. In JSON no `>` can stand: the comment must not end early.
fn mark(name: &str, about: &Value) -> String {
    match about {
        Value::Null => format!("{MARK}{name} -->\n"),
        about => format!("{MARK}{name} {} -->\n", about.to_string().replace('>', "\\u003e")),
    }
}

/// Between fences longer than any in it.
fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}\n\n", escaped(text))
}

fn escaped(text: &str) -> String {
    let looks_like_a_mark = |line: &str| line.trim_start_matches('\\').starts_with(MARK);
    let line = |line| if looks_like_a_mark(line) { format!("\\{line}") } else { line.to_owned() };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

fn plain(lines: &[&str]) -> String {
    let line = |line: &&str| match line.strip_prefix('\\') {
        Some(rest) if rest.trim_start_matches('\\').starts_with(MARK) => rest.to_owned(),
        _ => (*line).to_owned(),
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// # Errors
/// What is wrong, and in which line.
pub fn read(text: &str) -> Result<StoredSession, String> {
    let text = text.replace("\r\n", "\n");
    // Whatever the last part is, it ends as the others do.
    let lines: Vec<&str> = text.strip_suffix('\n').unwrap_or(&text).split('\n').collect();
    match lines.iter().any(|line| line.starts_with(MARK)) {
        true => read_own(&lines),
        false => read_foreign(&lines),
    }
}

fn read_own(lines: &[&str]) -> Result<StoredSession, String> {
    let starts: Vec<usize> = (0..lines.len()).filter(|i| lines[*i].starts_with(MARK)).collect();
    let mut messages: Vec<Message> = Vec::new();
    let mut head = Value::Null;
    for (i, start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(lines.len());
        let at = |why: &str| format!("line {}: {why}", start + 1);
        let (name, about) = about(lines[*start]).map_err(at)?;
        let body = &lines[start + 1..end];
        match name {
            "session" => head = about,
            "system" => messages.push(Message::new(Role::System, said(body))),
            "user" => messages.push(Message::new(Role::User, said(body))),
            "assistant" => messages.push(Message::new(Role::Assistant, said(body))),
            "tool" => messages.push(tool(&about, body).ok_or_else(|| at("this result has no fence"))?),
            "thoughts" | "text" | "call" => {
                let last = messages.last_mut().filter(|message| message.role == Role::Assistant);
                let last = last.ok_or_else(|| at("this belongs to an assistant's message"))?;
                more(last, name, &about, body).ok_or_else(|| at("this call has no fence"))?;
            }
            other => return Err(at(&format!("glassbox writes no {other:?}"))),
        }
    }
    let mut session = messages::session(messages);
    let text = |name: &str| head[name].as_str().unwrap_or_default().to_owned();
    (session.meta.title, session.meta.model) = (text("title"), text("model"));
    session.meta.named = !session.meta.title.is_empty();
    Ok(session)
}

fn about(line: &str) -> Result<(&str, Value), &'static str> {
    let inside = line.strip_prefix(MARK).and_then(|rest| rest.trim_end().strip_suffix("-->"));
    let inside = inside.ok_or("this comment does not end in its line")?.trim();
    match inside.split_once(' ') {
        None => Ok((inside, Value::Null)),
        Some((name, json)) => {
            serde_json::from_str(json).map(|about| (name, about)).map_err(|_| "this comment holds no JSON")
        }
    }
}

/// Without the heading, and the empty lines around.
fn said(body: &[&str]) -> String {
    let body = match body {
        [heading, rest @ ..] if heading.starts_with("## ") => rest,
        body => body,
    };
    plain(between(body))
}

/// What [`write()`] puts around a text: an empty line before, and one after.
fn between<'a, 'b>(body: &'a [&'b str]) -> &'a [&'b str] {
    let body = if let ["", rest @ ..] = body { rest } else { body };
    if let [rest @ .., ""] = body { rest } else { body }
}

fn more(message: &mut Message, name: &str, about: &Value, body: &[&str]) -> Option<()> {
    match name {
        "text" => message.content = plain(between(body)),
        "thoughts" => {
            let inside = body.iter().position(|line| *line == DETAILS).map_or(0, |at| at + 1);
            let end = body.iter().rposition(|line| *line == "</details>").unwrap_or(body.len());
            let inside = body.get(inside..end).unwrap_or_default();
            message.reasoning = Some(plain(between(inside)));
        }
        _ => {
            let (id, name) = (string(about, "id"), string(about, "name"));
            message.tool_calls.push(ToolCall { id, name, arguments: inside_fence(body)? });
        }
    }
    Some(())
}

fn tool(about: &Value, body: &[&str]) -> Option<Message> {
    let mut message = Message::new(Role::Tool, inside_fence(body)?);
    message.tool_call_id = Some(string(about, "id"));
    message.name = Some(string(about, "name"));
    Some(message)
}

fn string(about: &Value, name: &str) -> String {
    about[name].as_str().unwrap_or_default().to_owned()
}

fn inside_fence(body: &[&str]) -> Option<String> {
    let open = body.iter().position(|line| line.starts_with("```"))?;
    let fence = &body[open][..body[open].chars().take_while(|c| *c == '`').count()];
    let close = body.iter().rposition(|line| *line == fence).filter(|close| *close > open)?;
    Some(plain(&body[open + 1..close]))
}

/// Headings as `## User`, `**Assistant:**` or `### You said:`.
fn read_foreign(lines: &[&str]) -> Result<StoredSession, String> {
    let mut messages: Vec<Message> = Vec::new();
    let (mut fence, mut body): (Option<&str>, Vec<&str>) = (None, Vec::new());
    let mut title = String::new();
    for line in lines {
        follow(&mut fence, line);
        match speaker(line).filter(|_| fence.is_none()) {
            Some((role, rest)) => {
                finish(&mut messages, &mut body);
                messages.push(Message::new(role, ""));
                body.extend(Some(rest).filter(|rest| !rest.is_empty()));
            }
            None if messages.is_empty() => {
                if let Some(heading) = line.strip_prefix("# ").filter(|_| title.is_empty()) {
                    title = heading.trim().to_owned();
                }
            }
            None => body.push(line),
        }
    }
    if messages.is_empty() {
        return Err("line 1: no heading says who speaks, as \"## User\" and \"## Assistant\" do".into());
    }
    finish(&mut messages, &mut body);
    let mut session = messages::session(messages);
    session.meta.named = !title.is_empty();
    session.meta.title = title;
    Ok(session)
}

fn finish(messages: &mut [Message], body: &mut Vec<&str>) {
    if let Some(message) = messages.last_mut() {
        message.content = body.join("\n").trim_matches('\n').to_owned();
    }
    body.clear();
}

/// Whether code is open behind this line.
fn follow<'a>(fence: &mut Option<&'a str>, line: &'a str) {
    let line = line.trim_start();
    let length = line.chars().take_while(|c| *c == '`').count();
    match *fence {
        None if length >= 3 => *fence = Some(&line[..length]),
        Some(open) if length >= open.len() && line.trim_end().len() == length => *fence = None,
        _ => {}
    }
}

/// Who speaks from this line on, and what stands behind the name.
fn speaker(line: &str) -> Option<(Role, &str)> {
    let line = line.trim();
    let heading = line.trim_start_matches('#');
    let (name, rest) = match (line.starts_with('#') && heading.starts_with(' '), line.strip_prefix("**")) {
        (true, _) => (heading, ""),
        (false, Some(bold)) => {
            bold.split_once("**").filter(|(name, rest)| name.ends_with(':') || rest.starts_with(':'))?
        }
        _ => return None,
    };
    let name = name.trim().trim_matches(['*', ':', '_', ' ']).to_lowercase();
    let name = name.strip_suffix(" said").unwrap_or(&name);
    let role = match name {
        "system" | "system prompt" => Role::System,
        "user" | "you" | "human" | "me" | "question" | "prompt" => Role::User,
        "assistant" | "ai" | "model" | "bot" | "answer" | "response" | "chatgpt" | "claude" | "gemini" => {
            Role::Assistant
        }
        _ => return None,
    };
    Some((role, rest.trim_start_matches(':').trim()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn talk(messages: Vec<Message>) -> StoredSession {
        messages::session(messages)
    }

    #[test]
    fn what_was_written_reads_back_whatever_is_in_it() {
        let odd = "## User\n\n```rs\nfn x() {}\n## Assistant\n```\n<!-- glassbox:user -->\n\\<!-- glassbox:x\n</details>";
        let mut answer = Message::new(Role::Assistant, format!("{odd}\n```\nnever closed"));
        answer.reasoning = Some(format!("hm\n\n{odd}\n"));
        let arguments = "{\"code\": \"```\"}".to_owned();
        answer.tool_calls.push(ToolCall { id: "a-->b".into(), name: "run".into(), arguments });
        let mut result = Message::new(Role::Tool, "````\nx");
        (result.tool_call_id, result.name) = (Some("a-->b".into()), Some("run".into()));
        let last = Message::new(Role::Assistant, "\n  done\n");
        let said = vec![
            Message::new(Role::System, "Be brief.\n"),
            Message::new(Role::User, odd),
            answer,
            result,
            last,
        ];
        let mut session = talk(said.clone());
        session.meta.title = "a -->\nb".into();
        let text = write(&session);
        let back = read(&text).unwrap();
        assert_eq!(messages::messages(&back), said, "{text}");
        assert_eq!(back.meta.title, "a -->\nb");
        assert_eq!(write(&back), text);
    }

    #[test]
    fn markdown_of_others_is_read_by_its_headings() {
        let text = "# A talk\n\n## You\n\nhi\n\n```md\n## Assistant\n```\n\n**ChatGPT:** hello\nthere\n";
        let session = read(text).unwrap();
        let told: Vec<_> = messages::messages(&session).into_iter().map(|m| (m.role, m.content)).collect();
        assert_eq!(session.meta.title, "A talk");
        let code = "hi\n\n```md\n## Assistant\n```".to_owned();
        assert_eq!(told, [(Role::User, code), (Role::Assistant, "hello\nthere".into())]);
        assert!(read("just text").unwrap_err().starts_with("line 1: no heading"));
        assert!(read("<!-- glassbox:thoughts -->\nx").unwrap_err().starts_with("line 1: this belongs"));
    }
}
