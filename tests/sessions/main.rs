//! What is said is on disk: whatever happens to the program, the disk and the file.
#![allow(clippy::unwrap_used)]

mod faults;
mod transfer;

use glassbox::protocol::*;
use glassbox::sessions::{self, Store};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// A keeper, and what it said.
struct Keeper {
    handle: SessionHandle,
    said: Vec<SessionEvent>,
}

impl Keeper {
    fn at(file: &Path) -> Self {
        Self { handle: sessions::open(Some(file.to_owned())), said: Vec::new() }
    }

    fn send(&self, command: SessionCommand) {
        self.handle.commands.send(command).unwrap();
    }

    fn save(&self, key: u64, changes: Vec<SessionChange>) {
        self.send(SessionCommand::Save { key: SessionKey(key), changes });
    }

    /// The first event, from now on, that is wanted.
    fn wait<T>(&mut self, wanted: impl Fn(&SessionEvent) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            while let Ok(event) = self.handle.events.try_recv() {
                self.said.push(event);
                if let Some(found) = wanted(self.said.last().unwrap()) {
                    return found;
                }
            }
            assert!(start.elapsed() < PATIENCE, "{:.3000}", format!("{:?}", self.said));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn saved(&mut self) -> SessionId {
        self.wait(|event| if let SessionEvent::Saved { id, .. } = event { Some(*id) } else { None })
    }

    fn load(&mut self, key: u64, which: WhichSession) -> Result<LoadedSession, String> {
        self.send(SessionCommand::Load { key: SessionKey(key), which });
        self.wait(|event| match event {
            SessionEvent::Loaded { loaded, .. } => Some(Ok((**loaded).clone())),
            SessionEvent::NotLoaded { why, .. } => Some(Err(why.clone())),
            _ => None,
        })
    }

    fn list(&mut self, words: &str) -> Vec<SessionRow> {
        self.send(SessionCommand::List { words: words.into() });
        self.wait(|event| match event {
            SessionEvent::Listed { found, .. } => Some(found.clone().unwrap()),
            _ => None,
        })
    }

    fn end(self) -> Vec<SessionEvent> {
        self.handle.shut_down(PATIENCE)
    }
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data/sessions.db");
    (folder, file)
}

fn meta(title: &str) -> SessionChange {
    let meta = SessionMeta { title: title.into(), model: "tiny".into(), ..SessionMeta::default() };
    SessionChange::Meta(Box::new(meta))
}

fn turn(number: TurnNumber, text: &str) -> SessionChange {
    SessionChange::Turn(Box::new(stored(number, text)))
}

fn stored(number: TurnNumber, text: &str) -> StoredTurn {
    let parent = (number > 1).then(|| number - 1);
    StoredTurn { number, parent, in_view: true, text: text.into(), ..StoredTurn::default() }
}

fn begun(turn: TurnNumber) -> SessionChange {
    SessionChange::Answer { turn, index: 0, answer: Box::default() }
}

fn ended(turn: TurnNumber, text: &str) -> SessionChange {
    let answer = StoredAnswer { text: text.into(), tokens: 3, ..StoredAnswer::default() };
    SessionChange::Answer { turn, index: 0, answer: Box::new(answer) }
}

fn more(turn: TurnNumber, text: &str, reasoning: &str) -> SessionChange {
    SessionChange::More { turn, index: 0, text: text.into(), reasoning: reasoning.into() }
}

#[test]
fn what_was_saved_comes_back_with_its_versions() {
    let (_folder, file) = folder();
    let mut keeper = Keeper::at(&file);
    let other = StoredTurn { place: 1, in_view: false, ..stored(1, "one") };
    let other = SessionChange::Turn(Box::new(StoredTurn { number: 3, ..other }));
    let changes = vec![meta("A title"), turn(1, "one"), ended(1, "an answer"), turn(2, "two"), other];
    keeper.save(1, changes);
    let id = keeper.saved();
    assert!(keeper.end().is_empty());

    let mut keeper = Keeper::at(&file);
    let loaded = keeper.load(1, WhichSession::Newest).unwrap();
    assert_eq!((loaded.id, loaded.note), (Some(id), None));
    let session = loaded.session;
    assert_eq!((&*session.meta.title, &*session.meta.model), ("A title", "tiny"));
    let places: Vec<_> = session.turns.iter().map(|t| (t.number, t.parent, t.place, t.in_view)).collect();
    assert_eq!(places, [(1, None, 0, true), (2, Some(1), 0, true), (3, None, 1, false)]);
    assert_eq!(session.turns[0].answers[0].text, "an answer");
    assert!(session.updated_ms > 0);
}

#[test]
fn nothing_is_made_before_something_is_said_and_then_only_for_the_user() {
    let (_folder, file) = folder();
    let mut keeper = Keeper::at(&file);
    assert!(keeper.list("").is_empty());
    assert_eq!(keeper.load(1, WhichSession::Newest).unwrap_err(), "there is no session yet");
    assert!(!file.exists() && !file.parent().unwrap().exists());
    keeper.save(1, vec![meta("x"), turn(1, "hello")]);
    keeper.saved();
    #[cfg(unix)]
    for entry in std::fs::read_dir(file.parent().unwrap()).unwrap().map(Result::unwrap) {
        use std::os::unix::fs::PermissionsExt;
        let is_file = entry.file_type().unwrap().is_file();
        assert!(!is_file || entry.metadata().unwrap().permissions().mode() & 0o077 == 0, "{entry:?}");
    }
}

#[test]
fn an_answer_is_found_as_far_as_it_came() {
    let (_folder, file) = folder();
    let mut keeper = Keeper::at(&file);
    keeper.save(1, vec![meta("x"), turn(1, "why?"), begun(1), more(1, "", "hm")]);
    keeper.save(1, vec![more(1, "Because ", "")]);
    keeper.save(1, vec![more(1, "of the", "")]);
    keeper.saved();
    keeper.end();
    let store = Store::open(&file).unwrap();
    let session = store.load(store.find(&WhichSession::Newest).unwrap()).unwrap();
    let answer = &session.turns[0].answers[0];
    assert_eq!((&*answer.text, &*answer.reasoning), ("Because of the", "hm"));
    assert_eq!(answer.outcome, None);
}

#[test]
fn what_is_taken_back_is_gone_and_so_is_an_answer_to_it() {
    let (_folder, file) = folder();
    let keeper = Keeper::at(&file);
    keeper.save(1, vec![meta("x"), turn(1, "a"), ended(1, "b"), turn(2, "c"), ended(2, "d")]);
    let late = vec![SessionChange::TurnGone(2), more(2, "late", ""), ended(2, "later"), meta("y")];
    keeper.save(1, late);
    keeper.save(1, vec![SessionChange::Answers { turn: 1, count: 0 }]);
    keeper.end();
    let store = Store::open(&file).unwrap();
    let session = store.load(SessionId(1)).unwrap();
    assert_eq!((session.turns.len(), session.turns[0].answers.len()), (1, 0));
    assert_eq!(session.meta.title, "y");
    assert!(store.search("later").unwrap().is_empty());
}

#[test]
fn sessions_are_found_by_words_of_messages_and_titles() {
    let (_folder, file) = folder();
    let mut keeper = Keeper::at(&file);
    keeper.save(1, vec![meta("Sky"), turn(1, "Why is the sky blue?"), ended(1, "Rayleigh scattering \"x\"")]);
    keeper.save(2, vec![meta("Bread"), turn(1, "Hefe oder Sauerteig: Brötchen backen?")]);
    let titles = |rows: Vec<SessionRow>| rows.into_iter().map(|row| row.title).collect::<Vec<_>>();
    let rows = keeper.list("scatt rayl");
    assert!(rows[0].snippet.as_ref().unwrap().contains("Rayleigh scattering"), "{rows:?}");
    assert_eq!((rows[0].messages, titles(rows)), (2, vec!["Sky".to_owned()]));
    assert_eq!(titles(keeper.list("brotchen")), ["Bread"]);
    assert_eq!(titles(keeper.list("brea")), ["Bread"]);
    assert_eq!(keeper.list("").len(), 2);
    // Nothing that is typed is an operator, nor SQL.
    for words in ["\"", "sky AND", "NEAR(", "text:sky*", "');--", "-blue", "^", "sky\0"] {
        keeper.list(words);
    }
    assert_eq!(titles(keeper.list("\"sky")), ["Sky"]);
    assert!(keeper.list("elsewhere").is_empty());
}

#[test]
fn a_session_that_is_open_elsewhere_is_said_and_saved_as_a_copy() {
    let (_folder, file) = folder();
    let mut first = Keeper::at(&file);
    first.save(1, vec![meta("x"), turn(1, "one")]);
    let id = first.saved();
    let mut second = Keeper::at(&file);
    let copy = second.load(1, WhichSession::Id(id)).unwrap();
    assert_eq!(copy.id, None);
    assert!(copy.note.unwrap().contains("open elsewhere"));
    second.send(SessionCommand::Delete(id));
    let why = second.wait(|e| if let SessionEvent::Kept { why, .. } = e { Some(why.clone()) } else { None });
    assert!(why.contains("another glassbox"), "{why}");
    // Both say something at once: neither is lost.
    for i in 2..30 {
        first.save(1, vec![turn(i, "of the first")]);
        second.save(1, vec![meta("x"), turn(i, "of the copy")]);
    }
    first.end();
    second.end();
    let store = Store::open(&file).unwrap();
    let rows = store.list().unwrap();
    assert_eq!(rows.iter().map(|r| r.messages).collect::<Vec<_>>().iter().sum::<usize>(), 29 + 28);
    assert!(store.load(id).unwrap().turns.iter().all(|t| t.text != "of the copy"));
}

#[test]
fn a_closed_session_can_be_opened_by_others_and_deleted() {
    let (_folder, file) = folder();
    let mut first = Keeper::at(&file);
    first.save(1, vec![meta("x"), turn(1, "one")]);
    let id = first.saved();
    first.send(SessionCommand::Close(SessionKey(1)));
    first.list("");
    let mut second = Keeper::at(&file);
    assert_eq!(second.load(5, WhichSession::Id(id)).unwrap().id, Some(id));
    second.send(SessionCommand::Close(SessionKey(5)));
    second.send(SessionCommand::Delete(id));
    second.wait(|event| (*event == SessionEvent::Deleted(id)).then_some(()));
    assert!(second.list("").is_empty() && second.list("one").is_empty());
}

#[test]
fn without_a_file_nothing_is_saved_and_files_can_still_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let handle = sessions::open(None);
    let mut keeper = Keeper { handle, said: Vec::new() };
    keeper.save(1, vec![meta("x"), turn(1, "one")]);
    assert!(keeper.list("").is_empty());
    let file = folder.path().join("a.json");
    keeper.send(SessionCommand::Export {
        session: Box::default(),
        format: SessionFormat::Json,
        file: Some(file.clone()),
        replace: false,
    });
    let written = keeper.wait(|e| if let SessionEvent::Exported(to) = e { Some(to.clone()) } else { None });
    assert_eq!(written, Ok(file.canonicalize().unwrap()));
    assert!(keeper.end().is_empty());
}

#[test]
fn titles_name_sessions_where_only_one_has_them() {
    let (_folder, file) = folder();
    let mut store = Store::open(&file).unwrap();
    let mut add = |title: &str| {
        let meta = SessionMeta { title: title.into(), ..SessionMeta::default() };
        store.add(&StoredSession { meta, ..StoredSession::default() }).unwrap()
    };
    let (sky, sea) = (add("Why is the sky blue?"), add("Why is the sea blue?"));
    let exact = add("Why");
    assert_eq!(store.named(" why ").unwrap(), exact);
    assert_eq!(store.named("SKY").unwrap(), sky);
    assert_eq!(store.named(&sea.0.to_string()).unwrap(), sea);
    let several = store.named("blue").unwrap_err().to_string();
    assert!(several.contains("sky blue? (1)") && several.contains("(2)"), "{several}");
    assert_eq!(store.named("moon").unwrap_err().to_string(), "there is no session \"moon\"");
}

#[test]
fn while_somebody_types_only_the_last_word_is_looked_for() {
    let (_folder, file) = folder();
    let mut keeper = Keeper::at(&file);
    keeper.save(1, vec![meta("Sky"), turn(1, "blue")]);
    keeper.saved();
    let typed = "blue and many more letters that come quickly";
    for i in 1..=typed.len() {
        keeper.send(SessionCommand::List { words: typed[..i].into() });
    }
    keeper.wait(|event| matches!(event, SessionEvent::Listed { words, .. } if words == typed).then_some(()));
    let answers = keeper.said.iter().filter(|event| matches!(event, SessionEvent::Listed { .. })).count();
    assert!(answers < typed.len(), "{answers} answers");
}
