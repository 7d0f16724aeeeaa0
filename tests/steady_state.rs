//! In the steady state a plan allocates nothing: its memory, and the cache's, is used again.

#[path = "support/busy.rs"]
mod busy;

use busy::Busy;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged; the counter is a plain number of this
// thread and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the promises of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the promises of `GlobalAlloc::dealloc`; `alloc` is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A table grows by a block every 16 tokens, and its vector doubles now and then: that is all. Between
/// two such moments, nothing.
#[test]
fn planning_allocates_nothing_in_the_steady_state() {
    for (running, waiting) in [(8, 0), (8, 64), (64, 64)] {
        let mut busy = Busy::new(running, waiting);
        let mut allocations = Vec::new();
        for _ in 0..64 {
            busy.account();
            let before = ALLOCATIONS.get();
            busy.schedule();
            allocations.push(ALLOCATIONS.get() - before);
        }
        assert_eq!(busy.plan.rows.len(), running);
        let quiet = allocations.iter().filter(|count| **count == 0).count();
        assert!(quiet >= 56, "{running} running, {waiting} waiting: {allocations:?}");
    }
}
