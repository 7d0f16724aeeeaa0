//! The keeper of the tools: what it declares, prepares and runs, with real processes.
#![allow(clippy::unwrap_used)]

mod mcp;
mod server;

use glassbox::protocol::*;
use glassbox::tools;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A keeper over a file of its own.
struct Kept {
    folder: TempDir,
    handle: ToolHandle,
    list: ToolList,
    calls: u64,
}

impl Kept {
    /// Over these declarations, with the first list.
    fn of(file: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tools.toml");
        std::fs::write(&path, file).unwrap();
        let mut kept = Self { folder, handle: tools::open(path), list: ToolList::default(), calls: 0 };
        kept.settle();
        kept
    }

    /// One real tool `x` that runs `sh -c SCRIPT`, with more keys.
    fn shell(script: &str, more: &str) -> Self {
        Self::of(&format!(
            "[[tool]]\nname = 'x'\ncommand = ['sh', '-c', '''{script}''']\ndry_run = false\ncwd = '.'\n{more}"
        ))
    }

    fn next(&mut self) -> ToolEvent {
        let start = Instant::now();
        loop {
            match self.handle.events.try_recv() {
                Ok(ToolEvent::Tools(list)) => self.list = (*list).clone(),
                Ok(event) => return event,
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
            assert!(start.elapsed() < Duration::from_secs(30), "the keeper says nothing");
        }
    }

    /// Until the list is as it is wanted.
    fn until(&mut self, wanted: impl Fn(&ToolList) -> bool) {
        let start = Instant::now();
        while !wanted(&self.list) {
            assert!(start.elapsed() < Duration::from_secs(30), "{:?}", self.list);
            match self.handle.events.try_recv() {
                Ok(ToolEvent::Tools(list)) => self.list = (*list).clone(),
                Ok(event) => panic!("{event:?}"),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    fn settle(&mut self) {
        self.until(|list| list.settled);
    }

    fn prepare(&mut self, name: &str, arguments: &str) -> (CallId, Result<PlannedCall, String>) {
        let id = CallId(self.calls);
        self.calls += 1;
        let call = ToolCall { id: "c".into(), name: name.into(), arguments: arguments.into() };
        self.send(ToolCommand::Prepare { id, call });
        match self.next() {
            ToolEvent::Prepared { id: of, planned } if of == id => (id, planned),
            event => panic!("{event:?}"),
        }
    }

    fn send(&self, command: ToolCommand) {
        self.handle.commands.send(command).unwrap();
    }

    fn start(&mut self, name: &str, arguments: &str, how: RunHow) -> CallId {
        let (id, planned) = self.prepare(name, arguments);
        planned.unwrap();
        self.send(ToolCommand::Run { id, how });
        id
    }

    fn finished(&mut self) -> ToolResult {
        match self.next() {
            ToolEvent::Finished { result, .. } => result,
            event => panic!("{event:?}"),
        }
    }

    fn call(&mut self, name: &str, arguments: &str) -> ToolResult {
        self.start(name, arguments, RunHow::AsDeclared);
        self.finished()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn names(&self) -> Vec<&str> {
        self.list.tools.iter().map(|t| t.tool.name.as_str()).collect()
    }
}

fn wait_for(path: &Path) -> String {
    let start = Instant::now();
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{} never came", path.display());
    }
}

/// A process that was killed may still be listed for a moment.
fn is_gone(process: &str) -> bool {
    let is_alive = || {
        let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let state = status.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
        !matches!(state, None | Some('Z' | 'X'))
    };
    let start = Instant::now();
    while is_alive() && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(5));
    }
    !is_alive()
}

/// Leaves the ids of itself and of a child in the background, then waits.
const STAYS: &str = "sleep 60 & echo $! > child; echo $$ > parent; wait";

#[test]
fn a_command_gets_its_arguments_and_gives_back_what_it_writes() {
    let mut kept = Kept::of(
        "[[tool]]\nname = 'say'\nparameters = { what = 'string' }\ncommand = ['printf', '%s|', 'a', '{what}', 'b']\n\
         dry_run = false\n[[tool]]\nname = 'echo'\nparameters = { what = 'string' }\ncommand = ['cat']\ndry_run = false\n",
    );
    assert_eq!(kept.names(), ["say", "echo"]);
    let said = kept.call("say", "{\"what\": \"x' \\\"; $(id) {b} *\"}");
    assert_eq!(
        (said.text.as_str(), &said.end),
        ("a|x' \"; $(id) {b} *|b|", &ToolEnd::Exited { exit_status: 0 })
    );
    assert!(said.is_good());
    // Without placeholders the arguments go to stdin, as JSON.
    assert_eq!(kept.call("echo", "{\"what\": \"x\"}").text, "{\"what\":\"x\"}");
}

#[test]
fn exit_status_signals_and_stderr_are_told() {
    let mut failed = Kept::shell("echo out; echo err >&2; exit 3", "");
    let result = failed.call("x", "");
    assert_eq!(result.text, "out\nstderr:\nerr\nexit status 3");
    assert_eq!((&result.end, result.is_good()), (&ToolEnd::Exited { exit_status: 3 }, false));
    let mut killed = Kept::shell("kill -TERM $$", "");
    assert_eq!(killed.call("x", "{}").end, ToolEnd::Signalled { signal: 15 });
    let mut missing = Kept::of("[[tool]]\nname = 'x'\ncommand = ['no-such-program-here']\ndry_run = false\n");
    let result = missing.call("x", "{}");
    assert_eq!(result.end, ToolEnd::Failed);
    assert!(result.text.starts_with("cannot run no-such-program-here"), "{}", result.text);
}

#[test]
fn the_environment_is_what_the_declaration_allows() {
    let mut kept =
        Kept::shell("env | cut -d= -f1 | sort | tr '\\n' ' '", "env = ['HOME', 'NO_SUCH_VARIABLE']");
    let names = kept.call("x", "{}").text;
    // sh itself sets the last two.
    let foreign: Vec<&str> =
        names.split(' ').filter(|n| !["HOME", "PATH", "PWD", "OLDPWD", "SHLVL", "_"].contains(n)).collect();
    assert!(foreign.is_empty() && names.contains("HOME") && names.contains("PATH"), "{names}");
}

#[test]
fn a_timeout_ends_the_whole_group() {
    let mut kept = Kept::shell(STAYS, "timeout_s = 0.5");
    let result = kept.call("x", "{}");
    assert_eq!(
        (&result.end, result.text.as_str()),
        (&ToolEnd::TimedOut, "stopped: it took longer than 500ms")
    );
    for process in ["parent", "child"] {
        let id = wait_for(&kept.path(process));
        assert!(is_gone(&id), "{process} {id} still runs");
    }
}

#[test]
fn a_cancelled_call_ends_at_once_and_says_nothing_more() {
    let mut kept = Kept::shell(STAYS, "");
    let id = kept.start("x", "{}", RunHow::AsDeclared);
    let processes = [wait_for(&kept.path("parent")), wait_for(&kept.path("child"))];
    kept.send(ToolCommand::Cancel(id));
    assert!(processes.iter().all(|process| is_gone(process)));
    // The next word is the answer to the next question.
    assert!(kept.prepare("x", "{}").1.is_ok());
}

#[test]
fn what_runs_ends_with_the_front_end() {
    let mut kept = Kept::shell(STAYS, "");
    kept.start("x", "{}", RunHow::AsDeclared);
    let processes = [wait_for(&kept.path("parent")), wait_for(&kept.path("child"))];
    drop(kept);
    assert!(processes.iter().all(|process| is_gone(process)));
}

#[test]
fn a_child_left_behind_does_not_hold_the_call_up_and_is_ended() {
    let mut kept = Kept::shell("sleep 60 & echo $! > child; echo done", "");
    let start = Instant::now();
    assert_eq!(kept.call("x", "{}").text, "done");
    assert!(start.elapsed() < Duration::from_secs(10));
    let child = wait_for(&kept.path("child"));
    assert!(is_gone(&child));
}

#[test]
fn output_is_bounded_and_its_bytes_are_text() {
    let mut kept = Kept::shell("yes x | head -c 1000000; yes y | head -c 1000000 >&2", "max_output = 100");
    let result = kept.call("x", "{}");
    assert_eq!(result.end, ToolEnd::Exited { exit_status: 0 });
    assert!(result.text.contains("[999900 of 1000000 bytes left out]"), "{}", result.text);
    assert!(result.text.len() < 400, "{}", result.text.len());
    // A cut through a character takes the character away; what was never one is replaced.
    let mut kept = Kept::shell("printf '%063dä' 0; printf '\\377'", "max_output = 64");
    let text = kept.call("x", "{}").text;
    assert!(text.starts_with(&"0".repeat(63)) && !text.contains('\u{fffd}'), "{text}");
    let mut kept = Kept::shell("printf 'a\\377b'", "");
    assert_eq!(kept.call("x", "{}").text, "a\u{fffd}b");
}

#[test]
fn stdin_is_closed_unless_it_is_used() {
    let mut kept = Kept::shell("cat; echo end", "timeout_s = 10");
    assert_eq!(kept.call("x", "{}").text, "end");
}

#[test]
fn a_dry_run_starts_nothing_whether_declared_or_asked_for() {
    let file = |dry: &str| format!("[[tool]]\nname = 'x'\ncommand = ['touch', 'made']\ncwd = '.'\n{dry}");
    for (dry, how) in [("", RunHow::AsDeclared), ("dry_run = false", RunHow::DryRun)] {
        let mut kept = Kept::of(&file(dry));
        let (id, planned) = kept.prepare("x", "{}");
        assert_eq!(planned.unwrap().dry_run, dry.is_empty());
        kept.send(ToolCommand::Run { id, how });
        let result = kept.finished();
        assert!(result.is_good() && result.text.contains("[\"touch\", \"made\"]"), "{}", result.text);
        assert!(!kept.path("made").exists());
    }
}

#[test]
fn a_call_runs_once_and_only_after_it_was_prepared() {
    let mut kept = Kept::shell("echo x >> made", "");
    kept.send(ToolCommand::Run { id: CallId(99), how: RunHow::AsDeclared });
    let id = kept.start("x", "{}", RunHow::AsDeclared);
    kept.finished();
    kept.send(ToolCommand::Run { id, how: RunHow::AsDeclared });
    let (cancelled, _) = kept.prepare("x", "{}");
    kept.send(ToolCommand::Cancel(cancelled));
    kept.send(ToolCommand::Run { id: cancelled, how: RunHow::AsDeclared });
    kept.prepare("x", "{}").1.unwrap();
    assert_eq!(std::fs::read_to_string(kept.path("made")).unwrap(), "x\n");
}

#[test]
fn what_was_shown_is_what_runs_also_when_the_file_changes_meanwhile() {
    let mut kept = Kept::shell("echo before", "");
    let (id, _) = kept.prepare("x", "{}");
    std::fs::write(kept.path("tools.toml"), "[[tool]]\nname = 'y'\ncommand = ['true']\n").unwrap();
    kept.send(ToolCommand::Reload);
    kept.until(|list| list.tools[0].tool.name == "y");
    kept.send(ToolCommand::Run { id, how: RunHow::AsDeclared });
    assert_eq!(kept.finished().text, "before");
    let (_, planned) = kept.prepare("x", "{}");
    assert_eq!(planned.unwrap_err(), "there is no tool \"x\"; did you mean \"y\"?");
}

#[test]
fn wrong_calls_are_explained_to_the_model() {
    let mut kept =
        Kept::of("[[tool]]\nname = 'weather'\nparameters = { city = 'string' }\ncommand = ['w', '{city}']\n");
    for (name, arguments, wanted) in [
        ("wether", "{}", "there is no tool \"wether\"; did you mean \"weather\"?"),
        ("sql", "{}", "there is no tool \"sql\"; there are weather"),
        ("weather", "{\"city\": ", "the arguments are not JSON: EOF"),
        ("weather", "[1]", "the arguments must be a JSON object"),
        ("weather", "", "wrong arguments for weather: city is missing"),
        ("weather", "{\"city\": 5}", "wrong arguments for weather: city must be of type string, not 5"),
        ("weather", "{\"city\": \"-rf\"}", "wrong arguments for weather: city must not begin with -"),
    ] {
        let said = kept.prepare(name, arguments).1.unwrap_err();
        assert!(said.starts_with(wanted), "{name} {arguments}: {said}");
    }
}

#[test]
fn a_broken_file_is_told_and_can_be_mended() {
    let mut kept = Kept::of("[[tool]]\nname = 'x'\ncomand = ['x']\n");
    let error = kept.list.error.clone().unwrap();
    assert!(
        error.ends_with("tools.toml:3: [[tool]] x: unknown key \"comand\"; did you mean \"command\"?"),
        "{error}"
    );
    std::fs::write(kept.path("tools.toml"), "[[tool]]\nname = 'x'\ncommand = ['x']\n").unwrap();
    kept.send(ToolCommand::Reload);
    kept.until(|list| list.error.is_none());
    assert_eq!(kept.names(), ["x"]);
}
