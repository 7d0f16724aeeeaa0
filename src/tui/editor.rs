//! The draft in the person's own editor: `$VISUAL`, then `$EDITOR`, then what every system has.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;

/// Opens `text` in the editor, waits, and returns what was saved. The caller has given the terminal
/// back before.
///
/// # Errors
/// The editor cannot be started, ends with a failure (`:cq` keeps the draft), or saves no text.
pub fn edit(text: &str) -> io::Result<String> {
    edit_with(&chosen(), text)
}

fn chosen() -> String {
    let named = |name| std::env::var(name).ok().filter(|value: &String| !value.trim().is_empty());
    let usual = if cfg!(windows) { "notepad" } else { "vi" };
    named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| usual.into())
}

fn edit_with(editor: &str, text: &str) -> io::Result<String> {
    let draft = Draft::new(text)?;
    // `code --wait`: a program and its arguments.
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or("vi");
    let status = Command::new(program)
        .args(words)
        .arg(&draft.path)
        .status()
        .map_err(|e| io::Error::new(e.kind(), format!("{program}: {e}")))?;
    if !status.success() {
        return Err(io::Error::other(format!("{program} ended with {status}")));
    }
    let mut saved = std::fs::read_to_string(&draft.path)?;
    // Editors end the last line; the draft's did not.
    if saved.ends_with('\n') && !text.ends_with('\n') {
        saved.pop();
    }
    Ok(saved)
}

/// A file that nobody else can read, gone when done with.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn new(text: &str) -> io::Result<Self> {
        let name = format!("glassbox-{}-draft.md", std::process::id());
        let path = std::env::temp_dir().join(name);
        // Left by a process of the same number that was killed.
        let _ = std::fs::remove_file(&path);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&path)?.write_all(text.as_bytes())?;
        Ok(Self { path })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_the_editor_saves_comes_back_and_the_file_goes() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("editor");
        std::fs::write(&script, "#!/bin/sh\necho \"$1\" > \"$2\"\nls -l \"$3\" | cut -c1-10 >> \"$2\"\nprintf 'two\\nlines\\n' >> \"$3\"\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let seen = folder.path().join("seen");
        let editor = format!("{} --wait {}", script.display(), seen.display());
        assert_eq!(edit_with(&editor, "draft ").unwrap(), "draft two\nlines");
        assert_eq!(std::fs::read_to_string(seen).unwrap(), "--wait\n-rw-------\n");
        assert!(edit_with("false", "draft").is_err());
        assert!(edit_with("/no/such/editor", "draft").unwrap_err().to_string().contains("/no/such/editor"));
        let left = std::env::temp_dir().join(format!("glassbox-{}-draft.md", std::process::id()));
        assert!(!left.exists());
    }
}
