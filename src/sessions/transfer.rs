//! Files of others, and for others.

use super::{json, markdown};
use crate::base::visible;
use crate::protocol::{SessionFormat, StoredSession};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// More is no conversation.
const MOST_BYTES: u64 = 256 << 20;

#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error("{}: {source}", visible(&path.display().to_string()))]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {why}", visible(&path.display().to_string()))]
    Wrong { path: PathBuf, why: String },
    #[error("{} is there already", visible(&path.display().to_string()))]
    Exists { path: PathBuf },
}

/// The session in one of its two forms outside.
pub fn text(session: &StoredSession, format: SessionFormat) -> String {
    match format {
        SessionFormat::Markdown => markdown::write(session),
        SessionFormat::Json => json::write(session),
    }
}

/// Writes a session to a file, and says to which. It appears whole or not at all.
///
/// # Errors
/// It cannot be written, or is there and not to be replaced.
pub fn export(
    session: &StoredSession,
    format: SessionFormat,
    file: Option<&Path>,
    replace: bool,
) -> Result<PathBuf, TransferError> {
    let path = match file {
        Some(file) => in_home(file),
        None => PathBuf::from(file_name(&session.meta.title, format)),
    };
    if path.exists() && !replace {
        return Err(TransferError::Exists { path });
    }
    let failed = |source| TransferError::Io { path: path.clone(), source };
    let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let draft = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let written = write_new(&draft, &text(session, format)).and_then(|()| fs::rename(&draft, &path));
    if written.is_err() {
        // Half a file is of no use.
        let _ = fs::remove_file(&draft);
    }
    written.map_err(failed)?;
    Ok(fs::canonicalize(&path).unwrap_or(path))
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// # Errors
/// The file cannot be read, or is no conversation; the place is in the message.
pub fn import(file: &Path) -> Result<StoredSession, TransferError> {
    let path = in_home(file);
    let failed = |source| TransferError::Io { path: path.clone(), source };
    let wrong = |why: String| TransferError::Wrong { path: path.clone(), why };
    let size = fs::metadata(&path).map_err(failed)?;
    if size.is_dir() {
        return Err(wrong("this is a folder".into()));
    }
    if size.len() > MOST_BYTES {
        return Err(wrong("this is too large for a conversation".into()));
    }
    let bytes = fs::read(&path).map_err(failed)?;
    let text = String::from_utf8(bytes)
        .map_err(|e| wrong(format!("byte {} is not UTF-8 text", e.utf8_error().valid_up_to())))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let is_json = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("json"))
        || text.trim_start().starts_with(['{', '[']);
    let read = if is_json { json::read(text) } else { markdown::read(text) };
    let mut session = read.map_err(wrong)?;
    if session.meta.title.is_empty() {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        (session.meta.title, session.meta.named) = (name.into_owned(), true);
    }
    Ok(session)
}

/// `~/x`, as people write it.
fn in_home(file: &Path) -> PathBuf {
    match (file.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => file.to_owned(),
    }
}

/// Made of a title, which may be anything.
fn file_name(title: &str, format: SessionFormat) -> String {
    let mut name = String::new();
    for c in title.chars().take(60) {
        match c {
            c if c.is_alphanumeric() => name.extend(c.to_lowercase()),
            _ if !name.ends_with('-') && !name.is_empty() => name.push('-'),
            _ => {}
        }
    }
    let name = name.trim_end_matches('-');
    let name = if name.is_empty() { "chat" } else { name };
    format!("{name}.{}", format.extension())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_title_becomes_a_harmless_file_name() {
        let name = |title| file_name(title, SessionFormat::Markdown);
        assert_eq!(name("Why is the sky blue?"), "why-is-the-sky-blue.md");
        assert_eq!(name("../../etc/\x1b[2Jpasswd"), "etc-2jpasswd.md");
        assert_eq!(name("🙂"), "chat.md");
    }

    #[test]
    fn nothing_is_overwritten_unless_told_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.md");
        let session = StoredSession::default();
        export(&session, SessionFormat::Markdown, Some(&path), false).unwrap();
        let again = export(&session, SessionFormat::Markdown, Some(&path), false);
        assert!(matches!(again, Err(TransferError::Exists { .. })));
        export(&session, SessionFormat::Markdown, Some(&path), true).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
