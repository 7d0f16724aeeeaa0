//! A small MCP server: JSON-RPC, a message a line. It is this test binary itself, started with
//! `--exact server::serve --ignored --nocapture` and words that say how it behaves.

use serde_json::{Value, json};
use std::io::{BufRead, IsTerminal, Write};

#[test]
#[ignore = "the server that the tests of mcp start"]
fn serve() {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return;
    }
    let has = |word: &str| std::env::args().any(|a| a == word);
    eprintln!("the server's own words");
    assert!(!has("dies-at-once"), "asked to die");
    // The harness may have begun a line.
    println!();
    let mut renamed = false;
    for line in stdin.lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line.unwrap()) else { continue };
        let id = &message["id"];
        if message["method"] == "initialize" && has("mute") {
            continue;
        }
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": { "tools": { "listChanged": true } },
                "serverInfo": { "name": "test", "version": "1" },
            }),
            // Two pages.
            "tools/list" if message["params"]["cursor"].is_null() => {
                let name = if renamed { "echo2" } else { "echo" };
                json!({ "tools": [tool(name), tool("slow"), tool("die")], "nextCursor": "2" })
            }
            "tools/list" => {
                json!({ "tools": [tool("big"), tool("fail"), tool("change"), tool("bad\u{1b}name")] })
            }
            "tools/call" => match call(&message["params"], &mut renamed) {
                Some(result) => result,
                None => continue,
            },
            _ => continue,
        };
        say(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
        if renamed && message["method"] == "tools/call" {
            say(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }));
        }
    }
    // Not back into the harness, which would print on.
    std::process::exit(0);
}

fn say(message: &Value) {
    println!("{message}");
    std::io::stdout().flush().unwrap();
}

fn tool(name: &str) -> Value {
    let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    json!({ "name": name, "description": format!("does {name}"), "inputSchema": schema })
}

fn call(params: &Value, renamed: &mut bool) -> Option<Value> {
    let text = |text: &str| json!({ "type": "text", "text": text });
    Some(match params["name"].as_str().unwrap() {
        "echo" => json!({ "content": [
            text(params["arguments"]["text"].as_str().unwrap_or("nothing")),
            { "type": "image", "data": "AAAA", "mimeType": "image/png" },
        ] }),
        "big" => json!({ "content": [text(&"x".repeat(100_000))] }),
        "fail" => json!({ "content": [text("no such city")], "isError": true }),
        "die" => std::process::exit(7),
        "change" => {
            *renamed = true;
            json!({ "content": [] })
        }
        _ => return None,
    })
}
