//! A slice that several threads write, each its own part.

use std::marker::PhantomData;
use std::ops::Range;

pub(super) struct Slots<'a, T> {
    start: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: `take` hands out disjoint parts (its contract), as `split_at_mut` would.
unsafe impl<T: Send> Sync for Slots<'_, T> {}

impl<'a, T> Slots<'a, T> {
    pub(super) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), owner: PhantomData }
    }

    /// # Safety
    /// No two parts that are alive at once overlap.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn take(&self, part: Range<usize>) -> &mut [T] {
        assert!(part.start <= part.end && part.end <= self.len);
        // SAFETY: inside the slice, which is borrowed for as long as `self`; disjoint by contract.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(part.start), part.len()) }
    }

    /// # Safety
    /// As [`Slots::take`].
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn one(&self, index: usize) -> &mut T {
        // SAFETY: the caller's.
        unsafe { &mut self.take(index..index + 1)[0] }
    }
}
