//! Keys and values of one layer, in blocks.
//!
//! ```text
//! one layer:  [block][kv head]( K [head_dim][block_size] | V [block_size][head_dim] )
//! int8, fp8:  [block][kv head]( K, V as above            | scales of K [block_size] | of V [block_size] )
//! latent:     [block]( K | scales of K ): values are a part of the keys
//! ```
//!
//! Keys lie transposed in their block: one load is 16 tokens' worth of one dimension, so scores need
//! no sum across lanes. No number of the layout depends on the instruction set.

use super::attention::MOST_DIM;
use super::simd::{Simd, simd_fn};
use crate::compute::{CacheDtype, CacheShape, DeviceError, Result};
use memmap2::MmapMut;

/// Tokens of the largest block: beside states, which are long, blocks of keys become so too.
const MOST_TOKENS: usize = 1 << 16;

/// Kernels read 16 elements at a time, so up to 15 numbers beyond the last block.
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
        // Of heads there are none where all that is kept are states.
        if shape.kv_heads > 0 && !(1..=MOST_DIM).contains(&shape.head_dim) {
            return refuse(&format!("heads of 1 to {MOST_DIM}, not {}", shape.head_dim));
        }
        if let Some(latent) = shape.latent.filter(|latent| *latent >= shape.head_dim) {
            return refuse(&format!("values inside keys of {}, not from {latent} on", shape.head_dim));
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

    /// Elements of one head's V in one block.
    pub(super) fn values(&self) -> usize {
        if self.latent.is_some() { 0 } else { self.half() }
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
    /// Writes one token's key and value, which is empty in a latent cache, into one head's part of a block.
    pub(super) fn store_token(part: &mut [u8], shape: CacheShape, offset: usize, k: &[f32], v: &[f32]) = store_kernel;
}

#[inline(always)]
unsafe fn store_kernel<S: Simd>(part: &mut [u8], shape: CacheShape, offset: usize, k: &[f32], v: &[f32]) {
    assert!(k.len() == shape.head_dim && v.len() == if shape.latent.is_some() { 0 } else { shape.head_dim });
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
    let (dim, size, tokens) = (shape.head_dim, E::BYTES, shape.block_size);
    let (keys, rest) = part.split_at_mut(shape.half() * size);
    let (values, scales) = rest.split_at_mut(shape.values() * size);
    // SAFETY: the instruction set is the caller's.
    unsafe {
        let k_scale = scale_of::<S, E>(k);
        for (d, elements) in elements_of::<S, E>(k, k_scale) {
            for (i, element) in elements.chunks_exact(size).enumerate().take(16.min(dim - d)) {
                keys[((d + i) * tokens + offset) * size..][..size].copy_from_slice(element);
            }
        }
        let v_scale = scale_of::<S, E>(v);
        for (d, elements) in elements_of::<S, E>(v, v_scale) {
            let len = 16.min(dim - d) * size;
            values[(offset * dim + d) * size..][..len].copy_from_slice(&elements[..len]);
        }
        if E::SCALED {
            scales[4 * offset..][..4].copy_from_slice(&k_scale.to_ne_bytes());
            if !v.is_empty() {
                scales[4 * (tokens + offset)..][..4].copy_from_slice(&v_scale.to_ne_bytes());
            }
        }
    }
}

/// As bytes of the cache, 16 at a time; the last ones may be zeros that were added.
///
/// # Safety
/// The instruction set is there.
#[inline(always)]
unsafe fn elements_of<S: Simd, E: Element>(x: &[f32], scale: f32) -> impl Iterator<Item = (usize, [u8; 64])> {
    let inverse = inverse(scale);
    (0..x.len()).step_by(16).map(move |d| {
        let mut elements = [0; 64];
        // SAFETY: 16 elements of at most 4 bytes have room; the instruction set is the caller's.
        unsafe {
            let x = sixteen::<S>(x, d);
            E::store::<S>(elements.as_mut_ptr(), if E::SCALED { S::mul(x, S::splat(inverse)) } else { x });
        }
        (d, elements)
    })
}

/// Elements `d ..` of 16, or as many as there are and zeros.
///
/// # Safety
/// The instruction set is there.
#[inline(always)]
unsafe fn sixteen<S: Simd>(x: &[f32], d: usize) -> S::F {
    let mut padded = [0.0; 16];
    let x = match x.get(d..d + 16) {
        Some(x) => x,
        None => {
            padded[..x.len() - d].copy_from_slice(&x[d..]);
            &padded
        }
    };
    // SAFETY: 16 elements are there.
    unsafe { S::load(x.as_ptr()) }
}

/// What a token's numbers are multiples of.
///
/// # Safety
/// The instruction set is there.
#[inline(always)]
unsafe fn scale_of<S: Simd, E: Element>(x: &[f32]) -> f32 {
    // SAFETY: the caller's.
    if E::SCALED { unsafe { largest::<S>(x) / E::LARGEST } } else { 1.0 }
}

/// Zeros have no scale, and need none.
#[inline(always)]
fn inverse(scale: f32) -> f32 {
    if scale > f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 }
}

/// Largest magnitude. Where something is not finite this is not a number: bytes could not say so.
///
/// # Safety
/// The instruction set is there.
#[inline(always)]
unsafe fn largest<S: Simd>(x: &[f32]) -> f32 {
    // SAFETY: the instruction set is the caller's.
    unsafe {
        let (mut largest, mut zero) = (S::splat(0.0), S::splat(0.0));
        for d in (0..x.len()).step_by(16) {
            let v = sixteen::<S>(x, d);
            largest = S::max(largest, S::abs(v));
            zero = S::fma(v, S::splat(0.0), zero);
        }
        S::largest(largest) + S::sum(zero)
    }
}
