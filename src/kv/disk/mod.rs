//! Cached blocks in a folder, so that a prefix outlives the program.
//!
//! | file | what stands there |
//! |---|---|
//! | `format` | the header of a block's file, and its checksum |
//! | `folder` | the files: lock, scan, write, read, remove |
//! | `worker` | the thread that does it |
//! | `recency` | which blocks are there, least recently used first |

mod folder;
mod format;
mod recency;
mod worker;

use super::CacheKey;
use crate::protocol::{Medium, TierView};
use folder::{Create, Folder};
use recency::Recency;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};
use worker::{Report, Task, Worker};

/// What may wait to be written: more is not stored at all, for memory is what the cache is short of.
const MOST_WAITING_BYTES: usize = 256 << 20;

/// The disk tier. No call but [`DiskStore::flush`] and [`DiskStore::wait`] waits for the disk, and
/// none fails: what cannot be written or read is as if it had never been stored, and a note says so.
///
/// What is stored under a key never changes. A read may therefore pass the writes and removals that
/// were asked before it: a key is only in the index if its file is complete, or if its content still
/// waits here and is answered from memory.
pub struct DiskStore {
    path: PathBuf,
    index: Recency,
    /// Blocks that the bound holds.
    most_blocks: usize,
    bytes_per_block: usize,
    /// On their way to the disk.
    waiting: HashMap<CacheKey, Arc<Vec<u8>>>,
    most_waiting: usize,
    /// Asked of the worker.
    reading: Vec<CacheKey>,
    finished: Vec<(CacheKey, Option<Vec<u8>>)>,
    worker: Worker,
    /// Writing went wrong once: it is not tried again.
    read_only: bool,
    notes: Vec<String>,
    /// Since the last note about them.
    unreadable: usize,
    dropped: u64,
    queries: u64,
    hits: u64,
    stored: u64,
    evicted: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("cannot keep cached blocks in {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("{} is used by another program{}", path.display(), of(*process))]
    InUse { path: PathBuf, process: Option<u32> },
    #[error("no thread for the cached blocks on disk: {0}")]
    Thread(io::Error),
}

fn of(process: Option<u32>) -> String {
    process.map_or(String::new(), |id| format!(" (process {id})"))
}

impl DiskStore {
    /// Opens the folder in `dir` that belongs to `identity`: all that the bytes of a block depend on.
    /// `most_bytes` bounds that folder, not `dir`. Gives back notes about files that are not as they
    /// should be.
    pub fn open(
        dir: &Path,
        identity: &str,
        bytes_per_block: usize,
        most_bytes: u64,
    ) -> Result<(Self, Vec<String>), DiskError> {
        Self::open_with(dir, identity, bytes_per_block, most_bytes, folder::create_file())
    }

    fn open_with(
        dir: &Path,
        identity: &str,
        bytes_per_block: usize,
        most_bytes: u64,
        create: Create,
    ) -> Result<(Self, Vec<String>), DiskError> {
        let (folder, scan) = Folder::open(dir, identity, bytes_per_block, create)?;
        let path = folder.path().to_owned();
        let notes = scan.note(&path).into_iter().collect();
        let mut index = Recency::default();
        scan.blocks.into_iter().for_each(|key| index.touch(key));
        let most_blocks = most_bytes / folder::file_bytes(bytes_per_block);
        let mut store = Self {
            path,
            index,
            most_blocks: usize::try_from(most_blocks).unwrap_or(usize::MAX),
            bytes_per_block,
            waiting: HashMap::new(),
            most_waiting: (MOST_WAITING_BYTES / bytes_per_block.max(1)).max(1),
            reading: Vec::new(),
            finished: Vec::new(),
            worker: Worker::start(folder).map_err(DiskError::Thread)?,
            read_only: false,
            notes: Vec::new(),
            unreadable: 0,
            dropped: 0,
            queries: 0,
            hits: 0,
            stored: 0,
            evicted: 0,
        };
        store.evict_down_to(store.most_blocks);
        Ok((store, notes))
    }

    pub fn contains(&self, key: &CacheKey) -> bool {
        self.index.contains(key)
    }

    /// Stores a block, unless it is there, or too much waits to be written already.
    pub fn write(&mut self, key: CacheKey, payload: Vec<u8>) {
        debug_assert_eq!(payload.len(), self.bytes_per_block);
        self.receive();
        if self.read_only || self.most_blocks == 0 || self.index.contains(&key) {
            return;
        }
        if self.waiting.len() >= self.most_waiting || !self.evict_down_to(self.most_blocks - 1) {
            self.dropped += 1;
            return;
        }
        let payload = Arc::new(payload);
        self.index.touch(key);
        self.waiting.insert(key, Arc::clone(&payload));
        self.worker.ask(Task::Write { key, payload });
    }

    /// Asks for a block; [`DiskStore::poll`] answers, later or at once, and once for each time asked.
    pub fn read(&mut self, key: CacheKey) {
        self.receive();
        self.queries += 1;
        if !self.index.contains(&key) {
            self.finished.push((key, None));
            return;
        }
        self.index.touch(key);
        match self.waiting.get(&key) {
            Some(payload) => {
                self.hits += 1;
                self.finished.push((key, Some(payload.to_vec())));
            }
            None => {
                self.reading.push(key);
                self.worker.read(key);
            }
        }
    }

    /// Blocks that were looked for and are not here. Reads count themselves.
    pub fn count_misses(&mut self, blocks: u64) {
        self.queries += blocks;
    }

    /// Finished reads; `None` for what is not here, or was damaged and is not here any more.
    pub fn poll(&mut self) -> Vec<(CacheKey, Option<Vec<u8>>)> {
        self.receive();
        std::mem::take(&mut self.finished)
    }

    /// Waits until there is something to poll, nothing is being read, or the time is up.
    pub fn wait(&mut self, at_most: Duration) {
        let end = Instant::now() + at_most;
        self.receive();
        while self.finished.is_empty() && !self.reading.is_empty() {
            match self.worker.reports.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(report) => self.take_in(report),
                Err(_) => return self.receive(),
            }
        }
    }

    /// Waits until all that was accepted is on disk, or cannot be.
    pub fn flush(&mut self) {
        while !self.waiting.is_empty() {
            match self.worker.reports.recv() {
                Ok(report) => self.take_in(report),
                Err(_) => self.give_up(),
            }
        }
    }

    /// What a person should know, since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        self.receive();
        let unreadable = std::mem::take(&mut self.unreadable);
        if unreadable > 0 {
            let path = self.path.display();
            self.notes.push(format!("cached blocks in {path} that were damaged or missing: {unreadable}"));
        }
        std::mem::take(&mut self.notes)
    }

    /// Blocks not stored, because too many waited to be written.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    pub fn view(&self) -> TierView {
        TierView {
            medium: Medium::Disk,
            blocks: self.most_blocks,
            used: self.index.len(),
            queries: self.queries,
            hits: self.hits,
            stored: self.stored,
            evicted: self.evicted,
        }
    }

    /// False where the oldest block still waits to be written: the bound is smaller than what waits.
    fn evict_down_to(&mut self, blocks: usize) -> bool {
        while self.index.len() > blocks
            && let Some(oldest) = self.index.oldest()
        {
            if self.waiting.contains_key(&oldest) {
                return false;
            }
            self.index.remove(&oldest);
            self.evicted += 1;
            self.worker.ask(Task::Remove(oldest));
        }
        true
    }

    fn receive(&mut self) {
        loop {
            match self.worker.reports.try_recv() {
                Ok(report) => self.take_in(report),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => return self.give_up(),
            }
        }
    }

    fn take_in(&mut self, report: Report) {
        match report {
            Report::Wrote { key, result } => {
                self.waiting.remove(&key);
                match result {
                    Ok(()) => self.stored += 1,
                    Err(error) => {
                        self.index.remove(&key);
                        self.stop_writing(&error.to_string());
                    }
                }
            }
            Report::Removed(Ok(())) => {}
            // The bound could not be kept.
            Report::Removed(Err(error)) => self.stop_writing(&error.to_string()),
            Report::Read { key, payload } => {
                if let Some(at) = self.reading.iter().position(|reading| *reading == key) {
                    self.reading.swap_remove(at);
                }
                match payload {
                    Some(_) => self.hits += 1,
                    None => self.lose(&key),
                }
                self.finished.push((key, payload));
            }
        }
    }

    /// A block that could not be read; what is written under its key meanwhile is another file.
    fn lose(&mut self, key: &CacheKey) {
        self.unreadable += 1;
        if !self.waiting.contains_key(key) {
            self.index.remove(key);
        }
    }

    fn stop_writing(&mut self, why: &str) {
        if !self.read_only {
            self.read_only = true;
            self.notes.push(format!("no more blocks are stored in {}: {why}", self.path.display()));
        }
    }

    /// The worker has died: nobody may wait for it.
    fn give_up(&mut self) {
        self.stop_writing("its thread has ended");
        self.waiting.clear();
        self.index = Recency::default();
        self.finished.extend(self.reading.drain(..).map(|key| (key, None)));
    }
}

#[cfg(test)]
mod tests;
