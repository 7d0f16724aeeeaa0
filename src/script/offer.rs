use super::{Quit, Status, read_file};
use crate::config::RunArgs;
use crate::protocol::{Tool, ToolChoice, Tools};
use serde_json::{Value as Json, json};
use std::path::Path;

/// These tools, as `--tool-choice` and its companions offer them.
pub fn offer(tools: Vec<Tool>, args: &RunArgs) -> Result<Tools, Quit> {
    let choice = match &*args.tool_choice {
        "auto" | "" => ToolChoice::Auto,
        "none" => ToolChoice::None,
        "required" => ToolChoice::Required,
        name if tools.iter().any(|tool| tool.name == name) => ToolChoice::Named(name.to_owned()),
        name => {
            let known: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
            let message = format!(
                "--tool-choice must be auto, none, required or one of {}, not {name:?}",
                known.join(", ")
            );
            return Err(Quit::new(Status::Usage, message));
        }
    };
    Ok(Tools { tools, choice, parallel: !args.no_parallel_tool_calls })
}

/// A list of functions, each bare or as `{"type": "function", "function": {..}}`.
pub fn read_functions(path: &Path) -> Result<Vec<Tool>, Quit> {
    let text = read_file(path)?;
    let bad = |what: String| Quit::new(Status::Data, format!("{}: {what}", path.display()));
    let json: Json = serde_json::from_str(&text).map_err(|e| bad(format!("not JSON: {e}")))?;
    let list = json.get("tools").unwrap_or(&json).as_array();
    let list = list.ok_or_else(|| bad("tools are a JSON array of functions".into()))?;
    let one = |(at, item): (usize, &Json)| {
        let mut function = item.get("function").unwrap_or(item).clone();
        if let Some(fields) = function.as_object_mut() {
            fields.entry("parameters").or_insert_with(|| json!({ "type": "object", "properties": {} }));
        }
        serde_json::from_value(function).map_err(|e| bad(format!("[{at}]: {e}")))
    };
    list.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn with(json: &str, choice: &str) -> Result<Tools, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), json).unwrap();
        let args =
            RunArgs { tools: Some(file.path().to_owned()), tool_choice: choice.into(), ..RunArgs::default() };
        read_functions(file.path()).and_then(|tools| offer(tools, &args)).map_err(|quit| quit.to_string())
    }

    #[test]
    fn functions_are_read_bare_or_wrapped() {
        let wrapped = r#"[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}, {"name":"g"}]"#;
        let read = with(wrapped, "g").unwrap();
        assert_eq!(read.choice, ToolChoice::Named("g".into()));
        assert_eq!((&*read.tools[0].name, &*read.tools[0].description), ("f", "d"));
        assert_eq!(read.tools[1].parameters, json!({ "type": "object", "properties": {} }));
        assert_eq!(with(r#"{"tools":[{"name":"f"}]}"#, "auto").unwrap().tools.len(), 1);
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(with("[", "auto").unwrap_err().contains("not JSON"));
        assert!(with("{}", "auto").unwrap_err().contains("a JSON array"));
        assert!(
            with(r#"[{"name":"f"},{"description":"no name"}]"#, "auto")
                .unwrap_err()
                .contains("[1]: missing field")
        );
        assert!(with(r#"[{"name":"f"}]"#, "h").unwrap_err().contains("one of f, not \"h\""));
    }
}
