//! Signals, job control, a terminal that goes away, sizes that change: what the shell and the window
//! system may do to a screen.

use super::terminal::{Terminal, demo};
use portable_pty::{CommandBuilder, PtySize};
use std::process::Command;
use std::time::{Duration, Instant};

/// Seconds of processor time that a process has used, its threads together.
fn processor_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: f64 = fields.get(11..13)?.iter().filter_map(|t| t.parse::<f64>().ok()).sum();
    Some(ticks / 100.0)
}

#[test]
fn quit_from_the_keyboard_of_another_terminal_gives_this_one_back() {
    let mut terminal = Terminal::ready(&[]);
    terminal.signal(libc::SIGQUIT);
    assert_eq!(terminal.exit_code(), 131);
    terminal.wait_until("terminal given back", Terminal::is_given_back);
}

#[test]
fn a_stop_asked_for_from_outside_gives_the_terminal_to_the_shell() {
    // BUGLOG X21: not the key, the signal.
    let mut terminal = Terminal::shell((120, 40));
    terminal.send(format!("'{}'\n", demo().display()).as_bytes());
    terminal.wait_for("ready in");
    let shell = terminal.child.process_id().unwrap();
    let child = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    let pid: i32 = child.split_whitespace().next().unwrap().parse().unwrap();
    for round in 0..2 {
        // SAFETY: kill takes two integers; the process is the shell's only child.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTSTP) }, 0);
        terminal.wait_for("Stopped");
        terminal.wait_until("main screen", |t| !t.is_alternate());
        terminal.send(format!("clear; echo round $((40 + {round}))\n").as_bytes());
        terminal.wait_for(&format!("round {}", 40 + round));
        terminal.send(b"fg\n");
        terminal.wait_for("ready in");
        assert!(terminal.is_alternate());
    }
    terminal.send(b"back again");
    terminal.wait_for("› back again");
}

/// Ends within a second, and spends none of it spinning.
fn ends_by_itself(pid: u32) {
    let start = Instant::now();
    let used = processor_seconds(pid).unwrap_or_default();
    while std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z ")) {
        assert!(start.elapsed() < Duration::from_secs(5), "still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(start.elapsed() < Duration::from_secs(2), "took {:?}", start.elapsed());
    let spent = processor_seconds(pid).map_or(0.0, |now| now - used);
    assert!(spent < 0.5, "{spent} s of processor time");
}

#[test]
fn a_terminal_that_is_closed_ends_the_program_at_once() {
    for arguments in [&[][..], &["--pace", "2"]] {
        let mut terminal = Terminal::ready(arguments);
        terminal.send(b"Why?\r");
        terminal.wait_for("› Why?");
        let pid = terminal.child.process_id().unwrap();
        terminal.close();
        ends_by_itself(pid);
    }
}

#[test]
fn a_terminal_that_is_closed_without_a_signal_ends_the_program_too() {
    // In a session of its own nobody sends it SIGHUP: reading and writing fail, and that is all.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let mut command = CommandBuilder::new("/bin/sh");
    let script = format!("setsid sh -c 'echo $$ > {}; exec {}'", file.display(), demo().display());
    command.args(["-c", &script]);
    command.env("TERM", "xterm-256color");
    let mut terminal = Terminal::spawn(command);
    terminal.wait_for("ready in");
    let pid = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    terminal.close();
    ends_by_itself(pid);
}

#[test]
fn after_a_storm_of_sizes_the_last_picture_is_right() {
    // BUGLOG X17
    let mut terminal = Terminal::ready(&["--pace", "3"]);
    terminal.send(b"Why?\r");
    let mut state = 7_u32;
    let mut random = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    for i in 0..1_000 {
        terminal.resize((1 + random(220) as u16, 1 + random(70) as u16));
        if i % 10 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    terminal.resize((120, 40));
    terminal.wait_for("looks blue.");
    terminal.wait_for("TTFT");
    let settled = |t: &Terminal| {
        let before = t.contents();
        std::thread::sleep(Duration::from_millis(150));
        before == t.contents()
    };
    terminal.wait_until("a still picture", settled);
    let picture = |t: &Terminal| -> Vec<String> {
        t.contents().lines().map(|line| line.trim_end().to_owned()).collect()
    };
    let after_storm = picture(&terminal);
    let frames = terminal.frames();
    // Every cell anew.
    terminal.send(b"\x0c");
    terminal.wait_until("a new frame", |t| t.frames() > frames);
    terminal.wait_until("a still picture", settled);
    assert_eq!(after_storm, picture(&terminal));
}

#[test]
fn a_terminal_of_any_size_is_drawn_on_and_left() {
    for (columns, rows) in [(1, 1), (2, 2), (500, 200)] {
        let mut terminal = Terminal::of((columns, rows), Terminal::command(&[]));
        terminal.wait_until("raw mode", Terminal::is_raw);
        terminal.wait_until("a frame", |t| t.frames() > 0);
        terminal.send(b"hi");
        if columns > 80 {
            terminal.wait_for("› hi");
            terminal.send(b"\x7f\x7f");
        }
        terminal.signal(libc::SIGTERM);
        assert_eq!(terminal.exit_code(), 143);
        terminal.wait_until("terminal given back", Terminal::is_given_back);
    }
}

#[test]
fn a_terminal_that_does_not_know_its_size_is_drawn_on_and_left() {
    let mut terminal = Terminal::ready(&[]);
    // A key in the same instant as a size waits in the reader of keys for the next one, so each is
    // seen to be done before the next.
    let frames = terminal.frames();
    terminal.master().resize(PtySize { rows: 0, cols: 0, pixel_width: 0, pixel_height: 0 }).unwrap();
    terminal.wait_until("a frame of no known size", |t| t.frames() > frames);
    let frames = terminal.frames();
    terminal.send(b"x");
    terminal.wait_until("the key seen", |t| t.frames() > frames);
    terminal.resize((120, 40));
    terminal.wait_for("› x");
    terminal.send(b"\x7f\x04");
    assert_eq!(terminal.exit_code(), 0);
    terminal.wait_until("terminal given back", Terminal::is_given_back);
}

#[test]
fn focus_reports_are_not_typed() {
    let mut terminal = Terminal::ready(&[]);
    terminal.send(b"a\x1b[I\x1b[Ob");
    terminal.wait_for("› ab");
}

#[test]
fn the_enhanced_keyboard_is_asked_for_and_given_back_on_every_way_out() {
    let ways: [fn(&mut Terminal); 4] = [
        |t| t.send(b"\x04"),
        |t| t.signal(libc::SIGTERM),
        |t| t.send(b"/model ./panic\r"),
        |t| t.send(b"\x1a"),
    ];
    for leave in ways {
        let mut terminal = Terminal::ready(&[]);
        // Shift+Enter as such a terminal tells it is a new line, not the end of the message.
        terminal.send(b"one\x1b[13;2utwo");
        terminal.wait_for("two");
        assert!(!terminal.contents().contains("› one two"));
        terminal.send(b"\x03");
        terminal.wait_until("an empty input", |t| !t.contents().contains("two"));
        leave(&mut terminal);
        let count = |t: &Terminal, what: &str| t.written().matches(what).count();
        terminal.wait_until("flags given back", |t| count(t, "\x1b[<1u") > 0);
        assert_eq!((count(&terminal, "\x1b[>1u"), count(&terminal, "\x1b[<1u")), (1, 1));
    }
}

#[test]
fn inside_tmux_and_screen_it_draws_and_leaves() {
    for (program, term) in [("tmux", "tmux-256color"), ("screen", "screen-256color")] {
        if Command::new(program).arg(if program == "tmux" { "-V" } else { "-v" }).output().is_err() {
            eprintln!("{program} is not installed: not tried");
            continue;
        }
        let socket = format!("glassbox-test-{}", std::process::id());
        let inner = format!("env TERM={term} '{}'; exec cat", demo().display());
        let mut command = CommandBuilder::new(program);
        match program {
            "tmux" => command.args(["-L", &socket, "-f", "/dev/null", "new-session", &inner]),
            _ => command.args(["-S", &socket, "-c", "/dev/null", "sh", "-c", &inner]),
        }
        command.env("TERM", "xterm-256color");
        command.env_remove("TMUX");
        let mut terminal = Terminal::spawn(command);
        terminal.wait_for("ready in");
        terminal.send("héllo 日本語".as_bytes());
        terminal.wait_for("› héllo 日本語");
        terminal.send(b"\x03\x04");
        terminal.wait_until("the screen gone", |t| !t.contents().contains("ready in"));
        if program == "tmux" {
            let _ = Command::new(program).args(["-L", &socket, "kill-server"]).output();
        }
    }
}
