use super::error::{FetchError, SourceError, Stop};
use super::space;
use crate::weights::catalogue::CatalogueFile;
use crate::weights::digest::Digest;
use sha2::{Digest as _, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Where a file grows until it is whole: always a beginning of it, whichever source gave the bytes.
pub fn part_path(target: &Path) -> PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    target.with_file_name(name)
}

/// A file on its way: `<target>.part`, hashed while it is written, renamed when it is what was promised.
pub(super) struct Partial {
    target: PathBuf,
    part: PathBuf,
    file: File,
    hasher: Sha256,
    len: u64,
    expected_len: u64,
    expected_hash: Digest,
}

impl Partial {
    /// Goes on from what an earlier fetch left. `hashed` hears how much of that was read.
    pub fn open(
        target: &Path,
        expected: &CatalogueFile,
        mut hashed: impl FnMut(u64) -> Result<(), Stop>,
    ) -> Result<Partial, Stop> {
        let part = part_path(target);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&part);
        let mut partial = Partial {
            file: opened.map_err(|source| FetchError::Write { path: part.clone(), source })?,
            target: target.to_owned(),
            part,
            hasher: Sha256::new(),
            len: 0,
            expected_len: expected.bytes,
            expected_hash: expected.sha256,
        };
        let mut chunk = vec![0; 1 << 20];
        loop {
            match partial.file.read(&mut chunk).map_err(|error| partial.failed(error))? {
                0 => break,
                read => {
                    partial.hasher.update(&chunk[..read]);
                    partial.len += read as u64;
                }
            }
            if partial.len > partial.expected_len {
                partial.restart()?;
                break;
            }
            hashed(partial.len)?;
        }
        Ok(partial)
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn expected_len(&self) -> u64 {
        self.expected_len
    }

    pub fn is_whole(&self) -> bool {
        self.len == self.expected_len
    }

    /// Back to the first byte.
    pub fn restart(&mut self) -> Result<(), Stop> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(|error| self.failed(error))?;
        self.hasher = Sha256::new();
        self.len = 0;
        Ok(())
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let len = self.len + bytes.len() as u64;
        if len > self.expected_len {
            self.restart()?;
            return Err(SourceError::WrongSize { expected: self.expected_len, got: len }.into());
        }
        self.file.write_all(bytes).map_err(|error| self.failed(error))?;
        self.hasher.update(bytes);
        self.len = len;
        Ok(())
    }

    /// Puts the whole file under its final name, or deletes what is not it.
    pub fn finish(self) -> Result<PathBuf, Stop> {
        if !self.is_whole() {
            return Err(SourceError::WrongSize { expected: self.expected_len, got: self.len }.into());
        }
        let got = Digest(self.hasher.clone().finalize().into());
        if got != self.expected_hash {
            fs::remove_file(&self.part).map_err(|error| self.failed(error))?;
            return Err(SourceError::WrongHash { expected: self.expected_hash, got }.into());
        }
        // On disk before it has its name: a crash must not leave a name with holes behind it.
        let put = self.file.sync_all().and_then(|()| fs::rename(&self.part, &self.target));
        put.and_then(|()| sync_folder(&self.target)).map_err(|error| self.failed(error))?;
        Ok(self.target)
    }

    fn failed(&self, error: io::Error) -> Stop {
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let folder = self.part.parent().unwrap_or(Path::new(".")).to_owned();
        Stop::All(match full {
            true => FetchError::DiskFull {
                needed: self.expected_len.saturating_sub(self.len),
                free: space::free_bytes(&folder).unwrap_or(0),
                folder,
            },
            false => FetchError::Write { path: self.part.clone(), source: error },
        })
    }
}

/// The rename itself reaches the disk.
fn sync_folder(file: &Path) -> io::Result<()> {
    #[cfg(unix)]
    File::open(file.parent().unwrap_or(Path::new(".")))?.sync_all()?;
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn hello() -> CatalogueFile {
        let sha256 = Digest(Sha256::digest(b"hello").into());
        CatalogueFile { name: "f.gguf".into(), bytes: 5, sha256, sources: Vec::new() }
    }

    fn open(dir: &Path) -> Partial {
        Partial::open(&dir.join("f.gguf"), &hello(), |_| Ok(())).unwrap()
    }

    #[test]
    fn a_file_gets_its_name_only_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let mut partial = open(dir.path());
        partial.write(b"he").unwrap();
        assert!(matches!(
            partial.finish(),
            Err(Stop::Source(SourceError::WrongSize { expected: 5, got: 2 }))
        ));
        assert!(!dir.path().join("f.gguf").exists());

        let mut partial = open(dir.path());
        assert_eq!(partial.len(), 2, "goes on");
        partial.write(b"llo").unwrap();
        assert_eq!(fs::read(partial.finish().unwrap()).unwrap(), b"hello");
        assert!(!dir.path().join("f.gguf.part").exists());
    }

    // D03, at its root.
    #[test]
    fn wrong_bytes_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let mut partial = open(dir.path());
        partial.write(b"hellO").unwrap();
        assert!(matches!(partial.finish(), Err(Stop::Source(SourceError::WrongHash { .. }))));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn too_much_starts_again() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f.gguf.part"), b"hello, world").unwrap();
        let mut partial = open(dir.path());
        assert_eq!(partial.len(), 0);
        assert!(matches!(partial.write(b"hello!"), Err(Stop::Source(SourceError::WrongSize { .. }))));
        partial.write(b"hello").unwrap();
        partial.finish().unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_says_how_much_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        let mut partial = open(dir.path());
        partial.file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = match partial.write(b"hello") {
            Err(Stop::All(error)) => error.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(error.contains("no room: 5 bytes more are needed"), "{error}");
    }
}
