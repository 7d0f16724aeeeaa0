//! The house rules as a test: each folder may use only what is written beside it.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The wiring, beside `main.rs`: files that may name everything, and that no folder may name.
const WIRING: [&str; 7] = ["archive", "card", "launch", "measure", "open", "shrink", "store"];

/// In reading order.
const MAY_USE: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("config", &["base", "protocol"]),
    ("protocol", &["base"]),
    ("trace", &["base", "protocol"]),
    ("text", &["base", "protocol"]),
    ("grammar", &["base", "protocol", "text"]),
    ("sample", &["base", "protocol"]),
    ("weights", &["base"]),
    ("kv", &["base", "protocol"]),
    ("compute", &["base", "weights"]),
    ("parallel", &["base", "compute"]),
    ("model", &["base", "protocol", "sample", "weights", "kv", "compute", "parallel"]),
    ("engine", &["base", "config", "protocol", "text", "grammar", "sample", "kv", "model"]),
    ("simulate", &["base", "config", "protocol", "kv", "model", "sample", "engine"]),
    ("tools", &["base", "protocol"]),
    ("sessions", &["base", "protocol"]),
    ("bench", &["base", "config", "protocol"]),
    ("tui", &["base", "config", "protocol"]),
    ("script", &["base", "config", "protocol"]),
];

#[test]
fn every_folder_uses_only_the_folders_below_it() {
    let allowed: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    let mut wrong = Vec::new();
    for (folder, uses) in &allowed {
        for (path, text) in sources(&Path::new("src").join(folder)) {
            wrong.extend(
                named_folders(&text)
                    .filter(|used| *used != *folder && allowed.contains_key(used) && !uses.contains(used))
                    .map(|used| format!("{path} uses {used}")),
            );
            wrong.extend(
                named_folders(&text)
                    .filter(|used| WIRING.contains(used))
                    .map(|used| format!("{path} uses {used}")),
            );
        }
    }
    assert!(wrong.is_empty(), "imports point down (ARCHITECTURE.md):\n{}", wrong.join("\n"));
}

#[test]
fn the_table_names_every_folder_and_has_no_cycle() {
    let mut on_disk: Vec<String> = fs::read_dir("src")
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    on_disk.sort();
    let mut listed: Vec<_> = MAY_USE.iter().map(|(name, _)| (*name).to_owned()).collect();
    listed.sort();
    assert_eq!(on_disk, listed);

    // Repeatedly take away folders that use nothing that is left; a cycle would remain.
    let mut left: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    while let Some(name) =
        left.iter().find(|(_, uses)| uses.iter().all(|u| !left.contains_key(u))).map(|(name, _)| *name)
    {
        left.remove(name);
    }
    assert!(left.is_empty(), "a cycle among {:?}", left.keys());
}

/// Folder names after every `crate::` of a file, also inside `use crate::{a, b::c}`.
fn named_folders(text: &str) -> impl Iterator<Item = &str> {
    text.split("crate::").skip(1).flat_map(|rest| {
        let group = rest.strip_prefix('{').and_then(|r| r.split_once("};")).map(|(inside, _)| inside);
        let paths: Vec<&str> = group.map_or_else(|| vec![rest], |inside| inside.split(',').collect());
        paths.into_iter().map(|path| {
            path.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
        })
    })
}

fn sources(dir: &Path) -> Vec<(String, String)> {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![(path.display().to_string(), fs::read_to_string(&path).unwrap())],
        })
        .collect()
}
