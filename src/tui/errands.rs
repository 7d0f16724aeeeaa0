//! What may take long and must not hold up keys: files are looked at on threads of their own.

use super::app::Message;
use super::files;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub struct Errands {
    done: UnboundedSender<Message>,
    results: UnboundedReceiver<Message>,
}

impl Default for Errands {
    fn default() -> Self {
        let (done, results) = unbounded_channel();
        Self { done, results }
    }
}

impl Errands {
    pub fn list_folder(&self, path: String) {
        self.run(move || Message::Folder { entries: files::list(&path), path });
    }

    pub fn read_file(&self, path: String) {
        self.run(move || Message::FileRead { content: files::read(&path), path });
    }

    pub fn glob(&self, pattern: String) {
        self.run(move || Message::Globbed { found: files::glob(&pattern), pattern });
    }

    /// The next result; for ever, where nothing is under way.
    pub async fn next(&mut self) -> Option<Message> {
        self.results.recv().await
    }

    fn run(&self, errand: impl FnOnce() -> Message + Send + 'static) {
        let done = self.done.clone();
        // Who no longer waits for it has left.
        std::thread::spawn(move || drop(done.send(errand())));
    }
}
