use super::declare::McpServer;
use super::process::{Capped, Group, spawn};
use crate::protocol::{Tool, ToolEnd, ToolResult};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientConfig, ContentBlock, Implementation, ResourceContents,
};
use rmcp::service::{MaybeSendFuture, NotificationContext, Peer, RunningService, ServiceError};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde_json::{Map, Value};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// One message of a server; a longer one is dropped by the SDK, and its call times out.
const MAX_LINE: usize = 4 << 20;
/// Of a server that never stops listing.
const MAX_TOOLS: usize = 256;
/// Of what a server says on stderr, for the message of its end.
const LAST_WORDS: usize = 400;
/// Until the handshake is done: a server may have to be fetched first.
const START: Duration = Duration::from_secs(60);
/// Between the steps of a server's end: its stdin closed, SIGTERM, SIGKILL.
const POLITE: Duration = Duration::from_millis(300);

pub type Client = Peer<RoleClient>;

/// What becomes of a server.
pub enum News {
    /// At the start, and whenever the server says that its tools changed.
    Ready { client: Client, tools: Vec<Tool> },
    /// The last there is of it.
    Gone(String),
}

/// Starts a server, tells what it offers, and stays until it ends, or until the sender of `stop` is
/// gone. Dropped, it ends the server at once.
pub async fn live(server: McpServer, tell: impl Fn(News), mut stop: oneshot::Receiver<()>) {
    let started = tokio::select! {
        started = started(&server) => started,
        _ = &mut stop => return,
    };
    match started {
        Ok(mut running) => {
            let why = tokio::select! {
                why = stay(&mut running, &tell) => why,
                _ = stop => return running.end().await,
            };
            running.group.kill();
            tell(News::Gone(why));
        }
        Err(why) => tell(News::Gone(why)),
    }
}

struct Running {
    child: Child,
    group: Group,
    client: RunningService<RoleClient, Listener>,
    changes: UnboundedReceiver<()>,
    stderr: JoinHandle<String>,
}

impl Running {
    /// As the protocol wants it: the server may put away what it holds.
    async fn end(mut self) {
        let _ = self.client.close_with_timeout(POLITE).await;
        if timeout(POLITE, self.child.wait()).await.is_err() {
            self.group.ask();
            let _ = timeout(POLITE, self.child.wait()).await;
        }
        self.group.kill();
    }
}

async fn started(server: &McpServer) -> Result<Running, String> {
    let (mut child, mut group) = spawn(&server.argv, &server.place, true)
        .map_err(|e| format!("cannot run {}: {e}", server.argv[0]))?;
    let (Some(stdout), Some(stdin)) = (child.stdout.take(), child.stdin.take()) else {
        return Err("it has no stdin or stdout".into());
    };
    let mut stderr = tokio::spawn(last_words(child.stderr.take()));
    let (tell, changes) = unbounded_channel();
    let transport = AsyncRwTransport::new(stdout, stdin).with_max_line_length(MAX_LINE);
    let why = match timeout(START, Listener(tell).serve(transport)).await {
        Ok(Ok(client)) => return Ok(Running { child, group, client, changes, stderr }),
        Ok(Err(why)) => why.to_string(),
        Err(_) => format!("no answer within {START:?}"),
    };
    group.kill();
    Err(with_last_words(why, &mut stderr).await)
}

/// Until the server ends; says why.
async fn stay(running: &mut Running, tell: &impl Fn(News)) -> String {
    loop {
        match timeout(START, running.client.list_all_tools()).await {
            Ok(Ok(tools)) => {
                let tools = tools.into_iter().take(MAX_TOOLS).filter_map(tool).collect();
                tell(News::Ready { client: running.client.peer().clone(), tools });
            }
            Ok(Err(why)) => return with_last_words(format!("its tools: {why}"), &mut running.stderr).await,
            Err(_) => return format!("its tools: no answer within {START:?}"),
        }
        tokio::select! {
            status = running.child.wait() => {
                let why = status.map_or_else(|e| e.to_string(), |status| format!("it ended: {status}"));
                return with_last_words(why, &mut running.stderr).await;
            }
            Some(()) = running.changes.recv() => {}
        }
    }
}

async fn with_last_words(why: String, stderr: &mut JoinHandle<String>) -> String {
    let said = timeout(Duration::from_millis(200), stderr).await;
    match said.ok().and_then(Result::ok).filter(|said| !said.is_empty()) {
        Some(said) => format!("{why}; it said: {said}"),
        None => why,
    }
}

/// Reads on to the end, so that the server never waits for a reader.
async fn last_words(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    let Some(mut pipe) = pipe else { return String::new() };
    while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
        said.extend_from_slice(&buffer[..n]);
        said.drain(..said.len().saturating_sub(LAST_WORDS));
    }
    String::from_utf8_lossy(&said).trim().to_owned()
}

fn tool(tool: rmcp::model::Tool) -> Option<Tool> {
    let is_word = |c: char| !c.is_whitespace() && !c.is_control();
    let name = tool.name.into_owned();
    ((1..=128).contains(&name.len()) && name.chars().all(is_word)).then(|| Tool {
        name,
        description: tool.description.unwrap_or_default().into_owned(),
        parameters: Value::Object((*tool.input_schema).clone()),
    })
}

/// Calls a tool of a server. Dropped before its end, the server is told that nobody waits any more.
pub async fn call(
    client: Client,
    name: String,
    arguments: Map<String, Value>,
    server: &McpServer,
) -> ToolResult {
    let start = Instant::now();
    let request = CallToolRequestParams::new(name).with_arguments(arguments);
    let limit = server.limits.timeout;
    let (end, text) = match timeout(limit, client.call_tool(request)).await {
        Ok(Ok(result)) => {
            let is_error = result.is_error.unwrap_or(false);
            (ToolEnd::Answered { is_error }, text_of(&result, server.limits.max_output))
        }
        Ok(Err(ServiceError::McpError(error))) => {
            (ToolEnd::Answered { is_error: true }, error.message.into_owned())
        }
        Ok(Err(why)) => (ToolEnd::Failed, format!("the server {} did not answer: {why}", server.name)),
        Err(_) => (ToolEnd::TimedOut, format!("stopped: it took longer than {limit:?}")),
    };
    ToolResult { text, end, took_ms: start.elapsed().as_secs_f64() * 1e3 }
}

/// A result as text: a model of text gets no pictures, but learns that there was one.
fn text_of(result: &CallToolResult, limit: usize) -> String {
    let part = |content: &ContentBlock| match content {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => {
            format!("[image {}, {} bytes as base64]", image.mime_type, image.data.len())
        }
        ContentBlock::Audio(audio) => {
            format!("[audio {}, {} bytes as base64]", audio.mime_type, audio.data.len())
        }
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { text, .. } => text.clone(),
            ResourceContents::BlobResourceContents { uri, .. } => format!("[data of {uri}]"),
            _ => "[a resource of an unknown kind]".into(),
        },
        ContentBlock::ResourceLink(link) => format!("[see {}]", link.uri),
        _ => "[content of an unknown kind]".into(),
    };
    let mut parts: Vec<String> = result.content.iter().map(part).collect();
    if let (true, Some(value)) = (parts.is_empty(), &result.structured_content) {
        parts.push(value.to_string());
    }
    let mut text = Capped::new(limit);
    text.add(parts.join("\n").as_bytes());
    text.text().unwrap_or_else(|| "(no output)".into())
}

/// Hears that a server's tools changed. What else a server may ask of a client is refused by the SDK.
struct Listener(UnboundedSender<()>);

impl ClientHandler for Listener {
    fn on_tool_list_changed(
        &self,
        _context: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + MaybeSendFuture + '_ {
        // The other side is gone only when the server is.
        let _ = self.0.send(());
        std::future::ready(())
    }

    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(Default::default(), Implementation::new("glassbox", env!("CARGO_PKG_VERSION")))
    }
}
