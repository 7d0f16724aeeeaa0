use super::{Command, Event, Snapshot};
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};

/// A live engine as a front end sees it: one queue in, one queue out, the newest snapshot beside.
pub struct Handle {
    pub commands: Sender<Command>,
    pub events: EventReceiver,
    pub snapshot: SnapshotCell,
}

impl Handle {
    /// Ends the engine and waits until it is gone, so that what it keeps on disk is there; gives up
    /// after `at_most`. What it still says is lost.
    pub fn shut_down(mut self, at_most: Duration) {
        let start = Instant::now();
        if self.commands.send(Command::Shutdown).is_err() {
            return;
        }
        while !self.events.is_closed() && start.elapsed() < at_most {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Read at any time without waiting; written by the engine at most 30 times a second.
#[derive(Clone, Default)]
pub struct SnapshotCell(Arc<ArcSwap<Snapshot>>);

impl SnapshotCell {
    pub fn load(&self) -> Arc<Snapshot> {
        self.0.load_full()
    }

    pub fn store(&self, snapshot: Snapshot) {
        self.0.store(Arc::new(snapshot));
    }
}

/// The engine's side of the event queue. Never waits for the reader.
#[derive(Clone)]
pub struct EventSender {
    queue: UnboundedSender<Vec<Event>>,
    depth: Arc<AtomicUsize>,
}

/// The same for a thread that must not keep the queue open when the engine is gone.
pub struct WeakEventSender {
    queue: WeakUnboundedSender<Vec<Event>>,
    depth: Arc<AtomicUsize>,
}

pub struct EventReceiver {
    queue: UnboundedReceiver<Vec<Event>>,
    depth: Arc<AtomicUsize>,
}

impl EventReceiver {
    pub fn channel() -> (EventSender, EventReceiver) {
        let (sender, receiver) = unbounded_channel();
        let depth = Arc::new(AtomicUsize::new(0));
        (EventSender { queue: sender, depth: depth.clone() }, EventReceiver { queue: receiver, depth })
    }

    /// `None` once the engine is gone and the queue is empty.
    pub async fn recv(&mut self) -> Option<Vec<Event>> {
        let events = self.queue.recv().await;
        self.took(events)
    }

    /// For front ends without a runtime. Must not be called inside one.
    pub fn blocking_recv(&mut self) -> Option<Vec<Event>> {
        let events = self.queue.blocking_recv();
        self.took(events)
    }

    pub fn try_recv(&mut self) -> Option<Vec<Event>> {
        let events = self.queue.try_recv().ok();
        self.took(events)
    }

    /// Drops what is queued; whether the engine is gone.
    fn is_closed(&mut self) -> bool {
        use tokio::sync::mpsc::error::TryRecvError::{Disconnected, Empty};
        loop {
            match self.queue.try_recv() {
                Ok(_) => {}
                Err(Empty) => return false,
                Err(Disconnected) => return true,
            }
        }
    }

    /// Batches sent and not yet read.
    pub fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    fn took(&self, events: Option<Vec<Event>>) -> Option<Vec<Event>> {
        if events.is_some() {
            self.depth.fetch_sub(1, Ordering::Relaxed);
        }
        events
    }
}

impl EventSender {
    /// False once the reader is gone.
    pub fn send(&self, events: Vec<Event>) -> bool {
        self.depth.fetch_add(1, Ordering::Relaxed);
        self.queue.send(events).is_ok()
    }

    pub fn downgrade(&self) -> WeakEventSender {
        WeakEventSender { queue: self.queue.downgrade(), depth: self.depth.clone() }
    }
}

impl WeakEventSender {
    /// False once the engine or the reader is gone.
    pub fn send(&self, events: Vec<Event>) -> bool {
        let depth = self.depth.clone();
        self.queue.upgrade().is_some_and(|queue| EventSender { queue, depth }.send(events))
    }
}
