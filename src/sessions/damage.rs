//! A file that cannot be read: set aside, and what can still be read of it goes into a new one.

use super::store::{Store, StoreError};
use chrono::Local;
use std::fs;
use std::path::{Path, PathBuf};

pub struct Rescued {
    pub store: Store,
    /// The broken file's new name.
    pub aside: PathBuf,
    pub sessions: usize,
    /// That could not be read.
    pub lost: usize,
}

/// # Errors
/// It cannot be renamed, or a new one cannot be made.
pub fn rescue(path: &Path) -> Result<Rescued, StoreError> {
    let aside = free_name(path);
    fs::rename(path, &aside)?;
    for end in ["-wal", "-shm"] {
        // It has them only while it is open, or after a crash.
        let _ = fs::rename(with_end(path, end), with_end(&aside, end));
    }
    let mut store = Store::open(path)?;
    let (mut sessions, mut lost) = (0, 0);
    if let Ok(broken) = Store::open(&aside) {
        for id in broken.numbers() {
            match broken.load(id).and_then(|session| store.put_back(id, &session)) {
                Ok(()) => sessions += 1,
                Err(_) => lost += 1,
            }
        }
    }
    Ok(Rescued { store, aside, sessions, lost })
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn free_name(path: &Path) -> PathBuf {
    let stamp = Local::now().format("damaged-%Y%m%d-%H%M%S").to_string();
    let first = path.with_extension(format!("{stamp}.db"));
    let numbered = |n: usize| path.with_extension(format!("{stamp}-{n}.db"));
    std::iter::once(first).chain((2..).map(numbered)).find(|name| !name.exists()).unwrap_or_default()
}
