//! What the line being written may become: commands, then the names they take.

use super::app::App;
use super::files::FileEntry;
use super::slash::{self, Line, Slash};
use super::{format, sanitize};
use crate::protocol::{Breakpoint, PARAMS, ParamKind, ParamSpec, SCHEDULING, SamplerOrder, SchedulingSpec};

pub struct Choice {
    /// What the input becomes.
    pub line: String,
    pub shown: String,
    pub help: String,
    /// Enter takes it without an arrow key before. Not so where nothing of the name is typed yet:
    /// `/set ` lists all.
    pub eager: bool,
    /// A file or a folder, in place of the word at the cursor.
    pub file: Option<String>,
}

pub fn offered(app: &App) -> Vec<Choice> {
    if let Some(typed) = app.composer.mention() {
        return files(app, &typed);
    }
    let text = app.composer.text();
    let commands = slash::completions(&text);
    if !commands.is_empty() {
        let choice = |spec: &&slash::Spec| Choice {
            line: format!("/{}", spec.name),
            shown: format!("/{} {}", spec.name, spec.arguments),
            help: spec.help.into(),
            eager: true,
            file: None,
        };
        return commands.iter().map(choice).collect();
    }
    let Some((command, typed)) = text.split_once(' ') else {
        return Vec::new();
    };
    if typed.contains(char::is_whitespace) {
        return values(command, typed);
    }
    let names: Vec<(String, String)> = match slash::read(command) {
        Line::Command(Slash::Break, _) => return conditions(command, typed),
        Line::Command(Slash::Set, _) => PARAMS
            .iter()
            .map(|spec| (spec.name.to_owned(), format!("{}: {}", (spec.get)(&app.params), spec.help)))
            .chain(SCHEDULING.iter().map(|spec| {
                (spec.name.to_owned(), format!("{}: {}", (spec.get)(app.scheduler()), spec.help))
            }))
            .collect(),
        Line::Command(Slash::Model, _) => app
            .models
            .iter()
            .map(|m| {
                let place = if m.on_disk { "on disk" } else { "to fetch" };
                (sanitize::one_line(&m.name), format!("{} {place}", format::bytes(m.bytes)))
            })
            .collect(),
        Line::Command(Slash::Preset, _) => super::update::preset_names(app),
        Line::Command(Slash::Edit, _) => super::update::messages(app),
        Line::Command(Slash::Take, _) => super::update::answers_beside(app),
        Line::Command(Slash::Version, _) => ["next", "prev"].map(|n| (n.to_owned(), String::new())).to_vec(),
        Line::Command(Slash::System, _) => {
            [("edit", "in $VISUAL or $EDITOR"), ("none", "the model is told none")]
                .map(|(name, help)| (name.to_owned(), help.to_owned()))
                .to_vec()
        }
        Line::Command(Slash::Theme, _) => {
            super::update::theme_names(app).map(|name| (sanitize::one_line(name), String::new())).collect()
        }
        Line::Command(Slash::Layout, _) => {
            let own = [("present", "one panel and the chat, spaced"), ("reset", "as it comes")];
            let named = super::layout::Arrangement::ALL.map(|a| (a.name(), a.help()));
            named.into_iter().chain(own).map(|(name, help)| (name.to_owned(), help.to_owned())).collect()
        }
        Line::Command(Slash::Mouse, _) => [("on", "it is glassbox's"), ("off", "it is the terminal's")]
            .map(|(name, help)| (name.to_owned(), help.to_owned()))
            .to_vec(),
        Line::Command(Slash::Tools, _) => [
            ("on", "the model is told of them"),
            ("off", "the model is not told of them"),
            ("reload", "read the file, start the servers"),
        ]
        .map(|(name, help)| (name.to_owned(), help.to_owned()))
        .to_vec(),
        _ => Vec::new(),
    };
    let begins = |(name, _): &(String, String)| name.starts_with(typed);
    let choice = |(name, help): (String, String)| Choice {
        line: format!("{command} {name}"),
        shown: name,
        help,
        eager: !typed.is_empty(),
        file: None,
    };
    let mut names: Vec<(String, String)> = names.into_iter().filter(begins).collect();
    // A number is taken as it is typed, not as what it begins.
    names.sort_by_key(|(name, _)| name != typed);
    names.into_iter().map(choice).collect()
}

/// Files of the folder that is being typed: those that begin so, then those that contain it.
fn files(app: &App, typed: &str) -> Vec<Choice> {
    const MOST: usize = 100;
    let Some(folder) = &app.attaching.folder else { return Vec::new() };
    let wanted = typed.strip_prefix(folder.path.as_str()).unwrap_or(typed).to_lowercase();
    let is_hidden = |name: &str| name.starts_with('.') && !wanted.starts_with('.');
    let fits = |begins: bool| {
        let wanted = &wanted;
        folder.entries.iter().filter(move |entry| {
            let name = entry.name.to_lowercase();
            name.starts_with(wanted.as_str()) == begins && name.contains(wanted.as_str())
        })
    };
    // What cannot be typed as it is cannot be the beginning of a longer path.
    let leads_nowhere = |entry: &FileEntry| entry.is_folder && sanitize::one_line(&entry.name) != entry.name;
    let all = fits(true).chain(fits(false));
    let all = all.filter(|entry| !is_hidden(&entry.name) && !leads_nowhere(entry));
    let choice = |entry: &FileEntry| Choice {
        line: String::new(),
        shown: format!("@{}{}", sanitize::one_line(&entry.name), if entry.is_folder { "/" } else { "" }),
        help: if entry.is_folder { "folder".into() } else { format::bytes(entry.bytes) },
        eager: !wanted.is_empty(),
        file: Some(format!("{}{}{}", folder.path, entry.name, if entry.is_folder { "/" } else { "" })),
    };
    all.take(MOST).map(choice).collect()
}

/// Of a setting whose values are names.
fn values(command: &str, typed: &str) -> Vec<Choice> {
    let Line::Command(Slash::Set, _) = slash::read(command) else { return Vec::new() };
    let Some((name, typed)) = typed.split_once(' ') else { return Vec::new() };
    let names = match (SchedulingSpec::find(name), ParamSpec::find(name)) {
        (Some(spec), _) => spec.choices,
        (_, Some(ParamSpec { name: "sampler_order", .. })) => &SamplerOrder::PRESETS,
        (_, Some(ParamSpec { kind: ParamKind::Choice(names), .. })) => names,
        _ => &[],
    };
    let choice = |value: &&'static str| Choice {
        line: format!("{command} {name} {value}"),
        shown: (*value).to_owned(),
        help: String::new(),
        eager: !typed.is_empty(),
        file: None,
    };
    names.iter().filter(|value| value.starts_with(typed)).map(choice).collect()
}

/// One of each kind of breakpoint. Those with a number are taken to be changed, not to be run.
fn conditions(command: &str, typed: &str) -> Vec<Choice> {
    let choice = |form: &&'static str| {
        let end = [" or ", " ("].iter().filter_map(|mark| form.find(mark)).min().unwrap_or(form.len());
        let (one, more) = form.split_at(end);
        Choice {
            line: format!("{command} {one}"),
            shown: one.to_owned(),
            help: more.trim_start().to_owned(),
            eager: !typed.is_empty() && !one.contains(' '),
            file: None,
        }
    };
    Breakpoint::FORMS.iter().filter(|form| form.starts_with(typed)).map(choice).collect()
}
