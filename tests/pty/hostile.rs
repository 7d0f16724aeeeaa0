//! Hostile text in every channel, and all that is written to the terminal read by a parser: no
//! control of foreign origin is obeyed, the text is seen as escapes, no column moves, and the terminal
//! is given back. BUGLOG X01, X02, X05.

use super::payloads::{Payload, payloads};
use super::terminal::Terminal;
use glassbox::protocol::{SessionMeta, StoredAnswer, StoredSession, StoredTurn};
use glassbox::sessions::Store;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// How a payload reaches the screen.
#[derive(Clone, Copy)]
enum Way {
    /// The engine says it, asked for it by this word.
    Said(&'static str),
    /// A tool gives it back: one of the person's own, or one of an MCP server.
    ToolResult,
    ServedResult,
    /// A model of this name says it of itself, or of why it cannot be opened.
    Model(&'static str),
    /// It is pasted and sent.
    Paste,
    /// This command lists all of them, of a program that was started so.
    Listed(&'static str, &'static str),
    /// It names a stored session, its model, its answers and what they were asked.
    Stored,
    /// A conversation in a file with this ending.
    Imported(&'static str),
    /// It is the name of a file that is put into a message.
    File,
    /// A file of the person's own is wrong; what was read with these flags is told at the start.
    Own(&'static [&'static str]),
}

const CHANNELS: [(&str, Way); 29] = [
    ("answer", Way::Said("answer")),
    ("answer, a character at a time", Way::Said("answer in pieces")),
    ("code", Way::Said("code")),
    ("a code block's language", Way::Said("code language")),
    ("table", Way::Said("table")),
    ("thoughts", Way::Said("thoughts")),
    ("tokens and their candidates", Way::Said("token")),
    ("a tool call's name", Way::Said("call name")),
    ("a tool call's arguments", Way::Said("call arguments")),
    ("a tool's result", Way::ToolResult),
    ("the result of an MCP server's tool", Way::ServedResult),
    ("error", Way::Said("error")),
    ("note", Way::Said("note")),
    ("a breakpoint's reason", Way::Said("why")),
    ("a model's name and metadata", Way::Model("hostile")),
    ("why a model did not load", Way::Model("broken")),
    ("why a model was not opened", Way::Model("refused")),
    ("pasted text", Way::Paste),
    ("a tool's description, an MCP server's command", Way::Listed("/tools", "--hostile")),
    ("what an MCP server says of its tools", Way::Listed("/tools", "--served")),
    ("names and descriptions in the catalogue", Way::Listed("/model", "--hostile")),
    ("presets and what they set", Way::Listed("/preset", "--hostile")),
    ("titles in the list of sessions", Way::Listed("/sessions", "--hostile")),
    ("titles of tabs, of answers that are compared", Way::Stored),
    ("an imported conversation in Markdown", Way::Imported("md")),
    ("an imported conversation in JSON", Way::Imported("json")),
    ("names of files", Way::File),
    ("a keymap and layouts that are wrong", Way::Own(&["--keymap", "keys.toml", "--layout", "layout.toml"])),
    ("themes that are wrong", Way::Own(&["--themes", "."])),
];

/// Cells that the panels have for a token, and a tab for a title.
const SHORT: usize = 12;

#[test]
fn whatever_is_said_through_whatever_channel_no_terminal_obeys_it() {
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            CHANNELS.into_iter().map(|(channel, way)| scope.spawn(move || sit(channel, way))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Sends every payload through one channel of one program.
fn sit(channel: &str, way: Way) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), way);
    let mut command = Terminal::command(&arguments(way));
    command.cwd(folder.path());
    let mut terminal = Terminal::of((200, 60), command);
    terminal.wait_for("ready in");
    let mut watch = Watch::default();
    watch.read(&terminal);
    let columns = borders(&terminal);
    assert!(columns.len() >= 2, "the panels have borders:\n{}", terminal.contents());
    // Thoughts and results are shown as they come.
    terminal.send(b"\x0f");
    let mut failures = Vec::new();
    for (number, payload) in payloads().iter().enumerate().filter(|(_, payload)| fits(way, payload)) {
        send(&mut terminal, way, number, payload);
        let shown = |t: &Terminal| is_shown(&t.contents(), way, number, payload);
        let mut wrong = Vec::new();
        if !terminal.try_until(Duration::from_secs(5), shown) {
            wrong.push(format!("{:?} is not seen in\n{}", payload.shown, terminal.contents()));
        }
        watch.read(&terminal);
        wrong.append(&mut watch.foreign);
        if !terminal.try_until(Duration::from_secs(5), |t| columns.is_subset(&borders(t))) {
            wrong.push(format!("columns moved\n{}", terminal.contents()));
        }
        failures.extend(wrong.into_iter().map(|what| format!("{} in {channel}: {what}", payload.class)));
    }
    // A list that is open keeps Ctrl+D; Ctrl+C closes it.
    terminal.send(if matches!(way, Way::Listed(..)) { b"\x03\x04" } else { b"\x04" });
    if !terminal.try_until(Duration::from_secs(5), Terminal::is_given_back) {
        failures.push(format!("{channel}: the terminal is not given back\n{}", terminal.contents()));
    }
    failures
}

fn arguments(way: Way) -> Vec<&'static str> {
    let own: &[&str] = match way {
        Way::Listed(_, flag) => &[flag],
        Way::ServedResult => &["--served"],
        Way::Own(flags) => flags,
        Way::Stored | Way::Imported(_) | Way::File => &[],
        _ => &["--hostile"],
    };
    [&["--pace", "1", "--sessions", "sessions.db"], own].concat()
}

/// No program can be given a NUL, so none can echo it; and a file's name is not just any text.
fn fits(way: Way, payload: &Payload) -> bool {
    match way {
        Way::ToolResult => !payload.text.contains('\0'),
        Way::File => !payload.text.contains(['\0', '/']) && payload.text.len() < 200,
        Way::Own(["--themes", ..]) => fits(Way::File, payload) && !payload.text.contains('\\'),
        _ => true,
    }
}

fn is_shown(contents: &str, way: Way, number: usize, payload: &Payload) -> bool {
    let short = &payload.shown[..payload.shown.len().min(SHORT)];
    match way {
        Way::Said("token") => contents.contains(short),
        Way::Stored => contents.contains(&format!("\u{25b8}2 s{number:02}s ")) && contents.contains(short),
        _ => contents.contains(payload.shown),
    }
}

/// What lies in the folder that the program is started in.
fn prepare(folder: &Path, way: Way) {
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    let all = payloads();
    match way {
        Way::Listed("/sessions", _) | Way::Stored => {
            let mut store = Store::open(&folder.join("sessions.db")).unwrap();
            for (number, payload) in all.iter().enumerate() {
                store.add(&session(number, &payload.text)).unwrap();
            }
        }
        Way::Imported(ending) => {
            for (number, payload) in all.iter().enumerate() {
                write(&format!("{number:02}.{ending}"), &conversation(ending, &payload.text));
            }
        }
        Way::File => {
            for (number, payload) in all.iter().enumerate().filter(|(_, payload)| fits(way, payload)) {
                write(&format!("{number:02}-{}", payload.text), &payload.text);
            }
        }
        Way::Own(["--themes", ..]) => {
            for payload in all.iter().filter(|payload| fits(way, payload)) {
                write(&format!("{}.toml", payload.text), "roles = 1");
            }
        }
        Way::Own(_) => {
            let key = |payload: &Payload| format!("{} = \"x\"\n", toml_text(&payload.text));
            write("keys.toml", &format!("[input]\n{}", all.iter().map(key).collect::<String>()));
            let every: String = all.iter().map(|payload| payload.text.as_str()).collect();
            write("layout.toml", &format!("[wide]\narrangement = {}\n", toml_text(&every)));
        }
        _ => {}
    }
}

/// In quotes, as JSON and TOML both read it.
fn toml_text(text: &str) -> String {
    json!(text).to_string().replace('\x7f', "\\u007f")
}

fn session(number: usize, payload: &str) -> StoredSession {
    let answer = StoredAnswer {
        title: Some(payload.into()),
        prompt: Some(payload.into()),
        model: payload.into(),
        text: "an answer".into(),
        ..StoredAnswer::default()
    };
    let answers = vec![answer.clone(), answer];
    let turn = StoredTurn { text: "asked".into(), in_view: true, answers, ..StoredTurn::default() };
    let meta = SessionMeta {
        title: format!("s{number:02}s {payload}"),
        named: true,
        model: payload.into(),
        system: Some(payload.into()),
        ..SessionMeta::default()
    };
    StoredSession { meta, turns: vec![turn], ..StoredSession::default() }
}

fn conversation(ending: &str, payload: &str) -> String {
    let said = |role: &str| json!({ "role": role, "content": payload });
    match ending {
        "md" => format!("# {payload}\n\n## User\n\n{payload}\n\n## Assistant\n\n{payload}\n"),
        _ => json!({ "title": payload, "model": payload, "messages": [said("user"), said("assistant")] })
            .to_string(),
    }
}

fn send(terminal: &mut Terminal, way: Way, number: usize, payload: &Payload) {
    let seen =
        |t: &Terminal, text: &str| t.try_until(Duration::from_secs(5), |t| t.contents().contains(text));
    match way {
        // All of it at once.
        Way::Listed(..) if number > 0 => {}
        // There may be more of them than have room.
        Way::Own(_) => {
            for page in [b"\x1b[5~", b"\x1b[5~", b"\x1b[6~", b"\x1b[6~"] {
                if terminal.try_until(Duration::from_millis(200), |t| t.contents().contains(payload.shown)) {
                    break;
                }
                terminal.send(page);
            }
        }
        Way::Listed(command, _) => terminal.send(format!("{command}\r").as_bytes()),
        Way::Said(channel) => terminal.send(format!("hostile {channel} {number}\r").as_bytes()),
        Way::ToolResult => {
            terminal.send(format!("hostile result {number}\r").as_bytes());
            allow(terminal, " tool call: get_weather ");
        }
        Way::ServedResult => {
            terminal.send(format!("hostile served {number}\r").as_bytes());
            allow(terminal, &format!(" tool call: served_{number} "));
        }
        Way::Model(name) => terminal.send(format!("/model ./{name}-{number}\r").as_bytes()),
        Way::Paste => {
            terminal.send(format!("\x1b[200~{}\x1b[201~", payload.text).as_bytes());
            seen(terminal, payload.shown);
            terminal.send(b"\r");
        }
        Way::Stored => {
            // In a second tab, beside a chat that is not empty.
            let first: &[u8] = if number == 0 { b"Why?\r" } else { b"/tab close\r" };
            terminal.send(first);
            terminal.try_until(Duration::from_secs(5), |t| !t.contents().contains("\u{25b8}2"));
            terminal.send(format!("/sessions s{number:02}s\r").as_bytes());
            seen(terminal, &format!("\u{25b8} s{number:02}s "));
            terminal.send(b"\r");
        }
        Way::Imported(ending) => {
            terminal.send(format!("/tab close\r/import {number:02}.{ending}\r").as_bytes());
        }
        Way::File => {
            terminal.send(format!("@{number:02}-").as_bytes());
            seen(terminal, payload.shown);
            terminal.send(b"\t");
            seen(terminal, &format!("[@{number:02}-"));
            terminal.send(b"\r");
        }
    }
}

/// Says yes to a call.
fn allow(terminal: &mut Terminal, question: &str) {
    terminal.wait_for(question);
    let answered = |t: &Terminal| !t.contents().contains(question);
    // A question takes no answer before it could be read, and more of it may be below.
    while !answered(terminal) {
        terminal.send(b"\x1b[By");
        terminal.try_until(Duration::from_millis(350), answered);
    }
}

/// Columns that are borders of panels over half of the screen's height.
fn borders(terminal: &Terminal) -> BTreeSet<u16> {
    let seen = terminal.seen.lock().unwrap();
    let screen = seen.parser.screen();
    let (rows, columns) = screen.size();
    let is_border = |row, column| {
        let cell = screen.cell(row, column).map(|cell| cell.contents().to_owned()).unwrap_or_default();
        matches!(cell.as_str(), "│" | "├" | "┤" | "┼" | "┬" | "┴")
    };
    let long = |column: &u16| (0..rows.get()).filter(|row| is_border(*row, *column)).count() > 30;
    (0..columns.get()).filter(long).collect()
}

/// Reads what was written as a terminal does, and keeps what the program itself never writes.
#[derive(Default)]
struct Watch {
    parser: vte::Parser,
    read: usize,
    foreign: Vec<String>,
    /// Characters without a width in a row.
    combined: usize,
}

impl Watch {
    fn read(&mut self, terminal: &Terminal) {
        let raw = &terminal.seen.lock().unwrap().raw;
        // What opens the screen is not looked at; nothing foreign is in it.
        let first_frame = || raw.windows(8).position(|bytes| bytes == b"\x1b[?2026h").unwrap_or(raw.len());
        let new = raw[if self.read == 0 { first_frame() } else { self.read }..].to_vec();
        self.read = raw.len();
        let mut parser = std::mem::take(&mut self.parser);
        parser.advance(self, &new);
        self.parser = parser;
    }

    fn refuse(&mut self, what: String) {
        self.foreign.push(what);
    }
}

/// The window's name: harmless in every character, and it ends in ours, whatever the model calls itself.
fn is_our_title(params: &[&[u8]]) -> bool {
    let Some((b"2", name)) = params.split_first().map(|(kind, name)| (*kind, name)) else { return false };
    let foreign = |c| glassbox::base::is_dangerous(c) || matches!(c, '\u{e000}'..='\u{e0ff}');
    String::from_utf8(name.join(&b';'))
        .is_ok_and(|name| (name == "glassbox" || name.ends_with(" · glassbox")) && !name.contains(foreign))
}

/// Allowed are colours, the window's name, the cursor's place, showing and hiding it, and frames as a whole.
impl vte::Perform for Watch {
    fn print(&mut self, c: char) {
        let width = unicode_width::UnicodeWidthChar::width(c);
        self.combined = if width == Some(0) { self.combined + 1 } else { 0 };
        if self.combined == 30 {
            self.refuse("thirty combining characters on one cell".into());
        }
        if glassbox::base::is_dangerous(c) || matches!(c, '\u{e000}'..='\u{e0ff}') {
            self.refuse(format!("printed {c:?}"));
        }
    }

    fn execute(&mut self, byte: u8) {
        self.refuse(format!("control {byte:#04x}"));
    }

    fn csi_dispatch(&mut self, params: &vte::Params, intermediates: &[u8], _: bool, action: char) {
        let numbers: Vec<u16> = params.iter().map(|p| p[0]).collect();
        let is_ours = match (intermediates, action) {
            // Neither blinking nor hidden.
            ([], 'm') => !numbers.iter().any(|n| matches!(n, 6 | 8)) && numbers[0] != 5,
            ([], 'H') => true,
            (b"?", 'h' | 'l') => matches!(numbers[..], [25] | [2026]),
            // The window's title is kept by the terminal and comes back.
            ([], 't') => matches!(numbers[..], [22 | 23, 0]),
            _ => false,
        };
        if !is_ours {
            let between = String::from_utf8_lossy(intermediates).into_owned();
            self.refuse(format!("CSI {between}{numbers:?}{action}"));
        }
    }

    fn osc_dispatch(&mut self, params: &[&[u8]], _: bool) {
        if !is_our_title(params) {
            let parts: Vec<_> = params.iter().map(|p| String::from_utf8_lossy(p)).collect();
            self.refuse(format!("OSC {parts:?}"));
        }
    }

    fn esc_dispatch(&mut self, _: &[u8], _: bool, byte: u8) {
        self.refuse(format!("ESC {:?}", byte as char));
    }

    fn hook(&mut self, _: &vte::Params, _: &[u8], _: bool, action: char) {
        self.refuse(format!("DCS {action}"));
    }
}
