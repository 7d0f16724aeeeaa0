use super::format::{self, HEADER_BYTES};
use super::{CacheKey, DiskError};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const EXTENSION: &str = ".kvblock";
const UNFINISHED: &str = ".kvblock.tmp";
const LOCK: &str = "lock";
const IDENTITY: &str = "identity.txt";

/// Makes the file that a block is written to. Tests put a full disk here.
pub type Create = Box<dyn Fn(&Path) -> io::Result<Box<dyn Write>> + Send>;

pub fn create_file() -> Create {
    Box::new(|path| Ok(Box::new(File::create(path)?)))
}

/// The folder of one identity, one file for each block. Held by one program at a time.
pub struct Folder {
    path: PathBuf,
    identity: [u8; 32],
    bytes_per_block: usize,
    create: Create,
    /// The system lets go of it when the program ends, however it does.
    lock: File,
}

/// What a folder held when it was opened.
#[derive(Debug, Default)]
pub struct Scan {
    /// Least recently used first.
    pub blocks: Vec<CacheKey>,
    foreign: usize,
    damaged: usize,
    unfinished: usize,
}

impl Folder {
    pub fn open(
        dir: &Path,
        identity: &str,
        bytes_per_block: usize,
        create: Create,
    ) -> Result<(Self, Scan), DiskError> {
        let digest = digest(identity, bytes_per_block);
        let path = dir.join(hex(&digest[..8]));
        let fail = |source| DiskError::Folder { path: path.clone(), source };
        create_private(&path).map_err(fail)?;
        let lock = lock(&path)?;
        let scan = scan(&path, file_bytes(bytes_per_block)).map_err(fail)?;
        let folder = Self { identity: digest, bytes_per_block, create, lock, path };
        folder.describe(identity);
        Ok((folder, scan))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Under another name until it is complete, so that a kill leaves no half block. A power cut may:
    /// nothing is forced to the disk, and the checksum finds it.
    pub fn write(&self, key: &CacheKey, payload: &[u8]) -> io::Result<()> {
        let unfinished = self.path.join(hex(key.as_bytes()) + UNFINISHED);
        let written = (self.create)(&unfinished).and_then(|mut file| {
            file.write_all(&format::header(key, &self.identity, payload))?;
            file.write_all(payload)?;
            file.flush()
        });
        let renamed = written.and_then(|()| fs::rename(&unfinished, self.file(key)));
        if renamed.is_err() {
            // What keeps it from being written may keep it from being removed; the next scan tries again.
            let _ = fs::remove_file(&unfinished);
        }
        renamed
    }

    /// `None` where it is not there or not what was written; then the file is gone afterwards.
    pub fn read(&self, key: &CacheKey) -> Option<Vec<u8>> {
        let path = self.file(key);
        match self.read_checked(&path, key) {
            Ok(payload) => {
                refresh(&path);
                Some(payload)
            }
            Err(_) => {
                let _ = self.remove(key);
                None
            }
        }
    }

    pub fn remove(&self, key: &CacheKey) -> io::Result<()> {
        match fs::remove_file(self.file(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn read_checked(&self, path: &Path, key: &CacheKey) -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header)?;
        // A byte more than fits shows a file that is too long.
        let mut payload = Vec::with_capacity(self.bytes_per_block + 1);
        file.take(self.bytes_per_block as u64 + 1).read_to_end(&mut payload)?;
        let whole = payload.len() == self.bytes_per_block;
        match whole && header == format::header(key, &self.identity, &payload) {
            true => Ok(payload),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn file(&self, key: &CacheKey) -> PathBuf {
        self.path.join(hex(key.as_bytes()) + EXTENSION)
    }

    /// For people: nothing reads it, so a folder where it cannot be written is as good.
    fn describe(&self, identity: &str) {
        let text = format!(
            "Blocks of a KV cache, kept by glassbox. The folder may be deleted at any time.\n\
             identity: {identity}\nbytes per block: {}\nformat: {}\n",
            self.bytes_per_block,
            format::VERSION
        );
        let path = self.path.join(IDENTITY);
        if fs::read_to_string(&path).is_ok_and(|before| before == text) {
            return;
        }
        let _ = fs::write(path, text);
    }
}

impl Drop for Folder {
    /// Closing alone would not do: a child process that is just being started holds a copy of the file.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

impl Scan {
    /// What was not as it should be, in one sentence.
    pub fn note(&self, path: &Path) -> Option<String> {
        let parts = [
            (self.foreign, "not cached blocks, ignored"),
            (self.damaged, "damaged, removed"),
            (self.unfinished, "unfinished, removed"),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        (!parts.is_empty()).then(|| format!("files in {}: {}", path.display(), parts.join("; ")))
    }
}

pub fn file_bytes(bytes_per_block: usize) -> u64 {
    (HEADER_BYTES + bytes_per_block) as u64
}

fn digest(identity: &str, bytes_per_block: usize) -> [u8; 32] {
    let mut sha = Sha256::new();
    sha.update(format::VERSION.to_le_bytes());
    sha.update((bytes_per_block as u64).to_le_bytes());
    sha.update(identity);
    sha.finalize().into()
}

/// A block tells what was said: the folder is its owner's alone.
fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// The file stays when the lock goes: were it deleted, two programs could hold different files.
fn lock(folder: &Path) -> Result<File, DiskError> {
    let path = folder.join(LOCK);
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    // A folder that can only be read still has something to give.
    let mut file = opened
        .or_else(|error| File::open(&path).map_err(|_| error))
        .map_err(|source| DiskError::Folder { path: path.clone(), source })?;
    match file.try_lock() {
        Ok(()) => {
            let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
            Err(DiskError::InUse { path: folder.to_owned(), process: text.trim().parse().ok() })
        }
        Err(TryLockError::Error(source)) => Err(DiskError::Folder { path, source }),
    }
}

/// By names and sizes alone: what is inside is checked when it is read.
fn scan(path: &Path, file_bytes: u64) -> io::Result<Scan> {
    let mut scan = Scan::default();
    let mut blocks: Vec<(SystemTime, CacheKey)> = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        if [LOCK, IDENTITY].contains(&name) {
            continue;
        }
        let Some(metadata) = entry.metadata().ok().filter(fs::Metadata::is_file) else {
            scan.foreign += 1;
            continue;
        };
        match (key_of(name, EXTENSION), key_of(name, UNFINISHED)) {
            (Some(key), _) if metadata.len() == file_bytes => {
                blocks.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), key));
            }
            (Some(_), _) => {
                scan.damaged += 1;
                let _ = fs::remove_file(entry.path());
            }
            (_, Some(_)) => {
                scan.unfinished += 1;
                let _ = fs::remove_file(entry.path());
            }
            (None, None) => scan.foreign += 1,
        }
    }
    blocks.sort();
    scan.blocks = blocks.into_iter().map(|(_, key)| key).collect();
    Ok(scan)
}

/// The order of use outlives the program as the files' times. Where the system refuses, the order of
/// writing is left.
fn refresh(path: &Path) {
    let _ = OpenOptions::new().write(true).open(path).and_then(|file| file.set_modified(SystemTime::now()));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

/// Only of names as [`hex`] writes them.
fn key_of(name: &str, extension: &str) -> Option<CacheKey> {
    let digits = name.strip_suffix(extension)?;
    let mut key = [0; 36];
    if digits.len() != 2 * key.len() || !digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (i, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(CacheKey::from_bytes(key))
}
