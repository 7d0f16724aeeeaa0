//! A call that was checked and can be run: what the person is shown is what runs.

use super::declare::{LocalTool, McpServer};
use super::mcp::{self, Client};
use super::process::{self, Launch};
use crate::protocol::{PlannedAction, PlannedCall, ToolResult};
use serde_json::{Map, Value};

/// A call that may be run, complete: nothing of it is looked up again.
pub struct Prepared {
    pub plan: PlannedCall,
    pub work: Work,
}

pub enum Work {
    Command(Launch),
    Mcp { client: Client, server: McpServer, tool: String, arguments: Map<String, Value> },
}

impl Prepared {
    /// # Errors
    /// For the model: a value that no argument of the command can hold.
    pub fn command(tool: &LocalTool, arguments: &Map<String, Value>) -> Result<Self, String> {
        let filled = tool.command.fill(arguments)?;
        let launch = Launch {
            argv: filled.argv.clone(),
            place: tool.place.clone(),
            limits: tool.limits,
            stdin: filled.stdin.clone(),
        };
        let cwd = tool.place.cwd.as_ref().map(|cwd| cwd.display().to_string());
        let action = PlannedAction::Command { argv: filled.argv, cwd, stdin: filled.stdin };
        let plan =
            PlannedCall { action, dry_run: tool.dry_run, timeout_s: tool.limits.timeout.as_secs_f64() };
        Ok(Self { plan, work: Work::Command(launch) })
    }

    pub fn mcp(client: Client, server: &McpServer, tool: &str, arguments: Map<String, Value>) -> Self {
        let (server, tool) = (server.clone(), tool.to_owned());
        let action = PlannedAction::Mcp { server: server.name.clone(), tool: tool.clone() };
        let timeout_s = server.limits.timeout.as_secs_f64();
        let plan = PlannedCall { action, dry_run: server.dry_run, timeout_s };
        Self { plan, work: Work::Mcp { client, server, tool, arguments } }
    }
}

impl Work {
    pub async fn done(self) -> ToolResult {
        match self {
            Work::Command(launch) => process::run(&launch).await,
            Work::Mcp { client, server, tool, arguments } => {
                mcp::call(client, tool, arguments, &server).await
            }
        }
    }
}

/// # Errors
/// For the model: it is no JSON object.
pub fn arguments_of(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(if text.trim().is_empty() { "{}" } else { text }) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err("the arguments must be a JSON object".into()),
        Err(why) => Err(format!("the arguments are not JSON: {why}")),
    }
}

/// What a dry run answers with.
pub fn described(plan: &PlannedCall) -> String {
    match &plan.action {
        PlannedAction::Command { argv, cwd, stdin } => {
            let place = cwd.as_ref().map(|cwd| format!(" in {cwd}")).unwrap_or_default();
            let stdin = stdin.as_ref().map(|text| format!(" with {text} as its stdin")).unwrap_or_default();
            format!("dry run: nothing was run. It would run {argv:?}{place}{stdin}")
        }
        PlannedAction::Mcp { server, tool } => {
            format!("dry run: nothing was called. It would call {tool} of the server {server}")
        }
    }
}
