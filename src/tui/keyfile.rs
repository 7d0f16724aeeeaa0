//! The person's own keys: a TOML file laid over [`BINDINGS`](super::bindings::BINDINGS).
//!
//! A table is a place, a key in it an action's name, its value a key, a list of keys, or `"none"`. What is
//! wrong is told and left out; everything else holds.

use super::keymap::{Binding, Keymap, Place};
use crate::base::nearest;
use crokey::KeyCombination;
use crossterm::event::{KeyCode, KeyModifiers};

impl Place {
    /// As a keymap file calls it: of a panel the panel's name.
    pub fn name(self) -> String {
        match self {
            Place::In(panel) => format!("{panel:?}").to_lowercase(),
            other => snake(&format!("{other:?}")),
        }
    }
}

fn snake(camel: &str) -> String {
    let mut name = String::new();
    for c in camel.chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(c.to_lowercase());
    }
    name
}

impl Keymap {
    /// The built-in keys with those of a file over them.
    pub fn with_file(file: &str, text: &str) -> Self {
        let mut keymap = Self::default();
        let tables = match toml::from_str::<toml::Table>(text) {
            Ok(tables) => tables,
            Err(e) => {
                let line = e.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
                let what = e.message().lines().next().unwrap_or_default();
                keymap.problems.push(format!("{file}, line {line}: {what}; the built-in keys hold"));
                return keymap;
            }
        };
        for (table, content) in &tables {
            keymap.take_table(file, table, content);
        }
        keymap.settle(file);
        keymap
    }

    /// How many bindings are not as they are built in.
    pub fn changed(&self) -> usize {
        let default = Self::default();
        self.bindings().zip(default.bindings()).filter(|(a, b)| a.keys != b.keys).count()
    }

    fn take_table(&mut self, file: &str, table: &str, content: &toml::Value) {
        let places: Vec<String> = self.bindings().map(|b| b.place.name()).collect();
        let places = || places.iter().map(String::as_str);
        let Some(content) = content.as_table() else {
            return self.problems.push(format!("{file}: {table} stands outside a table, as [input]"));
        };
        if !places().any(|place| place == table) {
            let hint = hint(table, places());
            return self.problems.push(format!("{file}: no place [{table}]{hint}"));
        }
        for (name, value) in content {
            if let Err(wrong) = self.take(table, name, value) {
                self.problems.push(format!("{file} [{table}] {name}: {wrong}"));
            }
        }
    }

    fn take(&mut self, table: &str, name: &str, value: &toml::Value) -> Result<(), String> {
        let here = |b: &&mut Binding| b.place.name() == table;
        let names: Vec<&str> = self.rows.iter_mut().filter(here).map(|b| b.name).collect();
        let hint = hint(name, names.iter().copied());
        let binding = self.rows.iter_mut().filter(here).find(|b| b.name == name);
        let binding = binding.ok_or_else(|| format!("no such action{hint}"))?;
        let keys = keys(value)?;
        let typed = |key: &&KeyCombination| {
            let held = key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
            matches!(key.codes.first(), KeyCode::Char(_)) && !held
        };
        if matches!(binding.place, Place::Anywhere | Place::Input)
            && let Some(key) = keys.iter().find(typed)
        {
            return Err(format!("{key} is for typing; with ctrl or alt it can be bound"));
        }
        let odd: Vec<String> = keys.iter().filter_map(never_arrives).collect();
        binding.keys = keys;
        self.problems.extend(odd.into_iter().map(|why| format!("[{table}] {name}: {why}")));
        Ok(())
    }

    /// Takes back what would give one key two meanings in one place.
    fn settle(&mut self, file: &str) {
        let default = Self::default();
        while let Some((a, b, key)) = self.conflict(&default) {
            let (one, other) = (&self.rows[a], &self.rows[b]);
            self.problems.push(format!(
                "{file}: {key} is both [{}] {} and [{}] {}; they keep the built-in keys",
                one.place.name(),
                one.name,
                other.place.name(),
                other.name
            ));
            for at in [a, b] {
                self.rows[at].keys.clone_from(&default.rows[at].keys);
            }
        }
    }

    /// Two bindings of which one is the person's own, and the key they share.
    fn conflict(&self, default: &Self) -> Option<(usize, usize, KeyCombination)> {
        let own = |at: usize| self.rows[at].keys != default.rows[at].keys;
        for a in 0..self.rows.len() {
            for b in a + 1..self.rows.len() {
                if !(own(a) || own(b)) || !meet(self.rows[a].place, self.rows[b].place) {
                    continue;
                }
                let shared = |key: &&KeyCombination| self.rows[b].keys.iter().any(|k| same(k, key));
                if let Some(key) = self.rows[a].keys.iter().find(shared) {
                    return Some((a, b, *key));
                }
            }
        }
        None
    }
}

/// Whether bindings of the two places are looked at for the same key press, with equal right.
fn meet(a: Place, b: Place) -> bool {
    let wide = |place| matches!(place, Place::Input | Place::Panels | Place::Transcript | Place::Tokens);
    a == b || (a == Place::Anywhere && wide(b)) || (b == Place::Anywhere && wide(a))
}

fn same(a: &KeyCombination, b: &KeyCombination) -> bool {
    a.normalized() == b.normalized()
}

fn keys(value: &toml::Value) -> Result<Vec<KeyCombination>, String> {
    let key = |text: &str| crokey::parse(text).map_err(|_| format!("{text:?} is no key, as ctrl-s or f5 is"));
    let expected = || "a key, a list of keys or \"none\" stands here".to_owned();
    match value {
        toml::Value::String(text) if text == "none" => Ok(Vec::new()),
        toml::Value::String(text) => Ok(vec![key(text)?]),
        toml::Value::Array(all) => all.iter().map(|one| key(one.as_str().ok_or_else(expected)?)).collect(),
        _ => Err(expected()),
    }
}

/// Why a terminal does not send this key, or sends another.
fn never_arrives(key: &KeyCombination) -> Option<String> {
    let KeyCode::Char(c) = key.codes.first() else { return None };
    let (control, alt) =
        (key.modifiers.contains(KeyModifiers::CONTROL), key.modifiers.contains(KeyModifiers::ALT));
    match c {
        'm' | 'i' | 'h' | '[' if control => {
            Some(format!("{key} may never arrive: to most terminals it is Enter, Tab, Backspace or Esc"))
        }
        '0'..='9' if alt => Some(format!("{key} may never arrive: terminals take it for their tabs")),
        _ => None,
    }
}

fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(name, known).map_or(String::new(), |near| format!("; did you mean {near}?"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::tui::app::Focus;
    use crate::tui::bindings::BINDINGS;
    use crate::tui::keymap::{Action, Row};
    use crossterm::event::KeyEvent;

    fn read(text: &str) -> Keymap {
        Keymap::with_file("keymap.toml", text)
    }

    fn control(c: char) -> KeyEvent {
        KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)
    }

    #[test]
    fn a_file_changes_adds_and_takes_away_keys() {
        let keymap = read(
            "[input]\nsubmit = 'ctrl-s'\nnewline = ['enter', 'alt-enter']\n[anywhere]\nregenerate = 'none'\n\
             step = 'f5'\ntoggle_pause = 'f6'\n[panels]\nzoom = ['z', 'x']\n",
        );
        assert_eq!(keymap.problems, [""; 0]);
        assert_eq!(keymap.changed(), 6);
        assert_eq!(keymap.action(control('s'), Focus::Input), Some(Action::Submit));
        let plain = |code| KeyEvent::from(code);
        assert_eq!(keymap.action(plain(KeyCode::Enter), Focus::Input), Some(Action::Newline));
        assert_eq!(keymap.action(plain(KeyCode::F(3)), Focus::Input), None);
        assert_eq!(keymap.action(plain(KeyCode::F(5)), Focus::Input), Some(Action::Step));
    }

    #[test]
    fn what_is_wrong_is_named_and_the_rest_holds() {
        for (text, said) in [
            ("[inpt]\nsubmit = 'f9'", "keymap.toml: no place [inpt]; did you mean input?"),
            ("[input]\nsubmitt = 'f9'", "keymap.toml [input] submitt: no such action; did you mean submit?"),
            ("[input]\nsubmit = 'ctlr-s'", "keymap.toml [input] submit: \"ctlr-s\" is no key"),
            ("[input]\nsubmit = 7", "keymap.toml [input] submit: a key, a list of keys or \"none\""),
            ("[input]\nsubmit = 's'", "keymap.toml [input] submit: s is for typing"),
            ("submit = 'f9'", "keymap.toml: submit stands outside a table"),
            ("[input]\nsubmit = ", "keymap.toml, line 2: "),
            ("[anywhere]\nhelp = 'alt-1'", "[anywhere] help: Alt-1 may never arrive"),
            (
                "[anywhere]\nhelp = 'f5'",
                "keymap.toml: F5 is both [anywhere] help and [anywhere] toggle_pause",
            ),
            (
                "[transcript]\nedit_message = 'f5'",
                "keymap.toml: F5 is both [anywhere] toggle_pause and [transcript] edit_message",
            ),
            (
                "[tokens]\nfork_here = 'f5'",
                "keymap.toml: F5 is both [anywhere] toggle_pause and [tokens] fork_here",
            ),
            ("[input]\nsubmit = 'f5'", "keymap.toml: F5 is both [input] submit and [anywhere] toggle_pause"),
        ] {
            let keymap = read(&format!("{text}\n[panels]\nzoom = 'x'\n"));
            assert!(keymap.problems[0].starts_with(said), "{text}: {:?}", keymap.problems);
            assert_eq!(keymap.problems.len(), 1, "{:?}", keymap.problems);
        }
    }

    /// docs/keys.md is made from the table: `UPDATE_DOCS=1 cargo test --lib keys_md` writes it anew.
    #[test]
    fn keys_md_has_every_binding() {
        let head = include_str!("keys_head.md");
        let mut places: Vec<(String, Vec<String>)> = Vec::new();
        for row in BINDINGS {
            let name = row.place.name();
            let mut keys: Vec<String> =
                row.keys.iter().map(|k| format!("{:?}", k.to_string().to_lowercase())).collect();
            keys.dedup();
            let value = if keys.len() == 1 { keys[0].clone() } else { format!("[{}]", keys.join(", ")) };
            let said = if row.help.is_empty() { String::new() } else { format!("  # {}", row.help) };
            let line = format!("{} = {value}{said}", row.name);
            match places.iter_mut().find(|(place, _)| *place == name) {
                Some((_, lines)) => lines.push(line),
                None => places.push((name, vec![line])),
            }
        }
        let tables: Vec<String> =
            places.iter().map(|(place, lines)| format!("[{place}]\n{}\n", lines.join("\n"))).collect();
        let example = tables.join("\n");
        // The example is a keymap file that changes nothing.
        let keymap = read(&example);
        let same =
            |(mine, row): (&Binding, &Row)| row.keys.iter().all(|k| mine.keys.iter().any(|m| same(m, k)));
        let unchanged = keymap.bindings().zip(BINDINGS).all(same);
        assert!(keymap.problems.is_empty() && unchanged, "{:?}", keymap.problems);
        let page = format!("{head}\n```toml\n{example}```\n");
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/keys.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(there == page, "docs/keys.md is old: UPDATE_DOCS=1 cargo test --lib keys_md");
    }
}
