use super::{Outcome, PlannedCall, SamplingParams, Thinking, ToolCall, ToolResult};
use serde::{Deserialize, Serialize, Serializer};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// A session in the file, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionId(pub i64);

/// An open session, by the front end's own counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionKey(pub u64);

/// A turn within its session, counted from 1 in the order they were made.
pub type TurnNumber = u32;

/// What is true of a session as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionMeta {
    pub title: String,
    /// The person chose the title; else it is the first message's.
    pub named: bool,
    pub model: String,
    /// Where its file was: a model of no catalogue is found again by it. Never exported.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model_path: String,
    pub system: Option<String>,
    /// In force when the last message was sent.
    #[serde(serialize_with = "without_defaults")]
    pub params: SamplingParams,
    /// Those of them that were set in the session, by name.
    pub set: Vec<String>,
    pub thinking: Thinking,
}

/// A whole conversation with all its versions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredSession {
    #[serde(flatten)]
    pub meta: SessionMeta,
    /// Unix time in milliseconds; 0 is unknown.
    pub created_ms: i64,
    pub updated_ms: i64,
    /// In the order of their numbers.
    pub turns: Vec<StoredTurn>,
}

/// A turn and its place in the tree of all that was said. Turns of one parent are versions of each
/// other, in the order of `place`; one of them is in view.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredTurn {
    pub number: TurnNumber,
    /// The turn that it follows.
    pub parent: Option<TurnNumber>,
    pub place: u32,
    pub in_view: bool,
    pub text: String,
    /// Written, and not sent yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub queued: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub side: bool,
    /// Its answers answer the message before once more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub retries: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<StoredCall>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<StoredAnswer>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredCall {
    pub call: ToolCall,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlannedCall>,
    /// None: it had not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<ToolResult>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredAnswer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its own, where the turn has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    pub model: String,
    pub text: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    pub tokens: usize,
    pub reasoning_tokens: usize,
    pub prompt_tokens: Option<usize>,
    pub cached_tokens: Option<usize>,
    #[serde(serialize_with = "without_defaults")]
    pub params: SamplingParams,
    pub budget: Option<u32>,
    pub thinking_ms: Option<f64>,
    /// None: it was being written when the program ended.
    pub outcome: Option<Box<Outcome>>,
}

/// Most parameters of most answers are the built-in ones.
fn without_defaults<S: Serializer>(params: &SamplingParams, to: S) -> Result<S::Ok, S::Error> {
    let object = |params: &SamplingParams| serde_json::to_value(params).map_err(serde::ser::Error::custom);
    let (mut params, built_in) = (object(params)?, object(&SamplingParams::default())?);
    if let Some(fields) = params.as_object_mut() {
        fields.retain(|name, value| built_in.get(name) != Some(value));
    }
    params.serialize(to)
}

/// What became different in a session since the change before.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionChange {
    Meta(Box<SessionMeta>),
    /// A turn is new, or something of it but its answers is.
    Turn(Box<StoredTurn>),
    TurnGone(TurnNumber),
    /// An answer begins, ends, or is another one.
    Answer {
        turn: TurnNumber,
        index: usize,
        answer: Box<StoredAnswer>,
    },
    /// A turn has only so many answers.
    Answers {
        turn: TurnNumber,
        count: usize,
    },
    /// An answer goes on.
    More {
        turn: TurnNumber,
        index: usize,
        text: String,
        reasoning: String,
    },
    /// What an answer asks for so far.
    ToolCalls {
        turn: TurnNumber,
        index: usize,
        calls: Vec<ToolCall>,
    },
}

/// A line of the list of sessions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionRow {
    pub id: SessionId,
    pub title: String,
    pub model: String,
    pub messages: usize,
    pub created_ms: i64,
    pub updated_ms: i64,
    /// Where the words that were looked for stand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snippet: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichSession {
    Newest,
    Id(SessionId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionFormat {
    Markdown,
    Json,
}

impl SessionFormat {
    /// # Errors
    /// What would be right.
    pub fn parse(name: &str) -> Result<Self, &'static str> {
        match name {
            "md" | "markdown" => Ok(SessionFormat::Markdown),
            "json" => Ok(SessionFormat::Json),
            _ => Err("md or json"),
        }
    }

    pub fn extension(self) -> &'static str {
        match self {
            SessionFormat::Markdown => "md",
            SessionFormat::Json => "json",
        }
    }
}

/// What a front end asks of the keeper of the sessions.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionCommand {
    /// The newest sessions; with words, those in which all of them are found.
    List {
        words: String,
    },
    Load {
        key: SessionKey,
        which: WhichSession,
    },
    /// The first one for a key makes a session of it.
    Save {
        key: SessionKey,
        changes: Vec<SessionChange>,
    },
    /// The front end is done with it.
    Close(SessionKey),
    Delete(SessionId),
    /// To a file, or one that is named after the title, in the folder where the program began. One that
    /// is there stays, unless `replace`.
    Export {
        session: Box<StoredSession>,
        format: SessionFormat,
        file: Option<PathBuf>,
        replace: bool,
    },
    Import {
        key: SessionKey,
        file: PathBuf,
    },
    Shutdown,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SessionEvent {
    /// And the time now, which their ages are counted from.
    Listed {
        words: String,
        now_ms: i64,
        found: Result<Vec<SessionRow>, String>,
    },
    Loaded {
        key: SessionKey,
        loaded: Box<LoadedSession>,
    },
    NotLoaded {
        key: SessionKey,
        why: String,
    },
    /// What was sent of this session is on disk.
    Saved {
        key: SessionKey,
        id: SessionId,
    },
    /// Not all of this session may be on disk any more: all of it has to be sent again.
    SendAgain(SessionKey),
    Deleted(SessionId),
    /// A session is not deleted.
    Kept {
        id: SessionId,
        why: String,
    },
    Exported(Result<PathBuf, String>),
    /// Nothing is being saved, and why. Said once.
    Trouble(String),
    /// It is again.
    Recovered,
    /// Something to know.
    Note(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct LoadedSession {
    /// None: it is a copy, which becomes a session of its own with the first change.
    pub id: Option<SessionId>,
    pub session: StoredSession,
    /// Why it is a copy, or what else is to be known.
    pub note: Option<String>,
}

/// The keeper of the sessions as a front end sees it. It runs on a thread of its own, and nobody waits
/// for the disk.
pub struct SessionHandle {
    pub commands: UnboundedSender<SessionCommand>,
    pub events: UnboundedReceiver<SessionEvent>,
}

impl SessionHandle {
    /// Lets the keeper write what it has, for no longer than `patience`; what it still had to say.
    pub fn shut_down(mut self, patience: Duration) -> Vec<SessionEvent> {
        let (start, mut said) = (Instant::now(), Vec::new());
        // A keeper that has ended needs no word.
        let _ = self.commands.send(SessionCommand::Shutdown);
        while start.elapsed() < patience {
            match self.events.try_recv() {
                Ok(event) => said.push(event),
                Err(tokio::sync::mpsc::error::TryRecvError::Disconnected) => break,
                Err(tokio::sync::mpsc::error::TryRecvError::Empty) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        said
    }
}
