//! `--ui inline`: the terminal keeps its scrollback, and in it the conversation: everything once, in
//! order, whatever the window does meanwhile.

use super::terminal::{STARTING, Terminal, demo};
use portable_pty::CommandBuilder;
use std::time::Duration;

/// Under a shell that has printed something, as people start it.
fn inline(size: (u16, u16), arguments: &str) -> Terminal {
    let mut command = CommandBuilder::new("/bin/bash");
    let script = format!("echo before; '{}' --inline {arguments}; echo after $?", demo().display());
    command.args(["--norc", "--noprofile", "-c", &script]);
    command.env("TERM", "xterm-256color");
    // This terminal, as xterm, does not wrap its lines anew when it gets narrower.
    command.env("XTERM_VERSION", "test");
    command.env_remove("NO_COLOR");
    let terminal = Terminal::of(size, command);
    terminal.wait_for("ready in");
    terminal
}

/// All lines that the terminal keeps, the oldest first.
fn everything(terminal: &Terminal) -> Vec<String> {
    let mut seen = terminal.seen.lock().unwrap();
    let screen = seen.parser.screen_mut();
    let (columns, rows) = (screen.size().1.get(), usize::from(screen.size().0.get()));
    let mut lines = Vec::new();
    for back in (1..=screen.scrollback_len()).rev() {
        screen.set_scrollback(back);
        lines.extend(screen.rows(0, columns).next());
    }
    screen.set_scrollback(0);
    lines.extend(screen.rows(0, columns).take(rows));
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Each of these is in exactly one line, and they are in this order.
fn once_and_in_order(lines: &[String], wanted: &[&str]) {
    let mut last = 0;
    for text in wanted {
        let at: Vec<usize> = (0..lines.len()).filter(|i| lines[*i].contains(text)).collect();
        assert_eq!(at.len(), 1, "{text:?} is there {} times in\n{}", at.len(), lines.join("\n"));
        assert!(at[0] >= last, "{text:?} comes too early in\n{}", lines.join("\n"));
        last = at[0];
    }
}

/// Of the demo's answer, each in a piece of its own.
const ANSWER: [&str; 7] = [
    "thought ",
    "The sky is blue",
    "Blue light",
    "fn scattering",
    "red    │ 650",
    "looks blue.",
    "119 tok · 1",
];

#[test]
fn the_conversation_stays_in_the_scrollback_once_and_in_order() {
    for rows in [12, 24, 50] {
        let mut terminal = inline((100, rows), "--pace 2");
        assert!(!terminal.is_alternate());
        terminal.send(b"Why is it blue?\r");
        terminal.wait_for("119 tok · 1");
        terminal.wait_for("F1 help");
        terminal.wait_for("› Message");
        terminal.wait_for("tok/s · TTFT 8.0 ms · T0.8");
        let mut wanted = vec!["before", "ready in", "› Why is it blue?"];
        wanted.extend(ANSWER);
        wanted.extend(["F1 help", "› Message", "smollm2-135m Q4_1"]);
        once_and_in_order(&everything(&terminal), &wanted);
        terminal.send(b"\x04");
        terminal.wait_for("after 0");
        terminal.wait_until("terminal given back", Terminal::is_given_back);
        let lines = everything(&terminal);
        wanted.truncate(wanted.len() - 2);
        wanted.push("after 0");
        once_and_in_order(&lines, &wanted);
        // The prompt comes back right under the conversation.
        let used = lines.iter().rposition(|line| !line.is_empty()).unwrap();
        assert_eq!((lines[used].as_str(), lines[used - 1].as_str()), ("after 0", ""));
        assert!(lines[used - 2].contains("F1 help"), "{}", lines.join("\n"));
    }
}

#[test]
fn what_was_said_so_far_stays_when_it_is_left_in_the_middle() {
    let mut terminal = inline((100, 20), "--pace 20");
    terminal.send(b"Why?\r");
    terminal.wait_for("fn scattering");
    terminal.send(b"\x04");
    terminal.wait_for("after 0");
    once_and_in_order(
        &everything(&terminal),
        &["› Why?", "thought ", "Blue light", "fn scattering", "after 0"],
    );
}

#[test]
fn a_signal_gives_the_terminal_back_and_keeps_what_was_said() {
    let mut terminal = inline((100, 20), "--pace 20");
    terminal.send(b"Why?\r");
    terminal.wait_for("fn scattering");
    let shell = terminal.child.process_id().unwrap();
    let child = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    let pid: i32 = child.split_whitespace().next().unwrap().parse().unwrap();
    // SAFETY: kill takes two integers; the process is the shell's only child.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    terminal.wait_for("after 143");
    terminal.wait_until("terminal given back", Terminal::is_given_back);
    once_and_in_order(&everything(&terminal), &["before", "› Why?", "Blue light", "after 143"]);
}

#[test]
fn a_panic_leaves_its_message_under_the_conversation() {
    let mut terminal = inline((100, 20), "");
    terminal.send(b"/model ./panic\r");
    terminal.wait_for("after 101");
    terminal.wait_until("terminal given back", Terminal::is_given_back);
    once_and_in_order(&everything(&terminal), &["before", "ready in", "asked to panic", "after 101"]);
}

#[test]
fn completion_questions_and_help_open_under_the_conversation_and_close_again() {
    let mut terminal = inline((100, 24), "--pace 2");
    terminal.send(b"/mo");
    terminal.wait_for("/model");
    terminal.send(b"\x15");
    terminal.send(b"\x1bOP");
    terminal.wait_for(" help ");
    terminal.wait_for("Esc closes");
    terminal.send(b"\x1b");
    terminal.wait_until("help closed", |t| !t.contents().contains("Esc closes"));
    terminal.send(b"weather in Oslo?\r");
    terminal.wait_for(" tool call: get_weather ");
    let answered = |t: &Terminal| !t.contents().contains(" tool call: get_weather ");
    while !answered(&terminal) {
        terminal.send(b"y");
        terminal.try_until(Duration::from_millis(350), answered);
    }
    terminal.wait_for("The tool says");
    terminal.wait_for("F1 help");
    terminal.send(b"\x14");
    let lines = everything(&terminal);
    once_and_in_order(
        &lines,
        &["before", "ready in", "› weather in Oslo?", "→ get_weather", "╭ get_weather", "The tool says"],
    );
    assert!(!lines.iter().any(|line| line.contains("Esc closes") || line.contains("run once")));
}

#[test]
fn panels_need_the_full_screen_and_that_is_said() {
    let mut terminal = inline((100, 24), "");
    terminal.send(b"\x1bOQ");
    terminal.wait_for("models");
    terminal.send(b"\x1b");
    terminal.wait_until("the list is closed", |t| !t.contents().contains("┌ models"));
    terminal.send(b"/panel 2\r");
    terminal.wait_for("--ui full");
}

#[test]
fn an_answer_given_again_is_printed_under_the_first() {
    let mut terminal = inline((100, 30), "--pace 2");
    terminal.send(b"Why?\r");
    terminal.wait_for("119 tok · 1");
    terminal.send(b"/regen\r");
    terminal.wait_until("a second answer", |t| {
        everything(t).iter().filter(|line| line.contains("119 tok · 1")).count() == 2
    });
    let lines = everything(&terminal);
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!((count("another version"), count("› Why?"), count("looks blue.")), (1, 2, 2));
}

#[test]
fn other_sizes_meanwhile_lose_nothing_that_was_said() {
    let mut terminal = inline((100, 30), "--pace 10");
    terminal.send(b"Why?\r");
    for size in [(90, 30), (100, 24), (70, 24), (70, 40), (120, 40), (40, 12), (100, 30)] {
        terminal.resize(size);
        std::thread::sleep(Duration::from_millis(120));
    }
    terminal.wait_for("119 tok · 1");
    let lines = everything(&terminal);
    for text in ["› Why?", "looks blue.", "119 tok · 1", "› Message"] {
        assert!(lines.iter().any(|line| line.contains(text)), "no {text:?} in\n{}", lines.join("\n"));
    }
    once_and_in_order(&lines, &["looks blue.", "119 tok · 1", "› Message"]);
}

#[test]
fn suspended_and_resumed_it_goes_on_under_what_the_shell_said() {
    let mut terminal = Terminal::shell((100, 30));
    terminal.send(format!("'{}' --inline --pace 2\n", demo().display()).as_bytes());
    terminal.wait_for("ready in");
    terminal.send(b"Why?\r");
    terminal.wait_for("119 tok · 1");
    terminal.send(b"\x1a");
    terminal.wait_for("Stopped");
    terminal.send(b"echo in the $((40 + 2)) shell\n");
    terminal.wait_for("in the 42 shell");
    terminal.send(b"fg\n");
    terminal.send(b"and back");
    terminal.wait_for("› and back");
    once_and_in_order(
        &everything(&terminal),
        &["ready in", "› Why?", "looks blue.", "119 tok · 1", "Stopped", "in the 42 shell", "› and back"],
    );
}

#[test]
fn where_lines_are_wrapped_anew_other_sizes_lose_nothing_and_leave_nothing_behind() {
    // tmux keeps its lines when it gets narrower, as most terminals do; it needs no terminal itself.
    let socket = format!("glassbox-inline-{}", std::process::id());
    let tmux = |arguments: &[&str]| {
        let _starting = STARTING.lock().unwrap_or_else(|e| e.into_inner());
        let output = std::process::Command::new("tmux")
            .args(["-L", &socket, "-f", "/dev/null"])
            .args(arguments)
            .output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let inner = format!("echo before; '{}' --inline --pace 2; cat", demo().display());
    if tmux(&["new-session", "-d", "-x", "100", "-y", "30", &inner]).is_err() {
        eprintln!("tmux is not installed: not tried");
        return;
    }
    let picture = || tmux(&["capture-pane", "-p", "-S", "-200"]).unwrap();
    let wait_for = |text: &str| {
        let start = std::time::Instant::now();
        while !picture().contains(text) {
            assert!(start.elapsed() < Duration::from_secs(20), "no {text:?} in\n{}", picture());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for("ready in");
    tmux(&["send-keys", "Why?", "Enter"]).unwrap();
    wait_for("119 tok · 1");
    wait_for("F1 help");
    wait_for("› Message");
    for size in [("80", "30"), ("60", "20"), ("110", "20"), ("110", "35"), ("50", "28"), ("100", "28")] {
        tmux(&["resize-window", "-x", size.0, "-y", size.1]).unwrap();
        // tmux tells a program its new size up to a quarter of a second late.
        std::thread::sleep(Duration::from_millis(400));
    }
    let lines: Vec<String> = picture().lines().map(str::to_owned).collect();
    tmux(&["kill-server"]).unwrap();
    let wanted = ["before", "ready in", "› Why?", "thought ", "Blue light", "119 tok · 1", "› Message"];
    once_and_in_order(&lines, &wanted);
    once_and_in_order(&lines, &["› Why?", "fn scattering", "red    │ 650", "› Message", "smollm2-135m Q4_1"]);
    let rules = lines.iter().filter(|line| line.starts_with("────")).count();
    assert_eq!(rules, 1, "{}", lines.join("\n"));
}
