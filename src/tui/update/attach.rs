//! Files with a message: `@path` in the draft, `/read`, `/glob`. They are read when they are chosen.

use super::keys;
use crate::tui::app::{App, Effect};
use crate::tui::chat::Level;
use crate::tui::files::{FileEntry, Unread};
use crate::tui::sanitize;

/// What is known of files while a message is written.
#[derive(Default)]
pub struct Attaching {
    /// The folder that was listed last, while a file's name is typed.
    pub folder: Option<Folder>,
    /// Words of the draft that are being looked up as files before it is sent.
    waiting: Vec<String>,
    /// Words that are no files.
    missing: Vec<String>,
    /// Files that were asked for by name: their absence is a mistake.
    named: Vec<String>,
    /// Send when nothing is waited for any more.
    send: bool,
}

pub struct Folder {
    /// With its `/` at the end; empty is the working directory.
    pub path: String,
    pub entries: Vec<FileEntry>,
}

/// After every message: the folder of the name being typed is listed once.
pub fn follow(app: &mut App, effects: &mut Vec<Effect>) {
    let Some(typed) = app.composer.mention() else { return app.attaching.folder = None };
    let path = folder_of(&typed).to_owned();
    if app.attaching.folder.as_ref().is_none_or(|folder| folder.path != path) {
        effects.push(Effect::ListFolder(path.clone()));
        app.attaching.folder = Some(Folder { path, entries: Vec::new() });
    }
}

/// The part up to the last `/`, and with it.
pub fn folder_of(path: &str) -> &str {
    path.rfind('/').map_or("", |at| &path[..=at])
}

pub fn listed(app: &mut App, path: &str, entries: Vec<FileEntry>) {
    if let Some(folder) = app.attaching.folder.as_mut().filter(|folder| folder.path == path) {
        folder.entries = entries;
        app.completion = 0;
    }
}

/// The completion that was chosen: into a folder, or a file to be read.
pub fn choose(app: &mut App, path: &str, effects: &mut Vec<Effect>) {
    // A name that is not what is seen of it never stands in the draft; the chip of its file does.
    match sanitize::one_line(path) == path {
        true => app.composer.set_mention(path),
        false => app.composer.drop_mention(),
    }
    app.completion = 0;
    if !path.ends_with('/') {
        read(app, path, effects);
    }
}

/// `/read FILE`.
pub fn read(app: &mut App, path: &str, effects: &mut Vec<Effect>) {
    if path.is_empty() {
        return app.chat.note(Level::Bad, "/read FILE puts a file into the message; @ and its name does too");
    }
    app.attaching.named.push(path.to_owned());
    effects.push(Effect::ReadFile(path.to_owned()));
}

/// `/glob PATTERN`.
pub fn glob(app: &mut App, pattern: &str, effects: &mut Vec<Effect>) {
    match pattern {
        "" => app.chat.note(Level::Bad, "/glob src/*.rs puts files into the message; ** is any folders"),
        pattern => effects.push(Effect::Glob(pattern.to_owned())),
    }
}

pub fn globbed(app: &mut App, pattern: &str, found: Result<Vec<String>, String>, effects: &mut Vec<Effect>) {
    match found {
        Ok(paths) => paths.iter().for_each(|path| read(app, path, effects)),
        Err(why) => app.chat.note(Level::Bad, format!("/glob {pattern}: {why}")),
    }
}

pub fn file_read(app: &mut App, path: &str, content: Result<String, Unread>, effects: &mut Vec<Effect>) {
    let named = app.attaching.named.iter().position(|other| other == path);
    if let Some(at) = named {
        app.attaching.named.remove(at);
    }
    app.attaching.waiting.retain(|other| other != path);
    let shown = sanitize::one_line(path);
    match content {
        Ok(content) => app.composer.attach(path, &content),
        Err(Unread::Missing) if named.is_none() => app.attaching.missing.push(path.to_owned()),
        Err(why) => {
            let why = match why {
                Unread::Missing => "no such file".to_owned(),
                Unread::Because(why) => why,
            };
            // A word that cannot be what it says is not sent without a word.
            app.attaching.send = false;
            app.chat.note(Level::Bad, format!("{shown}: {why}; @@ writes an @ that names no file"));
        }
    }
    if app.attaching.waiting.is_empty() && std::mem::take(&mut app.attaching.send) {
        keys::submit(app, effects);
    }
}

/// Whether words of the draft have to be looked up before it is sent; it is sent then.
pub fn holds(app: &mut App, effects: &mut Vec<Effect>) -> bool {
    let mut unknown = app.composer.mentions();
    unknown.retain(|path| !app.attaching.missing.contains(path));
    unknown.dedup();
    effects.extend(unknown.iter().cloned().map(Effect::ReadFile));
    app.attaching.send = !unknown.is_empty();
    app.attaching.waiting = unknown;
    app.attaching.send
}

/// A key was pressed: what was about to be sent is being changed.
pub fn wait(app: &mut App) {
    app.attaching.send = false;
}

/// What is sent was looked up; the next draft is another matter.
pub fn sent(app: &mut App) {
    app.attaching.missing.clear();
}

/// `@@x` is `@x`.
pub fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("@@") {
        let starts = rest[..at].chars().next_back().or(out.chars().next_back());
        out.push_str(&rest[..at]);
        out.push_str(if starts.is_none_or(char::is_whitespace) { "@" } else { "@@" });
        rest = &rest[at + 2..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubled_sign_at_a_words_beginning_is_one() {
        assert_eq!(unescaped("@@home a@@b @@x"), "@home a@@b @x");
        assert_eq!((folder_of("src/tui/a"), folder_of("a"), folder_of("/")), ("src/tui/", "", "/"));
    }
}
