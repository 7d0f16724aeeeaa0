//! Slash commands: a table, and reading a line against it.

use crate::base;

/// A command and what it does, for completion and help.
pub struct Spec {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub arguments: &'static str,
    pub help: &'static str,
    pub command: Slash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slash {
    Help,
    Exit,
    Clear,
    Model,
    System,
    Set,
    Regenerate,
    Edit,
    Version,
    Continue,
    Compare,
    Take,
    Preset,
    Stop,
    Read,
    Glob,
    Parallel,
    Beam,
    Pause,
    Step,
    Resume,
    Break,
    Unbreak,
    Why,
    Fork,
    Diff,
    Find,
    Panel,
    Layout,
    Theme,
    Mouse,
    Keys,
    Kv,
    Stats,
    Context,
    Copy,
    Think,
    Tools,
    Schema,
    Grammar,
    Regex,
    Sessions,
    Rename,
    Save,
    Duplicate,
    Export,
    Import,
    Tab,
    New,
}

macro_rules! spec {
    ($name:expr, [$($alias:expr),*], $arguments:expr, $command:ident, $help:expr) => {
        Spec { name: $name, aliases: &[$($alias),*], arguments: $arguments, help: $help, command: Slash::$command }
    };
}

pub const COMMANDS: &[Spec] = &[
    spec!("help", ["?"], "", Help, "keys and commands"),
    spec!("model", ["models"], "[NAME]", Model, "list the models, or switch"),
    spec!("set", [], "[NAME VALUE]", Set, "parameters and the scheduler"),
    spec!("parallel", [], "K [TEXT]", Parallel, "K answers at once, or to A | B"),
    spec!("beam", [], "[WIDTH … | off]", Beam, "answer by beam search"),
    spec!("clear", [], "", Clear, "start anew in this tab"),
    spec!("new", [], "", New, "a new chat in a new tab"),
    spec!("tab", ["tabs"], "[new|close|N]", Tab, "open chats"),
    spec!("sessions", ["load"], "[WORDS]", Sessions, "earlier chats; words search them"),
    spec!("rename", ["title"], "[TITLE]", Rename, "what this chat is called"),
    spec!("duplicate", [], "", Duplicate, "this chat once more, in a tab"),
    spec!("save", [], "", Save, "where this chat is saved"),
    spec!("export", [], "[md|json FILE]", Export, "this chat to a file"),
    spec!("import", [], "FILE", Import, "a chat from Markdown or JSON"),
    spec!("regen", ["regenerate", "retry"], "", Regenerate, "answer the last message anew"),
    spec!("edit", [], "[N]", Edit, "say a message differently"),
    spec!("version", ["versions"], "[N|next|prev]", Version, "another version of a message"),
    spec!("continue", ["cont"], "", Continue, "go on with an answer that was cut"),
    spec!("compare", [], "A | B [: TEXT]", Compare, "one prompt under several settings"),
    spec!("take", [], "[N]", Take, "go on from one of several answers"),
    spec!("read", ["file"], "FILE", Read, "a file into the message, as @FILE"),
    spec!("glob", [], "PATTERN", Glob, "files into the message"),
    spec!("stop", [], "", Stop, "stop the answer"),
    spec!("pause", [], "", Pause, "hold the engine between steps"),
    spec!("step", [], "[N]", Step, "take N steps, then hold"),
    spec!("resume", [], "", Resume, "let the engine run again"),
    spec!("break", ["breakpoint"], "[CONDITION]", Break, "hold the engine when it is met"),
    spec!("unbreak", [], "[N]", Unbreak, "take a breakpoint away, or all"),
    spec!("why", [], "[SEQ]", Why, "why something waits"),
    spec!("fork", ["branch"], "[SEQ] [@TOKEN]", Fork, "answer anew from a token on"),
    spec!("diff", [], "[SEQ SEQ]", Diff, "compare two answers"),
    spec!("find", ["search"], "[TEXT]", Find, "find in this chat"),
    spec!("system", [], "[TEXT|edit|none]", System, "the system prompt"),
    spec!("preset", ["presets"], "[NAME|save NAME]", Preset, "values from a file, or into one"),
    spec!("schema", [], "[JSON|FILE|off]", Schema, "answers follow a JSON schema"),
    spec!("grammar", [], "[FILE|off]", Grammar, "answers follow Lark or GBNF"),
    spec!("regex", [], "[REGEX|off]", Regex, "answers match an expression"),
    spec!("think", [], "[on|off|fold|…]", Think, "thinking, and how it is shown"),
    spec!("tools", ["tool"], "[on|off|reload]", Tools, "what the model may call"),
    spec!("panel", ["panels"], "[1 2 3 4 5 6]", Panel, "show or hide panels"),
    spec!("layout", [], "[wide|present|…]", Layout, "how the panels lie"),
    spec!("theme", ["themes"], "[NAME]", Theme, "other colours"),
    spec!("mouse", [], "[on|off]", Mouse, "whose the mouse is"),
    spec!("keys", ["keymap"], "", Keys, "where your own keys are read"),
    spec!("kv", [], "[reset]", Kv, "blocks; reset drops the cache"),
    spec!("stats", [], "", Stats, "how fast the last answer was"),
    spec!("context", [], "", Context, "how full the context is"),
    spec!("copy", [], "[code [N]]", Copy, "copy the answer, or its code"),
    spec!("exit", ["quit", "bye", "q"], "", Exit, "leave"),
];

/// What a submitted line is.
#[derive(Debug, PartialEq)]
pub enum Line<'a> {
    /// Goes to the model; of `//x` it is `/x`.
    Message(&'a str),
    Command(Slash, &'a str),
    /// Not a command, and the nearest one.
    Unknown {
        name: &'a str,
        nearest: Option<&'static str>,
    },
}

pub fn read(line: &str) -> Line<'_> {
    let Some(rest) = line.strip_prefix('/') else { return Line::Message(line) };
    if rest.starts_with('/') {
        return Line::Message(rest);
    }
    let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    // `/export! FILE`: what is behind the name is told to the command.
    let (name, arguments) = match name.strip_suffix('!') {
        Some(name) if !name.is_empty() => (name, &rest[name.len()..]),
        _ => (name, arguments),
    };
    match COMMANDS.iter().find(|spec| spec.name == name || spec.aliases.contains(&name)) {
        Some(spec) => Line::Command(spec.command, arguments.trim()),
        None => Line::Unknown { name, nearest: nearest(name) },
    }
}

/// The commands that a line being written may become; none once its arguments begin.
pub fn completions(line: &str) -> Vec<&'static Spec> {
    let Some(typed) = line.strip_prefix('/').filter(|t| !t.contains(char::is_whitespace)) else {
        return Vec::new();
    };
    COMMANDS
        .iter()
        .filter(|spec| spec.name.starts_with(typed) || spec.aliases.iter().any(|a| a.starts_with(typed)))
        .collect()
}

fn nearest(name: &str) -> Option<&'static str> {
    base::nearest(name, COMMANDS.iter().flat_map(|s| std::iter::once(&s.name).chain(s.aliases)).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_commands_or_mistakes() {
        assert_eq!(read("hello"), Line::Message("hello"));
        assert_eq!(read("//etc/hosts"), Line::Message("/etc/hosts"));
        assert_eq!(read("/set temp 0.2"), Line::Command(Slash::Set, "temp 0.2"));
        assert_eq!(read("/?"), Line::Command(Slash::Help, ""));
        assert_eq!(read("/parralel 4"), Line::Unknown { name: "parralel", nearest: Some("parallel") });
        assert_eq!(read("/zzzzzz"), Line::Unknown { name: "zzzzzz", nearest: None });
    }

    #[test]
    fn completion_ends_where_arguments_begin() {
        let names = |line| completions(line).iter().map(|s| s.name).collect::<Vec<_>>();
        assert_eq!(names("/st"), ["stop", "step", "stats"]);
        assert_eq!(names("/").len(), COMMANDS.len());
        assert!(names("/set ").is_empty() && names("set").is_empty());
    }
}
