use super::{Tool, ToolCall};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, error::TryRecvError};

/// Answers with tool calls in a row after which a front end stops, unless it is told otherwise.
pub const TOOL_ROUNDS: u32 = 8;

/// A call, by the front end's own counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallId(pub u64);

/// What a front end asks of the keeper of the tools.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolCommand {
    /// Check a call and say what it would do. Nothing runs.
    Prepare {
        id: CallId,
        call: ToolCall,
    },
    /// Carry out what was prepared, exactly as it was shown, once. Sent after a yes only.
    Run {
        id: CallId,
        how: RunHow,
    },
    /// Forget the call; if it runs, end it and all that it started.
    Cancel(CallId),
    /// Read the declarations again and start the servers anew.
    Reload,
    Shutdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunHow {
    /// For real, unless the declaration says that it is only shown.
    AsDeclared,
    /// Only say what would run.
    DryRun,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ToolEvent {
    /// What can be called now; after every change.
    Tools(Box<ToolList>),
    /// The answer to [`ToolCommand::Prepare`]; an error is for the model, and the call is over.
    Prepared { id: CallId, planned: Result<PlannedCall, String> },
    /// The answer to [`ToolCommand::Run`].
    Finished { id: CallId, result: ToolResult },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolList {
    /// Where they are declared.
    pub file: String,
    pub tools: Vec<OfferedTool>,
    pub servers: Vec<ServerView>,
    /// Why the file cannot be used.
    pub error: Option<String>,
    /// Nothing is still starting.
    pub settled: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OfferedTool {
    pub tool: Tool,
    /// The command, or the server.
    pub source: String,
    /// A call is only shown, never run.
    pub dry_run: bool,
}

/// An MCP server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerView {
    pub name: String,
    pub state: ServerState,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ServerState {
    Starting,
    Ready { tools: usize },
    Failed(String),
}

/// What a call would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedCall {
    #[serde(flatten)]
    pub action: PlannedAction,
    pub dry_run: bool,
    pub timeout_s: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannedAction {
    /// These arguments, the program first, without a shell between.
    Command {
        argv: Vec<String>,
        cwd: Option<String>,
        stdin: Option<String>,
    },
    Mcp {
        server: String,
        tool: String,
    },
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// What the model is told.
    pub text: String,
    #[serde(flatten)]
    pub end: ToolEnd,
    pub took_ms: f64,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ended", rename_all = "snake_case")]
pub enum ToolEnd {
    Exited {
        exit_status: i32,
    },
    Signalled {
        signal: i32,
    },
    TimedOut,
    /// An MCP server's answer, and whether the server calls it an error.
    Answered {
        is_error: bool,
    },
    /// It was only shown what would run.
    DryRun,
    /// The person said no.
    Refused,
    /// Stopped while it ran.
    Cancelled,
    /// Never asked for: no such tool, or the arguments are wrong.
    Invalid,
    /// It could not be started, or the server is gone.
    Failed,
}

impl ToolResult {
    /// Of a call that never ran.
    pub fn not_run(end: ToolEnd, text: impl Into<String>) -> Self {
        Self { text: text.into(), end, took_ms: 0.0 }
    }

    pub fn is_good(&self) -> bool {
        matches!(
            self.end,
            ToolEnd::Exited { exit_status: 0 } | ToolEnd::Answered { is_error: false } | ToolEnd::DryRun
        )
    }
}

/// The keeper of the tools as a front end sees it. It runs on a thread of its own.
pub struct ToolHandle {
    pub commands: UnboundedSender<ToolCommand>,
    pub events: UnboundedReceiver<ToolEvent>,
}

/// The keeper may take this long to end what runs.
const LEAVING: Duration = Duration::from_millis(1_500);

/// Nothing that was started outlives the front end.
impl Drop for ToolHandle {
    fn drop(&mut self) {
        let start = Instant::now();
        if self.commands.send(ToolCommand::Shutdown).is_err() {
            return;
        }
        while self.events.try_recv() != Err(TryRecvError::Disconnected) && start.elapsed() < LEAVING {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
