//! Which program has a session open: a locked file a session, which the system gives up with the program.

use crate::protocol::SessionId;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

/// Held as long as the session is open here.
pub struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// None: another program has it. Where the file system knows no locks, everybody gets it.
    pub fn take(store: &Path, id: SessionId) -> Option<Lock> {
        let folder = store.with_extension("open");
        // Without the folder nothing can be locked: as without locks.
        let _ = fs::create_dir_all(&folder);
        let path = folder.join(id.0.to_string());
        loop {
            let Ok(file) = File::options().create(true).append(true).open(&path) else {
                return File::open(store).ok().map(|file| Lock { path: PathBuf::new(), file });
            };
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return None,
                // Taken away between the two: by whoever had it before.
                Ok(()) if !is_still(&file, &path) => {}
                Ok(()) | Err(TryLockError::Error(_)) => return Some(Lock { path, file }),
            }
        }
    }
}

/// No program has the session open.
pub fn is_free(store: &Path, id: SessionId) -> bool {
    Lock::take(store, id).is_some()
}

impl Drop for Lock {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // While the lock is held: whoever waits for it looks whether the file is still this one.
            let _ = fs::remove_file(&self.path);
        }
        let _ = self.file.unlock();
    }
}

#[cfg(unix)]
fn is_still(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |data: std::io::Result<fs::Metadata>| data.ok().map(|data| data.ino());
    number(file.metadata()) == number(fs::metadata(path))
}

#[cfg(not(unix))]
fn is_still(_: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_open_once_and_can_be_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("sessions.db");
        let first = Lock::take(&store, SessionId(7));
        assert!(first.is_some() && Lock::take(&store, SessionId(7)).is_none());
        assert!(Lock::take(&store, SessionId(8)).is_some());
        drop(first);
        assert!(Lock::take(&store, SessionId(7)).is_some());
    }
}
