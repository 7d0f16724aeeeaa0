use super::Phase;
use super::error::FetchError;
use super::transfer::Reporter;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const POLL: Duration = Duration::from_millis(100);

/// Held while one process fetches a model; the system lets go of it when the process ends, however it does.
pub(super) struct Lock {
    _file: File,
}

/// Waits for its turn. The lock's own file stays: deleting it would let two processes hold different files.
pub(super) fn take(root: &Path, name: &str, reporter: &mut Reporter<'_>) -> Result<Lock, FetchError> {
    let (file, path) = open(root, name)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) => reporter.report(Phase::Waiting, 0)?,
            Err(TryLockError::Error(source)) => return Err(FetchError::Write { path, source }),
        }
        thread::sleep(POLL);
    }
}

/// Some process is fetching the model.
pub fn is_held(root: &Path, name: &str) -> bool {
    open(root, name).is_ok_and(|(file, _)| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

fn open(root: &Path, name: &str) -> Result<(File, PathBuf), FetchError> {
    let folder = root.join(".locks");
    let path = folder.join(name);
    let opened = fs::create_dir_all(&folder)
        .and_then(|()| OpenOptions::new().write(true).create(true).truncate(false).open(&path));
    match opened {
        Ok(file) => Ok((file, path)),
        Err(source) => Err(FetchError::Write { path, source }),
    }
}
