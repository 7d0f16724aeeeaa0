//! Hostile text in every channel, and all that is written to the terminal read by a parser: no
//! control of foreign origin is obeyed, the text is seen as escapes, no column moves, and the terminal
//! is given back. BUGLOG X01, X02, X05.

use super::payloads::{Payload, payloads};
use super::terminal::Terminal;
use std::collections::BTreeSet;
use std::time::Duration;

/// How a payload reaches the screen.
#[derive(Clone, Copy)]
enum Way {
    /// The engine says it, asked for it by this word.
    Said(&'static str),
    /// A tool gives it back.
    ToolResult,
    /// A model of this name says it of itself, or of why it cannot be opened.
    Model(&'static str),
    /// It is pasted and sent.
    Paste,
}

const CHANNELS: [(&str, Way); 19] = [
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
    ("error", Way::Said("error")),
    ("note", Way::Said("note")),
    ("a breakpoint's reason", Way::Said("why")),
    ("a model's name and metadata", Way::Model("hostile")),
    ("why a model did not load", Way::Model("broken")),
    ("why a model was not opened", Way::Model("refused")),
    ("pasted text", Way::Paste),
    ("a tool's description, an MCP server's command", Way::Said("/tools")),
    ("names and descriptions in the catalogue", Way::Said("/model")),
];

/// Cells that the panels have for a token.
const TOKEN: usize = 12;

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
    let mut terminal = Terminal::of((200, 60), Terminal::command(&["--pace", "1", "--hostile"]));
    terminal.wait_for("ready in");
    let mut watch = Watch::default();
    watch.read(&terminal);
    // What was written to open the screen.
    watch.foreign.clear();
    let columns = borders(&terminal);
    assert!(columns.len() >= 2, "the panels have borders:\n{}", terminal.contents());
    // Thoughts and results are shown as they come.
    terminal.send(b"\x0f");
    let mut failures = Vec::new();
    // No program can be given a NUL, so none can echo it.
    let fits = |payload: &Payload| !(matches!(way, Way::ToolResult) && payload.text.contains('\0'));
    for (number, payload) in payloads().iter().enumerate().filter(|(_, payload)| fits(payload)) {
        send(&mut terminal, way, number, payload);
        let room = if matches!(way, Way::Said("token")) { TOKEN } else { usize::MAX };
        let shown = |t: &Terminal| t.contents().contains(&payload.shown[..payload.shown.len().min(room)]);
        let mut wrong = Vec::new();
        if !terminal.try_until(Duration::from_secs(5), shown) {
            wrong.push(format!("{:?} is not seen in\n{}", payload.shown, terminal.contents()));
        }
        watch.read(&terminal);
        wrong.append(&mut watch.foreign);
        if !terminal.try_until(Duration::from_secs(5), |t| borders(t) == columns) {
            wrong.push(format!("columns moved\n{}", terminal.contents()));
        }
        failures.extend(wrong.into_iter().map(|what| format!("{} in {channel}: {what}", payload.class)));
    }
    // An open question keeps Ctrl+D; the second Ctrl+C leaves from anywhere.
    terminal.send(b"\x04");
    if !terminal.try_until(Duration::from_secs(5), Terminal::is_given_back) {
        failures.push(format!("{channel}: the terminal is not given back\n{}", terminal.contents()));
    }
    failures
}

fn send(terminal: &mut Terminal, way: Way, number: usize, payload: &Payload) {
    match way {
        // A list: all of it at once.
        Way::Said(command) if command.starts_with('/') && number > 0 => {}
        Way::Said(command) if command.starts_with('/') => {
            terminal.send(format!("{command}\r").as_bytes());
        }
        Way::Said(channel) => terminal.send(format!("hostile {channel} {number}\r").as_bytes()),
        Way::ToolResult => {
            terminal.send(format!("hostile result {number}\r").as_bytes());
            terminal.wait_for(" tool call: get_weather ");
            let answered = |t: &Terminal| !t.contents().contains(" tool call: get_weather ");
            // A question takes no answer before it could be read, and more of it may be below.
            while !answered(terminal) {
                terminal.send(b"\x1b[By");
                terminal.try_until(Duration::from_millis(350), answered);
            }
        }
        Way::Model(name) => terminal.send(format!("/model ./{name}-{number}\r").as_bytes()),
        Way::Paste => {
            terminal.send(format!("\x1b[200~{}\x1b[201~", payload.text).as_bytes());
            terminal.try_until(Duration::from_secs(5), |t| t.contents().contains(payload.shown));
            terminal.send(b"\r");
        }
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
    let long = |column: &u16| (0..rows.get()).filter(|row| is_border(*row, *column)).count() > 40;
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
        let new = terminal.seen.lock().unwrap().raw[self.read..].to_vec();
        self.read += new.len();
        let mut parser = std::mem::take(&mut self.parser);
        parser.advance(self, &new);
        self.parser = parser;
    }

    fn refuse(&mut self, what: String) {
        self.foreign.push(what);
    }
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
        let parts: Vec<_> = params.iter().map(|p| String::from_utf8_lossy(p)).collect();
        // The window's name ends in ours, whatever the model calls itself.
        let is_title = parts[0] == "2" && parts.last().is_some_and(|last| last.ends_with("glassbox"));
        if !is_title || parts.iter().any(|part| part.chars().any(glassbox::base::is_dangerous)) {
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
