use super::declare::{Declared, LocalTool, McpServer, declared};
use super::mcp::{self, Client};
use super::prepared::{self, Prepared};
use super::schema;
use crate::base::nearest;
use crate::protocol::{
    CallId, OfferedTool, RunHow, ServerState, ServerView, Tool, ToolCall, ToolCommand, ToolEnd, ToolEvent,
    ToolHandle, ToolList, ToolResult,
};
use serde_json::Value;
use std::collections::HashMap;
use std::path::PathBuf;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};

/// Starts the keeper of the tools that a file declares. A file that does not exist declares none.
pub fn open(file: PathBuf) -> ToolHandle {
    let (commands, inbox) = unbounded_channel();
    let (events, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        // Without a runtime there are no tools; the front end sees that by the end of the events.
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(Keeper::new(file, events.clone()).live(inbox));
        // Its tasks end here, and with them what they started; only then do the events.
        drop(runtime);
        drop(events);
    });
    ToolHandle { commands, events: receiver }
}

struct Keeper {
    file: PathBuf,
    declared: Declared,
    error: Option<String>,
    servers: Vec<Server>,
    /// Shown to the person and not yet run. A reload does not change them.
    prepared: HashMap<CallId, Prepared>,
    running: HashMap<CallId, AbortHandle>,
    events: UnboundedSender<ToolEvent>,
    inside: UnboundedSender<Inside>,
    inbox: Option<UnboundedReceiver<Inside>>,
    /// Counts reloads: news of servers of before are of no interest.
    generation: u64,
}

/// An MCP server and what is known of it.
struct Server {
    spec: McpServer,
    state: ServerState,
    client: Option<Client>,
    tools: Vec<Tool>,
    /// Gone, it ends the server.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

enum Inside {
    Server { generation: u64, index: usize, news: mcp::News },
    Finished { id: CallId, result: ToolResult },
}

/// A tool by the name that the model knows.
struct Offer<'a> {
    name: String,
    owner: Owner<'a>,
}

enum Owner<'a> {
    Local(&'a LocalTool),
    Mcp(&'a Server, &'a Tool),
}

impl Keeper {
    fn new(file: PathBuf, events: UnboundedSender<ToolEvent>) -> Self {
        let (inside, inbox) = unbounded_channel();
        Self {
            file,
            declared: Declared::default(),
            error: None,
            servers: Vec::new(),
            prepared: HashMap::new(),
            running: HashMap::new(),
            events,
            inside,
            inbox: Some(inbox),
            generation: 0,
        }
    }

    async fn live(mut self, mut commands: UnboundedReceiver<ToolCommand>) {
        let Some(mut inbox) = self.inbox.take() else { return };
        self.load();
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    None | Some(ToolCommand::Shutdown) => return self.end().await,
                    Some(command) => self.command(command),
                },
                Some(news) = inbox.recv() => self.hear(news),
            }
        }
    }

    /// Calls end at once, servers with a moment to put away what they hold.
    async fn end(self) {
        self.running.values().for_each(AbortHandle::abort);
        let (stops, tasks): (Vec<_>, Vec<_>) = self.servers.into_iter().map(|s| (s.stop, s.task)).unzip();
        drop(stops);
        for task in tasks {
            // One that failed has nothing left to end.
            let _ = task.await;
        }
    }

    fn command(&mut self, command: ToolCommand) {
        match command {
            ToolCommand::Prepare { id, call } => self.prepare(id, &call),
            ToolCommand::Run { id, how } => self.run(id, how),
            ToolCommand::Cancel(id) => self.cancel(id),
            ToolCommand::Reload => self.load(),
            ToolCommand::Shutdown => {}
        }
    }

    fn hear(&mut self, news: Inside) {
        match news {
            Inside::Finished { id, result } => {
                if self.running.remove(&id).is_some() {
                    self.tell(ToolEvent::Finished { id, result });
                }
            }
            Inside::Server { generation, index, news } if generation == self.generation => {
                let Some(server) = self.servers.get_mut(index) else { return };
                match news {
                    mcp::News::Ready { client, tools } => {
                        server.state = ServerState::Ready { tools: tools.len() };
                        (server.client, server.tools) = (Some(client), tools);
                    }
                    mcp::News::Gone(why) => {
                        server.state = ServerState::Failed(why);
                        (server.client, server.tools) = (None, Vec::new());
                    }
                }
                self.tell_list();
            }
            Inside::Server { .. } => {}
        }
    }

    /// Reads the file and starts its servers; those of before are ended.
    fn load(&mut self) {
        self.generation += 1;
        self.servers.clear();
        let read = if self.file.exists() { declared(&self.file) } else { Ok(Declared::default()) };
        (self.declared, self.error) = match read {
            Ok(declared) => (declared, None),
            Err(why) => (Declared::default(), Some(why.to_string())),
        };
        for (index, spec) in self.declared.servers.iter().enumerate() {
            let (inside, generation) = (self.inside.clone(), self.generation);
            let tell = move |news| {
                // The keeper is gone only when its tasks are.
                let _ = inside.send(Inside::Server { generation, index, news });
            };
            let (stop, stopped) = oneshot::channel();
            let task = tokio::spawn(mcp::live(spec.clone(), tell, stopped));
            let (spec, state) = (spec.clone(), ServerState::Starting);
            self.servers.push(Server { spec, state, client: None, tools: Vec::new(), stop, task });
        }
        self.tell_list();
    }

    fn tell(&self, event: ToolEvent) {
        // A front end that is gone shuts the keeper down.
        let _ = self.events.send(event);
    }

    fn tell_list(&self) {
        let view =
            |server: &Server| ServerView { name: server.spec.name.clone(), state: server.state.clone() };
        self.tell(ToolEvent::Tools(Box::new(ToolList {
            file: self.file.display().to_string(),
            tools: self.offers().iter().map(Offer::told).collect(),
            servers: self.servers.iter().map(view).collect(),
            error: self.error.clone(),
            settled: self.servers.iter().all(|server| server.state != ServerState::Starting),
        })));
    }

    /// Every tool under a name of its own: a server's tool is called `server__tool` where another has
    /// its plain name.
    fn offers(&self) -> Vec<Offer<'_>> {
        let mut all: Vec<(&str, Owner)> = Vec::new();
        all.extend(self.declared.tools.iter().map(|tool| (tool.tool.name.as_str(), Owner::Local(tool))));
        for server in &self.servers {
            all.extend(server.tools.iter().map(|tool| (tool.name.as_str(), Owner::Mcp(server, tool))));
        }
        let mut count: HashMap<&str, usize> = HashMap::new();
        all.iter().for_each(|(name, _)| *count.entry(name).or_default() += 1);
        let mut offers: Vec<Offer> = Vec::new();
        for (name, owner) in all {
            let name = match &owner {
                Owner::Mcp(server, _) if count[name] > 1 => format!("{}__{name}", server.spec.name),
                _ => name.to_owned(),
            };
            // A server that lists a name twice has it once.
            if !offers.iter().any(|other| other.name == name) {
                offers.push(Offer { name, owner });
            }
        }
        offers
    }

    fn prepare(&mut self, id: CallId, call: &ToolCall) {
        let planned = self.planned(call);
        let planned = planned.map(|prepared| {
            let plan = prepared.plan.clone();
            self.prepared.insert(id, prepared);
            plan
        });
        self.tell(ToolEvent::Prepared { id, planned });
    }

    /// # Errors
    /// For the model: no such tool, or what is wrong with the arguments.
    fn planned(&self, call: &ToolCall) -> Result<Prepared, String> {
        let offers = self.offers();
        let names = || offers.iter().map(|offer| offer.name.as_str());
        let offer = offers.iter().find(|offer| offer.name == call.name).ok_or_else(|| {
            let hint = match nearest(&call.name, names()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
            };
            format!("there is no tool {:?}; {hint}", call.name)
        })?;
        let arguments = prepared::arguments_of(&call.arguments)?;
        let wrong = |why: String| format!("wrong arguments for {}: {why}", call.name);
        match &offer.owner {
            Owner::Local(tool) => {
                schema::check(&Value::Object(arguments.clone()), &tool.tool.parameters, "").map_err(wrong)?;
                Prepared::command(tool, &arguments).map_err(wrong)
            }
            Owner::Mcp(server, tool) => {
                schema::check(&Value::Object(arguments.clone()), &tool.parameters, "").map_err(wrong)?;
                let gone = || format!("the server {} is gone", server.spec.name);
                let client = server.client.clone().ok_or_else(gone)?;
                Ok(Prepared::mcp(client, &server.spec, &tool.name, arguments))
            }
        }
    }

    fn run(&mut self, id: CallId, how: RunHow) {
        let Some(Prepared { plan, work }) = self.prepared.remove(&id) else { return };
        if plan.dry_run || how == RunHow::DryRun {
            let result = ToolResult::not_run(ToolEnd::DryRun, prepared::described(&plan));
            return self.tell(ToolEvent::Finished { id, result });
        }
        let inside = self.inside.clone();
        let task = tokio::spawn(async move {
            let result = work.done().await;
            // The keeper is gone only when its tasks are.
            let _ = inside.send(Inside::Finished { id, result });
        });
        self.running.insert(id, task.abort_handle());
    }

    fn cancel(&mut self, id: CallId) {
        self.prepared.remove(&id);
        if let Some(task) = self.running.remove(&id) {
            task.abort();
        }
    }
}

impl Offer<'_> {
    fn told(&self) -> OfferedTool {
        let (tool, source, dry_run) = match &self.owner {
            Owner::Local(local) => (&local.tool, local.command.shown(), local.dry_run),
            Owner::Mcp(server, tool) => (*tool, format!("mcp {}", server.spec.name), server.spec.dry_run),
        };
        OfferedTool { tool: Tool { name: self.name.clone(), ..tool.clone() }, source, dry_run }
    }
}
