//! The event loop: waits for whatever comes first, lets `update` decide, carries out what it says,
//! and draws at most every 33 ms and only when something changed.

use super::app::{App, Effect, Message};
use super::errands::Errands;
use super::outlet::Outlet;
use super::port::{Ended, FetchEvent, Models, ScreenOptions};
use super::replies::ReplyFilter;
use super::signals::{Signal, Signals};
use super::terminal::Screen;
use super::{editor, own, sanitize, transcript, update, view};
use crate::base::Clock;
use crate::protocol::{
    Command, Event as EngineEvent, Handle, SessionEvent, SessionHandle, Snapshot, ToolEvent, ToolHandle,
    ToolList,
};
use crossterm::event::{Event as TerminalEvent, EventStream};
use futures_util::StreamExt;
use ratatui::Viewport;
use std::fs;
use std::io::{IsTerminal, Stdout, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// An engine may take this long to write what it keeps.
const LEAVING: Duration = Duration::from_secs(10);
/// And this long to give its memory back to the next.
const CLOSING: Duration = Duration::from_secs(3);
const FRAME: Duration = Duration::from_millis(33);
/// Pictures are further apart where they take long: one takes at most so small a part of the time.
const SHARE: u32 = 50;
/// But no further than this.
const SLOW_FRAME: Duration = Duration::from_millis(100);
/// What was typed does not wait for the next picture of what streams.
const TYPED_FRAME: Duration = Duration::from_millis(8);
/// Where motion is to be reduced, and nobody presses a key.
const CALM_FRAME: Duration = Duration::from_millis(200);
/// Engine and screen keep looking at each other this long after the last event, because a snapshot
/// may follow it.
const AFTERGLOW: Duration = Duration::from_millis(500);
/// Inputs of earlier sessions that are read back.
const HISTORY: usize = 1_000;

/// Opens the screen and returns when it is closed; the terminal is then as it was.
///
/// # Errors
/// There is no terminal, the theme cannot be read, or the terminal is lost.
pub fn run(
    options: ScreenOptions,
    models: Box<dyn Models>,
    tools: Option<ToolHandle>,
    sessions: Option<SessionHandle>,
) -> anyhow::Result<Ended> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        anyhow::bail!("the screen needs a terminal; for scripts and pipes there is `glassbox run`");
    }
    let history = options.history.as_deref().map(read_history).unwrap_or_default();
    let mut app = own::open(options, history)?;
    app.options.sessions.on = sessions.is_some();
    std::thread::spawn(transcript::warm_up);

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(Session::run(app, models, tools, sessions));
    // Threads that still wait for something must not hold up the way out.
    runtime.shutdown_background();
    ended
}

struct Session {
    app: App,
    screen: Screen<Outlet<Stdout>>,
    models: Box<dyn Models>,
    handle: Option<Handle>,
    /// Of the model before, until the new one is ready.
    parked: Option<Handle>,
    fetch: Option<UnboundedReceiver<FetchEvent>>,
    tools: Option<ToolHandle>,
    sessions: Option<SessionHandle>,
    errands: Errands,
    signals: Signals,
    clock: Clock,
    replies: ReplyFilter,
    dirty: bool,
    /// When it was last asked whether there is something to draw.
    last_look: Option<Duration>,
    last_event: Duration,
    /// What a picture takes, lately.
    drawing: Duration,
    /// When a person last did something.
    last_touch: Duration,
    seen: Arc<Snapshot>,
    /// Kept, because on X11 what was copied lives only as long as this.
    clipboard: Option<arboard::Clipboard>,
    /// As soon as the message is dealt with.
    away: Option<Away>,
    ended: Option<Ended>,
}

/// Why nobody may read keys for a while: the terminal is another's, or is asked something itself.
enum Away {
    Shell,
    Editor(String, Edited),
    /// The shell has had it meanwhile.
    Back,
    Resized,
}
/// As what the editor's text comes back.
type Edited = fn(Result<String, String>) -> Message;

/// What the loop woke up for.
enum Wake {
    Signal(Signal),
    Terminal(Option<std::io::Result<TerminalEvent>>),
    Engine(Option<Vec<EngineEvent>>),
    Fetch(Option<FetchEvent>),
    Tools(Option<ToolEvent>),
    Sessions(Option<SessionEvent>),
    Errand(Message),
    Panic(String),
    Timer,
}

impl Session {
    async fn run(
        app: App,
        models: Box<dyn Models>,
        tools: Option<ToolHandle>,
        sessions: Option<SessionHandle>,
    ) -> anyhow::Result<Ended> {
        // Before the first signal can come.
        let signals = Signals::new()?;
        let out = Outlet::new(std::io::stdout());
        let screen = match app.options.inline {
            true => Screen::open_inline(out)?,
            false => Screen::open(out, Viewport::Fullscreen)?,
        };
        let (panics, mut panicked) = unbounded_channel();
        let undo = screen.catch_panics(panics);
        let mut session = Session {
            app,
            screen,
            models,
            handle: None,
            parked: None,
            fetch: None,
            tools,
            sessions,
            errands: Errands::default(),
            signals,
            clock: Clock::wall(),
            replies: ReplyFilter::default(),
            dirty: true,
            last_look: None,
            last_event: Duration::ZERO,
            drawing: Duration::ZERO,
            last_touch: Duration::ZERO,
            seen: Arc::default(),
            clipboard: None,
            away: None,
            ended: None,
        };
        let result = session.live(&mut panicked).await;
        session.models.cancel_fetch();
        let concluded = session.screen.conclude(&session.app);
        let left = session.screen.leave();
        undo();
        // What a call started ends with the screen.
        drop(session.tools.take());
        for handle in [session.handle.take(), session.parked.take()].into_iter().flatten() {
            // The terminal is the person's again; what is to be kept is still written.
            handle.shut_down(LEAVING);
        }
        session.tell_saved();
        let ended = result?;
        concluded.and(left)?;
        Ok(ended)
    }

    async fn live(&mut self, panicked: &mut UnboundedReceiver<String>) -> anyhow::Result<Ended> {
        let mut keys = EventStream::new();
        self.screen.report_mouse(self.app.mouse)?;
        if self.app.options.reduced_motion {
            self.screen.hold_cursor_still()?;
        }
        let (width, height) = self.screen.size()?;
        self.handle_message(Message::Resize(width, height))?;
        // The first picture does not wait for a look at the disk.
        self.draw()?;
        self.carry_out(Effect::ListModels)?;
        self.carry_out(Effect::ListPresets)?;
        let resumed = update::resume(&mut self.app);
        resumed.into_iter().try_for_each(|effect| self.carry_out(effect))?;
        loop {
            if let Some(ended) = self.ended {
                return Ok(ended);
            }
            match self.wake(&mut keys, panicked).await {
                Wake::Signal(Signal::End(number)) => return Ok(Ended::Signal(number)),
                Wake::Signal(Signal::Stop) => self.away = Some(Away::Shell),
                Wake::Signal(Signal::Continue) => self.away = Some(Away::Back),
                Wake::Terminal(Some(event)) => self.terminal_event(event?)?,
                Wake::Terminal(None) => return Ok(Ended::Quit),
                Wake::Engine(events) => self.engine_events(events)?,
                Wake::Fetch(event) => self.fetch_event(event)?,
                Wake::Tools(event) => self.tool_event(event)?,
                Wake::Sessions(event) => self.session_event(event)?,
                Wake::Panic(what) => self.handle_message(Message::Panicked(what))?,
                Wake::Errand(message) => self.handle_message(message)?,
                Wake::Timer => {
                    self.time_passed()?;
                    self.hear()?;
                }
            }
            if let Some(why) = self.away.take() {
                // Its thread would take the keys, and the terminal's answers.
                drop(keys);
                self.be_away(why).await?;
                keys = EventStream::new();
            }
            self.draw_if_due()?;
        }
    }

    /// The engine goes on meanwhile; what it reports waits.
    async fn be_away(&mut self, why: Away) -> anyhow::Result<()> {
        match why {
            Away::Shell => {
                self.screen.leave()?;
                self.signals.suspend().await;
                self.come_back()
            }
            Away::Editor(text, done) => {
                self.screen.leave()?;
                let edited = editor::edit(&text).map_err(|e| e.to_string());
                self.come_back()?;
                self.handle_message(done(edited))
            }
            Away::Back => self.come_back(),
            Away::Resized => {
                self.screen.find()?;
                let (width, height) = self.screen.size()?;
                self.handle_message(Message::Resize(width, height))
            }
        }
    }

    /// After a stop: the shell has had the terminal meanwhile.
    fn come_back(&mut self) -> anyhow::Result<()> {
        self.screen.enter()?;
        let (width, height) = self.screen.size()?;
        self.handle_message(Message::Resize(width, height))
    }

    /// Keys come before events, events before frames: typing never waits for the engine.
    async fn wake(&mut self, keys: &mut EventStream, panicked: &mut UnboundedReceiver<String>) -> Wake {
        let timer = self.next_look();
        // While tokens stream they are looked at once a picture: waking up for each costs the engine more.
        let hears = self.clock.now() >= self.last_event + self.frame();
        tokio::select! {
            biased;
            signal = self.signals.next() => Wake::Signal(signal),
            event = keys.next() => Wake::Terminal(event),
            events = next_events(&mut self.handle), if hears => Wake::Engine(events),
            event = next_fetch(&mut self.fetch) => Wake::Fetch(event),
            event = next_tool(&mut self.tools) => Wake::Tools(event),
            event = next_session(&mut self.sessions) => Wake::Sessions(event),
            Some(message) = self.errands.next() => Wake::Errand(message),
            Some(what) = panicked.recv() => Wake::Panic(what),
            () = at(timer) => Wake::Timer,
        }
    }

    /// How long until the screen has to be looked at again; for ever, when nothing moves.
    fn next_look(&self) -> Option<Duration> {
        let now = self.clock.now();
        let frame = (self.last_look.unwrap_or_default() + self.frame()).saturating_sub(now);
        let glows = self.handle.is_some() && now < self.last_event + AFTERGLOW;
        if self.dirty || self.app.is_moving() || glows {
            return Some(frame.max(Duration::from_millis(1)));
        }
        let flash = self.app.flash.as_ref().map(|(_, until)| *until);
        let next = flash.into_iter().chain(self.app.counting.due).min();
        next.map(|next| next.saturating_sub(now) + Duration::from_millis(1))
    }

    fn time_passed(&mut self) -> anyhow::Result<()> {
        self.app.now = self.clock.now();
        match self.app.counting.due.is_some_and(|due| due <= self.app.now) {
            true => self.handle_message(Message::Tick),
            false => Ok(()),
        }
    }

    /// Pictures are at least this far apart. What a person does is always seen at once.
    fn frame(&self) -> Duration {
        if self.last_look.is_some_and(|look| self.last_touch > look) {
            return TYPED_FRAME;
        }
        let touched = self.clock.now() < self.last_touch + CALM_FRAME;
        match self.app.options.reduced_motion && !touched {
            true => CALM_FRAME,
            false => (self.drawing * SHARE).clamp(FRAME, SLOW_FRAME),
        }
    }

    fn draw_if_due(&mut self) -> anyhow::Result<()> {
        let now = self.clock.now();
        if self.last_look.is_some_and(|last| now < last + self.frame()) {
            return Ok(());
        }
        self.last_look = Some(now);
        if let Some(handle) = &self.handle {
            let newest = handle.snapshot.load();
            if !Arc::ptr_eq(&newest, &self.seen) {
                self.seen = newest.clone();
                self.handle_message(Message::Snapshot(newest))?;
            }
        }
        let expired = self.app.flash.as_ref().is_some_and(|(_, until)| *until < now);
        if expired {
            self.app.flash = None;
        }
        if self.dirty || expired || self.app.call_runs() { self.draw() } else { Ok(()) }
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        self.app.now = self.clock.now();
        if !self.app.options.no_title {
            self.screen.entitle(view::window_title(&self.app))?;
        }
        self.screen.draw(&self.app)?;
        self.dirty = false;
        let now = self.clock.now();
        self.drawing = (self.drawing * 3 + (now - self.app.now)) / 4;
        self.app.frame_shown(now);
        self.last_look = Some(now);
        Ok(())
    }

    fn terminal_event(&mut self, event: TerminalEvent) -> anyhow::Result<()> {
        self.last_touch = self.clock.now();
        match event {
            TerminalEvent::Key(key) if self.replies.is_typed(&key, self.clock.now()) => {
                self.handle_message(Message::Key(key))
            }
            TerminalEvent::Paste(text) => self.handle_message(Message::Paste(text)),
            TerminalEvent::Resize(..) if self.screen.is_lost_by_resizing() => {
                self.away = Some(Away::Resized);
                Ok(())
            }
            TerminalEvent::Resize(width, height) => self.handle_message(Message::Resize(width, height)),
            TerminalEvent::Mouse(event) => self.handle_message(Message::Mouse(event)),
            TerminalEvent::FocusGained => self.handle_message(Message::WindowFocus(true)),
            TerminalEvent::FocusLost => self.handle_message(Message::WindowFocus(false)),
            TerminalEvent::Key(_) => Ok(()),
        }
    }

    fn engine_events(&mut self, events: Option<Vec<EngineEvent>>) -> anyhow::Result<()> {
        self.last_event = self.clock.now();
        let Some(mut events) = events else {
            self.handle = self.parked.take();
            return self.handle_message(Message::EngineGone);
        };
        events.extend(self.waiting());
        self.settle_which(&events);
        self.handle_message(Message::Engine(events))
    }

    /// What came since the picture before.
    fn hear(&mut self) -> anyhow::Result<()> {
        let events: Vec<EngineEvent> = self.waiting();
        match events.is_empty() {
            true => Ok(()),
            false => self.engine_events(Some(events)),
        }
    }

    /// What the engine has said and nobody has read, or as much of it as does not keep a key waiting.
    fn waiting(&mut self) -> Vec<EngineEvent> {
        let until = self.clock.now() + TYPED_FRAME;
        let mut events = Vec::new();
        while let Some(more) = self.handle.as_mut().and_then(|handle| handle.events.try_recv()) {
            events.extend(more);
            if self.clock.now() >= until {
                break;
            }
        }
        events
    }

    /// Once the new model is there, or is not, the one before goes or comes back.
    fn settle_which(&mut self, events: &[EngineEvent]) {
        if events.iter().any(|event| matches!(event, EngineEvent::LoadFailed(_))) {
            if let Some(before) = self.parked.take() {
                self.seen = before.snapshot.load();
                self.handle = Some(before);
            }
        } else if events.iter().any(|event| matches!(event, EngineEvent::Ready(_)))
            && let Some(before) = self.parked.take()
        {
            let _ = before.commands.send(Command::Shutdown);
        }
    }

    /// Waits until what the engine held is free.
    fn close(&mut self) {
        for handle in [self.handle.take(), self.parked.take()].into_iter().flatten() {
            handle.shut_down(CLOSING);
        }
    }

    fn fetch_event(&mut self, event: Option<FetchEvent>) -> anyhow::Result<()> {
        let event = event.unwrap_or_else(|| FetchEvent::Failed("the download ended without a word".into()));
        if !matches!(event, FetchEvent::Progress { .. }) {
            self.fetch = None;
        }
        self.handle_message(Message::Fetch(event))
    }

    fn tool_event(&mut self, event: Option<ToolEvent>) -> anyhow::Result<()> {
        let event = event.unwrap_or_else(|| {
            self.tools = None;
            let error = Some("their keeper ended".to_owned());
            ToolEvent::Tools(Box::new(ToolList { error, settled: true, ..ToolList::default() }))
        });
        self.handle_message(Message::Tools(event))
    }

    fn session_event(&mut self, event: Option<SessionEvent>) -> anyhow::Result<()> {
        let event = event.unwrap_or_else(|| {
            self.sessions = None;
            self.app.options.sessions.on = false;
            SessionEvent::Trouble("not saved: the keeper of the sessions ended".into())
        });
        self.handle_message(Message::Sessions(event))
    }

    /// The last words, where the screen was: whether what was said is saved.
    fn tell_saved(&mut self) {
        // A keeper that ended before has left its trouble.
        let last = self.sessions.take().map(|sessions| sessions.shut_down(LEAVING));
        for event in last.into_iter().flatten() {
            let _ = update::update(&mut self.app, Message::Sessions(event), self.clock.now());
        }
        let words = match (&self.app.sessions.trouble, self.app.sessions.saved) {
            (Some(why), _) => sanitize::visible(why).into_owned(),
            (None, true) => "saved; glassbox -c resumes".to_owned(),
            (None, false) => return,
        };
        // The terminal may be gone.
        let _ = writeln!(std::io::stderr(), "{words}");
    }

    fn handle_message(&mut self, message: Message) -> anyhow::Result<()> {
        self.dirty = true;
        let effects = update::update(&mut self.app, message, self.clock.now());
        effects.into_iter().try_for_each(|effect| self.carry_out(effect))
    }

    fn carry_out(&mut self, effect: Effect) -> anyhow::Result<()> {
        match effect {
            Effect::Send(command) => {
                if let Some(handle) = &self.handle {
                    // A dead engine shows itself by the end of its events.
                    let _ = handle.commands.send(command);
                }
            }
            Effect::ListModels => {
                let choices = self.models.list();
                self.handle_message(Message::Models(choices))?;
            }
            Effect::Fetch(name) => self.fetch = Some(self.models.fetch(&name)),
            Effect::CancelFetch => self.models.cancel_fetch(),
            Effect::Tools(command) => {
                if let Some(tools) = &self.tools {
                    // A dead keeper shows itself by the end of its events.
                    let _ = tools.commands.send(command);
                }
            }
            Effect::Sessions(command) => {
                if let Some(sessions) = &self.sessions {
                    // A dead keeper shows itself by the end of its events.
                    let _ = sessions.commands.send(command);
                }
            }
            Effect::Open(name) => self.open(&name)?,
            Effect::Close => self.close(),
            Effect::ListPresets => {
                let presets = self.models.presets();
                self.handle_message(Message::Presets(presets))?;
            }
            Effect::StartSettings { model, preset } => {
                let settings = self.models.start_settings(model.as_deref(), preset.as_deref());
                self.handle_message(Message::StartSettings { preset, settings: Box::new(settings) })?;
            }
            Effect::SavePreset { name, text, overwrite } => {
                let result = self.models.save_preset(&name, &text, overwrite);
                self.handle_message(Message::PresetSaved { name, result })?;
            }
            Effect::EditSystem(text) => self.away = Some(Away::Editor(text, Message::SystemEdited)),
            Effect::Copy(text) => {
                let copied = self.copy(text);
                self.handle_message(Message::Copied(copied))?;
            }
            Effect::ReadGrammar { command, path } => {
                let content = std::fs::read_to_string(&path).map_err(|e| e.to_string());
                self.handle_message(Message::GrammarRead { command, path, content })?;
            }
            Effect::Remember(text) => {
                if let Some(path) = &self.app.options.history {
                    // A history that cannot be kept is no reason to bother anyone.
                    let _ = append_history(path, &text);
                }
            }
            Effect::ListFolder(path) => self.errands.list_folder(path),
            Effect::ReadFile(path) => self.errands.read_file(path),
            Effect::Glob(pattern) => self.errands.glob(pattern),
            Effect::Mouse(on) => self.screen.report_mouse(on)?,
            Effect::ReadTheme(name) => {
                let theme = own::read_theme(&name, self.app.options.themes.as_deref(), self.app.theme.depth);
                self.handle_message(Message::ThemeRead { name, theme })?;
            }
            Effect::Keep(text) => {
                if let Some(Err(why)) = self.app.options.layout.as_deref().map(|path| own::keep(path, &text))
                {
                    self.app.say(format!("the layout is not kept: {why}"));
                }
            }
            Effect::Bell => self.screen.bell()?,
            Effect::Notify(text) => self.screen.notify(&text)?,
            Effect::Edit(text) => self.away = Some(Away::Editor(text, Message::Edited)),
            Effect::Suspend => self.away = Some(Away::Shell),
            Effect::Redraw => {
                self.screen.forget()?;
                self.dirty = true;
            }
            Effect::Quit => self.ended = Some(Ended::Quit),
        }
        Ok(())
    }

    fn open(&mut self, name: &str) -> anyhow::Result<()> {
        match self.models.open(name) {
            Ok(handle) => {
                self.seen = handle.snapshot.load();
                if let Some(old) = self.handle.replace(handle) {
                    for id in self.app.tabs.all(&self.app.chat).flat_map(|chat| chat.running()) {
                        let _ = old.commands.send(Command::Abort(id));
                    }
                    // What was being loaded is not waited for any more.
                    let not_ready =
                        if self.app.ready().is_some() { self.parked.replace(old) } else { Some(old) };
                    if let Some(old) = not_ready {
                        let _ = old.commands.send(Command::Shutdown);
                    }
                }
                self.handle_message(Message::Opening(name.to_owned()))
            }
            Err(why) => self.handle_message(Message::OpenFailed { name: name.to_owned(), why }),
        }
    }

    /// The local clipboard, or the terminal's: over ssh that is the one people mean.
    fn copy(&mut self, text: String) -> Result<(), String> {
        let remote = std::env::var_os("SSH_CONNECTION").is_some() || std::env::var_os("SSH_TTY").is_some();
        if !remote {
            self.clipboard = self.clipboard.take().or_else(|| arboard::Clipboard::new().ok());
            let local = self.clipboard.as_mut().map(|c| c.set_text(text.clone()));
            if matches!(local, Some(Ok(()))) {
                return Ok(());
            }
        }
        self.screen.copy(&text).map_err(|e| e.to_string())
    }
}

async fn next_events(handle: &mut Option<Handle>) -> Option<Vec<EngineEvent>> {
    match handle {
        Some(handle) => handle.events.recv().await,
        None => std::future::pending().await,
    }
}

async fn next_fetch(fetch: &mut Option<UnboundedReceiver<FetchEvent>>) -> Option<FetchEvent> {
    match fetch {
        Some(fetch) => fetch.recv().await,
        None => std::future::pending().await,
    }
}

async fn next_tool(tools: &mut Option<ToolHandle>) -> Option<ToolEvent> {
    match tools {
        Some(tools) => tools.events.recv().await,
        None => std::future::pending().await,
    }
}

async fn next_session(sessions: &mut Option<SessionHandle>) -> Option<SessionEvent> {
    match sessions {
        Some(sessions) => sessions.events.recv().await,
        None => std::future::pending().await,
    }
}

async fn at(timer: Option<Duration>) {
    match timer {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

/// One JSON string a line, so that an input of several lines stays one.
fn read_history(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let all: Vec<String> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let skip = all.len().saturating_sub(HISTORY);
    all.into_iter().skip(skip).collect()
}

fn append_history(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path)?;
    writeln!(file, "{}", serde_json::Value::from(text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn inputs_of_several_lines_come_back_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/history");
        append_history(&path, "one\ntwo").unwrap();
        append_history(&path, "three").unwrap();
        assert_eq!(read_history(&path), ["one\ntwo", "three"]);
        assert!(read_history(&folder.path().join("none")).is_empty());
    }
}
