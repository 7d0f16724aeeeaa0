//! Threads that wait for the next operation by spinning for a moment, then by sleeping.
//!
//! A decode step is some 150 operations of a few microseconds. Waking a sleeping thread costs as
//! much as an operation, so workers spin between them; a thread that spins for ever starves its
//! neighbours, so after [`SPINS`] they park.
//!
//! Every thread has its own stretch of an operation's tasks, so that it reads memory in one stream;
//! when it is done it takes from the others' stretches. Nobody waits for a worker that has not
//! begun: when the tasks are gone the caller closes the operation and waits only for those who hold
//! one. A worker that lost its core to a neighbour delays an operation by one task at most, and by
//! nothing if it slept through it.

use super::pin::{self, Bound};
use crate::compute::Result;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};

/// About 50 microseconds.
const SPINS: u32 = 2_000;

pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<(Thread, JoinHandle<()>)>,
    /// The caller's processor, where threads are pinned, and the last caller.
    home: Option<usize>,
    caller: Option<Bound>,
}

struct Shared {
    /// Counts operations (upper half), says whether this one is closed (one bit), and counts the
    /// workers inside it (lower bits). A worker joins an open operation by adding 1.
    state: AtomicU64,
    /// Written between operations, when no worker is inside one.
    operation: UnsafeCell<Option<Operation>>,
    /// Of each thread's stretch, the next task that nobody has taken.
    next: Vec<OwnLine<AtomicUsize>>,
    parked: Vec<AtomicBool>,
    panicked: AtomicBool,
    stop: AtomicBool,
}

/// On a cache line of its own: counting up one must not slow down its neighbour.
#[repr(align(64))]
struct OwnLine<T>(T);

const CLOSED: u64 = 1 << 31;
const INSIDE: u64 = CLOSED - 1;

fn epoch_of(state: u64) -> u64 {
    state >> 32
}

#[derive(Clone, Copy)]
struct Operation {
    tasks: usize,
    run: *const (dyn Fn(usize, usize) + Sync),
}

impl Operation {
    fn stretch(&self, thread: usize, threads: usize) -> Range<usize> {
        self.tasks * thread / threads..self.tasks * (thread + 1) / threads
    }
}

// SAFETY: `operation` is written only while the state is closed with nobody inside, and read only
// from inside; the pointer in it refers to a `Sync` closure that lives until then.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Pool {
    /// `threads` counts the caller, who works too.
    pub(super) fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(CLOSED),
            operation: UnsafeCell::new(None),
            next: (0..threads.max(1)).map(|_| OwnLine(AtomicUsize::new(0))).collect(),
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
        Self { shared, workers, home: None, caller: None }
    }

    /// Binds each worker to a processor of its own, and keeps one for the caller.
    pub(super) fn pin(&mut self) -> Result<()> {
        let processors = pin::processors(self.threads())?;
        for ((_, worker), processor) in self.workers.iter().zip(processors.iter().skip(1)) {
            pin::bind_worker(worker, *processor)?;
        }
        self.home = processors.first().copied();
        Ok(())
    }

    /// Binds the calling thread to the caller's processor, and lets the one before it go: threads that
    /// it starts would be bound as well.
    pub(super) fn pin_caller(&mut self) -> Result<()> {
        let Some(home) = self.home else { return Ok(()) };
        if !self.caller.as_ref().is_some_and(Bound::is_this_thread) {
            self.caller.take().into_iter().for_each(Bound::release);
            self.caller = Some(Bound::this_thread(home)?);
        }
        Ok(())
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
        // SAFETY: only the lifetime is erased; `Closing` keeps this frame alive until no worker can
        // touch the closure, also when a task panics here.
        let operation = Operation { tasks, run: unsafe { std::mem::transmute::<_, *const _>(run) } };
        let shared = &*self.shared;
        // SAFETY: the last operation is closed and nobody is inside.
        unsafe { *shared.operation.get() = Some(operation) };
        for (thread, next) in shared.next.iter().enumerate() {
            next.0.store(operation.stretch(thread, shared.next.len()).start, Ordering::Relaxed);
        }
        let epoch = epoch_of(shared.state.load(Ordering::Relaxed)) + 1;
        shared.state.store(epoch << 32, Ordering::SeqCst);
        self.wake();
        let closing = Closing(shared);
        shared.take_tasks(operation, 0);
        drop(closing);
        if shared.panicked.swap(false, Ordering::Relaxed) {
            panic!("a compute thread panicked");
        }
    }

    fn wake(&self) {
        for (parked, (thread, _)) in self.shared.parked.iter().zip(&self.workers) {
            if parked.load(Ordering::SeqCst) {
                thread.unpark();
            }
        }
    }
}

/// Closes the operation when dropped, and waits for the workers inside.
struct Closing<'a>(&'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.fetch_or(CLOSED, Ordering::SeqCst);
        let mut spins = 0u32;
        while state & INSIDE != 0 {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop()
            } else {
                thread::yield_now()
            }
            state = self.0.state.load(Ordering::Acquire);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.caller.take().into_iter().for_each(Bound::release);
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.state.fetch_add(1 << 32, Ordering::SeqCst);
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
            if !self.join(seen) {
                continue;
            }
            // SAFETY: this worker is inside, so the cell holds this operation and nobody writes it.
            let operation = unsafe { *self.operation.get() }.expect("an operation was published");
            let caught =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.take_tasks(operation, index)));
            if caught.is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.state.fetch_sub(1, Ordering::Release);
        }
    }

    /// Enters operation `epoch`; false when it is closed or over.
    fn join(&self, epoch: u64) -> bool {
        let enter = |state| (epoch_of(state) == epoch && state & CLOSED == 0).then_some(state + 1);
        self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).is_ok()
    }

    fn take_tasks(&self, operation: Operation, thread: usize) {
        // SAFETY: the closure lives until the operation is closed and this thread is out of it.
        let run = unsafe { &*operation.run };
        let threads = self.next.len();
        for owner in (0..threads).map(|i| (thread + i) % threads) {
            let stretch = operation.stretch(owner, threads);
            loop {
                let task = self.next[owner].0.fetch_add(1, Ordering::Relaxed);
                if task >= stretch.end {
                    break;
                }
                run(task, thread);
            }
        }
    }

    /// Returns the new epoch.
    fn wait_for(&self, seen: u64, index: usize) -> u64 {
        for _ in 0..SPINS {
            let epoch = epoch_of(self.state.load(Ordering::Acquire));
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
            let epoch = epoch_of(self.state.load(Ordering::SeqCst));
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
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

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
                thread::sleep(Duration::from_millis(5));
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

    /// A worker that has lost its core holds one task; the rest of its stretch is done by others.
    #[test]
    fn a_worker_that_is_held_up_keeps_one_task_and_no_more() {
        let (pool, done) = (Pool::new(2), AtomicUsize::new(0));
        let by_worker = AtomicUsize::new(0);
        let began = AtomicBool::new(false);
        pool.run(64, |_, thread| {
            if thread == 1 {
                by_worker.fetch_add(1, Ordering::SeqCst);
                began.store(true, Ordering::SeqCst);
                // Held up until everything else is done.
                while done.load(Ordering::SeqCst) < 63 {
                    thread::yield_now();
                }
            } else {
                while !began.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
            }
            done.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!((done.into_inner(), by_worker.into_inner()), (64, 1));
    }

    /// What the system counts for the worker while nothing is asked of it.
    #[cfg(target_os = "linux")]
    #[test]
    fn an_idle_worker_takes_no_time() {
        use std::os::unix::thread::JoinHandleExt;
        let pool = Pool::new(2);
        let (mut clock, worker) = (0, pool.workers[0].1.as_pthread_t());
        // SAFETY: the worker lives as long as its pool.
        assert_eq!(unsafe { libc::pthread_getcpuclockid(worker, &mut clock) }, 0);
        let used = || {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: as above, and the result has its place.
            assert_eq!(unsafe { libc::clock_gettime(clock, &mut time) }, 0);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        pool.run(64, |_, _| ());
        let parked = || pool.shared.parked[0].load(Ordering::SeqCst);
        (0..400).take_while(|_| !parked()).for_each(|_| thread::sleep(Duration::from_millis(5)));
        thread::sleep(Duration::from_millis(5));
        let before = used();
        thread::sleep(Duration::from_millis(200));
        let spent = used() - before;
        // Not one of its spells of spinning, which take some 50 microseconds.
        assert!(spent < Duration::from_micros(20), "{spent:?} of 200 ms");
    }

    #[cfg(target_os = "linux")]
    mod pinned {
        use super::*;
        use crate::base::Cores;
        use std::sync::{Barrier, Mutex};

        /// Where each of the pool's threads may run.
        fn places(pool: &Pool) -> Vec<Vec<usize>> {
            let places = Mutex::new(vec![Vec::new(); pool.threads()]);
            let everyone = Barrier::new(pool.threads());
            pool.run(pool.threads(), |_, thread| {
                everyone.wait();
                places.lock().unwrap()[thread] = here();
            });
            places.into_inner().unwrap()
        }

        /// Processors in order.
        fn here() -> Vec<usize> {
            let mut here = Cores::now().unwrap().processors;
            here.sort_unstable();
            here
        }

        #[test]
        fn every_thread_has_a_processor_of_its_own_and_the_caller_gets_its_others_back() {
            let (all, free) = (Cores::now().unwrap().processors, here());
            let threads = all.len().min(4);
            let mut pool = Pool::new(threads);
            assert_eq!(places(&pool), vec![free.clone(); threads]);
            pool.pin().unwrap();
            assert_eq!(here(), free, "the caller is bound when it computes");
            pool.pin_caller().unwrap();
            let own: Vec<_> = all[..threads].iter().map(|processor| vec![*processor]).collect();
            assert_eq!(places(&pool), own);
            // Another caller takes the place of the first, who is free again.
            thread::scope(|scope| {
                let pool = &mut pool;
                let other = scope.spawn(move || {
                    pool.pin_caller().unwrap();
                    here()
                });
                assert_eq!(other.join().unwrap(), own[0]);
            });
            assert_eq!(here(), free);
            pool.pin_caller().unwrap();
            assert_eq!(here(), own[0]);
            drop(pool);
            assert_eq!(here(), free);
        }

        #[test]
        fn more_threads_than_cores_are_refused() {
            let mut pool = Pool::new(here().len() + 1);
            let refused = pool.pin().unwrap_err().to_string();
            assert!(refused.ends_with(&format!("this process may use {}", here().len())), "{refused}");
            assert_eq!(places(&pool), vec![here(); pool.threads()]);
        }
    }
}
