//! Memory for weights: a few large maps that matrices take their parts of.
//!
//! A decode step reads every weight once. With pages of 4 KiB the address translation stumbles on
//! the way; the system gives pages of 2 MiB where a map is large and asks for them, which a map for
//! each matrix (a third of a megabyte in a small model) never is. SmolLM2 decodes 1.3 times as fast.

use crate::compute::{DeviceError, Result};
use memmap2::{MmapMut, MmapOptions};
use std::alloc::{Layout, alloc_zeroed};
use std::sync::Arc;

/// Of a map; pages that nobody wrote take no memory.
const CHUNK: usize = 64 << 20;

const HUGE_PAGE: usize = 2 << 20;

/// Regions begin on a cache line.
const ALIGN: usize = 64;

/// So many zeros. The system hands out zeroed pages, which take memory when they are first written: a
/// buffer for 512 tokens of which 20 come takes what 20 need.
pub(super) fn zeroed(len: usize) -> Option<Vec<f32>> {
    let layout = Layout::array::<f32>(len).ok().filter(|layout| layout.size() > 0);
    let Some(layout) = layout else { return (len == 0).then(Vec::new) };
    // SAFETY: the layout is that of `len` values, not empty; all zero bits are the number 0.0.
    unsafe {
        let start = alloc_zeroed(layout).cast::<f32>();
        (!start.is_null()).then(|| Vec::from_raw_parts(start, len, len))
    }
}

#[derive(Default)]
pub(super) struct Arena {
    chunk: Option<Arc<Chunk>>,
    used: usize,
}

struct Chunk {
    start: *mut u8,
    len: usize,
    _map: MmapMut,
}

// SAFETY: regions of a chunk do not overlap, and each has one owner.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

/// A part of a chunk, zeroed, owned like a boxed slice.
pub(super) struct Region {
    chunk: Arc<Chunk>,
    offset: usize,
    len: usize,
}

impl Arena {
    pub(super) fn take(&mut self, len: usize) -> Result<Region> {
        let offset = self.used.next_multiple_of(ALIGN);
        let chunk = match &self.chunk {
            Some(chunk) if offset + len <= chunk.len => chunk.clone(),
            _ => return self.take_from_new(len),
        };
        self.used = offset + len;
        Ok(Region { chunk, offset, len })
    }

    fn take_from_new(&mut self, len: usize) -> Result<Region> {
        let chunk = Arc::new(Chunk::map(len.max(CHUNK).next_multiple_of(HUGE_PAGE))?);
        self.chunk = Some(chunk.clone());
        self.used = len;
        Ok(Region { chunk, offset: 0, len })
    }
}

impl Chunk {
    fn map(len: usize) -> Result<Chunk> {
        let failed = |e| DeviceError(format!("no memory for {} MiB of weights: {e}", len >> 20));
        let mut map = MmapOptions::new().len(len).map_anon().map_err(failed)?;
        // The system may say no; then it is only slower.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Chunk { start: map.as_mut_ptr(), len, _map: map })
    }
}

impl Region {
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: inside the chunk, which lives as long as `self`; nobody else has this part.
        unsafe { std::slice::from_raw_parts(self.chunk.start.add(self.offset), self.len) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.chunk.start.add(self.offset), self.len) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn regions_are_apart_zeroed_and_as_large_as_asked_for() {
        let mut arena = Arena::default();
        let mut regions: Vec<Region> = [100, 1, 5000, CHUNK - 6000, 4000, CHUNK + 1]
            .iter()
            .map(|len| arena.take(*len).unwrap())
            .collect();
        for (i, region) in regions.iter_mut().enumerate() {
            assert!(region.bytes().iter().all(|b| *b == 0));
            assert_eq!(region.bytes().as_ptr() as usize % ALIGN, 0);
            region.bytes_mut().fill(i as u8 + 1);
        }
        for (i, region) in regions.iter().enumerate() {
            assert!(region.bytes().iter().all(|b| *b == i as u8 + 1));
        }
        drop(arena);
        assert_eq!(regions[5].bytes().len(), CHUNK + 1);
    }
}
