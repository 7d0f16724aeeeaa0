//! Threads bound to processors, one each. Linux only; elsewhere nothing is bound.

use crate::base::Cores;
use crate::compute::{DeviceError, Result};

#[cfg(not(target_os = "linux"))]
use elsewhere as system;
#[cfg(target_os = "linux")]
use linux as system;
pub(super) use system::{Bound, bind_worker};

/// As many processors that this thread may use, on cores of their own as long as there are some.
pub(super) fn processors(count: usize) -> Result<Vec<usize>> {
    let mut found = Cores::now().unwrap_or_default().processors;
    if found.len() < count && cfg!(target_os = "linux") {
        let why = format!("{count} threads cannot be pinned: this process may use {}", found.len());
        return Err(DeviceError(why));
    }
    found.truncate(count);
    Ok(found)
}

#[cfg(target_os = "linux")]
mod linux {
    use super::*;
    use std::io;
    use std::os::unix::thread::JoinHandleExt;
    use std::thread::JoinHandle;

    type Set = libc::cpu_set_t;
    const BYTES: usize = size_of::<Set>();

    /// A thread that is bound until it is released.
    #[derive(Clone, Copy)]
    pub struct Bound {
        thread: libc::pid_t,
        /// Where it might run before.
        before: Set,
    }

    impl Bound {
        /// The calling thread.
        pub fn this_thread(processor: usize) -> Result<Self> {
            let (thread, mut before) = (this_thread(), nothing());
            // SAFETY: the set is as large as said.
            done(unsafe { libc::sched_getaffinity(thread, BYTES, &mut before) })?;
            // SAFETY: as above.
            done(unsafe { libc::sched_setaffinity(thread, BYTES, &only(processor)) })?;
            Ok(Self { thread, before })
        }

        pub fn is_this_thread(&self) -> bool {
            self.thread == this_thread()
        }

        /// Lets the thread run where it could; one that is over needs nothing.
        pub fn release(self) {
            // SAFETY: the set is as large as said.
            unsafe { libc::sched_setaffinity(self.thread, BYTES, &self.before) };
        }
    }

    pub fn bind_worker(worker: &JoinHandle<()>, processor: usize) -> Result<()> {
        // SAFETY: a thread whose handle is here is not joined yet; the set is as large as said.
        match unsafe { libc::pthread_setaffinity_np(worker.as_pthread_t(), BYTES, &only(processor)) } {
            0 => Ok(()),
            error => Err(failed(io::Error::from_raw_os_error(error))),
        }
    }

    fn this_thread() -> libc::pid_t {
        // SAFETY: it asks for nothing.
        unsafe { libc::gettid() }
    }

    fn nothing() -> Set {
        // SAFETY: a set is plain bits.
        unsafe { std::mem::zeroed() }
    }

    fn only(processor: usize) -> Set {
        let mut set = nothing();
        // SAFETY: the system named this processor in a set of the same size, and the index is checked.
        unsafe { libc::CPU_SET(processor, &mut set) };
        set
    }

    fn done(status: libc::c_int) -> Result<()> {
        if status == 0 { Ok(()) } else { Err(failed(io::Error::last_os_error())) }
    }

    fn failed(error: io::Error) -> DeviceError {
        DeviceError(format!("a thread could not be pinned: {error}"))
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::Result;
    use std::thread::JoinHandle;

    pub struct Bound;

    impl Bound {
        pub fn this_thread(_: usize) -> Result<Self> {
            Ok(Self)
        }

        pub fn is_this_thread(&self) -> bool {
            true
        }

        pub fn release(self) {}
    }

    pub fn bind_worker(_: &JoinHandle<()>, _: usize) -> Result<()> {
        Ok(())
    }
}
