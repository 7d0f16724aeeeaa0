//! An MCP server whose tools `served_N` are described by the payloads, and answer with them.

use super::payloads::payloads;
use serde_json::{Value, json};
use std::io::{BufRead, Write};

/// Until nobody asks any more.
pub fn serve() {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Some(result) = serde_json::from_str(&line).ok().and_then(|message| answer(&message)) else {
            continue;
        };
        println!("{result}");
        let _ = std::io::stdout().flush();
    }
}

fn answer(message: &Value) -> Option<Value> {
    let params = &message["params"];
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": payloads()[0].text, "version": payloads()[1].text },
            "instructions": payloads()[2].text,
        }),
        "tools/list" => {
            let tool = |(number, text): (usize, String)| {
                let schema = json!({ "type": "object", "description": text, "properties": {} });
                json!({ "name": format!("served_{number}"), "description": text, "inputSchema": schema })
            };
            let tools: Vec<Value> = payloads().into_iter().map(|p| p.text).enumerate().map(tool).collect();
            json!({ "tools": tools })
        }
        "tools/call" => {
            let number: usize = params["name"].as_str()?.rsplit('_').next()?.parse().ok()?;
            json!({ "content": [{ "type": "text", "text": payloads().into_iter().nth(number)?.text }] })
        }
        _ => return None,
    };
    Some(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}
