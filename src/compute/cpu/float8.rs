//! Bytes of e4m3 with a scale for 32 (F8), times activations as they are.
//!
//! ```text
//! 32 columns x 16 rows:   [column 0: r0 r1 .. r15] .. [column 31][scales f32]
//! ```

use super::format::TILE;
use super::matmul::{Sums, Tokens};
use super::simd::Simd;

/// Of 32 columns of a tile.
pub(super) const BYTES: usize = 32 * TILE + 4 * TILE;

/// Packs up to 16 rows, in which 32 bytes and their scale follow each other.
pub(super) fn pack(rows: &[u8], cols: usize, tile: &mut [u8]) {
    for (r, row) in rows.chunks_exact(cols / 32 * 36).enumerate() {
        for (source, block) in row.chunks_exact(36).zip(tile.chunks_exact_mut(BYTES)) {
            for (c, byte) in source[..32].iter().enumerate() {
                block[c * TILE + r] = *byte;
            }
            block[32 * TILE + 4 * r..][..4].copy_from_slice(&source[32..]);
        }
    }
}

/// A few tokens at a time.
///
/// # Safety
/// The instruction set is there.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd>(tile: &[u8], tokens: &Tokens, sums: &mut [Sums]) {
    let x = &tokens.floats[tokens.rows.start * tokens.cols..tokens.rows.end * tokens.cols];
    let at_once = if S::TOKENS == 8 { 8 } else { 2 };
    for (x, sums) in x.chunks(at_once * tokens.cols).zip(sums.chunks_mut(at_once)) {
        // SAFETY: the instruction set is the caller's.
        unsafe {
            match sums.len() {
                1 => group::<S, 1>(tile, x, tokens.cols, sums),
                2 => group::<S, 2>(tile, x, tokens.cols, sums),
                3 if S::TOKENS == 8 => group::<S, 3>(tile, x, tokens.cols, sums),
                4 if S::TOKENS == 8 => group::<S, 4>(tile, x, tokens.cols, sums),
                5 if S::TOKENS == 8 => group::<S, 5>(tile, x, tokens.cols, sums),
                6 if S::TOKENS == 8 => group::<S, 6>(tile, x, tokens.cols, sums),
                7 if S::TOKENS == 8 => group::<S, 7>(tile, x, tokens.cols, sums),
                8 if S::TOKENS == 8 => group::<S, 8>(tile, x, tokens.cols, sums),
                n => unreachable!("{n} tokens in a group"),
            }
        }
    }
}

/// Two interleaved sums for 32 columns, then their scale.
#[inline(always)]
unsafe fn group<S: Simd, const N: usize>(tile: &[u8], x: &[f32], cols: usize, sums: &mut [Sums]) {
    assert!(x.len() == N * cols && sums.len() == N && tile.len() == cols / 32 * BYTES);
    // SAFETY: every block has 32 columns of 16 bytes and 16 scales, and `x` has `N` rows of `cols`.
    unsafe {
        let mut total = [S::splat(0.0); N];
        for (b, block) in tile.chunks_exact(BYTES).enumerate() {
            S::prefetch(block.as_ptr().wrapping_add(4096));
            let mut partial = [[S::splat(0.0); 2]; N];
            for c in 0..32 {
                let w = S::load_e4m3(block.as_ptr().add(c * TILE));
                for (n, partial) in partial.iter_mut().enumerate() {
                    let x = S::splat(*x.as_ptr().add(n * cols + 32 * b + c));
                    partial[c % 2] = S::fma(w, x, partial[c % 2]);
                }
            }
            let scales = S::load(block.as_ptr().add(32 * TILE).cast());
            for (total, partial) in total.iter_mut().zip(partial) {
                *total = S::fma(S::add(partial[0], partial[1]), scales, *total);
            }
        }
        for (total, sums) in total.into_iter().zip(sums) {
            S::store(sums.0.as_mut_ptr(), total);
        }
    }
}
