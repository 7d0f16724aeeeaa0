//! BUGLOG X32: a full disk, a broken file, a program that is killed.

use super::*;
use std::fs;
use std::process::{Command, Stdio};

fn trouble(keeper: &mut Keeper) -> String {
    keeper.wait(|event| if let SessionEvent::Trouble(why) = event { Some(why.clone()) } else { None })
}

/// As a child: answers without an end, each piece a save of its own, and says what is on disk.
#[test]
#[ignore = "the child of another test"]
fn child_that_writes() {
    let file = PathBuf::from(std::env::var_os("SESSIONS_FILE").unwrap());
    let mut keeper = Keeper::at(&file);
    keeper.save(1, vec![meta("x"), turn(1, "count"), begun(1)]);
    for i in 0.. {
        keeper.save(1, vec![more(1, &format!("{i} "), "")]);
        keeper.saved();
        println!("saved {i}");
    }
}

#[test]
fn whatever_was_committed_survives_a_kill() {
    use std::io::BufRead;
    for pieces in [0, 1, 7, 40] {
        let (_folder, file) = folder();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "faults::child_that_writes", "--nocapture"])
            .env("SESSIONS_FILE", &file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let told = lines.find(|line| line.ends_with(&format!("saved {pieces}"))).unwrap();
        // In the midst of whatever it does now.
        child.kill().unwrap();
        child.wait().unwrap();
        let store = Store::open(&file).unwrap();
        store.check().unwrap();
        let session = store.load(SessionId(1)).unwrap();
        let text = &session.turns[0].answers[0].text;
        let expected: String = (0..=pieces).map(|i| format!("{i} ")).collect();
        assert!(text.starts_with(&expected), "{told}: {text:?}");
        // Nobody has it open any more.
        assert_eq!(Keeper::at(&file).load(1, WhichSession::Newest).unwrap().id, Some(SessionId(1)));
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_told_once_and_leaves_no_empty_file() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("data");
    fs::write(&blocked, "a file where the folder should be").unwrap();
    let file = blocked.join("sessions.db");
    let mut keeper = Keeper::at(&file);
    keeper.save(1, vec![meta("x"), turn(1, "one")]);
    let why = trouble(&mut keeper);
    assert!(why.contains(&file.display().to_string()) && why.contains("/export"), "{why}");
    keeper.save(1, vec![ended(1, "an answer")]);
    keeper.list("");
    assert!(!keeper.said.iter().skip(1).any(|event| matches!(event, SessionEvent::Trouble(_))));
    // The way is free again: all that was said is saved.
    fs::remove_file(&blocked).unwrap();
    let last = keeper.end();
    assert!(last.contains(&SessionEvent::Recovered), "{last:?}");
    let session = Store::open(&file).unwrap().load(SessionId(1)).unwrap();
    assert_eq!(session.turns[0].answers[0].text, "an answer");
}

/// The limit is the process's: as a child.
#[test]
#[ignore = "the child of another test"]
#[cfg(unix)]
fn child_on_a_full_disk() {
    let file = PathBuf::from(std::env::var_os("SESSIONS_FILE").unwrap());
    let limit = |bytes| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: two plain calls; the limit is a whole struct that lives through them.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        }
    };
    // No room at all: not even for an empty file.
    limit(0);
    let mut keeper = Keeper::at(&file);
    keeper.save(1, vec![meta("x"), turn(1, "first")]);
    let why = trouble(&mut keeper);
    assert!(why.contains("not saved in"), "{why}");
    assert!(!file.exists(), "an empty file is left");
    // Room for a while, then none in the midst of an answer.
    limit(400 << 10);
    let part = "x".repeat(10_000);
    keeper.save(1, vec![begun(1)]);
    for _ in 0..60 {
        keeper.save(1, vec![more(1, &part, "")]);
    }
    keeper.list("");
    let store = Store::open(&file).unwrap();
    store.check().unwrap();
    drop(store);
    limit(libc::RLIM_INFINITY);
    let last = keeper.end();
    assert!(last.contains(&SessionEvent::Recovered), "{last:?}");
    let session = Store::open(&file).unwrap().load(SessionId(1)).unwrap();
    assert_eq!(session.turns[0].answers[0].text.len(), 600_000);
    println!("all is well");
}

#[test]
#[cfg(unix)]
fn a_full_disk_loses_nothing_that_is_still_in_memory() {
    let (_folder, file) = folder();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "faults::child_on_a_full_disk", "--nocapture"])
        .env("SESSIONS_FILE", &file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("all is well"), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::read_dir(file.parent().unwrap()).unwrap().all(|entry| {
        let entry = entry.unwrap();
        entry.file_type().unwrap().is_dir() || entry.metadata().unwrap().len() > 0
    }));
}

#[test]
fn a_file_that_is_no_database_is_set_aside_and_saving_goes_on() {
    let (_folder, file) = folder();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "this is not a database, and long enough to be looked at. ".repeat(40)).unwrap();
    let mut keeper = Keeper::at(&file);
    keeper.save(1, vec![meta("x"), turn(1, "one")]);
    let note = keeper.wait(|e| if let SessionEvent::Note(text) = e { Some(text.clone()) } else { None });
    assert!(note.contains("set aside as") && note.contains("damaged-"), "{note}");
    keeper.save(1, vec![ended(1, "an answer")]);
    keeper.end();
    let session = Store::open(&file).unwrap().load(SessionId(1)).unwrap();
    assert_eq!((&*session.turns[0].text, session.turns[0].answers.len()), ("one", 1));
}

#[test]
fn of_a_damaged_file_the_readable_sessions_stay() {
    let (_folder, file) = folder();
    let mut store = Store::open(&file).unwrap();
    for i in 0..40 {
        let turns = vec![StoredTurn { text: format!("{i} ").repeat(200), ..stored(1, "") }];
        let meta = SessionMeta { title: format!("session {i}"), ..SessionMeta::default() };
        store.add(&StoredSession { meta, turns, ..StoredSession::default() }).unwrap();
    }
    drop(store);
    // A leaf of the table of turns turns to noise.
    let mut bytes = fs::read(&file).unwrap();
    let is_leaf = |page: &[u8]| page[0] == 13 && page.windows(10).any(|w| w == b"20 20 20 2");
    // Their copies for the search lie in such leaves too.
    let pages = bytes.chunks_exact_mut(4096).filter(|page| is_leaf(page));
    assert!(pages.map(|page| page.fill(0xa5)).count() >= 1);
    fs::write(&file, bytes).unwrap();
    let _ = fs::remove_file(file.with_extension("db-wal"));

    let mut keeper = Keeper::at(&file);
    for id in 1..=40 {
        keeper.send(SessionCommand::Load {
            key: SessionKey(id),
            which: WhichSession::Id(SessionId(id as i64)),
        });
    }
    let note = keeper.wait(|e| if let SessionEvent::Note(text) = e { Some(text.clone()) } else { None });
    assert!(note.contains("damaged"), "{note}");
    keeper.save(99, vec![meta("new"), turn(1, "goes on")]);
    keeper.saved();
    let kept = keeper.list("").len();
    assert!((30..41).contains(&kept), "{kept} of 41");
    keeper.end();
    Store::open(&file).unwrap().check().unwrap();
}

#[test]
fn a_file_of_a_later_version_is_left_alone() {
    let (_folder, file) = folder();
    drop(Store::open(&file).unwrap());
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let mut keeper = Keeper::at(&file);
    keeper.save(1, vec![meta("x"), turn(1, "one")]);
    let why = trouble(&mut keeper);
    assert!(why.contains("later glassbox (version 99"), "{why}");
}
