//! Hub folders that claim, lie or are damaged: each a typed error or a clean open, in little time and memory,
//! counted by an allocator of this test's own.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

#[path = "support/counting.rs"]
mod counting;
#[path = "hub/json.rs"]
mod json;
#[path = "hub/malformed.rs"]
mod malformed;
#[path = "hub/mutations.rs"]
mod mutations;
#[allow(dead_code)]
#[path = "hub/small.rs"]
mod small;

use counting::{LIVE, PEAK};
use glassbox::weights::{Checkpoint, CheckpointError};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// One test at a time, because memory is counted for the whole process.
static ONE: Mutex<()> = Mutex::new(());

const MOST_TIME: Duration = Duration::from_secs(1);
const MOST_BYTES: usize = 64 << 20;

type Opened = Result<Checkpoint, CheckpointError>;

/// What the process has computed for: on a busy machine a clock on the wall says nothing.
fn computed() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the struct that it is given.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Opens and reads all that is there, within the limits.
fn bounded(case: &str, open: impl FnOnce() -> Opened) -> Opened {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let start = computed();
    let opened = open();
    if let Ok(checkpoint) = &opened {
        for info in checkpoint.tensors() {
            if let Ok(tensor) = checkpoint.tensor(&info.name) {
                assert_eq!(tensor.data.len(), info.bytes, "{case}");
            }
        }
    }
    let (time, bytes) = (computed() - start, PEAK.load(Ordering::Relaxed).saturating_sub(before));
    assert!(time < MOST_TIME, "{case}: {time:?}");
    assert!(bytes < MOST_BYTES, "{case}: {bytes} bytes");
    opened
}
