//! Keys and values: `kernels/kv.cu`. How they lie in memory is drawn in `kernels/cache.cuh`.

use super::gpu::{Arg, Gpu, Shape as Launch};
use super::memory::{Memory, Pinned};
use super::rows::{self, Norm};
use crate::compute::{CacheDtype, CacheShape, DeviceError, Result, RopeStyle};
use std::ops::Range;

const MODULE: &str = "kv";
const THREADS: usize = 128;
/// Of eight bytes a thread, in a copy of a block.
const COPY_THREADS: usize = 256;
const MOST_DIM: usize = 512;
const MOST_TOKENS: usize = 256;

pub struct Cache {
    pub(super) memory: Memory,
    shape: CacheShape,
}

impl Cache {
    /// All zeros: block 0 stands for blocks that are gone, and is never read. Whether there are kernels for its
    /// heads was asked before ([`check`]): blocks may hold nothing but states.
    pub fn new(gpu: &Gpu, shape: CacheShape) -> Result<Self> {
        let memory = gpu.alloc(shape.blocks * stride(&shape), "KV cache in one layer")?;
        gpu.zero(&memory)?;
        Ok(Self { memory, shape })
    }

    pub fn shape(&self) -> CacheShape {
        self.shape
    }

    /// Bytes from one block to the next.
    pub fn stride(&self) -> usize {
        stride(&self.shape)
    }

    /// [blocks][kv heads](K | V | scales), each block as long as the [`stride`](Self::stride).
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    fn at(&self, block: u32) -> u64 {
        debug_assert!((block as usize) < self.shape.blocks);
        self.memory.at(block as usize * self.stride())
    }
}

/// Blocks that are longer than their keys and values begin at multiples of 16 bytes, as all copies want it.
fn stride(shape: &CacheShape) -> usize {
    let bytes = shape.block_bytes();
    if bytes == shape.kv_heads * shape.part_bytes() { bytes } else { bytes.next_multiple_of(16) }
}

/// # Errors
/// There are no kernels for such a cache.
pub fn check(shape: &CacheShape) -> Result<()> {
    let refuse = |what: String| Err(DeviceError(format!("CUDA needs {what}")));
    if !(1..=MOST_TOKENS).contains(&shape.block_size) {
        return refuse(format!("a block_size of 1 to {MOST_TOKENS} tokens, not {}", shape.block_size));
    }
    if shape.latent.is_some() {
        return refuse(
            "keys and values in its cache: it has no kernels for latent ones (DeepSeek); use --device cpu"
                .into(),
        );
    }
    let dim = shape.head_dim;
    if dim == 0 || dim > MOST_DIM || !dim.is_multiple_of(16) {
        return refuse(format!(
            "heads whose size is a multiple of 16 up to {MOST_DIM}, not {dim}; use --device cpu"
        ));
    }
    code(shape.dtype).map(drop)
}

/// `KV_F16` and so on of `kernels/cache.cuh`.
fn code(dtype: CacheDtype) -> Result<Arg> {
    match dtype {
        CacheDtype::F16 => Ok(Arg::I32(0)),
        CacheDtype::Bf16 => Ok(Arg::I32(1)),
        CacheDtype::Int8 => Ok(Arg::I32(2)),
        CacheDtype::Fp8 => Ok(Arg::I32(3)),
        CacheDtype::F32 => {
            Err(DeviceError("CUDA needs a KV cache of f16, bf16, int8 or fp8, not of f32".into()))
        }
    }
}

/// Which part of a step a layer looks at.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The words of [`super::step`].
    pub step: &'a Memory,
    /// Of caches: whose block tables.
    pub group: usize,
    /// How many rows and spans a step of this size has at most.
    pub rows: usize,
    pub spans: usize,
}

/// What is done to heads before they are stored.
#[derive(Clone, Copy)]
pub struct Store<'a> {
    pub heads: usize,
    /// Which of the step's ropes, and how it turns.
    pub rope: Option<(usize, RopeStyle)>,
    pub query_norm: Option<HeadNorm<'a>>,
    pub key_norm: Option<HeadNorm<'a>>,
}

/// How each head is normalised alone.
#[derive(Clone, Copy)]
pub struct HeadNorm<'a> {
    /// Weights `[head_dim]`, or `[heads, head_dim]` where `each` head has its own.
    pub norm: Norm<'a>,
    pub each: bool,
}

/// Normalises and rotates queries in place, and writes normalised and rotated keys, and values, to the
/// cache. qkv f32 [rows, (heads + 2 kv_heads) * head_dim].
pub fn store(gpu: &Gpu, qkv: &Memory, cache: &Cache, place: Place, store: &Store) -> Result<()> {
    let shape = cache.shape;
    let name = if shape.head_dim <= 128 { "kv_store_2" } else { "kv_store_8" };
    let units = (store.heads + 2 * shape.kv_heads).div_ceil(THREADS / 32);
    let (rope, interleaved) = match store.rope {
        Some((rope, style)) => (Arg::from(rope), usize::from(style == RopeStyle::Interleaved)),
        None => (Arg::I32(-1), 0),
    };
    let norm = |norm: Option<HeadNorm>| {
        let each = norm.filter(|norm| norm.each).map_or(0, |_| shape.head_dim);
        let [weight, bias, eps, layer] = rows::parts(norm.map(|norm| norm.norm));
        [weight, bias, eps, layer, each.into()]
    };
    let args = [
        qkv.into(),
        Arg::Ptr(cache.memory.at(0)),
        place.step.into(),
        place.group.into(),
        rope,
        interleaved.into(),
        store.heads.into(),
        shape.kv_heads.into(),
        shape.head_dim.into(),
        shape.block_size.into(),
        cache.stride().into(),
        code(shape.dtype)?,
    ];
    let args = [&args[..], &norm(store.query_norm), &norm(store.key_norm)].concat();
    gpu.launch(MODULE, name, Launch::new([place.rows, units, 1], THREADS), &args)
}

/// Copies blocks, all at once. pairs i32 [count, 2]: from, to, starting at the `first` pair of that memory.
/// A block that is written is in one pair only: [`at_once`] cuts a list that is to be done in order.
pub fn copy_blocks(gpu: &Gpu, cache: &Cache, pairs: &Memory, range: Range<usize>) -> Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let words = cache.stride() / 8;
    let parts = words.div_ceil(4 * COPY_THREADS).min(64);
    let launch = Launch::new([range.len(), parts, 1], COPY_THREADS);
    let args = [Arg::Ptr(cache.memory.at(0)), Arg::Ptr(pairs.at(8 * range.start)), words.into()];
    gpu.launch(MODULE, "kv_copy_blocks", launch, &args)
}

/// Cuts copies into runs of which each may be done at once, as if one came after the other.
pub fn at_once(copies: &[(u32, u32)]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = copies.get(start..).filter(|rest| !rest.is_empty())?;
        let touches = |(from, to): (u32, u32), earlier: &[(u32, u32)]| {
            earlier.iter().any(|(other, onto)| from == *onto || to == *onto || to == *other)
        };
        let len = (1..rest.len()).find(|i| touches(rest[*i], &rest[..*i])).unwrap_or(rest.len());
        start += len;
        Some(start - len..start)
    })
}

/// The bytes of a block in every cache, one after the other, by way of pinned memory. Waits for everything
/// queued.
pub fn read_block(gpu: &Gpu, caches: &[Cache], block: u32, by: &mut Pinned, out: &mut [u8]) -> Result<()> {
    let mut end = 0;
    for cache in caches {
        let bytes = cache.shape.block_bytes();
        gpu.download_to(by, end, cache.at(block), bytes)?;
        end += bytes;
    }
    gpu.wait()?;
    out[..end].copy_from_slice(&by.bytes()[..end]);
    Ok(())
}

/// Puts back what [`read_block`] gave, for caches of the same shapes.
pub fn write_block(gpu: &Gpu, caches: &[Cache], block: u32, by: &mut Pinned, from: &[u8]) -> Result<()> {
    by.bytes_mut()[..from.len()].copy_from_slice(from);
    let mut end = 0;
    for cache in caches {
        let bytes = cache.shape.block_bytes();
        gpu.upload_from(cache.at(block), by, end, bytes)?;
        end += bytes;
    }
    gpu.wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_wait_for_each_other_are_apart() {
        let cut = |copies: &[(u32, u32)]| at_once(copies).collect::<Vec<_>>();
        assert!(cut(&[]).is_empty());
        assert!(cut(&[(1, 2), (1, 3), (4, 5)]).iter().eq([&(0..3)]));
        assert_eq!(cut(&[(1, 2), (2, 3)]), [0..1, 1..2], "reads what was written");
        assert_eq!(cut(&[(1, 2), (3, 1)]), [0..1, 1..2], "writes what was read");
        assert_eq!(cut(&[(1, 2), (3, 2), (4, 5)]), [0..1, 1..3], "writes what was written");
    }
}
