//! What the line being written may become: commands, then the names they take.

use super::app::App;
use super::slash::{self, Line, Slash};
use super::{format, sanitize};
use crate::protocol::PARAMS;

pub struct Choice {
    /// What the input becomes.
    pub line: String,
    pub shown: String,
    pub help: String,
    /// Enter takes it without an arrow key before. Not so where nothing of the name is typed yet:
    /// `/set ` lists all.
    pub eager: bool,
}

pub fn offered(app: &App) -> Vec<Choice> {
    let text = app.composer.text();
    let commands = slash::completions(&text);
    if !commands.is_empty() {
        let choice = |spec: &&slash::Spec| Choice {
            line: format!("/{}", spec.name),
            shown: format!("/{} {}", spec.name, spec.arguments),
            help: spec.help.into(),
            eager: true,
        };
        return commands.iter().map(choice).collect();
    }
    let Some((command, typed)) =
        text.split_once(' ').filter(|(_, typed)| !typed.contains(char::is_whitespace))
    else {
        return Vec::new();
    };
    let names: Vec<(String, String)> = match slash::read(command) {
        Line::Command(Slash::Set, _) => PARAMS
            .iter()
            .map(|spec| (spec.name.to_owned(), format!("{}: {}", (spec.get)(&app.params), spec.help)))
            .collect(),
        Line::Command(Slash::Model, _) => app
            .models
            .iter()
            .map(|m| {
                let place = if m.on_disk { "on disk" } else { "to fetch" };
                (sanitize::one_line(&m.name), format!("{} {place}", format::bytes(m.bytes)))
            })
            .collect(),
        _ => Vec::new(),
    };
    let begins = |(name, _): &(String, String)| name.starts_with(typed);
    let choice = |(name, help): (String, String)| Choice {
        line: format!("{command} {name}"),
        shown: name,
        help,
        eager: !typed.is_empty(),
    };
    names.into_iter().filter(begins).map(choice).collect()
}
