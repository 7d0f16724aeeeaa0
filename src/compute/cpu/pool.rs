//! Threads that wait for the next operation by spinning for a moment, then by sleeping.
//!
//! A decode step is some 150 operations of a few microseconds. Waking a sleeping thread costs as
//! much as an operation, so workers spin between them; a thread that spins for ever starves its
//! neighbours, so after [`SPINS`] they park. Work is taken in small pieces from a shared counter: a
//! worker that lost its core delays the operation by one piece, not by half of the work.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};

/// About 50 microseconds.
const SPINS: u32 = 2_000;

pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<(Thread, JoinHandle<()>)>,
}

struct Shared {
    /// Counts operations; a worker runs once for each value it sees.
    epoch: AtomicU64,
    /// Valid from the store to `epoch` until `busy` is back at 0.
    operation: UnsafeCell<Option<Operation>>,
    next: AtomicUsize,
    busy: AtomicUsize,
    parked: Vec<AtomicBool>,
    panicked: AtomicBool,
    stop: AtomicBool,
}

#[derive(Clone, Copy)]
struct Operation {
    tasks: usize,
    run: *const (dyn Fn(usize, usize) + Sync),
}

// SAFETY: `operation` is written only while no worker runs (`busy` is 0) and read only after the
// `epoch` store that published it; the pointer in it refers to a `Sync` closure that outlives them.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Pool {
    /// `threads` counts the caller, who works too.
    pub(super) fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            epoch: AtomicU64::new(0),
            operation: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            parked: (1..threads).map(|_| AtomicBool::new(false)).collect(),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let workers = (1..threads)
            .map(|index| {
                let shared = shared.clone();
                let handle = thread::Builder::new()
                    .name(format!("compute-{index}"))
                    .spawn(move || shared.work(index))
                    .expect("the system lets us start a thread");
                (handle.thread().clone(), handle)
            })
            .collect();
        Self { shared, workers }
    }

    pub(super) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `run(task, thread)` for every task below `tasks` and returns when all are done. A
    /// panic in a worker comes out here.
    pub(super) fn run(&self, tasks: usize, run: impl Fn(usize, usize) + Sync) {
        if tasks <= 1 || self.workers.is_empty() {
            (0..tasks).for_each(|task| run(task, 0));
            return;
        }
        let run: &(dyn Fn(usize, usize) + Sync) = &run;
        // SAFETY: only the lifetime is erased; `Waiting` keeps this frame alive until no worker can
        // touch the closure, also when a task panics here.
        let operation = Operation { tasks, run: unsafe { std::mem::transmute::<_, *const _>(run) } };
        let shared = &*self.shared;
        // SAFETY: `busy` is 0: no worker reads the cell until the epoch moves.
        unsafe { *shared.operation.get() = Some(operation) };
        shared.next.store(0, Ordering::Relaxed);
        shared.busy.store(self.workers.len(), Ordering::Relaxed);
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        for (parked, (thread, _)) in shared.parked.iter().zip(&self.workers) {
            if parked.load(Ordering::SeqCst) {
                thread.unpark();
            }
        }
        let waiting = Waiting(shared);
        shared.take_tasks(operation, 0);
        drop(waiting);
        if shared.panicked.swap(false, Ordering::Relaxed) {
            panic!("a compute thread panicked");
        }
    }
}

/// Waits for the workers when dropped.
struct Waiting<'a>(&'a Shared);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut spins = 0u32;
        while self.0.busy.load(Ordering::Acquire) != 0 {
            spins += 1;
            if spins < SPINS { std::hint::spin_loop() } else { thread::yield_now() }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        for (thread, handle) in self.workers.drain(..) {
            thread.unpark();
            let _ = handle.join();
        }
    }
}

impl Shared {
    fn work(&self, index: usize) {
        let mut seen = 0;
        loop {
            seen = self.wait_for(seen, index);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            // SAFETY: the epoch moved, so the cell holds this operation and nobody writes it until
            // this worker has counted down `busy`.
            let operation = unsafe { *self.operation.get() }.expect("an operation was published");
            let caught =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.take_tasks(operation, index)));
            if caught.is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.busy.fetch_sub(1, Ordering::Release);
        }
    }

    fn take_tasks(&self, operation: Operation, thread: usize) {
        // SAFETY: the closure lives until `busy` is 0, which this thread's part precedes.
        let run = unsafe { &*operation.run };
        loop {
            let task = self.next.fetch_add(1, Ordering::Relaxed);
            if task >= operation.tasks {
                return;
            }
            run(task, thread);
        }
    }

    /// Returns the new epoch.
    fn wait_for(&self, seen: u64, index: usize) -> u64 {
        for _ in 0..SPINS {
            let epoch = self.epoch.load(Ordering::Acquire);
            if epoch != seen {
                return epoch;
            }
            std::hint::spin_loop();
        }
        let parked = &self.parked[index - 1];
        loop {
            // The flag is up before the last look, and the caller moves the epoch before it looks at
            // the flag: one of the two sees the other.
            parked.store(true, Ordering::SeqCst);
            let epoch = self.epoch.load(Ordering::SeqCst);
            if epoch != seen {
                parked.store(false, Ordering::SeqCst);
                return epoch;
            }
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_also_after_a_nap() {
        let pool = Pool::new(3);
        for round in 0..200 {
            let counts: Vec<AtomicUsize> = (0..round).map(|_| AtomicUsize::new(0)).collect();
            pool.run(round, |task, thread| {
                assert!(thread < 3);
                counts[task].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
            if round % 50 == 49 {
                thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_caller_and_the_pool_lives() {
        let pool = Pool::new(2);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.run(64, |task, _| assert!(task != 33, "task 33 is bad"));
        }));
        assert!(result.is_err());
        let done = AtomicUsize::new(0);
        pool.run(64, |_, _| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), 64);
    }
}
