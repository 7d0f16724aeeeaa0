//! The person's files that the screen reads when it opens, and the one that it writes: layouts and
//! theme. What is wrong with one of them is told in the transcript; it never keeps the screen shut.

use super::app::App;
use super::chat::Level;
use super::kept::Kept;
use super::keymap::Keymap;
use super::port::ScreenOptions;
use super::theme::{self, Depth, Theme};
use std::fs;
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};

/// The screen's state as the files say it.
///
/// # Errors
/// The theme that a flag, a variable or config.toml names cannot be read.
pub fn open(options: ScreenOptions, history: Vec<String>) -> anyhow::Result<App> {
    let depth = Depth::detect(options.no_color);
    let mut wrong = Vec::new();
    let kept = options.layout.as_deref().map_or_else(Kept::default, |path| read_kept(path, &mut wrong));
    let worn = match (&options.theme, &kept.theme) {
        (Some(named), _) => Theme::load(named, options.themes.as_deref(), depth)?,
        (None, kept) => kept_theme(kept.as_deref(), &options, depth, &mut wrong),
    };
    let keymap = options.keymap.as_deref().map_or_else(Keymap::default, |path| read_keymap(path, &mut wrong));
    let themes =
        options.themes.as_deref().map_or_else(Vec::new, |folder| own_themes(folder, depth, &mut wrong));
    let mut app = App::new(options, worn, history);
    app.panels.restore(&kept);
    (app.kept, app.keymap, app.themes) = (kept, keymap, themes);
    wrong.into_iter().for_each(|what| app.chat.note(Level::Bad, what));
    Ok(app)
}

/// Writes what is kept. A file that cannot be read, as one of a later version or changed by hand and
/// broken, is put aside first.
pub fn keep(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match fs::read_to_string(path) {
        Ok(there) if Kept::parse(&there).is_err() => fs::rename(path, beside(path, "bak"))?,
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(_) => fs::rename(path, beside(path, "bak"))?,
    }
    // Whole or not at all, also when the power fails in between.
    let new = beside(path, "new");
    fs::write(&new, text)?;
    fs::rename(&new, path)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    path.with_extension(format!("toml.{ending}"))
}

/// `NAME.toml` in the folder of the person's own themes.
pub fn read_theme(name: &str, folder: Option<&Path>, depth: Depth) -> std::result::Result<Theme, String> {
    let plain = !name.contains(['/', '\\']) && !name.starts_with('.');
    let folder = folder.filter(|_| plain).ok_or_else(|| format!("no theme {name:?}"))?;
    let path = folder.join(format!("{name}.toml"));
    match fs::read_to_string(&path) {
        Ok(text) => Theme::parse(name, &text, depth).map_err(|e| format!("{}: {e}", path.display())),
        Err(e) if e.kind() == ErrorKind::NotFound => Err(format!("no theme {name:?}")),
        Err(e) => Err(format!("{}: {e}", path.display())),
    }
}

fn read_kept(path: &Path, wrong: &mut Vec<String>) -> Kept {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Kept::default(),
        Err(e) => {
            wrong.push(format!("{}: {e}; the layouts are as they come", path.display()));
            return Kept::default();
        }
    };
    Kept::parse(&text).unwrap_or_else(|why| {
        let aside = beside(path, "bak");
        wrong.push(format!(
            "{}: {why}; the layouts are as they come, and the file becomes {} when they change",
            path.display(),
            aside.display()
        ));
        Kept::default()
    })
}

fn kept_theme(kept: Option<&str>, options: &ScreenOptions, depth: Depth, wrong: &mut Vec<String>) -> Theme {
    let by_itself = || Theme::built_in(theme::by_itself(), depth).expect("it is built in");
    let Some(name) = kept else { return by_itself() };
    let own = || read_theme(name, options.themes.as_deref(), depth);
    Theme::built_in(name, depth).map_or_else(own, Ok).unwrap_or_else(|why| {
        wrong.push(format!("the theme of the last session is not there: {why}"));
        by_itself()
    })
}

fn read_keymap(path: &Path, wrong: &mut Vec<String>) -> Keymap {
    match fs::read_to_string(path) {
        Ok(text) => {
            let keymap = Keymap::with_file(&path.display().to_string(), &text);
            wrong.extend(keymap.problems.iter().cloned());
            keymap
        }
        Err(e) if e.kind() == ErrorKind::NotFound => Keymap::default(),
        Err(e) => {
            wrong.push(format!("{}: {e}; the built-in keys hold", path.display()));
            Keymap::default()
        }
    }
}

/// By name. One that is broken is told, and not offered.
fn own_themes(folder: &Path, depth: Depth, wrong: &mut Vec<String>) -> Vec<Theme> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    let read = |name: String| read_theme(&name, Some(folder), depth).map_err(|why| wrong.push(why)).ok();
    names.into_iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::tui::panels::{Panel, SizeClass};

    #[test]
    fn layouts_and_theme_come_back_in_the_next_session() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/layout.toml");
        let options = ScreenOptions { layout: Some(path.clone()), ..ScreenOptions::default() };
        let mut app = open(options.clone(), vec![]).unwrap();
        app.panels.toggle(SizeClass::Medium, Panel::Kv);
        let mut kept = Kept::default();
        kept.theme = Some("nord".into());
        app.panels.keep(&mut kept);
        keep(&path, &kept.text()).unwrap();
        let again = open(options, vec![]).unwrap();
        assert_eq!(again.panels.open(SizeClass::Medium), [Panel::Sampling, Panel::Batch]);
        assert_eq!(again.theme.name, "nord");
        assert!(again.chat.entries.is_empty());
    }

    #[test]
    fn a_broken_file_is_told_and_put_aside_before_another_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("layout.toml");
        fs::write(&path, "[medium\nopen = 3").unwrap();
        let options = ScreenOptions { layout: Some(path.clone()), ..ScreenOptions::default() };
        assert_eq!(open(options, vec![]).unwrap().chat.entries.len(), 1);
        keep(&path, &Kept::default().text()).unwrap();
        assert_eq!(fs::read_to_string(beside(&path, "bak")).unwrap(), "[medium\nopen = 3");
        keep(&path, &Kept::default().text()).unwrap();
        assert!(Kept::parse(&fs::read_to_string(&path).unwrap()).is_ok());
        assert!(fs::read_to_string(beside(&path, "bak")).unwrap().starts_with("[medium\n"));
    }

    #[test]
    fn themes_of_ones_own_are_found_and_broken_ones_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let mine = include_str!("../../themes/nord.toml");
        fs::write(folder.path().join("mine.toml"), mine).unwrap();
        fs::write(folder.path().join("broken.toml"), "roles = 1").unwrap();
        let options = ScreenOptions { themes: Some(folder.path().into()), ..ScreenOptions::default() };
        let app = open(options, vec![]).unwrap();
        assert_eq!(app.themes.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["mine"]);
        assert_eq!(app.chat.entries.len(), 1);
        for name in ["../mine", "no", ".hidden"] {
            assert!(read_theme(name, Some(folder.path()), Depth::True).is_err(), "{name}");
        }
    }
}
