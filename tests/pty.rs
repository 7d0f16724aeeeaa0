//! The screen in a real terminal (a PTY read by a VT parser): it is given back on every way out.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

#[path = "pty/hostile.rs"]
mod hostile;
#[path = "pty/inline.rs"]
mod inline;
#[path = "support/hostile.rs"]
mod payloads;
#[path = "pty/sessions.rs"]
mod sessions;
#[path = "pty/shell.rs"]
mod shell;
#[path = "support/terminal.rs"]
mod terminal;
#[path = "pty/ways_out.rs"]
mod ways_out;

use portable_pty::CommandBuilder;
use std::process::Command;
use std::time::{Duration, Instant};
use terminal::{Terminal, demo};

#[test]
fn leaving_gives_the_terminal_back() {
    // BUGLOG X09 among others: the cursor is shown again.
    let mut terminal = Terminal::ready(&[]);
    assert!(terminal.is_raw());
    assert!(terminal.seen.lock().unwrap().parser.screen().alternate_screen());
    terminal.send(b"\x04");
    assert_eq!(terminal.exit_code(), 0);
    terminal.wait_until("terminal given back", Terminal::is_given_back);
}

#[test]
fn leaving_does_not_wait_for_the_answer() {
    let mut terminal = Terminal::ready(&["--pace", "500"]);
    terminal.send(b"Why?\r");
    terminal.wait_for("live");
    let start = Instant::now();
    terminal.send(b"\x04");
    assert_eq!(terminal.exit_code(), 0);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn signals_give_the_terminal_back_and_are_told_by_the_exit_status() {
    for (number, status) in [(libc::SIGTERM, 143), (libc::SIGHUP, 129), (libc::SIGINT, 130)] {
        let mut terminal = Terminal::ready(&[]);
        terminal.signal(number);
        assert_eq!(terminal.exit_code(), status);
        terminal.wait_until("terminal given back", Terminal::is_given_back);
    }
}

#[test]
fn a_panic_of_the_screen_gives_the_terminal_back_and_is_readable() {
    // BUGLOG X07
    let mut terminal = Terminal::ready(&[]);
    terminal.send(b"/model ./panic\r");
    assert_eq!(terminal.exit_code(), 101);
    terminal.wait_for("asked to panic");
    terminal.wait_until("terminal given back", Terminal::is_given_back);
}

#[test]
fn a_panic_of_the_engine_is_told_and_the_screen_goes_on() {
    // BUGLOG X07, the other thread.
    let mut terminal = Terminal::ready(&[]);
    terminal.send(b"panic\r");
    terminal.wait_for("internal error");
    terminal.wait_for("the engine of smollm2-135m ended");
    terminal.send(b"/model smollm2-135m\r");
    terminal.wait_until("a second load", |t| t.contents().matches("ready in").count() == 2);
    terminal.send(b"\x04");
    assert_eq!(terminal.exit_code(), 0);
    terminal.wait_until("terminal given back", Terminal::is_given_back);
}

#[test]
fn after_being_stopped_the_terminal_is_taken_again() {
    // BUGLOG X21
    let mut terminal = Terminal::ready(&[]);
    terminal.signal(libc::SIGSTOP);
    terminal.make_cooked();
    assert!(!terminal.is_raw());
    let frames = terminal.frames();
    terminal.signal(libc::SIGCONT);
    terminal.wait_until("raw mode", Terminal::is_raw);
    terminal.wait_until("a new frame", |t| t.frames() > frames);
    terminal.send(b"typed after the stop");
    terminal.wait_for("typed after the stop");
}

#[test]
fn control_z_goes_to_the_shell_and_fg_comes_back() {
    let mut terminal = Terminal::shell((120, 40));
    terminal.send(format!("'{}'\n", demo().display()).as_bytes());
    terminal.wait_for("ready in");
    terminal.send(b"\x1a");
    terminal.wait_for("Stopped");
    terminal.wait_until("main screen", |t| !t.seen.lock().unwrap().parser.screen().alternate_screen());
    terminal.send(b"echo in the $((40 + 2)) shell\n");
    terminal.wait_for("in the 42 shell");
    terminal.send(b"fg\n");
    terminal.wait_for("ready in");
    terminal.send(b"back again");
    terminal.wait_for("› back again");
}

#[test]
fn the_editor_gets_the_terminal_and_every_key_and_the_screen_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let editor = folder.path().join("editor");
    // Says what it is given, reads a line as a shell would, and saves both.
    let script = "#!/bin/sh\necho editing: $(cat \"$1\")\nread line\necho \" $line\" >> \"$1\"\n";
    std::fs::write(&editor, script).unwrap();
    std::fs::set_permissions(&editor, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = CommandBuilder::new(demo());
    command.env("TERM", "xterm-256color");
    command.env("VISUAL", &editor);
    let mut terminal = Terminal::spawn(command);
    terminal.wait_for("ready in");
    terminal.send(b"draft");
    terminal.wait_for("› draft");
    terminal.send(b"\x07");
    terminal.wait_for("editing: draft");
    terminal.wait_until("terminal given back", Terminal::is_given_back);
    terminal.send(b"and every key\n");
    terminal.wait_for("› draft and every key");
    assert!(terminal.is_raw());
    terminal.send(b"!");
    terminal.wait_for("› draft and every key!");
}

#[test]
fn late_answers_of_the_terminal_are_not_typed() {
    // BUGLOG X27: colour, device attributes, cursor position, a device control string.
    let mut terminal = Terminal::ready(&[]);
    terminal.send(b"a");
    terminal.wait_for("› a");
    terminal.send(b"\x1b]11;rgb:1212/1212/1212\x07");
    terminal.send(b"\x1b[?62;22c");
    terminal.send(b"\x1b[12;40R");
    terminal.send(b"\x1bP1+r544e=787465\x1b\\");
    terminal.send(b"b");
    terminal.wait_for("› ab");
    let contents = terminal.contents();
    assert!(
        !contents.contains("rgb") && !contents.contains("544e") && !contents.contains("62;"),
        "{contents}"
    );
}

#[test]
fn a_large_paste_is_one_insertion_and_few_frames() {
    // BUGLOG X20
    let mut terminal = Terminal::ready(&[]);
    terminal.send(b"before ");
    terminal.wait_for("› before");
    let frames = terminal.frames();
    let paste = "all work and no play\r".repeat(5_000);
    terminal.send(format!("\x1b[200~{paste}\x1b[201~").as_bytes());
    terminal.wait_for("5000 lines");
    assert!(terminal.frames() - frames <= 3, "{} frames", terminal.frames() - frames);
}

#[test]
fn without_colour_no_colour_is_sent() {
    let mut command = CommandBuilder::new(demo());
    command.env("TERM", "xterm-256color");
    command.env("NO_COLOR", "1");
    let mut terminal = Terminal::spawn(command);
    terminal.wait_for("ready in");
    terminal.send(b"Why?\r");
    terminal.wait_for("sky is blue");
    let raw = String::from_utf8_lossy(&terminal.seen.lock().unwrap().raw).into_owned();
    for colour in ["38;5;", "38;2;", "48;5;", "48;2;", "[31m", "[32m", "[36m", "[90m"] {
        assert!(!raw.contains(colour), "{colour:?}");
    }
}

#[test]
fn without_a_terminal_there_is_an_error_and_no_prompt() {
    let output = Command::new(demo()).stdin(std::process::Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("glassbox run"));
    assert!(output.stdout.is_empty());
}
