use super::events;
use super::format::{CommandLine, GapLine, Header, KvLine, VERSION};
use super::mirror::Mirror;
use crate::base::Clock;
use crate::protocol::{
    Command, Event, EventReceiver, EventSender, Handle, KvEvent, ModelInfo, Snapshot, SnapshotCell,
};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A crash loses no more than this.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// How often the snapshot is looked at while the engine is at work, and while it is not.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOK_IDLE_EVERY: Duration = Duration::from_secs(1);
/// At work: it said something, or was asked something, this long ago at most.
const ATTENTION: Duration = Duration::from_millis(500);

/// Keeps a recording going. Dropped, or closed, it has written what the front end has seen so far, and
/// ends; the engine goes on.
pub struct Recording {
    notes: Sender<Noted>,
    writer: Option<JoinHandle<()>>,
}

impl Drop for Recording {
    fn drop(&mut self) {
        // A writer that ended by itself has written everything it could.
        let _ = self.notes.send(Noted::Close);
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// A new file for a trace, in the place of one that is there. It will hold what was said, so only its
/// owner may read it.
///
/// # Errors
/// The file cannot be made or written.
pub fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Puts a `Handle` in front of another that passes everything through, in order, and writes it down on
/// a thread of its own: nothing here waits for the file. A file that cannot be written ends the
/// recording, with one note to the front end.
pub fn record(handle: Handle, out: impl Write + Send + 'static) -> (Handle, Recording) {
    let Handle { commands: engine, events: mut heard, snapshot } = handle;
    let (commands, inbox) = channel::<Command>();
    let (front_end, events) = EventReceiver::channel();
    let (notes, noted) = channel();
    let clock = Clock::wall();

    let writer = Writer::new(BufWriter::with_capacity(1 << 16, out), snapshot.clone(), clock.clone());
    let complaints = front_end.clone();
    let writer = spawn("trace", move || writer.run(&noted, &complaints));

    let (notes_of_commands, clock_of_commands) = (notes.clone(), clock.clone());
    spawn("trace commands", move || {
        for command in inbox {
            let noted = Noted::Command(clock_of_commands.now(), Box::new(command.clone()));
            // A recording that ended does not hold up the conversation.
            let _ = notes_of_commands.send(noted);
            if engine.send(command).is_err() {
                return;
            }
        }
    });
    let notes_of_events = notes.clone();
    spawn("trace events", move || {
        while let Some(batch) = heard.blocking_recv() {
            // First the file, so that it holds whatever the front end has seen.
            let _ = notes_of_events.send(Noted::Events(clock.now(), batch.clone()));
            if !front_end.send(batch) {
                break;
            }
        }
        let _ = notes_of_events.send(Noted::Close);
    });
    (Handle { commands, events, snapshot }, Recording { notes, writer: Some(writer) })
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    thread::Builder::new().name(name.into()).spawn(body).expect("the system can start a thread")
}

enum Noted {
    Command(Duration, Box<Command>),
    Events(Duration, Vec<Event>),
    Close,
}

struct Writer<W: Write> {
    out: W,
    cell: SnapshotCell,
    clock: Clock,
    /// Held, so that a new one cannot lie at its address.
    seen: Option<Arc<Snapshot>>,
    mirror: Mirror,
    /// When the header was written; nothing is before.
    began: Option<Duration>,
    /// Commands that came before it.
    early: Vec<(Duration, Box<Command>)>,
    kv_events: Vec<KvEvent>,
    /// Events of the cache come among the others: those of the snapshots are the same.
    hears_kv: bool,
    flushed: Duration,
}

impl<W: Write> Writer<W> {
    fn new(out: W, cell: SnapshotCell, clock: Clock) -> Self {
        let (mirror, flushed) = (Mirror::default(), Duration::ZERO);
        Self {
            out,
            cell,
            clock,
            seen: None,
            mirror,
            began: None,
            early: Vec::new(),
            kv_events: Vec::new(),
            hears_kv: false,
            flushed,
        }
    }

    fn run(mut self, noted: &Receiver<Noted>, front_end: &EventSender) {
        let ended = self.write_all(noted).and_then(|()| self.out.flush());
        if let Err(error) = ended {
            front_end.send(vec![Event::Note(format!("the trace ends here, it cannot be written: {error}"))]);
        }
    }

    fn write_all(&mut self, noted: &Receiver<Noted>) -> io::Result<()> {
        let mut attentive = Duration::ZERO;
        loop {
            let now = self.clock.now();
            let wait = if now < attentive + ATTENTION { LOOK_EVERY } else { LOOK_IDLE_EVERY };
            match noted.recv_timeout(wait) {
                Ok(Noted::Command(at, command)) => {
                    attentive = self.clock.now();
                    self.command(at, command)?;
                }
                Ok(Noted::Events(at, events)) => {
                    attentive = self.clock.now();
                    self.events(at, &events)?;
                }
                Ok(Noted::Close) | Err(RecvTimeoutError::Disconnected) => return self.look(),
                Err(RecvTimeoutError::Timeout) => self.look()?,
            }
            let now = self.clock.now();
            if now >= self.flushed + FLUSH_EVERY {
                self.flushed = now;
                self.out.flush()?;
            }
        }
    }

    fn command(&mut self, at: Duration, command: Box<Command>) -> io::Result<()> {
        // Questions change nothing, and a replay has nobody to answer them.
        let question = matches!(
            *command,
            Command::WhatIf(_) | Command::Count(_) | Command::Inspect(_) | Command::MeasureLimits
        );
        if question || matches!(*command, Command::Focus(_) | Command::Shutdown | Command::Replay(_)) {
            return Ok(());
        }
        match self.began {
            None => self.early.push((at, command)),
            Some(_) => {
                // What led to the command is before it.
                self.look()?;
                let t = self.time(at);
                self.line(&CommandLine { t, command: *command })?;
            }
        }
        Ok(())
    }

    fn events(&mut self, at: Duration, events: &[Event]) -> io::Result<()> {
        let kept: Vec<Event> = events
            .iter()
            .filter(|event| !matches!(event, Event::Loading { .. } | Event::Ready(_)))
            .filter(|event| !is_answer(event))
            .cloned()
            .collect();
        let ready = events.iter().find_map(|event| match event {
            Event::Ready(info) => Some(&**info),
            _ => None,
        });
        if self.began.is_none() && (ready.is_some() || !kept.is_empty()) {
            self.begin(at, ready)?;
        }
        if self.began.is_none() {
            return Ok(());
        }
        self.hears_kv |= events.iter().any(|event| matches!(event, Event::Kv(_)));
        // An engine publishes a step before it sends what came of it.
        self.look()?;
        let t = self.time(at);
        if kept.is_empty() {
            return Ok(());
        }
        let mut text = format!("{{\"t\":{t},\"e\":");
        events::write(&kept, &mut text)?;
        text.push_str("}\n");
        self.out.write_all(text.as_bytes())
    }

    fn begin(&mut self, at: Duration, model: Option<&ModelInfo>) -> io::Result<()> {
        let first = self.cell.load();
        self.began = Some(at);
        self.line(&Header {
            glassbox_trace: VERSION,
            glassbox: env!("CARGO_PKG_VERSION").into(),
            model: model.cloned(),
            scheduler: first.scheduler.clone(),
            blocks: first.kv.blocks.len(),
            block_size: first.kv.block_size,
            bytes_per_block: first.kv.bytes_per_block,
            memory: first.memory,
        })?;
        self.mirror = Mirror::new(first.kv.blocks.len(), first.scheduler.clone());
        for (at, command) in std::mem::take(&mut self.early) {
            let t = self.time(at);
            self.line(&CommandLine { t, command: *command })?;
        }
        self.out.flush()
    }

    /// Writes what is new in the newest snapshot: every step once, then what they do not say.
    fn look(&mut self) -> io::Result<()> {
        let newest = self.cell.load();
        if self.began.is_none() || self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &newest)) {
            return Ok(());
        }
        self.seen = Some(newest.clone());
        let t = self.time(self.clock.now());
        let written = self.mirror.step;
        let mut expected = written + 1;
        for record in newest.steps.iter().filter(|record| record.step > written) {
            if record.step > expected {
                self.line(&GapLine { t, gap: (expected, record.step - 1) })?;
            }
            expected = record.step + 1;
            let line = self.mirror.write_step(record);
            self.line(&line)?;
        }
        let mut view = self.mirror.write_view(&newest);
        view.t = t;
        if !view.is_empty() {
            self.line(&view)?;
        }
        let new = self.new_kv_events(&newest.kv_events);
        if !new.is_empty() && !self.hears_kv {
            self.line(&KvLine { t, kv: new })?;
        }
        Ok(())
    }

    /// Those at the end of a ring that were not in the one before.
    fn new_kv_events(&mut self, ring: &[KvEvent]) -> Vec<KvEvent> {
        let before = std::mem::replace(&mut self.kv_events, ring.to_vec());
        let gone = (0..=before.len()).find(|gone| ring.starts_with(&before[*gone..]));
        let kept = before.len() - gone.unwrap_or(before.len());
        ring[kept..].to_vec()
    }

    fn time(&self, at: Duration) -> u64 {
        at.saturating_sub(self.began.unwrap_or(at)).as_micros() as u64
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.out.write_all(b"\n")
    }
}

/// To a question, which is not recorded either.
fn is_answer(event: &Event) -> bool {
    matches!(event, Event::WhatIf(_) | Event::Counted { .. } | Event::Inspected(_) | Event::Limits(_))
}

#[cfg(test)]
#[path = "recorder_tests.rs"]
mod tests;
