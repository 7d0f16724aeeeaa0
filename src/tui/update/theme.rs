//! Another theme is put on.

use crate::base::nearest;
use crate::tui::app::{App, Effect};
use crate::tui::chat::Level;
use crate::tui::overlay::Overlay;
use crate::tui::picker::{Choice, Item, Picker};
use crate::tui::theme::Theme;

/// `/theme NAME`; without a name a list, where each is tried on as it is passed.
pub fn command(app: &mut App, name: &str, effects: &mut Vec<Effect>) {
    if name.is_empty() {
        return choose(app);
    }
    match find(app, name) {
        Some(theme) => {
            wear(app, theme);
            keep(app, effects);
        }
        None => {
            // Perhaps it was written since the screen opened.
            effects.push(Effect::ReadTheme(name.to_owned()));
        }
    }
}

/// What the file of a theme holds.
pub fn read(app: &mut App, name: &str, theme: Result<Theme, String>, effects: &mut Vec<Effect>) {
    match theme {
        Ok(theme) => {
            app.themes.retain(|known| known.name != theme.name);
            app.themes.push(theme.clone());
            wear(app, theme);
            keep(app, effects);
        }
        Err(why) => {
            let known: Vec<&str> = names(app).collect();
            let hint = match nearest(name, known.iter().copied()) {
                Some(near) => format!("; did you mean {near}?"),
                None => format!("; there are {}", known.join(", ")),
            };
            app.chat.note(Level::Bad, format!("{why}{hint}"));
        }
    }
}

/// Built in, then the person's own.
pub fn names<'a>(app: &'a App) -> impl Iterator<Item = &'a str> {
    let built_in = Theme::names().map(|name| -> &'a str { name });
    let own = app.themes.iter().map(|theme| theme.name.as_str());
    built_in.chain(own.filter(|name| !Theme::names().any(|known| known == *name)))
}

/// Tries it on: what is kept stays what it was.
pub fn preview(app: &mut App, name: &str) {
    if app.theme.name != name
        && let Some(theme) = find(app, name)
    {
        wear(app, theme);
    }
}

fn find(app: &App, name: &str) -> Option<Theme> {
    let own = || app.themes.iter().find(|theme| theme.name == name).cloned();
    Theme::built_in(name, app.theme.depth).or_else(own)
}

fn wear(app: &mut App, mut theme: Theme) {
    theme.generation = app.theme.generation + 1;
    app.theme = theme;
}

fn keep(app: &mut App, effects: &mut Vec<Effect>) {
    app.kept.theme = Some(app.theme.name.clone());
    if app.options.layout.is_some() {
        effects.push(Effect::Keep(app.kept.text()));
    }
    let other = app.options.theme.as_ref().filter(|asked| **asked != app.theme.name);
    app.say(match other {
        Some(asked) => format!("theme {}; the settings name {asked} for the next start", app.theme.name),
        None => format!("theme {}", app.theme.name),
    });
}

fn choose(app: &mut App) {
    let worn = app.theme.name.clone();
    let item = |name: &str| Item {
        label: name.to_owned(),
        detail: if Theme::names().any(|known| known == name) { "" } else { "your own" }.into(),
        note: if name == worn { "worn now" } else { "" }.into(),
        choice: Choice::Theme(name.to_owned()),
    };
    let items: Vec<Item> = names(app).map(item).collect();
    let mut picker = Picker::new("theme", items);
    picker.selected = picker.items.iter().position(|item| item.label == worn).unwrap_or(0);
    picker.before = Some(worn);
    app.overlay = Some(Overlay::Picker(Box::new(picker)));
}
