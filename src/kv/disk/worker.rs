use super::CacheKey;
use super::folder::Folder;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// In order, but for reads.
pub enum Task {
    Write {
        key: CacheKey,
        payload: Arc<Vec<u8>>,
    },
    Remove(CacheKey),
    /// There is something to read.
    Read,
}

pub enum Report {
    Wrote { key: CacheKey, result: io::Result<()> },
    Removed(io::Result<()>),
    Read { key: CacheKey, payload: Option<Vec<u8>> },
}

/// The thread that touches the disk. Dropping it waits for what was asked.
pub struct Worker {
    tasks: Option<Sender<Task>>,
    reads: Sender<CacheKey>,
    pub reports: Receiver<Report>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub fn start(folder: Folder) -> io::Result<Self> {
        let (tasks, queued) = channel();
        let (reads, wanted) = channel();
        let (report, reports) = channel();
        let thread = thread::Builder::new()
            .name("kv-disk".to_owned())
            .spawn(move || work(&folder, &queued, &wanted, &report))?;
        Ok(Self { tasks: Some(tasks), reads, reports, thread: Some(thread) })
    }

    /// A worker that has died takes no tasks; its reports end then, which is where that is noticed.
    pub fn ask(&self, task: Task) {
        self.tasks.as_ref().map(|tasks| tasks.send(task));
    }

    /// Before all that waits to be written or removed: a request waits for it.
    pub fn read(&self, key: CacheKey) {
        let _ = self.reads.send(key);
        self.ask(Task::Read);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.tasks = None;
        self.thread.take().map(JoinHandle::join);
    }
}

fn work(folder: &Folder, queued: &Receiver<Task>, wanted: &Receiver<CacheKey>, report: &Sender<Report>) {
    // Reports that nobody waits for any more are no reason to leave writes undone.
    let say = |what| drop(report.send(what));
    for task in queued {
        for key in wanted.try_iter() {
            say(Report::Read { key, payload: folder.read(&key) });
        }
        match task {
            Task::Write { key, payload } => {
                say(Report::Wrote { key, result: folder.write(&key, &payload) });
            }
            Task::Remove(key) => say(Report::Removed(folder.remove(&key))),
            Task::Read => {}
        }
    }
}
