//! One tile of 16 rows times the activations of several tokens.
//!
//! Every token's sum is built in the same order whatever stands beside it in the batch, so a row's
//! result does not depend on the batch, to the bit: batched equals solo, chunked equals whole.
//!
//! A few groups of tokens read the tile as it lies. For more, a stretch of the tile is unpacked into a
//! [`Panel`], which stays in the first-level cache while group after group is multiplied with it. The sums
//! of 16 rows by [`Simd::TOKENS`] tokens are held in registers.

use super::activation;
use super::float8;
use super::format::{Layout, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0, TILE, tile_bytes};
use super::levels::{Iq4Nl, Iq4Xs, Mxfp4};
use super::pairs::{Q2K, Q3K};
use super::rows::{Group, Quantized};
use super::simd::{Simd, simd_fn};
use crate::compute::{Activation, not_taken};
use crate::weights::BlockFormat;
use std::ops::Range;

/// 32s of weights in a panel.
const SUBS: usize = 32;

/// What a tile times one token comes to.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Sums(pub(super) [f32; TILE]);

/// Unpacked weights of a tile, `32 * SUBS` of each row.
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct Panel {
    bytes: [[u8; 32 * TILE]; SUBS],
    /// Of the first and of the last 16 weights; only the first where the format has one scale.
    scales: [[[f32; TILE]; 2]; SUBS],
    minima: [[[f32; TILE]; 2]; SUBS],
}

impl Panel {
    pub(super) fn new() -> Self {
        Self { bytes: [[0; _]; _], scales: [[[0.0; _]; _]; _], minima: [[[0.0; _]; _]; _] }
    }
}

/// The tokens a tile is multiplied with: as bytes for quantised weights, as floats for others.
#[derive(Clone)]
pub(super) struct Tokens<'a> {
    pub(super) quantized: &'a Quantized,
    /// [rows, cols]
    pub(super) floats: &'a [f32],
    pub(super) cols: usize,
    /// Whole groups of `quantized`.
    pub(super) rows: Range<usize>,
}

simd_fn! {
    /// `sums[t][r] = tile[r] . tokens[t]`
    pub(super) fn multiply_tile(format: BlockFormat, tile: &[u8], tokens: &Tokens, panel: &mut Panel, sums: &mut [Sums]) = multiply_kernel;
}

#[inline(always)]
unsafe fn multiply_kernel<S: Simd>(
    format: BlockFormat,
    tile: &[u8],
    tokens: &Tokens,
    panel: &mut Panel,
    sums: &mut [Sums],
) {
    assert!(sums.len() == tokens.rows.len() && tile.len() == tile_bytes(format, tokens.cols));
    // SAFETY: the tile and the tokens' rows are as long as the kernels read: asserted here and in
    // `Quantized::groups`.
    unsafe {
        match format {
            BlockFormat::F32 => floats::<S, F32>(tile, tokens, sums),
            BlockFormat::F16 => floats::<S, F16>(tile, tokens, sums),
            BlockFormat::BF16 => floats::<S, BF16>(tile, tokens, sums),
            BlockFormat::Q4_0 => quantized::<S, Q4_0>(tile, tokens, panel, sums),
            BlockFormat::Q4_1 => quantized::<S, Q4_1>(tile, tokens, panel, sums),
            BlockFormat::Q5_0 => quantized::<S, Q5_0>(tile, tokens, panel, sums),
            BlockFormat::Q5_1 => quantized::<S, Q5_1>(tile, tokens, panel, sums),
            BlockFormat::Q8_0 => quantized::<S, Q8_0>(tile, tokens, panel, sums),
            BlockFormat::Q4_K => quantized::<S, Q4K>(tile, tokens, panel, sums),
            BlockFormat::Q5_K => quantized::<S, Q5K>(tile, tokens, panel, sums),
            BlockFormat::Q6_K => quantized::<S, Q6K>(tile, tokens, panel, sums),
            BlockFormat::Q2_K => quantized::<S, Q2K>(tile, tokens, panel, sums),
            BlockFormat::Q3_K => quantized::<S, Q3K>(tile, tokens, panel, sums),
            BlockFormat::IQ4_NL => quantized::<S, Iq4Nl>(tile, tokens, panel, sums),
            BlockFormat::IQ4_XS => quantized::<S, Iq4Xs>(tile, tokens, panel, sums),
            BlockFormat::MXFP4 => quantized::<S, Mxfp4>(tile, tokens, panel, sums),
            BlockFormat::F8 => float8::multiply::<S>(tile, tokens, sums),
            other => not_taken(other),
        }
    }
}

/// Calls a kernel made for as many tokens as a group has.
macro_rules! for_group {
    ($group:expr, $kernel:ident::<$S:ident, $L:ident>($($arg:expr),*)) => {
        match $group.tokens {
            1 => $kernel::<$S, $L, 1>($($arg),*),
            2 => $kernel::<$S, $L, 2>($($arg),*),
            3 => $kernel::<$S, $L, 3>($($arg),*),
            4 => $kernel::<$S, $L, 4>($($arg),*),
            5 if $S::TOKENS == 8 => $kernel::<$S, $L, 5>($($arg),*),
            6 if $S::TOKENS == 8 => $kernel::<$S, $L, 6>($($arg),*),
            7 if $S::TOKENS == 8 => $kernel::<$S, $L, 7>($($arg),*),
            8 if $S::TOKENS == 8 => $kernel::<$S, $L, 8>($($arg),*),
            n => unreachable!("{n} tokens in a group"),
        }
    };
}

/// Up to so many tokens need no panel: a group, where registers hold it and the weights; four where the
/// weights have four bits, which are quickly unpacked.
const fn few<S: Simd, L: Layout>() -> usize {
    match (S::TOKENS, L::DOTS) {
        (8, 8) => 32,
        (8, _) => 8,
        _ => 3,
    }
}

#[inline(always)]
unsafe fn quantized<S: Simd, L: Layout>(tile: &[u8], tokens: &Tokens, panel: &mut Panel, sums: &mut [Sums]) {
    let q = tokens.quantized;
    assert!(q.cols() == tokens.cols);
    let subs = tokens.cols / 32;
    // SAFETY: the caller's; a group has as many sums as tokens.
    unsafe {
        if sums.len() <= few::<S, L>() {
            let mut sums = sums.as_mut_ptr();
            for group in q.groups(tokens.rows.clone()) {
                for_group!(group, multiply_tile_as_it_lies::<S, L>(tile, subs, group, sums));
                sums = sums.add(group.tokens);
            }
            return;
        }
        sums.fill(Sums([0.0; TILE]));
        let stretch = subs.div_ceil(subs.div_ceil(SUBS));
        for first in (0..subs).step_by(stretch) {
            let range = first..subs.min(first + stretch);
            unpack::<S, L>(tile, range.clone(), panel);
            let mut sums = sums.as_mut_ptr();
            for group in q.groups(tokens.rows.clone()) {
                for_group!(group, multiply_panel::<S, L>(panel, range.clone(), group, sums));
                sums = sums.add(group.tokens);
            }
        }
    }
}

/// Decode: weights go from the tile through registers.
#[inline(always)]
unsafe fn multiply_tile_as_it_lies<S: Simd, L: Layout, const N: usize>(
    tile: &[u8],
    subs: usize,
    group: Group,
    sums: *mut Sums,
) {
    // SAFETY: the tile has `subs` of weights and the group of activations; `N` sums lie at `sums`.
    unsafe {
        let mut sum = [S::splat(0.0); N];
        for sub in 0..subs {
            let block = tile.as_ptr().add(sub / L::SUBS * L::BYTES);
            fetch_ahead::<S, L>(block, sub % L::SUBS);
            let mut weights = Weights::<S>::of::<L>(block, sub % L::SUBS);
            let mut offset = L::OFFSET;
            if L::SIGNED && S::WIDE {
                weights.add(128);
                offset = 128;
            }
            multiply::<S, L, N>(&mut sum, &weights, offset, group.skip(sub * N));
        }
        for (n, sum) in sum.into_iter().enumerate() {
            S::store((*sums.add(n)).0.as_mut_ptr(), sum);
        }
    }
}

/// Asks for the weights that come next but a few: where they come from memory, decoding is much faster
/// than when the processor guesses alone (docs/speed.md).
#[inline(always)]
unsafe fn fetch_ahead<S: Simd, L: Layout>(block: *const u8, sub: usize) {
    const AHEAD: usize = 4096;
    let bytes = L::BYTES / L::SUBS;
    let next = block.wrapping_add(sub * bytes + AHEAD);
    for line in 0..bytes.div_ceil(64) {
        // SAFETY: any address will do; the instruction set is the caller's.
        unsafe { S::prefetch(next.wrapping_add(64 * line)) }
    }
}

/// 32 weights of 16 rows, and their one or two scales and minima.
struct Weights<S: Simd> {
    vectors: [S::B; 8],
    scales: [S::F; 2],
    minima: [S::F; 2],
}

impl<S: Simd> Weights<S> {
    #[inline(always)]
    unsafe fn of<L: Layout>(block: *const u8, sub: usize) -> Self {
        // SAFETY: the caller's block.
        unsafe {
            Self {
                vectors: [
                    L::vector::<S, 0>(block, sub),
                    L::vector::<S, 1>(block, sub),
                    L::vector::<S, 2>(block, sub),
                    L::vector::<S, 3>(block, sub),
                    L::vector::<S, 4>(block, sub),
                    L::vector::<S, 5>(block, sub),
                    L::vector::<S, 6>(block, sub),
                    L::vector::<S, 7>(block, sub),
                ],
                scales: [L::scale::<S>(block, sub, 0), L::scale::<S>(block, sub, L::SCALES - 1)],
                minima: [L::minimum::<S>(block, sub, 0), L::minimum::<S>(block, sub, L::SCALES - 1)],
            }
        }
    }

    #[inline(always)]
    unsafe fn add(&mut self, x: u8) {
        for vector in &mut self.vectors {
            // SAFETY: no memory is touched; the instruction set is the caller's.
            *vector = unsafe { S::add_bytes(*vector, x) };
        }
    }
}

/// Whether a panel of this format has weights + 128, so that every offset is the same.
const fn is_shifted<S: Simd, L: Layout>() -> bool {
    S::WIDE && !L::HAS_MIN
}

/// A stretch of the tile, 32s of weights `subs`, into the panel.
#[inline(always)]
unsafe fn unpack<S: Simd, L: Layout>(tile: &[u8], subs: Range<usize>, panel: &mut Panel) {
    for (i, sub) in subs.enumerate() {
        // SAFETY: the caller's subs lie in the tile; rows of the panel are as long as what is written.
        unsafe {
            let block = tile.as_ptr().add(sub / L::SUBS * L::BYTES);
            fetch_ahead::<S, L>(block, sub % L::SUBS);
            let mut weights = Weights::<S>::of::<L>(block, sub % L::SUBS);
            if is_shifted::<S, L>() {
                weights.add(128 - L::OFFSET as u8);
            }
            for (vector, bytes) in weights.vectors.into_iter().zip(panel.bytes[i].chunks_exact_mut(64)) {
                S::store_bytes(bytes.as_mut_ptr(), vector);
            }
            for (scale, to) in weights.scales.into_iter().zip(&mut panel.scales[i]).take(L::SCALES) {
                S::store(to.as_mut_ptr(), scale);
            }
            if L::HAS_MIN {
                for (minimum, to) in weights.minima.into_iter().zip(&mut panel.minima[i]).take(L::SCALES) {
                    S::store(to.as_mut_ptr(), minimum);
                }
            }
        }
    }
}

/// Adds a panel's weights, which are `subs` of their rows, times `N` tokens to their sums.
#[inline(always)]
unsafe fn multiply_panel<S: Simd, L: Layout, const N: usize>(
    panel: &Panel,
    subs: Range<usize>,
    group: Group,
    sums: *mut Sums,
) {
    // SAFETY: the panel has the weights and the group the activations of `subs`; `N` sums lie at `sums`.
    unsafe {
        let mut sum = [S::splat(0.0); N];
        for (n, sum) in sum.iter_mut().enumerate() {
            *sum = S::load((*sums.add(n)).0.as_ptr());
        }
        for (i, sub) in subs.enumerate() {
            let bytes = panel.bytes.get_unchecked(i).as_ptr();
            let mut vectors = [S::load_bytes(bytes); 8];
            for (j, vector) in vectors.iter_mut().enumerate().skip(1) {
                *vector = S::load_bytes(bytes.add(64 * j));
            }
            let scales = panel.scales.get_unchecked(i);
            let scales = [S::load(scales[0].as_ptr()), S::load(scales[L::SCALES - 1].as_ptr())];
            let minima = panel.minima.get_unchecked(i);
            let minima = [S::load(minima[0].as_ptr()), S::load(minima[L::SCALES - 1].as_ptr())];
            let offset = if is_shifted::<S, L>() { 128 } else { L::OFFSET };
            let weights = Weights { vectors, scales, minima };
            multiply::<S, L, N>(&mut sum, &weights, offset, group.skip(sub * N));
        }
        for (n, sum) in sum.into_iter().enumerate() {
            S::store((*sums.add(n)).0.as_mut_ptr(), sum);
        }
    }
}

/// Adds 32 weights of 16 rows times the activations of `N` tokens, which begin at `x`. To the weights
/// `offset` was added: a power of two up to 128, or 0.
#[inline(always)]
unsafe fn multiply<S: Simd, L: Layout, const N: usize>(
    sums: &mut [S::F; N],
    weights: &Weights<S>,
    offset: i32,
    x: Group,
) {
    let Weights { vectors, scales, minima } = weights;
    let [first, second] = vectors.as_chunks::<4>().0 else { unreachable!("eight vectors") };
    for (n, sum) in sums.iter_mut().enumerate() {
        // SAFETY: `x` is a place in a group, and so are the next `N`: the caller's contract.
        unsafe {
            let x = x.skip(n);
            let scaled = if L::SCALES == 1 {
                let start = start::<S>(*x.starts, offset);
                S::mul(S::to_f32(dot::<S, L, 8>(start, vectors, x.bytes)), scales[0])
            } else {
                let starts = *x.half_starts;
                let start = [start::<S>(starts[0], offset), start::<S>(starts[1], offset)];
                let first = S::to_f32(dot::<S, L, 4>(start[0], first, x.bytes));
                let second = S::to_f32(dot::<S, L, 4>(start[1], second, x.bytes.add(16)));
                S::fma(second, scales[1], S::mul(first, scales[0]))
            };
            *sum = S::fma(scaled, S::splat(*x.scales), *sum);
            if L::HAS_MIN && L::SCALES == 1 {
                *sum = S::fma(minima[0], S::splat(*x.sums), *sum);
            } else if L::HAS_MIN {
                // The sums of the halves, which are there as -128 times those of their bytes.
                let halves =
                    (*x.half_starts).map(|start| S::splat(start as f32 * (*x.scales * (-1.0 / 128.0))));
                *sum = S::fma(minima[0], halves[0], *sum);
                *sum = S::fma(minima[1], halves[1], *sum);
            }
        }
    }
}

/// What a dot product begins with: of -128 times the sum of the activations, as much as takes off `offset`
/// times it.
#[inline(always)]
unsafe fn start<S: Simd>(sum: i32, offset: i32) -> S::I {
    let sum = if offset == 0 { 0 } else { sum >> (7 - offset.trailing_zeros()) };
    // SAFETY: no memory is touched; the instruction set is the caller's.
    unsafe { S::splat_i32(sum) }
}

#[inline(always)]
unsafe fn dot<S: Simd, L: Layout, const N: usize>(start: S::I, weights: &[S::B; N], x: *const i8) -> S::I {
    // SAFETY: the caller's. The formats' `DOTS` products fit 16 bits.
    unsafe {
        match L::DOTS {
            0 if S::WIDE => S::dot::<N, 1>(start, weights, x),
            0 => S::dot_signed(start, weights, x),
            2 => S::dot::<N, 2>(start, weights, x),
            4 => S::dot::<N, 4>(start, weights, x),
            _ => S::dot::<N, 8>(start, weights, x),
        }
    }
}

/// Numbers that need no decoding.
trait Float {
    const BYTES: usize;
    unsafe fn load<S: Simd>(p: *const u8) -> S::F;
}
struct F32;
struct F16;
struct BF16;

impl Float for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        // SAFETY: 16 numbers lie at `p`.
        unsafe { S::load(p.cast()) }
    }
}
impl Float for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        // SAFETY: 16 numbers lie at `p`.
        unsafe { S::load_f16(p.cast()) }
    }
}
impl Float for BF16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        // SAFETY: 16 numbers lie at `p`.
        unsafe { S::load_bf16(p.cast()) }
    }
}

/// A few tokens at a time.
#[inline(always)]
unsafe fn floats<S: Simd, W: Float>(tile: &[u8], tokens: &Tokens, sums: &mut [Sums]) {
    let x = &tokens.floats[tokens.rows.start * tokens.cols..tokens.rows.end * tokens.cols];
    let at_once = if S::TOKENS == 8 { 6 } else { 2 };
    for (x, sums) in x.chunks(at_once * tokens.cols).zip(sums.chunks_mut(at_once)) {
        // SAFETY: the caller's tile; `x` has a row of `cols` for each of the sums.
        unsafe {
            match sums.len() {
                1 => float_group::<S, W, 1>(tile, x, tokens.cols, sums),
                2 => float_group::<S, W, 2>(tile, x, tokens.cols, sums),
                3 if S::TOKENS == 8 => float_group::<S, W, 3>(tile, x, tokens.cols, sums),
                4 if S::TOKENS == 8 => float_group::<S, W, 4>(tile, x, tokens.cols, sums),
                5 if S::TOKENS == 8 => float_group::<S, W, 5>(tile, x, tokens.cols, sums),
                6 if S::TOKENS == 8 => float_group::<S, W, 6>(tile, x, tokens.cols, sums),
                n => unreachable!("{n} tokens in a group"),
            }
        }
    }
}

/// Four interleaved partial sums hide the latency of the fused multiply-add.
#[inline(always)]
unsafe fn float_group<S: Simd, W: Float, const N: usize>(
    tile: &[u8],
    x: &[f32],
    cols: usize,
    sums: &mut [Sums],
) {
    assert!(x.len() == N * cols && sums.len() == N && tile.len() == cols * W::BYTES * TILE);
    let whole = cols / 4 * 4;
    // SAFETY: column `c` of the tile is 16 numbers, and `x` has `N` rows of `cols`.
    unsafe {
        let mut partial = [[S::splat(0.0); 4]; N];
        for c in (0..whole).step_by(4) {
            for j in 0..4 {
                let w = W::load::<S>(tile.as_ptr().add((c + j) * W::BYTES * TILE));
                for (n, partial) in partial.iter_mut().enumerate() {
                    partial[j] = S::fma(w, S::splat(*x.as_ptr().add(n * cols + c + j)), partial[j]);
                }
            }
        }
        for c in whole..cols {
            let w = W::load::<S>(tile.as_ptr().add(c * W::BYTES * TILE));
            for (n, partial) in partial.iter_mut().enumerate() {
                partial[c - whole] = S::fma(w, S::splat(*x.as_ptr().add(n * cols + c)), partial[c - whole]);
            }
        }
        for (partial, sums) in partial.into_iter().zip(sums) {
            let total = S::add(S::add(partial[0], partial[2]), S::add(partial[1], partial[3]));
            S::store(sums.0.as_mut_ptr(), total);
        }
    }
}

simd_fn! {
    /// `gate[t] = activation(gate[t]) * up[t]`
    pub(super) fn gate_sums(activation: Activation, gate: &mut [Sums], up: &[Sums]) = gate_kernel;
}

#[inline(always)]
unsafe fn gate_kernel<S: Simd>(activation: Activation, gate: &mut [Sums], up: &[Sums]) {
    for (Sums(gate), Sums(up)) in gate.iter_mut().zip(up) {
        // SAFETY: both rows hold 16 numbers.
        unsafe {
            let (g, u) = (S::load(gate.as_ptr()), S::load(up.as_ptr()));
            S::store(gate.as_mut_ptr(), activation::gated::<S>(activation, g, u));
        }
    }
}
