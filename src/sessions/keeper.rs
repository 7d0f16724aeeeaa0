//! The thread that saves. It takes what has come, writes it in one go, and rests for a moment: text
//! that streams costs a few commits a second, and a word that was sent is written at once.

use super::damage;
use super::lock::Lock;
use super::store::{Store, StoreError, now_ms};
use super::transfer::{self, TransferError};
use crate::protocol::{
    LoadedSession, SessionChange, SessionCommand, SessionEvent, SessionHandle, SessionId, SessionKey,
    WhichSession,
};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Between two commits.
const REST: Duration = Duration::from_millis(50);
/// After a failure it is tried again, but not at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// Starts the keeper of the sessions in a file, which is made when there is something to save; without
/// a file nothing is saved.
pub fn open(file: Option<PathBuf>) -> SessionHandle {
    let (commands, inbox) = unbounded_channel();
    let (events, receiver) = unbounded_channel();
    let keeper = Keeper {
        file,
        store: None,
        open: HashMap::new(),
        unsaved: Vec::new(),
        closing: Vec::new(),
        troubled: None,
        rescued: false,
        events,
    };
    std::thread::spawn(move || keeper.live(inbox));
    SessionHandle { commands, events: receiver }
}

struct Keeper {
    file: Option<PathBuf>,
    store: Option<Store>,
    open: HashMap<SessionKey, Open>,
    /// In the order they came.
    unsaved: Vec<(SessionKey, Vec<SessionChange>)>,
    /// Nobody wants them any more, once they are written.
    closing: Vec<SessionKey>,
    /// When saving last failed.
    troubled: Option<Instant>,
    /// A damaged file was set aside.
    rescued: bool,
    events: UnboundedSender<SessionEvent>,
}

/// A session of this program.
struct Open {
    id: SessionId,
    /// None where another program took it meanwhile.
    _lock: Option<Lock>,
}

impl Keeper {
    fn live(mut self, mut inbox: UnboundedReceiver<SessionCommand>) {
        while let Some(first) = inbox.blocking_recv() {
            let mut commands = vec![first];
            while let Ok(next) = inbox.try_recv() {
                commands.push(next);
            }
            let ends = commands.iter().any(|command| *command == SessionCommand::Shutdown);
            let saves = commands.iter().any(|command| matches!(command, SessionCommand::Save { .. }));
            only_newest_list(&mut commands);
            commands.into_iter().for_each(|command| self.command(command));
            self.write(ends);
            if ends {
                return;
            }
            if saves {
                std::thread::sleep(REST);
            }
        }
        self.write(true);
    }

    fn command(&mut self, command: SessionCommand) {
        match command {
            SessionCommand::Save { key, changes } if self.file.is_some() => self.unsaved.push((key, changes)),
            SessionCommand::Save { .. } | SessionCommand::Shutdown => {}
            SessionCommand::Close(key) => {
                self.closing.push(key);
                self.write(false);
                self.let_go();
            }
            SessionCommand::List { words } => {
                self.write(false);
                let found = self.reading(|store| store.search(&words)).unwrap_or(Ok(Vec::new()));
                self.tell(SessionEvent::Listed { words, now_ms: now_ms(), found });
            }
            SessionCommand::Load { key, which } => {
                self.write(false);
                self.load(key, &which);
            }
            SessionCommand::Delete(id) => self.delete(id),
            SessionCommand::Export { session, format, file, replace } => {
                let written = transfer::export(&session, format, file.as_deref(), replace);
                self.tell(SessionEvent::Exported(written.map_err(|e| match e {
                    TransferError::Exists { .. } => format!("{e}; /export! replaces it"),
                    e => e.to_string(),
                })));
            }
            SessionCommand::Import { key, file } => self.tell(match transfer::import(&file) {
                Ok(session) => {
                    let note = Some(format!("imported from {}", file.display()));
                    let loaded = Box::new(LoadedSession { id: None, session, note });
                    SessionEvent::Loaded { key, loaded }
                }
                Err(why) => SessionEvent::NotLoaded { key, why: why.to_string() },
            }),
        }
    }

    fn tell(&self, event: SessionEvent) {
        // A front end that is gone shuts the keeper down.
        let _ = self.events.send(event);
    }

    /// Writes what is unsaved; after a failure not before a moment has passed, unless it is `urgent`.
    fn write(&mut self, urgent: bool) {
        let waits = self.troubled.is_some_and(|since| since.elapsed() < PATIENCE) && !urgent;
        if self.unsaved.is_empty() || waits {
            return;
        }
        match self.try_write() {
            Ok(()) => {
                self.let_go();
                if self.troubled.take().is_some() {
                    self.tell(SessionEvent::Recovered);
                }
            }
            Err(why) if why.is_damage() => self.rescue(&why),
            Err(why) => self.trouble(&why),
        }
    }

    fn try_write(&mut self) -> Result<(), StoreError> {
        let Some(store) = store(&mut self.store, self.file.as_deref())? else { return Ok(()) };
        let mut of_key: Vec<(SessionKey, Vec<SessionChange>)> = Vec::new();
        // Copied, so that nothing is lost when it fails.
        for (key, changes) in &self.unsaved {
            match of_key.iter_mut().find(|(other, _)| other == key) {
                Some((_, all)) => all.extend(changes.iter().cloned()),
                None => of_key.push((*key, changes.clone())),
            }
        }
        let known = |key: &SessionKey| self.open.get(key).map(|open| open.id);
        let work: Vec<_> = of_key.iter().map(|(key, changes)| (known(key), &changes[..])).collect();
        let ids = store.save(&work)?;
        let path = store.path().to_owned();
        self.unsaved.clear();
        for ((key, _), id) in of_key.iter().zip(ids) {
            self.open.entry(*key).or_insert_with(|| Open { id, _lock: Lock::take(&path, id) });
            self.tell(SessionEvent::Saved { key: *key, id });
        }
        Ok(())
    }

    /// Sessions that are closed and written may be opened by others.
    fn let_go(&mut self) {
        let (unsaved, open) = (&self.unsaved, &mut self.open);
        self.closing.retain(|key| {
            let waits = unsaved.iter().any(|(other, _)| other == key);
            if !waits {
                open.remove(key);
            }
            waits
        });
    }

    fn trouble(&mut self, why: &StoreError) {
        if self.troubled.replace(Instant::now()).is_none() {
            let file = self.file.as_deref().map(|file| file.display().to_string()).unwrap_or_default();
            self.tell(SessionEvent::Trouble(format!("not saved in {file}: {why}\n{}", advice(why))));
        }
    }

    /// The file is broken: what can be read of it goes on in a new one.
    fn rescue(&mut self, why: &StoreError) {
        let Some(file) = self.file.clone() else { return };
        self.store = None;
        // A disk that breaks every file is not helped by more of them.
        if std::mem::replace(&mut self.rescued, true) {
            return self.trouble(why);
        }
        let rescued = match damage::rescue(&file) {
            Ok(rescued) => rescued,
            Err(why) => return self.trouble(&why),
        };
        let damage::Rescued { store, aside, sessions, lost } = rescued;
        // What was never written is all here; of the others only the front end has all.
        self.unsaved.retain(|(key, _)| !self.open.contains_key(key));
        self.open.keys().for_each(|key| self.tell(SessionEvent::SendAgain(*key)));
        self.store = Some(store);
        let rest = if lost > 0 { format!("; {lost} could not be read") } else { String::new() };
        self.tell(SessionEvent::Note(format!(
            "the sessions' file was damaged ({why}) and is set aside as {}\n{sessions} sessions of it are in a new file{rest}",
            aside.display()
        )));
    }

    /// Asks the store, where there is a file; one that is broken is set aside first.
    fn reading<T>(&mut self, ask: impl Fn(&mut Store) -> Result<T, StoreError>) -> Option<Result<T, String>> {
        if self.store.is_none() && !self.file.as_deref().is_some_and(std::path::Path::exists) {
            return None;
        }
        let answer = self.ask(&ask);
        let answer = match answer {
            Some(Err(why)) if why.is_damage() => {
                self.rescue(&why);
                self.ask(&ask)
            }
            answer => answer,
        };
        answer.map(|answer| answer.map_err(|e| e.to_string()))
    }

    fn ask<T>(
        &mut self,
        ask: &impl Fn(&mut Store) -> Result<T, StoreError>,
    ) -> Option<Result<T, StoreError>> {
        match store(&mut self.store, self.file.as_deref()) {
            Ok(Some(store)) => Some(ask(store)),
            Ok(None) => None,
            Err(why) => Some(Err(why)),
        }
    }

    fn load(&mut self, key: SessionKey, which: &WhichSession) {
        let none = || match which {
            WhichSession::Newest => Err("there is no session yet".to_owned()),
            WhichSession::Id(id) => Err(format!("there is no session {}", id.0)),
        };
        let read = self.reading(|store| {
            let id = store.find(which)?;
            Ok((id, store.load(id)?))
        });
        match read.unwrap_or_else(none) {
            Ok((id, session)) => {
                let (id, note) = self.hold(key, id);
                let loaded = Box::new(LoadedSession { id, session, note });
                self.tell(SessionEvent::Loaded { key, loaded });
            }
            Err(why) => self.tell(SessionEvent::NotLoaded { key, why }),
        }
    }

    /// The session is this program's from now on, or a copy of it.
    fn hold(&mut self, key: SessionKey, id: SessionId) -> (Option<SessionId>, Option<String>) {
        let path = self.file.clone().unwrap_or_default();
        let lock = match self.open.values().any(|open| open.id == id) {
            true => None,
            false => Lock::take(&path, id),
        };
        if lock.is_none() {
            let note = "it is open elsewhere: what is said here is saved as a copy";
            return (None, Some(note.to_owned()));
        }
        self.open.insert(key, Open { id, _lock: lock });
        (Some(id), None)
    }

    fn delete(&mut self, id: SessionId) {
        let is_ours = self.open.values().any(|open| open.id == id);
        let path = self.file.clone().unwrap_or_default();
        let lock = if is_ours { None } else { Lock::take(&path, id) };
        let deleted = match (is_ours, &lock) {
            (true, _) => Err("it is open here: close its tab first".to_owned()),
            (false, None) => Err("another glassbox has it open".to_owned()),
            _ => self.reading(|store| store.delete(id)).unwrap_or(Ok(())),
        };
        self.tell(match deleted {
            Ok(()) => SessionEvent::Deleted(id),
            Err(why) => SessionEvent::Kept { id, why },
        });
    }
}

/// Opened when it is needed.
fn store<'a>(
    store: &'a mut Option<Store>,
    file: Option<&std::path::Path>,
) -> Result<Option<&'a mut Store>, StoreError> {
    if let (None, Some(file)) = (&store, file) {
        *store = Some(Store::open(file)?);
    }
    Ok(store.as_mut())
}

/// While somebody types, only what is looked for last is of interest.
fn only_newest_list(commands: &mut Vec<SessionCommand>) {
    let is_list = |command: &SessionCommand| matches!(command, SessionCommand::List { .. });
    let newest = commands.iter().rposition(is_list);
    let mut at = 0;
    commands.retain(|command| {
        at += 1;
        !is_list(command) || newest == Some(at - 1)
    });
}

/// What can be done about it.
fn advice(why: &StoreError) -> &'static str {
    use rusqlite::ErrorCode::{
        CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, PermissionDenied, ReadOnly,
    };
    let code = match why {
        StoreError::Sqlite(error) => error.sqlite_error_code(),
        StoreError::Newer { .. } => return "use that version, or XDG_DATA_HOME for another folder",
        _ => None,
    };
    match code {
        Some(DiskFull) => "make room on that disk: then all of it is saved; /export writes to another place",
        Some(ReadOnly | PermissionDenied | CannotOpen) => {
            "the folder must be writable; /export writes to another place"
        }
        Some(DatabaseBusy | DatabaseLocked) => "another program is writing there; it is tried again",
        _ => "it is tried again; /export writes to another place",
    }
}
