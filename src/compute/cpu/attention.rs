//! Attention over paged keys and values, which lie as `cache` draws them.
//!
//! All query heads of a group, and several tokens' queries, share each load of keys and values.
//!
//! The past is cut into splits of [`SPLIT`] positions at fixed places (Flash-Decoding, Dao et al.
//! 2023). Each split yields a maximum, a sum and a weighted value (Milakov and Gimelshein 2018), and
//! splits are merged in order: a row's result does not depend on the batch or on who worked on what.
//! Nor on the block size: scores are made lane by lane and values are added position by position.

use super::activation::capped;
use super::cache::{Bf16, Element, F16, F32, Fp8, Int8, SLACK};
use super::latent;
use super::simd::{Simd, simd_fn};
use crate::compute::{CacheDtype, CacheShape};

/// Positions in one split.
pub(super) const SPLIT: usize = 256;

/// Largest head.
pub(super) const MOST_DIM: usize = 640;

/// Queries that share a pass over the keys, or two where registers hold no more than half of them.
pub(super) const QUERIES: usize = 8;

/// One query: `head_dim` numbers, and the positions it may see.
#[derive(Clone, Copy)]
pub(super) struct Query<'a> {
    pub(super) q: &'a [f32],
    pub(super) first: usize,
    /// One past the last.
    pub(super) end: usize,
}

/// Softmax over one split: largest score, sum of exponentials relative to it, values weighted by
/// them (the first `value_dim`).
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
pub(super) type Positions = [f32; POSITIONS];
const POSITIONS: usize = SPLIT + 16;
type Scores = [Positions; QUERIES];

impl Desk {
    pub(super) fn new() -> Self {
        let nothing = Found { largest: f32::NEG_INFINITY, sum: 0.0, values: [0.0; MOST_DIM] };
        let zeros = [0.0; POSITIONS];
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
    pub(super) soft_cap: Option<f32>,
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
            CacheDtype::F32 => attend_as::<S, F32>(job, desk),
            CacheDtype::F16 => attend_as::<S, F16>(job, desk),
            CacheDtype::Bf16 => attend_as::<S, Bf16>(job, desk),
            CacheDtype::Int8 => attend_as::<S, Int8>(job, desk),
            CacheDtype::Fp8 => attend_as::<S, Fp8>(job, desk),
        }
    }
}

/// The positions of a split that some query sees, and where they lie.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    cache: &'a [u8],
    pub(super) shape: CacheShape,
    head: usize,
    table: &'a [u32],
    /// Of the split.
    pub(super) begin: usize,
    pub(super) end: usize,
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
    /// The head's part of the block that holds the position `16 vectors` after `at`, which is counted
    /// within the split; of the last block where there is none.
    #[inline(always)]
    fn part_ahead(self, at: usize, vectors: usize) -> *const u8 {
        let position = (self.begin + at + 16 * vectors).min(self.end - 1);
        let part = self.shape.part(self.table[position / self.shape.block_size], self.head);
        self.cache[part..].as_ptr()
    }

    /// The first dimension of a position's key.
    #[inline(always)]
    pub(super) fn keys(self, position: usize) -> *const u8 {
        let size = self.shape.block_size;
        let part = self.shape.part(self.table[position / size], self.head);
        self.cache[part + position % size * self.shape.dtype.bytes()..].as_ptr()
    }

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
    let SplitJob { cache, shape, head, table, index, scale, soft_cap, queries } = job;
    let Desk { scores, scales, found } = desk;
    let begin = index * SPLIT;
    let end = queries.iter().map(|q| q.end).max().unwrap_or(0).min(begin + SPLIT);
    let first = queries.iter().map(|q| q.first).min().unwrap_or(0).max(begin);
    assert!((1..=QUERIES).contains(&queries.len()) && end > first && shape.head_dim <= MOST_DIM);
    assert!(queries.iter().all(|q| q.q.len() == shape.head_dim));
    // Every block the queries see lies inside the cache.
    let blocks = &table[first / shape.block_size..end.div_ceil(shape.block_size)];
    assert!(blocks.iter().all(|b| (*b as usize + 1) * shape.block_bytes() + SLACK <= cache.len()));
    assert!(head < shape.kv_heads);
    let seen = Seen { cache, shape, head, table, begin, end };
    // SAFETY: the assertions above bound every access of the kernels.
    unsafe {
        for n in (0..queries.len()).step_by(S::TOKENS) {
            let queries = &queries[n..queries.len().min(n + S::TOKENS)];
            let scores = &mut scores[n..];
            match queries.len() {
                1 => score_all::<S, E, 1, 4>(seen, first, queries, scale, scores, scales),
                2 => score_all::<S, E, 2, 4>(seen, first, queries, scale, scores, scales),
                3 if S::TOKENS == 8 => score_all::<S, E, 3, 4>(seen, first, queries, scale, scores, scales),
                4 if S::TOKENS == 8 => score_all::<S, E, 4, 4>(seen, first, queries, scale, scores, scales),
                3 => score_all::<S, E, 3, 1>(seen, first, queries, scale, scores, scales),
                4 => score_all::<S, E, 4, 1>(seen, first, queries, scale, scores, scales),
                5 if S::TOKENS == 8 => score_all::<S, E, 5, 2>(seen, first, queries, scale, scores, scales),
                6 if S::TOKENS == 8 => score_all::<S, E, 6, 2>(seen, first, queries, scale, scores, scales),
                7 if S::TOKENS == 8 => score_all::<S, E, 7, 2>(seen, first, queries, scale, scores, scales),
                8 if S::TOKENS == 8 => score_all::<S, E, 8, 2>(seen, first, queries, scale, scores, scales),
                n => unreachable!("{n} queries"),
            }
        }
        for (query, (scores, found)) in queries.iter().zip(scores.iter_mut().zip(found.iter_mut())) {
            if let Some(cap) = soft_cap {
                cap_scores::<S>(&mut scores[..(end - begin).next_multiple_of(16)], cap);
            }
            (found.largest, found.sum) = soften::<S>(query, begin, end - begin, scores);
            if E::SCALED {
                // A value's scale joins its weight.
                for i in ((first - begin) / 16 * 16..end - begin).step_by(16) {
                    let p = scores.as_mut_ptr().add(i);
                    S::store(p, S::mul(S::load(p), S::load(scales.as_ptr().add(i))));
                }
                // Where nobody looks there may be no scale.
                scores[..first - begin].fill(0.0);
                scores[end - begin..].fill(0.0);
            }
        }
        for n in (0..queries.len()).step_by(S::TOKENS) {
            let (scores, found) = (&scores[n..], &mut found[n..]);
            if let Some(latent) = shape.latent {
                weigh_keys::<S, E>(
                    seen,
                    first,
                    latent,
                    scores,
                    &mut found[..queries.len().min(n + S::TOKENS) - n],
                );
                continue;
            }
            match queries.len().min(n + S::TOKENS) - n {
                1 => weigh::<S, E, 1, 4>(seen, first, scores, found),
                2 => weigh::<S, E, 2, 4>(seen, first, scores, found),
                3 if S::TOKENS == 8 => weigh::<S, E, 3, 4>(seen, first, scores, found),
                4 if S::TOKENS == 8 => weigh::<S, E, 4, 4>(seen, first, scores, found),
                3 => weigh::<S, E, 3, 1>(seen, first, scores, found),
                4 => weigh::<S, E, 4, 1>(seen, first, scores, found),
                5 if S::TOKENS == 8 => weigh::<S, E, 5, 2>(seen, first, scores, found),
                6 if S::TOKENS == 8 => weigh::<S, E, 6, 2>(seen, first, scores, found),
                7 if S::TOKENS == 8 => weigh::<S, E, 7, 2>(seen, first, scores, found),
                8 if S::TOKENS == 8 => weigh::<S, E, 8, 2>(seen, first, scores, found),
                n => unreachable!("{n} queries"),
            }
        }
    }
}

/// Calls the kernel made for as many queries as there are results.
#[inline(always)]
unsafe fn weigh_keys<S: Simd, E: Element>(
    seen: Seen,
    first: usize,
    latent: usize,
    scores: &[Positions],
    found: &mut [Found],
) {
    // SAFETY: the caller's.
    unsafe {
        match found.len() {
            1 => latent::weigh::<S, E, 1>(seen, first, latent, scores, found),
            2 => latent::weigh::<S, E, 2>(seen, first, latent, scores, found),
            3 => latent::weigh::<S, E, 3>(seen, first, latent, scores, found),
            4 => latent::weigh::<S, E, 4>(seen, first, latent, scores, found),
            5 if S::TOKENS == 8 => latent::weigh::<S, E, 5>(seen, first, latent, scores, found),
            6 if S::TOKENS == 8 => latent::weigh::<S, E, 6>(seen, first, latent, scores, found),
            7 if S::TOKENS == 8 => latent::weigh::<S, E, 7>(seen, first, latent, scores, found),
            8 if S::TOKENS == 8 => latent::weigh::<S, E, 8>(seen, first, latent, scores, found),
            n => unreachable!("{n} queries"),
        }
    }
}

/// `cap * tanh(score / cap)`
#[inline(always)]
unsafe fn cap_scores<S: Simd>(scores: &mut [f32], cap: f32) {
    for scores in scores.as_chunks_mut::<16>().0 {
        // SAFETY: there are 16.
        unsafe { S::store(scores.as_mut_ptr(), capped::<S>(S::load(scores.as_ptr()), cap)) }
    }
}

/// Keys of 16 positions.
#[derive(Clone, Copy)]
struct Keys<S: Simd> {
    start: *const u8,
    /// Of the first, within the split.
    at: usize,
    /// Multiplies each position's score.
    factor: S::F,
    /// Keys and values that will be wanted soon: the processor does not guess where the next block lies.
    ahead: *const u8,
}

/// Scores of all positions from `first` on, 16 at a time and `V` times as many at once. What lies
/// beyond a block's end is garbage that the next block or `soften` overwrites.
#[inline(always)]
unsafe fn score_all<S: Simd, E: Element, const N: usize, const V: usize>(
    seen: Seen,
    first: usize,
    queries: &[Query],
    scale: f32,
    scores: &mut [Positions],
    scales: &mut Positions,
) {
    let shape = seen.shape;
    let mut q = [std::ptr::null(); N];
    for (q, query) in q.iter_mut().zip(queries) {
        *q = query.q.as_ptr();
    }
    // SAFETY: `offset` is a token of the block. 16 elements from the last one's last dimension reach
    // into the values, 16 scales into the next part or the slack.
    unsafe {
        let nothing =
            Keys { start: std::ptr::null(), at: 0, factor: S::splat(scale), ahead: std::ptr::null() };
        let mut keys: [Keys<S>; V] = [nothing; V];
        let mut count = 0;
        for run in seen.runs(first) {
            for i in (0..run.len).step_by(16) {
                let (at, offset) = (run.at + i, run.offset + i);
                let ahead = seen.part_ahead(at, V);
                keys[count] = Keys { start: run.part.add(offset * E::BYTES), at, ahead, ..nothing };
                if E::SCALED {
                    let numbers = shape.half() + shape.values();
                    let key_scales = run.part.add(numbers * E::BYTES + 4 * offset).cast::<f32>();
                    keys[count].factor = S::mul(S::splat(scale), S::load(key_scales));
                    let of_values = if shape.latent.is_some() { 0 } else { shape.block_size };
                    let value_scales = S::load(key_scales.add(of_values));
                    S::store(scales.as_mut_ptr().add(at), value_scales);
                }
                count += 1;
                if count == V {
                    score::<S, E, N, V>(&keys, shape, &q, scores);
                    count = 0;
                }
            }
        }
        for keys in &keys[..count] {
            score::<S, E, N, 1>(&[*keys], shape, &q, scores);
        }
    }
}

/// Scores of `16 V` positions.
#[inline(always)]
unsafe fn score<S: Simd, E: Element, const N: usize, const V: usize>(
    keys: &[Keys<S>; V],
    shape: CacheShape,
    q: &[*const f32; N],
    scores: &mut [Positions],
) {
    // SAFETY: `head_dim` rows of `block_size` keys lie at each start, 16 of each are read; queries have
    // `head_dim` elements.
    unsafe {
        let stride = shape.block_size * E::BYTES;
        let mut sums = [[S::splat(0.0); V]; N];
        for d in 0..shape.head_dim {
            for keys in keys {
                S::prefetch(keys.ahead.wrapping_add(d * 2 * stride));
            }
            let mut k = [S::splat(0.0); V];
            for (k, keys) in k.iter_mut().zip(keys) {
                *k = E::load::<S>(keys.start.add(d * stride));
            }
            for (sums, q) in sums.iter_mut().zip(q) {
                let q = S::splat(*q.add(d));
                for (sum, k) in sums.iter_mut().zip(k) {
                    *sum = S::fma(k, q, *sum);
                }
            }
        }
        for (sums, scores) in sums.iter().zip(scores) {
            for (sum, keys) in sums.iter().zip(keys) {
                S::store(scores.as_mut_ptr().add(keys.at), S::mul(*sum, keys.factor));
            }
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

/// Values weighted by the softened scores, `16 V` dimensions at a time. Nothing before `first` is read:
/// there may be no block, and zero times what a lost block holds need not be zero.
#[inline(always)]
unsafe fn weigh<S: Simd, E: Element, const N: usize, const V: usize>(
    seen: Seen,
    first: usize,
    scores: &[Positions],
    found: &mut [Found],
) {
    let (dim, at_once) = (seen.shape.head_dim, 16 * V);
    let whole = dim / at_once * at_once;
    // SAFETY: `at_once`, then 16 dimensions from each `d` lie inside a head; the last ones may reach into the
    // next token's or the slack: those sums are nobody's.
    unsafe {
        for d in (0..whole).step_by(at_once) {
            weigh_some::<S, E, N, V>(seen, first, d, scores, found);
        }
        for d in (whole..dim).step_by(16) {
            weigh_some::<S, E, N, 1>(seen, first, d, scores, found);
        }
    }
}

/// Dimensions `d .. d + 16 V`.
#[inline(always)]
unsafe fn weigh_some<S: Simd, E: Element, const N: usize, const V: usize>(
    seen: Seen,
    first: usize,
    d: usize,
    scores: &[Positions],
    found: &mut [Found],
) {
    let (shape, stride) = (seen.shape, seen.shape.head_dim * E::BYTES);
    assert!(scores.len() >= N && found.len() >= N);
    // SAFETY: a run's positions lie inside its block and the split; the dimensions inside a head.
    unsafe {
        let mut sums = [[S::splat(0.0); V]; N];
        for run in seen.runs(first) {
            let values = run.part.add((shape.half() + d) * E::BYTES + run.offset * stride);
            let weights = scores.as_ptr().cast::<f32>().add(run.at);
            for t in 0..run.len {
                let mut v = [S::splat(0.0); V];
                for (i, v) in v.iter_mut().enumerate() {
                    *v = E::load::<S>(values.add(t * stride + 16 * i * E::BYTES));
                }
                for (n, sums) in sums.iter_mut().enumerate() {
                    let p = S::splat(*weights.add(n * POSITIONS + t));
                    for (sum, v) in sums.iter_mut().zip(v) {
                        *sum = S::fma(v, p, *sum);
                    }
                }
            }
        }
        for (sums, found) in sums.iter().zip(found) {
            for (i, sum) in sums.iter().enumerate() {
                S::store(found.values.as_mut_ptr().add(d + 16 * i), *sum);
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

    /// Divides by the sum, which a sink's score joins. A row that saw nothing keeps its zeros.
    pub(super) fn finish(mut self, sink: Option<f32>) {
        if let Some(sink) = sink.filter(|sink| *sink > f32::NEG_INFINITY) {
            let largest = self.largest.max(sink);
            let old_scale = (self.largest - largest).exp();
            self.values.iter_mut().for_each(|v| *v *= old_scale);
            self.sum = self.sum * old_scale + (sink - largest).exp();
        }
        let scale = if self.sum > 0.0 { 1.0 / self.sum } else { 0.0 };
        self.values.iter_mut().for_each(|v| *v *= scale);
    }
}
