//! The screen's whole state, what comes in, and what is to be done about it.

use super::calls::{Call, Toolbox};
use super::chat::{Chat, Turn};
use super::composer::Composer;
use super::counting::Counting;
use super::files::{FileEntry, Unread};
use super::find::Find;
use super::history::Then;
use super::hits::Hits;
use super::kept::Kept;
use super::keymap::Keymap;
use super::meter::Meter;
use super::overlay::Overlay;
use super::panels::{Panel, Panels, SizeClass};
use super::place::Shown;
use super::pointer::Pointer;
use super::port::{FetchEvent, ModelChoice, PresetChoice, ScreenOptions, StartSettings};
use super::reading::Reading;
use super::selection::LineAt;
use super::sessions::Sessions;
use super::slash::Slash;
use super::tabs::Tabs;
use super::theme::Theme;
use super::traces::Traces;
use super::update::attach::Attaching;
use crate::base::Ring;
use crate::protocol::{
    BeamSearch, Channel, Command, Event, Guided, HeldBack, LoadStage, ModelInfo, SamplingParams,
    SchedulerSettings, SeqId, SessionCommand, SessionEvent, Snapshot, Thinking, ToolCommand, ToolEvent,
};
use crossterm::event::{KeyEvent, MouseEvent};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Something that happened.
#[derive(Debug)]
pub enum Message {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Paste(String),
    Resize(u16, u16),
    /// The terminal's window has the person's attention, or something else has.
    WindowFocus(bool),
    /// Catalogue and disk, as found at the start or when asked for.
    Models(Vec<ModelChoice>),
    Engine(Vec<Event>),
    /// Its threads ended without being told to.
    EngineGone,
    /// A model is being opened; the one before is given up.
    Opening(String),
    /// The one before stays.
    OpenFailed {
        name: String,
        why: String,
    },
    Snapshot(Arc<Snapshot>),
    Fetch(FetchEvent),
    Tools(ToolEvent),
    Sessions(SessionEvent),
    /// A thread of the program panicked; the screen goes on.
    Panicked(String),
    Copied(Result<(), String>),
    /// Of a folder, for completion.
    Folder {
        path: String,
        entries: Vec<FileEntry>,
    },
    FileRead {
        path: String,
        content: Result<String, Unread>,
    },
    Globbed {
        pattern: String,
        found: Result<Vec<String>, String>,
    },
    Presets(Vec<PresetChoice>),
    /// What a chat with a model and a preset starts with.
    StartSettings {
        preset: Option<String>,
        settings: Box<Result<StartSettings, String>>,
    },
    PresetSaved {
        name: String,
        result: Result<String, String>,
    },
    SystemEdited(Result<String, String>),
    /// Time has passed that something waits for.
    Tick,
    /// What the file of a theme holds.
    ThemeRead {
        name: String,
        theme: Result<Theme, String>,
    },
    Edited(Result<String, String>),
    /// What the file of a grammar or a schema holds.
    GrammarRead {
        command: Slash,
        path: String,
        content: Result<String, String>,
    },
}

/// Something for the event loop to do.
#[derive(Debug, PartialEq)]
pub enum Effect {
    Send(Command),
    ListModels,
    Fetch(String),
    CancelFetch,
    Tools(ToolCommand),
    Sessions(SessionCommand),
    Open(String),
    /// Ends the engine in use and waits until its memory is free.
    Close,
    ListPresets,
    StartSettings {
        model: Option<String>,
        preset: Option<String>,
    },
    SavePreset {
        name: String,
        text: String,
        overwrite: bool,
    },
    /// Let the person's editor have the system prompt.
    EditSystem(String),
    Copy(String),
    ReadGrammar {
        command: Slash,
        path: String,
    },
    ListFolder(String),
    ReadFile(String),
    Glob(String),
    /// Add to the history file.
    Remember(String),
    /// Let the person's editor have the terminal and this text.
    Edit(String),
    /// Let the terminal report the mouse, or not.
    Mouse(bool),
    ReadTheme(String),
    /// Write this to the file of what is kept.
    Keep(String),
    Bell,
    /// Tell the desktop.
    Notify(String),
    Suspend,
    Redraw,
    Quit,
}

pub struct App {
    pub options: ScreenOptions,
    pub theme: Theme,
    /// The person's own, as they were when the screen opened.
    pub themes: Vec<Theme>,
    /// What a later session finds.
    pub kept: Kept,
    /// The terminal reports the mouse.
    pub mouse: bool,
    pub pointer: Pointer,
    /// The terminal said that its window lost the focus.
    pub looked_away: bool,
    /// What was chosen in the palette, newest first.
    pub chosen: Vec<String>,
    pub size: (u16, u16),
    /// When the message being handled came.
    pub now: Duration,
    pub models: Vec<ModelChoice>,
    pub model: ModelState,
    /// While another is loaded: it comes back if that fails.
    pub before: Option<Before>,
    /// Presets as last listed.
    pub presets: Vec<PresetChoice>,
    /// The one that was just asked for by name.
    pub asked_preset: Option<String>,
    /// What holds from when the loading model is ready, and of which preset.
    pub start: Option<(Option<String>, StartSettings)>,
    pub fetch: Option<Fetch>,
    /// The one in view.
    pub chat: Chat,
    /// The others that are open.
    pub tabs: Tabs,
    pub tools: Toolbox,
    pub sessions: Sessions,
    pub composer: Composer,
    pub counting: Counting,
    pub attaching: Attaching,
    /// The chosen row of the slash completion.
    pub completion: usize,
    pub focus: Focus,
    pub panels: Panels,
    /// What lies over everything.
    pub overlay: Option<Overlay>,
    pub keymap: Keymap,
    pub params: SamplingParams,
    /// Parameters set in this session, by name.
    pub set_here: Vec<&'static str>,
    /// Parameters that a preset set in this session, and which one.
    pub set_by_preset: BTreeMap<&'static str, String>,
    /// Messages are answered by beam search.
    pub beam: Option<BeamSearch>,
    /// What the next answers must be.
    pub guided: Option<Guided>,
    /// False: thoughts come as text, tags and all.
    pub parse_reasoning: bool,
    /// How the next messages are thought about.
    pub thinking: Thinking,
    pub snapshot: Arc<Snapshot>,
    pub then: Then,
    /// Scheduler settings the engine was asked for and has not answered, and when.
    pub asked: Option<(SchedulerSettings, Duration)>,
    /// The newest stops at breakpoints.
    pub broke: Ring<Broke>,
    pub meter: Meter,
    pub parsed: Ring<ParsedToken>,
    pub paused: bool,
    /// A recording is played in an engine's place.
    pub replay: Option<Replay>,
    pub focused_seq: Option<SeqId>,
    pub traces: Traces,
    /// The token that is looked at: of a sequence, the how-manieth generated; none is the newest.
    pub token: Option<(SeqId, usize)>,
    /// An answer is read token by token.
    pub reading: Option<Reading>,
    /// What is searched in the transcript.
    pub find: Option<Find>,
    pub next_request: u64,
    /// Said in the footer until then.
    pub flash: Option<(String, Duration)>,
    pub last_escape: Option<Duration>,
    pub last_interrupt: Option<Duration>,
    /// Which tab was to be closed, and when.
    pub last_close: Option<(usize, Duration)>,
    pub hinted: bool,
    /// What the last frame showed of the transcript.
    pub shown: Cell<Shown>,
    /// The lines of the transcript in view, row by row.
    pub rows: RefCell<Vec<LineAt>>,
    /// Blocks in a row of the map, as last drawn.
    pub kv_row: Cell<usize>,
    /// Rows of the map or of the tree, as last drawn.
    pub kv_rows: Cell<usize>,
    /// What lies where, as last drawn.
    pub hits: Hits,
}

#[derive(Debug, Default)]
pub enum ModelState {
    #[default]
    None,
    Loading {
        name: String,
        stage: LoadStage,
        done: u64,
        total: u64,
        started: Duration,
    },
    Ready(Box<ModelInfo>),
    Failed {
        name: String,
        message: String,
    },
}

/// The model that was in use before the one that is loading.
pub struct Before {
    pub info: Box<ModelInfo>,
    pub snapshot: Arc<Snapshot>,
}

/// Steps of a recording, and how fast they are played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replay {
    pub first: u64,
    pub last: u64,
    pub speed: f32,
}

/// A download under way.
#[derive(Debug)]
pub struct Fetch {
    pub name: String,
    pub done: u64,
    pub total: u64,
    pub source: String,
    pub started: Duration,
    /// Bytes there when it started: what resuming saved.
    pub resumed_at: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    Input,
    Transcript,
    Panel(Panel),
}

/// A breakpoint that was met.
#[derive(Clone, Debug)]
pub struct Broke {
    pub id: u32,
    pub step: u64,
    pub why: String,
}

/// A token as the reasoning parser took it.
#[derive(Clone, Debug)]
pub struct ParsedToken {
    pub seq: SeqId,
    /// The how-manieth generated token of its sequence, from 0.
    pub index: usize,
    pub id: u32,
    /// Among all tokens, and natural, both before penalties and temperature.
    pub rank: u32,
    pub logprob: f32,
    pub text: String,
    /// It was not drawn: nothing else could follow.
    pub forced: bool,
    pub channel: Channel,
    pub held: String,
    pub why: Option<HeldBack>,
    /// When it came.
    pub at: Duration,
}

impl App {
    pub fn new(options: ScreenOptions, theme: Theme, history: Vec<String>) -> Self {
        Self {
            params: options.params.clone(),
            thinking: options.thinking.clone(),
            chat: Chat { system: options.system.clone(), ..Chat::default() },
            guided: None,
            mouse: !options.no_mouse,
            options,
            theme,
            themes: Vec::new(),
            kept: Kept::default(),
            pointer: Pointer::default(),
            looked_away: false,
            chosen: Vec::new(),
            size: (80, 24),
            now: Duration::ZERO,
            models: Vec::new(),
            model: ModelState::default(),
            before: None,
            presets: Vec::new(),
            asked_preset: None,
            start: None,
            fetch: None,
            tabs: Tabs::default(),
            tools: Toolbox::default(),
            sessions: Sessions::default(),
            composer: Composer::with_history(history),
            counting: Counting::default(),
            attaching: Attaching::default(),
            completion: 0,
            focus: Focus::Input,
            panels: Panels::default(),
            overlay: None,
            keymap: Keymap::default(),
            set_here: Vec::new(),
            set_by_preset: BTreeMap::new(),
            beam: None,
            parse_reasoning: true,
            snapshot: Arc::default(),
            then: Then::default(),
            asked: None,
            broke: Ring::new(64),
            meter: Meter::default(),
            parsed: Ring::new(512),
            paused: false,
            replay: None,
            focused_seq: None,
            traces: Traces::default(),
            token: None,
            reading: None,
            find: None,
            next_request: 1,
            flash: None,
            last_escape: None,
            last_interrupt: None,
            last_close: None,
            hinted: false,
            shown: Cell::default(),
            rows: RefCell::default(),
            kv_row: Cell::new(1),
            kv_rows: Cell::new(1),
            hits: Hits::default(),
        }
    }

    pub fn class(&self) -> SizeClass {
        // Inline there are no panels, however much room there is.
        if self.options.inline { SizeClass::Tiny } else { SizeClass::of(self.size) }
    }

    pub fn ready(&self) -> Option<&ModelInfo> {
        match &self.model {
            ModelState::Ready(info) => Some(info),
            _ => None,
        }
    }

    /// The scheduler's settings: those just asked for, else those in force, else those of the start.
    pub fn scheduler(&self) -> &SchedulerSettings {
        match &self.asked {
            Some((asked, _)) => asked,
            None if self.snapshot.kv.blocks.is_empty() => &self.options.scheduler,
            None => &self.snapshot.scheduler,
        }
    }

    /// The model offered for fetching while there is none.
    pub fn offer(&self) -> Option<&ModelChoice> {
        if !matches!(self.model, ModelState::None) || self.fetch.is_some() {
            return None;
        }
        let wanted = self.options.model.as_deref();
        let named = self.models.iter().find(|m| Some(m.name.as_str()) == wanted && !m.on_disk);
        named.or_else(|| self.models.iter().find(|m| m.is_default && !m.on_disk))
    }

    /// Tokens of the longest sequence of the last turn, as the engine counted them.
    pub fn context_used(&self) -> usize {
        let longest =
            |turn: &Turn| turn.answers.iter().filter_map(|a| Some(a.prompt_tokens? + a.tokens)).max();
        self.chat.turns().rev().find_map(longest).unwrap_or(0)
    }

    /// Whether time alone changes the picture, or the engine may without an event.
    pub fn is_moving(&self) -> bool {
        self.tabs.all(&self.chat).any(Chat::is_running)
            || self.call_runs()
            || self.fetch.is_some()
            || matches!(self.model, ModelState::Loading { .. })
    }

    /// A tool runs: the time that it takes is in the picture.
    pub fn call_runs(&self) -> bool {
        let runs = |chat: &Chat| chat.pending().is_some_and(|turn| turn.calls.iter().any(Call::is_running));
        self.tabs.all(&self.chat).any(runs)
    }

    /// The last frame is on screen.
    pub fn frame_shown(&mut self, now: Duration) {
        if let Some(question) = &mut self.tools.question {
            question.shown(now);
        }
    }

    /// A sequence keeps its colour; those of one batch differ.
    pub fn hue(seq: SeqId) -> usize {
        (seq.request.0.saturating_sub(1) + u64::from(seq.choice)) as usize
    }

    /// By which it is told from others where there is one cell for it.
    pub fn letter(seq: SeqId) -> char {
        Self::letter_of(Self::hue(seq))
    }

    /// Of the sequences of this hue.
    pub fn letter_of(hue: usize) -> char {
        char::from(b'A' + (hue % 26) as u8)
    }

    /// What is written in the input, as it is seen there.
    pub fn composer_text(&self) -> String {
        self.composer.text()
    }

    pub fn say(&mut self, text: impl Into<String>) {
        self.flash = Some((text.into(), self.now + Duration::from_secs(4)));
    }
}
