use memmap2::Mmap;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

/// The bytes of a GGUF file: mapped from disk, or handed over by a test or a fuzzer.
#[derive(Debug)]
pub(super) enum Bytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Bytes {
    pub fn map(path: &Path) -> io::Result<Bytes> {
        // Asked before opening, because opening a pipe would wait for its other end.
        let kind = std::fs::metadata(path)?;
        if !kind.is_file() {
            let what = if kind.is_dir() { "it is a directory" } else { "it is not a regular file" };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        if kind.len() == 0 {
            return Ok(Bytes::Owned(Vec::new())); // an empty mapping is an error on some systems
        }
        let file = File::open(path)?;
        // SAFETY: the mapping is read-only and nothing in this process writes model files in place: a
        // fetch writes `.part` files and renames them. Bytes another process changes under us could
        // be read as different weights; every length was checked on open and is not read again from
        // the map. Truncation by another process raises SIGBUS, as for every program that maps files.
        unsafe { Mmap::map(&file) }.map(Bytes::Mapped)
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}
