//! Values that are a part of the keys (the latent cache of DeepSeek-V2, section 2.1).
//!
//! Keys lie transposed: a load has one dimension of 16 positions, so a value is a sum across lanes. Position p
//! is always in lane p mod 16, whatever the blocks and whoever looks: the order of a sum does not depend on
//! the batch, nor on the block size.

use super::attention::{Found, Positions, Seen};
use super::cache::Element;
use super::simd::Simd;
use std::ops::Range;

/// Dimensions that are summed at a time.
const AT_ONCE: usize = 2;

/// Keys' elements from `latent` on, weighted by the softened scores. Nothing that nobody sees is read.
///
/// # Safety
/// As of the other kernels: what is seen lies in the cache, and there are `N` scores and results.
#[inline(always)]
pub(super) unsafe fn weigh<S: Simd, E: Element, const N: usize>(
    seen: Seen,
    first: usize,
    latent: usize,
    scores: &[Positions],
    found: &mut [Found],
) {
    assert!(scores.len() >= N && found.len() >= N);
    // SAFETY: the dimensions are a key's.
    unsafe {
        for d in (latent..seen.shape.head_dim).step_by(AT_ONCE) {
            let dims = d..(d + AT_ONCE).min(seen.shape.head_dim);
            weigh_some::<S, E, N>(seen, first, latent, dims, scores, found);
        }
    }
}

#[inline(always)]
unsafe fn weigh_some<S: Simd, E: Element, const N: usize>(
    seen: Seen,
    first: usize,
    latent: usize,
    dims: Range<usize>,
    scores: &[Positions],
    found: &mut [Found],
) {
    // SAFETY: a piece's positions are seen and lie in one block; weights of a split are padded to 16, zero
    // where nobody looks.
    unsafe {
        let mut sums = [[S::splat(0.0); AT_ONCE]; N];
        for at in (first / 16 * 16..seen.end).step_by(16) {
            let mut keys = [S::splat(0.0); AT_ONCE];
            for (key, d) in keys.iter_mut().zip(dims.clone()) {
                *key = sixteen::<S, E>(seen, first, at, d);
            }
            for (sums, scores) in sums.iter_mut().zip(scores) {
                let weights = S::load(scores.as_ptr().add(at - seen.begin));
                for (sum, key) in sums.iter_mut().zip(keys) {
                    *sum = S::fma(key, weights, *sum);
                }
            }
        }
        for (sums, found) in sums.iter().zip(found) {
            for (sum, d) in sums.iter().zip(dims.clone()) {
                found.values[d - latent] = S::sum(*sum);
            }
        }
    }
}

/// Dimension `d` of positions `at .. at + 16`; zeros where nobody looks, whatever lies there.
#[inline(always)]
unsafe fn sixteen<S: Simd, E: Element>(seen: Seen, first: usize, at: usize, d: usize) -> S::F {
    let size = seen.shape.block_size;
    let row = d * size * E::BYTES;
    // SAFETY: only what is seen is read.
    unsafe {
        if at >= first && at + 16 <= seen.end && at / size == (at + 15) / size {
            return E::load::<S>(seen.keys(at).add(row));
        }
        let mut bytes = [0u8; 64];
        let end = seen.end.min(at + 16);
        let mut position = first.max(at);
        while position < end {
            let len = (size - position % size).min(end - position);
            let to = &mut bytes[(position - at) * E::BYTES..][..len * E::BYTES];
            let from = seen.keys(position).add(row);
            to.copy_from_slice(std::slice::from_raw_parts(from, len * E::BYTES));
            position += len;
        }
        E::load::<S>(bytes.as_ptr())
    }
}
