//! Keys and values of one layer, in blocks.
//!
//! ```text
//! one layer:  [block][kv head]( K [head_dim][block_size] | V [block_size][head_dim] )
//! int8, fp8:  [block][kv head]( K, V as above            | scales of K [block_size] | of V [block_size] )
//! ```
//!
//! Keys lie transposed in their block: one load is 16 tokens' worth of one dimension, so scores need
//! no sum across lanes. No number of the layout depends on the instruction set.

use super::attention::MOST_DIM;
use super::simd::{Simd, simd_fn};
use crate::compute::{CacheDtype, CacheShape, DeviceError, Result};
use memmap2::MmapMut;

/// Tokens of the largest block.
const MOST_TOKENS: usize = 256;

/// Kernels read 16 elements at a time, so up to 15 scales beyond the last block.
pub(super) const SLACK: usize = 64;

pub struct Cache {
    shape: CacheShape,
    bytes: MmapMut,
}

impl Cache {
    pub(super) fn new(shape: CacheShape) -> Result<Cache> {
        let refuse = |what: &str| Err(DeviceError(format!("the CPU needs {what}")));
        if !(1..=MOST_TOKENS).contains(&shape.block_size) {
            return refuse(&format!("a block_size of 1 to {MOST_TOKENS} tokens, not {}", shape.block_size));
        }
        if !shape.head_dim.is_multiple_of(16) {
            return refuse(&format!("heads whose size is a multiple of 16, not {}", shape.head_dim));
        }
        if shape.head_dim > MOST_DIM {
            return refuse(&format!("heads of at most {MOST_DIM}, not {}", shape.head_dim));
        }
        let bytes = shape.blocks * shape.block_bytes() + SLACK;
        // Zeroed pages that take memory when they are first written.
        let bytes = MmapMut::map_anon(bytes).map_err(|e| {
            DeviceError(format!("no memory for {} MiB of KV cache in one layer: {e}", bytes >> 20))
        })?;
        Ok(Cache { shape, bytes })
    }

    pub(super) fn shape(&self) -> CacheShape {
        self.shape
    }

    /// All blocks, and [`SLACK`] after the last.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// All blocks as the states that lie in some of them; [`SLACK`] after the last.
    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        // SAFETY: all bits are a number.
        let (before, values, _) = unsafe { self.bytes.align_to_mut() };
        assert!(before.is_empty() && self.shape.block_bytes().is_multiple_of(size_of::<f32>()));
        values
    }

    pub(super) fn block(&self, block: u32) -> &[u8] {
        let len = self.shape.block_bytes();
        &self.bytes[block as usize * len..][..len]
    }

    pub(super) fn block_mut(&mut self, block: u32) -> &mut [u8] {
        let len = self.shape.block_bytes();
        &mut self.bytes[block as usize * len..][..len]
    }

    pub(super) fn copy(&mut self, from: u32, to: u32) {
        let len = self.shape.block_bytes();
        let from = from as usize * len;
        self.bytes.copy_within(from..from + len, to as usize * len);
    }
}

impl CacheShape {
    /// Elements of one head's K (or V) in one block.
    pub(super) fn half(&self) -> usize {
        self.block_size * self.head_dim
    }

    /// Where one head's part of a block begins.
    pub(super) fn part(&self, block: u32, head: usize) -> usize {
        block as usize * self.block_bytes() + head * self.part_bytes()
    }
}

/// A number in the cache.
pub(super) trait Element {
    const BYTES: usize;
    /// Numbers are multiples of their token's scale.
    const SCALED: bool = false;
    /// The largest number there is: what the scale makes of a token's largest.
    const LARGEST: f32 = 1.0;

    /// # Safety
    /// 16 elements are readable at `p`, and the instruction set is there.
    unsafe fn load<S: Simd>(p: *const u8) -> S::F;

    /// # Safety
    /// 16 elements are writable at `p`, and the instruction set is there.
    unsafe fn store<S: Simd>(p: *mut u8, x: S::F);
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;
pub(super) struct Int8;
pub(super) struct Fp8;

impl Element for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        // SAFETY: the caller's; no alignment is asked for.
        unsafe { S::load(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(p: *mut u8, x: S::F) {
        // SAFETY: as above.
        unsafe { S::store(p.cast(), x) }
    }
}

impl Element for F16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        // SAFETY: the caller's; no alignment is asked for.
        unsafe { S::load_f16(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(p: *mut u8, x: S::F) {
        // SAFETY: as above.
        unsafe { S::store_f16(p.cast(), x) }
    }
}

impl Element for Bf16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        // SAFETY: the caller's; no alignment is asked for.
        unsafe { S::load_bf16(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(p: *mut u8, x: S::F) {
        // SAFETY: as above.
        unsafe { S::store_bf16(p.cast(), x) }
    }
}

impl Element for Int8 {
    const BYTES: usize = 1;
    const SCALED: bool = true;
    const LARGEST: f32 = 127.0;

    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        // SAFETY: the caller's; no alignment is asked for.
        unsafe { S::load_i8(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(p: *mut u8, x: S::F) {
        // SAFETY: as above.
        unsafe {
            S::store_i8(p.cast(), x);
        }
    }
}

impl Element for Fp8 {
    const BYTES: usize = 1;
    const SCALED: bool = true;
    const LARGEST: f32 = 448.0;

    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        // SAFETY: the caller's; no alignment is asked for.
        unsafe { S::load_e4m3(p) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(p: *mut u8, x: S::F) {
        // SAFETY: as above.
        unsafe { S::store_e4m3(p, x) }
    }
}

simd_fn! {
    /// Writes one token's key and value into one head's part of a block.
    pub(super) fn store_token(part: &mut [u8], shape: CacheShape, offset: usize, k: &[f32], v: &[f32]) = store_kernel;
}

#[inline(always)]
unsafe fn store_kernel<S: Simd>(part: &mut [u8], shape: CacheShape, offset: usize, k: &[f32], v: &[f32]) {
    assert!(k.len() == shape.head_dim && v.len() == shape.head_dim && shape.head_dim.is_multiple_of(16));
    assert!(offset < shape.block_size && part.len() == shape.part_bytes());
    // SAFETY: the assertions are what `store_as` asks for.
    unsafe {
        match shape.dtype {
            CacheDtype::F32 => store_as::<S, F32>(part, shape, offset, k, v),
            CacheDtype::F16 => store_as::<S, F16>(part, shape, offset, k, v),
            CacheDtype::Bf16 => store_as::<S, Bf16>(part, shape, offset, k, v),
            CacheDtype::Int8 => store_as::<S, Int8>(part, shape, offset, k, v),
            CacheDtype::Fp8 => store_as::<S, Fp8>(part, shape, offset, k, v),
        }
    }
}

/// # Safety
/// `k` and `v` are a head's; `part` is one head's part of a block and `offset` a token of it.
#[inline(always)]
unsafe fn store_as<S: Simd, E: Element>(
    part: &mut [u8],
    shape: CacheShape,
    offset: usize,
    k: &[f32],
    v: &[f32],
) {
    let (dim, size) = (shape.head_dim, E::BYTES);
    let (keys, rest) = part.split_at_mut(shape.half() * size);
    let (values, scales) = rest.split_at_mut(shape.half() * size);
    let values = &mut values[offset * dim * size..][..dim * size];
    let mut elements = [0u8; 64];
    // SAFETY: `head_dim` is a multiple of 16, so 16 elements lie at each `d`.
    unsafe {
        let (k_scale, v_scale) = match E::SCALED {
            true => (largest::<S>(k) / E::LARGEST, largest::<S>(v) / E::LARGEST),
            false => (1.0, 1.0),
        };
        let take = |x: &[f32], d: usize, inverse: f32| match E::SCALED {
            true => S::mul(S::load(x.as_ptr().add(d)), S::splat(inverse)),
            false => S::load(x.as_ptr().add(d)),
        };
        let (k_inverse, v_inverse) = (inverse(k_scale), inverse(v_scale));
        for d in (0..dim).step_by(16) {
            E::store::<S>(values.as_mut_ptr().add(d * size), take(v, d, v_inverse));
            E::store::<S>(elements.as_mut_ptr(), take(k, d, k_inverse));
            for (i, element) in elements.chunks_exact(size).enumerate().take(16) {
                keys[((d + i) * shape.block_size + offset) * size..][..size].copy_from_slice(element);
            }
        }
        if E::SCALED {
            scales[4 * offset..][..4].copy_from_slice(&k_scale.to_ne_bytes());
            scales[4 * (shape.block_size + offset)..][..4].copy_from_slice(&v_scale.to_ne_bytes());
        }
    }
}

/// Zeros have no scale, and need none.
#[inline(always)]
fn inverse(scale: f32) -> f32 {
    if scale > f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 }
}

/// Largest magnitude. Where something is not finite this is not a number: bytes could not say so.
///
/// # Safety
/// The length is a multiple of 16, and the instruction set is there.
#[inline(always)]
unsafe fn largest<S: Simd>(x: &[f32]) -> f32 {
    // SAFETY: 16 elements lie at each `d`.
    unsafe {
        let (mut largest, mut zero) = (S::splat(0.0), S::splat(0.0));
        for d in (0..x.len()).step_by(16) {
            let v = S::load(x.as_ptr().add(d));
            largest = S::max(largest, S::abs(v));
            zero = S::fma(v, S::splat(0.0), zero);
        }
        S::largest(largest) + S::sum(zero)
    }
}
