//! Attention over paged keys and values.
//!
//! ```text
//! one layer:  [block][kv head]( K [head_dim][block_size] | V [block_size][head_dim] )   f16
//! ```
//!
//! Keys lie transposed in their block: one load is 16 tokens' worth of one dimension, so scores need
//! no sum across lanes. All query heads of a group, and several tokens' queries, share each load.
//!
//! The past is cut into splits of [`SPLIT`] positions at fixed places (Flash-Decoding, Dao et al.
//! 2023). Each split yields a maximum, a sum and a weighted value (Milakov and Gimelshein 2018), and
//! splits are merged in order: a row's result does not depend on the batch or on who worked on what.

use super::simd::{Simd, simd_fn};
use crate::compute::CacheShape;

/// Positions in one split; a multiple of every block size.
pub(super) const SPLIT: usize = 256;

/// Largest head.
pub(super) const MOST_DIM: usize = 512;

/// Queries that share a pass over the keys.
pub(super) const QUERIES: usize = 4;

impl CacheShape {
    /// f16 elements of one head's K (or V) in one block.
    pub(super) fn half(&self) -> usize {
        self.block_size * self.head_dim
    }

    /// f16 elements of one block in one layer.
    pub(super) fn block(&self) -> usize {
        2 * self.half() * self.kv_heads
    }

    fn keys(&self, block: u32, head: usize) -> usize {
        block as usize * self.block() + head * 2 * self.half()
    }
}

/// One query: `head_dim` numbers, and the positions it may see.
#[derive(Clone, Copy)]
pub(super) struct Query<'a> {
    pub(super) q: &'a [f32],
    pub(super) first: usize,
    /// One past the last.
    pub(super) end: usize,
}

/// Softmax over one split: largest score, sum of exponentials relative to it, values weighted by
/// them (the first `head_dim`).
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) largest: f32,
    pub(super) sum: f32,
    pub(super) values: [f32; MOST_DIM],
}

/// The same over several splits.
pub(super) struct Merged<'a> {
    pub(super) largest: f32,
    pub(super) sum: f32,
    pub(super) values: &'a mut [f32],
}

/// A thread's own memory: scores of a few queries against one split, and what came of them.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) scores: Scores,
    pub(super) found: [Found; QUERIES],
}

type Scores = [[f32; SPLIT]; QUERIES];

impl Desk {
    pub(super) fn new() -> Self {
        let nothing = Found { largest: f32::NEG_INFINITY, sum: 0.0, values: [0.0; MOST_DIM] };
        Self { scores: [[0.0; SPLIT]; QUERIES], found: [nothing; QUERIES] }
    }
}

pub(super) struct SplitJob<'a> {
    pub(super) cache: &'a [u16],
    pub(super) shape: CacheShape,
    pub(super) head: usize,
    /// The sequence's block table.
    pub(super) table: &'a [u32],
    /// The split covers positions `SPLIT * index ..`.
    pub(super) index: usize,
    /// Multiplies scores before the softmax.
    pub(super) scale: f32,
    /// At most [`QUERIES`].
    pub(super) queries: &'a [Query<'a>],
}

simd_fn! {
    /// Attends to one split; `desk.found` then has each query's result.
    pub(super) fn attend_split(job: SplitJob, desk: &mut Desk) = attend_kernel;
}

#[inline(always)]
unsafe fn attend_kernel<S: Simd>(job: SplitJob, desk: &mut Desk) {
    let SplitJob { cache, shape, head, table, index, scale, queries } = job;
    let Desk { scores, found } = desk;
    let begin = index * SPLIT;
    let end = queries.iter().map(|q| q.end).max().unwrap_or(0).min(begin + SPLIT);
    let used = end - begin;
    assert!((1..=QUERIES).contains(&queries.len()) && end > begin && shape.head_dim <= MOST_DIM);
    assert!(queries.iter().all(|q| q.q.len() == shape.head_dim));
    assert!(table.len() * shape.block_size >= end && shape.block_size % 16 == 0 && shape.head_dim % 16 == 0);
    // Every block the split touches lies inside the cache.
    let blocks = &table[begin / shape.block_size..end.div_ceil(shape.block_size)];
    assert!(blocks.iter().all(|b| (*b as usize + 1) * shape.block() <= cache.len()));
    // SAFETY: the assertions above bound every access of the kernels.
    unsafe {
        for (i, block) in blocks.iter().enumerate() {
            let keys = cache.as_ptr().add(shape.keys(*block, head));
            let chunks = (used - i * shape.block_size).min(shape.block_size).div_ceil(16);
            for chunk in 0..chunks {
                let at = i * shape.block_size + 16 * chunk;
                let keys = keys.add(16 * chunk);
                match queries.len() {
                    1 => score::<S, 1>(keys, shape, queries, scale, scores, at),
                    2 => score::<S, 2>(keys, shape, queries, scale, scores, at),
                    3 => score::<S, 3>(keys, shape, queries, scale, scores, at),
                    _ => score::<S, 4>(keys, shape, queries, scale, scores, at),
                }
            }
        }
        for ((query, scores), found) in queries.iter().zip(scores.iter_mut()).zip(found.iter_mut()) {
            (found.largest, found.sum) = soften::<S>(query, begin, used, scores);
        }
        match queries.len() {
            1 => weigh::<S, 1>(cache, shape, head, blocks, used, scores, found),
            2 => weigh::<S, 2>(cache, shape, head, blocks, used, scores, found),
            3 => weigh::<S, 3>(cache, shape, head, blocks, used, scores, found),
            _ => weigh::<S, 4>(cache, shape, head, blocks, used, scores, found),
        }
    }
}

/// Scores of 16 positions. Unused cells of the last block give garbage that `soften` overwrites.
#[inline(always)]
unsafe fn score<S: Simd, const N: usize>(
    keys: *const u16,
    shape: CacheShape,
    queries: &[Query],
    scale: f32,
    scores: &mut Scores,
    at: usize,
) {
    // SAFETY: `head_dim` rows of `block_size` keys lie at `keys`, 16 of each are read.
    unsafe {
        let q: [*const f32; N] = std::array::from_fn(|n| queries[n].q.as_ptr());
        let mut sums = [S::splat(0.0); N];
        for d in 0..shape.head_dim {
            let k = S::load_f16(keys.add(d * shape.block_size));
            for n in 0..N {
                sums[n] = S::fma(k, S::splat(*q[n].add(d)), sums[n]);
            }
        }
        for n in 0..N {
            S::store(scores[n].as_mut_ptr().add(at), S::mul(sums[n], S::splat(scale)));
        }
    }
}

/// Scores to weights, relative to their largest: e^(s - largest), 0 where the query may not look.
/// Returns the largest and the sum; (-inf, 0) when it sees nothing here.
#[inline(always)]
unsafe fn soften<S: Simd>(query: &Query, begin: usize, used: usize, scores: &mut [f32; SPLIT]) -> (f32, f32) {
    let first = query.first.saturating_sub(begin).min(used);
    let end = query.end.saturating_sub(begin).clamp(first, used);
    let padded = used.next_multiple_of(16);
    scores[..first].fill(f32::NEG_INFINITY);
    scores[end..padded].fill(f32::NEG_INFINITY);
    // SAFETY: `padded` is a multiple of 16 and at most SPLIT.
    unsafe {
        let mut largest = S::splat(f32::NEG_INFINITY);
        for i in (0..padded).step_by(16) {
            largest = S::max(largest, S::load(scores.as_ptr().add(i)));
        }
        let largest = S::largest(largest);
        if largest == f32::NEG_INFINITY {
            scores[..padded].fill(0.0);
            return (largest, 0.0);
        }
        let mut sum = S::splat(0.0);
        for i in (0..padded).step_by(16) {
            let p = scores.as_mut_ptr().add(i);
            let e = S::exp(S::sub(S::load(p), S::splat(largest)));
            S::store(p, e);
        }
        scores[..first].fill(0.0);
        scores[end..padded].fill(0.0);
        for i in (0..padded).step_by(16) {
            sum = S::add(sum, S::load(scores.as_ptr().add(i)));
        }
        (largest, S::sum(sum))
    }
}

/// Values weighted by the softened scores, 16 dimensions at a time.
#[inline(always)]
unsafe fn weigh<S: Simd, const N: usize>(
    cache: &[u16],
    shape: CacheShape,
    head: usize,
    blocks: &[u32],
    used: usize,
    scores: &Scores,
    found: &mut [Found; QUERIES],
) {
    // SAFETY: positions below `used` lie inside the blocks, 16 of `head_dim` values are read.
    unsafe {
        for d in (0..shape.head_dim).step_by(16) {
            let mut sums = [S::splat(0.0); N];
            for (i, block) in blocks.iter().enumerate() {
                let values = cache.as_ptr().add(shape.keys(*block, head) + shape.half() + d);
                let tokens = (used - i * shape.block_size).min(shape.block_size);
                for t in 0..tokens {
                    let v = S::load_f16(values.add(t * shape.head_dim));
                    for (n, sum) in sums.iter_mut().enumerate() {
                        let p = *scores.get_unchecked(n).get_unchecked(i * shape.block_size + t);
                        *sum = S::fma(v, S::splat(p), *sum);
                    }
                }
            }
            for n in 0..N {
                S::store(found[n].values.as_mut_ptr().add(d), sums[n]);
            }
        }
    }
}

simd_fn! {
    /// Folds a later split's result into the earlier ones'.
    pub(super) fn merge(into: &mut Merged, largest: f32, sum: f32, values: &[f32]) = merge_kernel;
}

#[inline(always)]
unsafe fn merge_kernel<S: Simd>(into: &mut Merged, largest: f32, sum: f32, values: &[f32]) {
    if largest == f32::NEG_INFINITY {
        return;
    }
    let new = largest.max(into.largest);
    let (old_scale, scale) = ((into.largest - new).exp(), (largest - new).exp());
    into.sum = into.sum * old_scale + sum * scale;
    into.largest = new;
    for (a, b) in into.values.iter_mut().zip(values) {
        *a = *a * old_scale + b * scale;
    }
}

impl<'a> Merged<'a> {
    /// Nothing yet.
    pub(super) fn new(values: &'a mut [f32]) -> Self {
        values.fill(0.0);
        Self { largest: f32::NEG_INFINITY, sum: 0.0, values }
    }

    /// Divides by the sum. A row that saw nothing keeps its zeros.
    pub(super) fn finish(self) {
        let scale = if self.sum > 0.0 { 1.0 / self.sum } else { 0.0 };
        self.values.iter_mut().for_each(|v| *v *= scale);
    }
}

simd_fn! {
    /// Writes one token's key and value into one head's part of a block.
    pub(super) fn store_token(place: &mut [u16], shape: CacheShape, offset: usize, k: &[f32], v: &[f32]) = store_kernel;
}

#[inline(always)]
unsafe fn store_kernel<S: Simd>(place: &mut [u16], shape: CacheShape, offset: usize, k: &[f32], v: &[f32]) {
    assert!(k.len() == shape.head_dim && v.len() == shape.head_dim && offset < shape.block_size);
    let (keys, values) = place.split_at_mut(shape.half());
    let values = &mut values[offset * shape.head_dim..][..shape.head_dim];
    let mut halves = [0u16; 16];
    for d in (0..shape.head_dim).step_by(16) {
        // SAFETY: `head_dim` is a multiple of 16, so 16 elements lie at `d`.
        unsafe {
            S::store_f16(values.as_mut_ptr().add(d), S::load(v.as_ptr().add(d)));
            S::store_f16(halves.as_mut_ptr(), S::load(k.as_ptr().add(d)));
        }
        for (i, half) in halves.iter().enumerate() {
            keys[(d + i) * shape.block_size + offset] = *half;
        }
    }
}
