use super::playback::Playback;
use super::read::{TraceError, read};
use super::timeline::Timeline;
use crate::base::Clock;
use crate::protocol::{Command, EventReceiver, EventSender, Handle, SnapshotCell};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// A snapshot is for eyes, as an engine's.
const SNAPSHOT_EVERY: Duration = Duration::from_millis(33);

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayOptions {
    /// 1 is as recorded; infinity as fast as it goes.
    pub speed: f32,
    /// Until it is told to resume or to step.
    pub paused: bool,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self { speed: 1.0, paused: false }
    }
}

/// Plays a trace file: a `Handle` that looks like the recorded engine's.
///
/// # Errors
/// The file cannot be read, or is no trace.
pub fn open(path: &Path, options: ReplayOptions) -> Result<Handle, TraceError> {
    let file = path.display().to_string();
    match File::open(path) {
        Ok(opened) => play(BufReader::new(opened), &file, options),
        Err(source) => Err(TraceError::Io { file, source }),
    }
}

/// As [`open`], from anywhere; `name` is what errors and notes call it.
///
/// # Errors
/// It cannot be read, or is no trace.
pub fn play(from: impl BufRead, name: &str, options: ReplayOptions) -> Result<Handle, TraceError> {
    let playback = Playback::new(Timeline::of(read(from, name)?), options.speed, options.paused);
    let (commands, inbox) = channel();
    let (sender, events) = EventReceiver::channel();
    let snapshot = SnapshotCell::default();
    let player = Player { playback, inbox, events: sender, cell: snapshot.clone(), clock: Clock::wall() };
    thread::Builder::new()
        .name("replay".into())
        .spawn(move || player.run())
        .expect("the system can start a thread");
    Ok(Handle { commands, events, snapshot })
}

struct Player {
    playback: Playback,
    inbox: Receiver<Command>,
    events: EventSender,
    cell: SnapshotCell,
    clock: Clock,
}

impl Player {
    fn run(mut self) {
        self.cell.store(self.playback.snapshot());
        let mut published = Duration::ZERO;
        if !self.events.send(self.playback.opening()) {
            return;
        }
        loop {
            let mut events = Vec::new();
            let wait = self.playback.wait(self.clock.now());
            let told = match self.next(wait) {
                Ok(Some(Command::Shutdown)) | Err(()) => return,
                Ok(Some(command)) => {
                    self.playback.command(command, self.clock.now(), &mut events);
                    true
                }
                Ok(None) => false,
            };
            self.playback.tick(self.clock.now(), &mut events);
            let now = self.clock.now();
            let quiet = self.playback.wait(now).is_none_or(|wait| wait > SNAPSHOT_EVERY);
            if told || quiet || now >= published + SNAPSHOT_EVERY {
                published = now;
                self.cell.store(self.playback.snapshot());
            }
            // An empty batch says: look at the snapshot.
            if (told || quiet || !events.is_empty()) && !self.events.send(events) {
                return;
            }
        }
    }

    /// A command; none when the time is up; an error when the front end is gone.
    fn next(&self, wait: Option<Duration>) -> Result<Option<Command>, ()> {
        match wait {
            None => self.inbox.recv().map(Some).map_err(|_| ()),
            Some(wait) => match self.inbox.recv_timeout(wait) {
                Ok(command) => Ok(Some(command)),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => Err(()),
            },
        }
    }
}
