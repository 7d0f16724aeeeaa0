//! What is allocated, on the device and on the host: each is freed with its owner, before its context.

use cudarc::driver::CudaContext;
use cudarc::driver::result;
use std::sync::Arc;

/// Memory of the device.
pub struct Memory {
    pub(super) at: u64,
    pub(super) bytes: usize,
    pub(super) context: Arc<CudaContext>,
}

impl Memory {
    pub fn at(&self, offset: usize) -> u64 {
        debug_assert!(offset <= self.bytes, "byte {offset} of {}", self.bytes);
        self.at + offset as u64
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: allocated by `Gpu::alloc`, freed here only. Waits for what uses it.
        let _ = unsafe { result::free_sync(self.at) };
    }
}

/// Memory of the host that the device may read and write.
pub struct Pinned {
    pub(super) at: *mut u8,
    pub(super) bytes: usize,
    pub(super) context: Arc<CudaContext>,
}

// SAFETY: it is plain memory with one owner.
unsafe impl Send for Pinned {}

impl Pinned {
    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: allocated with this length and zeroed.
        unsafe { std::slice::from_raw_parts(self.at, self.bytes) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.bytes) }
    }

    /// The first `len` numbers in it.
    pub fn floats_mut(&mut self, len: usize) -> &mut [f32] {
        assert!(len * 4 <= self.bytes);
        // SAFETY: pages are aligned, every bit pattern is a number, and it is long enough.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast(), len) }
    }

    pub fn words_mut(&mut self) -> &mut [u32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast(), self.bytes / 4) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: allocated by `Gpu::pinned`, freed here only.
        let _ = unsafe { result::free_host(self.at.cast()) };
    }
}
