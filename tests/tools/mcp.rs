//! MCP servers over stdio, through the official SDK, against the server of this test binary.

use super::*;

/// `[[mcp]]` of the test server.
fn server(name: &str, words: &[&str], more: &str) -> String {
    let own = std::env::current_exe().unwrap();
    let mut argv = vec![own.to_str().unwrap(), "--exact", "server::serve", "--ignored", "--nocapture"];
    argv.extend(words);
    format!("[[mcp]]\nname = '{name}'\ncommand = {argv:?}\n{more}\n")
}

#[test]
fn the_tools_of_a_server_are_listed_page_by_page_and_called() {
    let mut kept = Kept::of(&server("files", &[], ""));
    assert_eq!(kept.names(), ["echo", "slow", "die", "big", "fail", "change"], "{:?}", kept.list);
    assert_eq!(kept.list.servers[0].state, ServerState::Ready { tools: 6 });
    let (id, planned) = kept.prepare("echo", "{\"text\": \"hi\"}");
    let action = PlannedAction::Mcp { server: "files".into(), tool: "echo".into() };
    assert_eq!(planned.unwrap(), PlannedCall { action, dry_run: false, timeout_s: 30.0 });
    kept.send(ToolCommand::Run { id, how: RunHow::AsDeclared });
    let result = kept.finished();
    assert_eq!(result.text, "hi\n[image image/png, 4 bytes as base64]");
    assert_eq!(result.end, ToolEnd::Answered { is_error: false });
    let result = kept.call("fail", "{}");
    assert_eq!((result.text.as_str(), result.end), ("no such city", ToolEnd::Answered { is_error: true }));
    assert!(kept.prepare("echo", "{\"text\": 5}").1.unwrap_err().contains("text must be of type string"));
}

#[test]
fn output_and_time_of_a_server_are_bounded() {
    let mut kept = Kept::of(&server("files", &[], "timeout_s = 0.3\nmax_output = 100"));
    let text = kept.call("big", "{}").text;
    assert!(text.len() < 200 && text.ends_with("[99900 of 100000 bytes left out]"), "{text}");
    let result = kept.call("slow", "{}");
    assert_eq!(
        (&result.end, result.text.as_str()),
        (&ToolEnd::TimedOut, "stopped: it took longer than 300ms")
    );
    // It is still there for the next call.
    assert!(kept.call("echo", "{}").is_good());
}

#[test]
fn a_server_that_dies_fails_its_call_and_takes_its_tools_along() {
    let file = server("files", &[], "") + "[[tool]]\nname = 'date'\ncommand = ['date']\n";
    let mut kept = Kept::of(&file);
    kept.start("die", "{}", RunHow::AsDeclared);
    let result = kept.finished();
    assert_eq!(result.end, ToolEnd::Failed);
    assert!(result.text.starts_with("the server files did not answer"), "{}", result.text);
    kept.until(|list| matches!(list.servers[0].state, ServerState::Failed(_)));
    assert_eq!(kept.names(), ["date"]);
    let ServerState::Failed(why) = &kept.list.servers[0].state else { unreachable!() };
    assert!(why.contains("the server's own words"), "{why}");
    // It comes back when it is asked to.
    kept.send(ToolCommand::Reload);
    kept.until(|list| list.tools.len() == 7);
}

#[test]
fn a_server_that_never_was_is_named_with_its_reason() {
    let mut kept = Kept::of("[[mcp]]\nname = 'gone'\ncommand = ['no-such-program-here']\n");
    let ServerState::Failed(why) = &kept.list.servers[0].state else { panic!("{:?}", kept.list) };
    assert!(why.starts_with("cannot run no-such-program-here"), "{why}");
    kept = Kept::of(&server("files", &["dies-at-once"], ""));
    let ServerState::Failed(why) = &kept.list.servers[0].state else { panic!("{:?}", kept.list) };
    assert!(why.contains("it said: ") && why.contains("asked to die"), "{why}");
}

#[test]
fn a_silent_server_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tools.toml");
    std::fs::write(&path, server("mute", &["mute"], "") + "[[tool]]\nname = 'date'\ncommand = ['date']\n")
        .unwrap();
    let mut kept = Kept { folder, handle: tools::open(path), list: ToolList::default(), calls: 0 };
    kept.until(|list| !list.tools.is_empty());
    assert_eq!((kept.names(), kept.list.settled), (vec!["date"], false));
    assert!(kept.prepare("date", "{}").1.is_ok());
}

#[test]
fn names_that_clash_get_their_servers_name_before_them() {
    let local = "[[tool]]\nname = 'echo'\ncommand = ['echo']\n";
    let mut kept = Kept::of(&(server("a", &[], "") + &server("b", &[], "") + local));
    let names = kept.names();
    for name in ["echo", "a__echo", "b__echo", "a__slow", "b__slow"] {
        assert_eq!(names.iter().filter(|n| **n == name).count(), 1, "{name} in {names:?}");
    }
    let result = kept.call("b__echo", "{\"text\": \"from b\"}");
    assert!(result.text.starts_with("from b"), "{}", result.text);
}

#[test]
fn a_server_that_changes_its_tools_is_asked_again() {
    let mut kept = Kept::of(&server("files", &[], ""));
    kept.call("change", "{}");
    kept.until(|list| list.tools.iter().any(|t| t.tool.name == "echo2"));
    assert!(!kept.names().contains(&"echo"));
}

#[test]
fn servers_end_with_the_front_end() {
    // A word that no other server's command has.
    let mut kept = Kept::of(&server("files", &["of-the-last-test"], ""));
    kept.start("slow", "{}", RunHow::AsDeclared);
    let processes = || {
        let is_it = |process: &String| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            line.split(|b| *b == 0).any(|word| word == b"of-the-last-test")
        };
        let names = std::fs::read_dir("/proc").unwrap().flatten().map(|p| p.file_name());
        names.filter_map(|name| name.into_string().ok()).filter(is_it).collect::<Vec<_>>()
    };
    let [server] = &processes()[..] else { panic!("{:?}", processes()) };
    drop(kept);
    assert!(is_gone(server));
}
