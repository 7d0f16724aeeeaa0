//! What was said is there again after whatever ended the program.

use super::terminal::Terminal;
use glassbox::protocol::WhichSession;
use glassbox::sessions::Store;
use std::path::Path;

fn demo(file: &Path, more: &[&str]) -> Terminal {
    let mut arguments = vec!["--sessions", file.to_str().unwrap()];
    arguments.extend(more);
    Terminal::demo(&arguments)
}

/// The newest session's last answer.
fn answer(file: &Path) -> String {
    let store = Store::open(file).unwrap();
    let session = store.load(store.find(&WhichSession::Newest).unwrap()).unwrap();
    session.turns.last().unwrap().answers[0].text.clone()
}

#[test]
fn a_kill_in_the_midst_of_an_answer_loses_a_token_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let mut terminal = demo(&file, &["--pace", "60"]);
    terminal.wait_for("ready in");
    terminal.send(b"Why is the sky blue?\r");
    terminal.wait_for("scatters");
    terminal.signal(libc::SIGKILL);
    terminal.exit_code();
    let saved = answer(&file);
    assert!(saved.contains("scatters"), "{saved:?}");

    let mut terminal = demo(&file, &["-c", "--pace", "5"]);
    terminal.wait_for("› Why is the sky blue?");
    terminal.wait_for("scatters");
    terminal.wait_for("the last answer was cut off");
    // And it goes on.
    terminal.wait_for("ready in");
    terminal.send(b"And now?\r");
    terminal.wait_for("› And now?");
    terminal.wait_until("the end of it", |t| !t.contents().contains("live"));
    terminal.send(b"\x04");
    assert_eq!(terminal.exit_code(), 0);
    terminal.wait_for("saved; glassbox -c resumes");
    let store = Store::open(&file).unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
}

#[test]
fn leaving_in_the_midst_of_several_answers_saves_them_all_and_says_so_last() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let mut terminal = demo(&file, &["--pace", "40"]);
    terminal.wait_for("ready in");
    terminal.send(b"Why?\r");
    terminal.wait_for("live");
    terminal.send(b"\x0eAnd what?\r");
    terminal.wait_for("\u{25b8}2 And what?");
    // In this chat: beside it the panels show the other's words.
    let said = |line: &str| line.split('│').next().is_some_and(|chat| chat.contains("air scatters"));
    let answered = |t: &Terminal| t.contents().lines().skip_while(|l| !l.contains("› And what?")).any(said);
    terminal.wait_until("the second chat's answer", answered);
    terminal.send(b"\x04");
    assert_eq!(terminal.exit_code(), 0);
    terminal.wait_for("saved; glassbox -c resumes");
    terminal.wait_until("terminal given back", Terminal::is_given_back);
    let store = Store::open(&file).unwrap();
    let rows = store.list().unwrap();
    assert_eq!(rows.iter().map(|row| row.messages).collect::<Vec<_>>(), [2, 2]);
    assert!(answer(&file).contains("scatters"));
}

#[test]
fn a_panic_of_the_keeper_is_told_the_screen_goes_on_and_what_was_saved_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let mut terminal = demo(&file, &["--pace", "2"]);
    terminal.wait_for("ready in");
    terminal.send(b"Why?\r");
    terminal.wait_for("looks blue.");
    terminal.send(b"/sessions panic\r");
    terminal.wait_for("asked to panic");
    terminal.wait_for("the keeper of the sessions ended");
    // A list that nobody fills any more is closed, and the chat is still one.
    terminal.send(b"\x03And now?\r");
    terminal.wait_for("› And now?");
    terminal.send(b"\x04");
    assert_eq!(terminal.exit_code(), 0);
    terminal.wait_until("terminal given back", Terminal::is_given_back);
    terminal.wait_for("not saved: the keeper of the sessions ended");
    assert!(answer(&file).contains("looks blue."));
}

#[test]
fn nothing_is_said_of_saving_where_nothing_was_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sessions.db");
    let mut terminal = demo(&file, &[]);
    terminal.wait_for("ready in");
    terminal.send(b"\x04");
    assert_eq!(terminal.exit_code(), 0);
    terminal.wait_until("terminal given back", Terminal::is_given_back);
    assert!(!terminal.contents().contains("saved") && !file.exists());
}

#[test]
fn a_place_that_cannot_be_written_is_told_and_the_chat_goes_on() {
    let file = Path::new("/proc/nowhere/sessions.db");
    let mut terminal = demo(file, &["--pace", "5"]);
    terminal.wait_for("ready in");
    terminal.send(b"Why?\r");
    terminal.wait_for("not saved in /proc/nowhere/sessions.db");
    terminal.wait_until("the end of it", |t| !t.contents().contains("live"));
    terminal.send(b"\x04");
    assert_eq!(terminal.exit_code(), 0);
    terminal.wait_until("terminal given back", Terminal::is_given_back);
    terminal.wait_for("not saved in");
}
