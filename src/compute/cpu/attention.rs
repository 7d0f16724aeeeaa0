//! Attention over paged keys and values, which lie as `cache` draws them.
//!
//! All query heads of a group, and several tokens' queries, share each load of keys and values.
//!
//! The past is cut into splits of [`SPLIT`] positions at fixed places (Flash-Decoding, Dao et al.
//! 2023). Each split yields a maximum, a sum and a weighted value (Milakov and Gimelshein 2018), and
//! splits are merged in order: a row's result does not depend on the batch or on who worked on what.
//! Nor on the block size: scores are made lane by lane and values are added position by position.

use super::cache::{Bf16, Element, F16, Int8, SLACK};
use super::simd::{Simd, simd_fn};
use crate::compute::{CacheDtype, CacheShape};

/// Positions in one split.
pub(super) const SPLIT: usize = 256;

/// Largest head.
pub(super) const MOST_DIM: usize = 512;

/// Queries that share a pass over the keys.
pub(super) const QUERIES: usize = 4;

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
    scores: Scores,
    /// Of the split's values, where they have scales.
    scales: Positions,
    pub(super) found: [Found; QUERIES],
}

/// One number for each position of a split. Kernels write 16 at a time: up to 15 land beyond.
type Positions = [f32; SPLIT + 16];
type Scores = [Positions; QUERIES];

impl Desk {
    pub(super) fn new() -> Self {
        let nothing = Found { largest: f32::NEG_INFINITY, sum: 0.0, values: [0.0; MOST_DIM] };
        let zeros = [0.0; SPLIT + 16];
        Self { scores: [zeros; QUERIES], scales: zeros, found: [nothing; QUERIES] }
    }
}

pub(super) struct SplitJob<'a> {
    /// All of a layer's blocks, and the slack behind them.
    pub(super) cache: &'a [u8],
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
    // SAFETY: the instruction set is the caller's.
    unsafe {
        match job.shape.dtype {
            CacheDtype::F16 => attend_as::<S, F16>(job, desk),
            CacheDtype::Bf16 => attend_as::<S, Bf16>(job, desk),
            CacheDtype::Int8 => attend_as::<S, Int8>(job, desk),
        }
    }
}

/// The positions of a split that some query sees, and where they lie.
#[derive(Clone, Copy)]
struct Seen<'a> {
    cache: &'a [u8],
    shape: CacheShape,
    head: usize,
    table: &'a [u32],
    /// Of the split.
    begin: usize,
    end: usize,
}

/// Positions of one block.
struct Run {
    /// One head's part of the block.
    part: *const u8,
    /// Of its first position: within the block, and within the split.
    offset: usize,
    at: usize,
    len: usize,
}

impl Seen<'_> {
    #[inline(always)]
    fn runs(self, first: usize) -> impl Iterator<Item = Run> {
        let size = self.shape.block_size;
        (first / size..self.end.div_ceil(size)).map(move |block| {
            let start = (block * size).max(first);
            let part = self.shape.part(self.table[block], self.head);
            Run {
                part: self.cache[part..].as_ptr(),
                offset: start - block * size,
                at: start - self.begin,
                len: (block * size + size).min(self.end) - start,
            }
        })
    }
}

/// # Safety
/// The instruction set is there. Everything else is checked.
#[inline(always)]
unsafe fn attend_as<S: Simd, E: Element>(job: SplitJob, desk: &mut Desk) {
    let SplitJob { cache, shape, head, table, index, scale, queries } = job;
    let Desk { scores, scales, found } = desk;
    let begin = index * SPLIT;
    let end = queries.iter().map(|q| q.end).max().unwrap_or(0).min(begin + SPLIT);
    let first = queries.iter().map(|q| q.first).min().unwrap_or(0).max(begin);
    assert!((1..=QUERIES).contains(&queries.len()) && end > first && shape.head_dim <= MOST_DIM);
    assert!(queries.iter().all(|q| q.q.len() == shape.head_dim) && shape.head_dim.is_multiple_of(16));
    // Every block the queries see lies inside the cache.
    let blocks = &table[first / shape.block_size..end.div_ceil(shape.block_size)];
    assert!(blocks.iter().all(|b| (*b as usize + 1) * shape.block_bytes() + SLACK <= cache.len()));
    assert!(head < shape.kv_heads);
    let seen = Seen { cache, shape, head, table, begin, end };
    // SAFETY: the assertions above bound every access of the kernels.
    unsafe {
        match queries.len() {
            1 => score_all::<S, E, 1>(seen, first, queries, scale, scores, scales),
            2 => score_all::<S, E, 2>(seen, first, queries, scale, scores, scales),
            3 => score_all::<S, E, 3>(seen, first, queries, scale, scores, scales),
            _ => score_all::<S, E, 4>(seen, first, queries, scale, scores, scales),
        }
        for ((query, scores), found) in queries.iter().zip(scores.iter_mut()).zip(found.iter_mut()) {
            (found.largest, found.sum) = soften::<S>(query, begin, end - begin, scores);
            if E::SCALED {
                // A value's scale joins its weight.
                for i in ((first - begin) / 16 * 16..end - begin).step_by(16) {
                    let p = scores.as_mut_ptr().add(i);
                    S::store(p, S::mul(S::load(p), S::load(scales.as_ptr().add(i))));
                }
            }
        }
        match queries.len() {
            1 => weigh::<S, E, 1>(seen, first, scores, found),
            2 => weigh::<S, E, 2>(seen, first, scores, found),
            3 => weigh::<S, E, 3>(seen, first, scores, found),
            _ => weigh::<S, E, 4>(seen, first, scores, found),
        }
    }
}

/// Scores of all positions from `first` on, 16 at a time. What lies beyond a block's end is garbage
/// that the next block or `soften` overwrites.
#[inline(always)]
unsafe fn score_all<S: Simd, E: Element, const N: usize>(
    seen: Seen,
    first: usize,
    queries: &[Query],
    scale: f32,
    scores: &mut Scores,
    scales: &mut Positions,
) {
    let shape = seen.shape;
    for run in seen.runs(first) {
        for i in (0..run.len).step_by(16) {
            let (at, offset) = (run.at + i, run.offset + i);
            // SAFETY: `offset` is a token of the block. 16 elements from the last one's last dimension
            // reach into the values, 16 scales into the next part or the slack.
            unsafe {
                let keys = run.part.add(offset * E::BYTES);
                let mut factor = S::splat(scale);
                if E::SCALED {
                    let key_scales = run.part.add(2 * shape.half() * E::BYTES + 4 * offset).cast::<f32>();
                    factor = S::mul(factor, S::load(key_scales));
                    let value_scales = S::load(key_scales.add(shape.block_size));
                    S::store(scales.as_mut_ptr().add(at), value_scales);
                }
                score::<S, E, N>(keys, shape, queries, factor, scores, at);
            }
        }
    }
}

/// Scores of 16 positions.
#[inline(always)]
unsafe fn score<S: Simd, E: Element, const N: usize>(
    keys: *const u8,
    shape: CacheShape,
    queries: &[Query],
    factor: S::F,
    scores: &mut Scores,
    at: usize,
) {
    // SAFETY: `head_dim` rows of `block_size` keys lie at `keys`, 16 of each are read.
    unsafe {
        let q: [*const f32; N] = std::array::from_fn(|n| queries[n].q.as_ptr());
        let mut sums = [S::splat(0.0); N];
        for d in 0..shape.head_dim {
            let k = E::load::<S>(keys.add(d * shape.block_size * E::BYTES));
            for n in 0..N {
                sums[n] = S::fma(k, S::splat(*q[n].add(d)), sums[n]);
            }
        }
        for n in 0..N {
            S::store(scores[n].as_mut_ptr().add(at), S::mul(sums[n], factor));
        }
    }
}

/// Scores to weights, relative to their largest: e^(s - largest), 0 where the query may not look.
/// Returns the largest and the sum; (-inf, 0) when it sees nothing here.
#[inline(always)]
unsafe fn soften<S: Simd>(query: &Query, begin: usize, used: usize, scores: &mut Positions) -> (f32, f32) {
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

/// Values weighted by the softened scores, 16 dimensions at a time. Nothing before `first` is read:
/// there may be no block, and zero times what a lost block holds need not be zero.
#[inline(always)]
unsafe fn weigh<S: Simd, E: Element, const N: usize>(
    seen: Seen,
    first: usize,
    scores: &Scores,
    found: &mut [Found; QUERIES],
) {
    let (shape, stride) = (seen.shape, seen.shape.head_dim * E::BYTES);
    // SAFETY: a run's positions lie inside its block, 16 of `head_dim` values are read.
    unsafe {
        for d in (0..shape.head_dim).step_by(16) {
            let mut sums = [S::splat(0.0); N];
            for run in seen.runs(first) {
                let values = run.part.add(shape.half() * E::BYTES + run.offset * stride + d * E::BYTES);
                for t in 0..run.len {
                    let v = E::load::<S>(values.add(t * stride));
                    for (n, sum) in sums.iter_mut().enumerate() {
                        let p = *scores.get_unchecked(n).get_unchecked(run.at + t);
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
