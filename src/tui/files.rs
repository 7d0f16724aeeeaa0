//! Files that a message is to have with it: found, listed and read. Called by the event loop, away
//! from its thread.

use std::fs;
use std::path::Path;

/// Larger ones fit into no context.
pub const MOST_BYTES: u64 = 2 << 20;
/// Entries of a folder that are listed, and files that a pattern may mean.
const MOST_ENTRIES: usize = 2_000;
pub const MOST_FILES: usize = 32;
/// Entries that are looked at for a pattern.
const MOST_VISITED: usize = 50_000;

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileEntry {
    pub name: String,
    pub is_folder: bool,
    pub bytes: u64,
}

/// Why a file is not attached.
#[derive(Clone, Debug, PartialEq)]
pub enum Unread {
    /// There is none of that name: it may be no file's name at all.
    Missing,
    Because(String),
}

/// By name; a folder that cannot be read has none.
pub fn list(folder: &str) -> Vec<FileEntry> {
    let path = if folder.is_empty() { "." } else { folder };
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let entry = |entry: fs::DirEntry| {
        // What a link leads to, not the link.
        let about = fs::metadata(entry.path()).ok()?;
        let name = entry.file_name().into_string().ok()?;
        Some(FileEntry { name, is_folder: about.is_dir(), bytes: about.len() })
    };
    let mut all: Vec<FileEntry> = entries.filter_map(entry).take(MOST_ENTRIES).collect();
    all.sort();
    all
}

/// # Errors
/// No such file, one that is no regular file, too large, or no text.
pub fn read(path: &str) -> Result<String, Unread> {
    let because = |why: String| Unread::Because(why);
    let about = fs::metadata(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => Unread::Missing,
        _ => because(e.to_string()),
    })?;
    if about.is_dir() {
        return Err(because("a folder; /glob takes the files in it".into()));
    }
    if !about.is_file() {
        return Err(because("no regular file".into()));
    }
    if about.len() > MOST_BYTES {
        let (has, most) = (super::format::bytes(about.len()), super::format::bytes(MOST_BYTES));
        return Err(because(format!("{has}; at most {most} are attached")));
    }
    let bytes = fs::read(path).map_err(|e| because(e.to_string()))?;
    let text = String::from_utf8(bytes)
        .map_err(|e| because(format!("no text in UTF-8 (byte {} is not)", e.utf8_error().valid_up_to())))?;
    if text.contains('\0') {
        return Err(because("no text: it has NUL bytes".into()));
    }
    Ok(text)
}

/// Files that match `*`, `?` and `**` (any folders), hidden ones only where they are named.
///
/// # Errors
/// None match, or too many.
pub fn glob(pattern: &str) -> Result<Vec<String>, String> {
    let (root, pattern) = match pattern.strip_prefix('/') {
        Some(rest) => ("/", rest),
        None => ("", pattern),
    };
    let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    let mut found = Vec::new();
    let mut budget = MOST_VISITED;
    descend(root, &parts, &mut found, &mut budget);
    found.sort();
    found.dedup();
    match found.len() {
        0 if budget == 0 => Err(format!("no file among the first {MOST_VISITED} entries")),
        0 => Err("no file matches".into()),
        n if n > MOST_FILES => Err(format!("{n} files match; at most {MOST_FILES} are attached at once")),
        _ => Ok(found),
    }
}

fn descend(folder: &str, parts: &[&str], found: &mut Vec<String>, budget: &mut usize) {
    let Some((part, rest)) = parts.split_first() else { return };
    if *part == "**" {
        // No folder at all, or one more.
        descend(folder, rest, found, budget);
    }
    if !part.contains(['*', '?']) {
        // A name is itself, however many stand beside it.
        let path = format!("{folder}{part}");
        match rest.is_empty() {
            true if Path::new(&path).is_file() => found.push(path),
            true => {}
            false => descend(&format!("{path}/"), rest, found, budget),
        }
        return;
    }
    for entry in list(folder) {
        if *budget == 0 || found.len() > MOST_FILES * 8 {
            return;
        }
        *budget -= 1;
        let path = format!("{folder}{}", entry.name);
        let inside = format!("{path}/");
        let is_hidden = entry.name.starts_with('.');
        // A link may lead back up.
        let is_link = fs::symlink_metadata(&path).is_ok_and(|about| about.is_symlink());
        match *part {
            "**" if entry.is_folder && !is_hidden && !is_link => descend(&inside, parts, found, budget),
            "**" if rest.is_empty() && !entry.is_folder && !is_hidden => found.push(path),
            "**" => {}
            part if is_hidden && !part.starts_with('.') => {}
            part if !matches(part, &entry.name) => {}
            _ if !rest.is_empty() && entry.is_folder => descend(&inside, rest, found, budget),
            _ if rest.is_empty() && !entry.is_folder && Path::new(&path).is_file() => found.push(path),
            _ => {}
        }
    }
}

/// One name against one part of a pattern.
fn matches(pattern: &str, name: &str) -> bool {
    let Some(first) = pattern.chars().next() else { return name.is_empty() };
    let rest = &pattern[first.len_utf8()..];
    let mut letters = name.chars();
    match first {
        '*' => name.char_indices().any(|(at, _)| matches(rest, &name[at..])) || matches(rest, ""),
        '?' => letters.next().is_some() && matches(rest, letters.as_str()),
        first => letters.next() == Some(first) && matches(rest, letters.as_str()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_match_patterns() {
        for (pattern, name, is) in [
            ("*.rs", "main.rs", true),
            ("*.rs", "main.rst", false),
            ("m?in*", "main.rs", true),
            ("*", "", true),
            ("é*", "école", true),
            ("a", "ab", false),
        ] {
            assert_eq!(matches(pattern, name), is, "{pattern} {name}");
        }
    }

    #[test]
    fn only_text_of_a_bearable_size_is_read_and_the_reason_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        fs::write(at("good"), "text").unwrap();
        fs::write(at("binary"), [0x66, 0xff, 0xfe]).unwrap();
        fs::write(at("nul"), "a\0b").unwrap();
        fs::write(at("large"), vec![b'x'; MOST_BYTES as usize + 1]).unwrap();
        assert_eq!(read(&at("good")), Ok("text".into()));
        assert_eq!(read(&at("none")), Err(Unread::Missing));
        let why = |name| match read(&at(name)) {
            Err(Unread::Because(why)) => why,
            other => panic!("{name}: {other:?}"),
        };
        assert!(why("binary").contains("byte 1 is not"));
        assert!(why("nul").contains("NUL"));
        assert!(why("large").contains("at most"), "{}", why("large"));
        assert!(why("").contains("/glob"));
    }

    #[test]
    fn patterns_find_files_in_folders_and_leave_out_hidden_ones() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        for name in ["a.rs", "b.txt", ".hidden.rs", "src/c.rs", "src/deep/d.rs", ".git/e.rs"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found = |pattern: &str| -> Vec<String> {
            let all = glob(&format!("{root}/{pattern}")).unwrap();
            all.iter().map(|path| path[root.len() + 1..].to_owned()).collect()
        };
        assert_eq!(found("*.rs"), ["a.rs"]);
        assert_eq!(found("**/*.rs"), ["a.rs", "src/c.rs", "src/deep/d.rs"]);
        assert_eq!(found("src/**"), ["src/c.rs", "src/deep/d.rs"]);
        assert_eq!(found(".h*"), [".hidden.rs"]);
        assert!(glob(&format!("{root}/*.none")).unwrap_err().contains("no file"));
        assert_eq!(list(root).iter().filter(|entry| entry.is_folder).count(), 2);
    }
}
