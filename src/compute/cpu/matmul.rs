//! One tile of 16 rows times the activations of several tokens.
//!
//! Every token's sum is built in the same order whatever stands beside it in the batch, so a row's
//! result does not depend on the batch, to the bit: batched equals solo, chunked equals whole.

use super::format::{Layout, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0, TILE, tile_bytes};
use super::rows::Quantized;
use super::simd::{Simd, simd_fn};
use crate::compute::Activation;
use crate::weights::BlockFormat;

/// Tokens whose sums are kept at hand while a tile's weights are unpacked once.
pub(super) const CHUNK: usize = 32;

/// `[token, row]`: what a tile times up to [`CHUNK`] tokens comes to.
pub(super) type Sums = [[f32; TILE]; CHUNK];

/// The tokens a tile is multiplied with: as bytes for quantised weights, as floats for others.
#[derive(Clone, Copy)]
pub(super) struct Tokens<'a> {
    pub(super) quantized: &'a Quantized,
    /// [rows, cols]
    pub(super) floats: &'a [f32],
    pub(super) cols: usize,
    pub(super) first: usize,
    pub(super) count: usize,
}

simd_fn! {
    /// `sums[t][r] = tile[r] . tokens[first + t]`, for `count` tokens (at most [`CHUNK`]).
    pub(super) fn multiply_tile(format: BlockFormat, tile: &[u8], tokens: Tokens, sums: &mut Sums) = multiply_kernel;
}

#[inline(always)]
unsafe fn multiply_kernel<S: Simd>(format: BlockFormat, tile: &[u8], tokens: Tokens, sums: &mut Sums) {
    assert!(tokens.count <= CHUNK && tile.len() == tile_bytes(format, tokens.cols));
    if matches!(format, BlockFormat::F32 | BlockFormat::F16 | BlockFormat::BF16) {
        assert!(tokens.floats.len() >= (tokens.first + tokens.count) * tokens.cols);
    } else {
        assert!(tokens.quantized.cols == tokens.cols);
        assert!(tokens.quantized.bytes.len() >= (tokens.first + tokens.count) * tokens.cols);
    }
    // SAFETY: the tile and the tokens' rows are as long as the kernels read (asserted above; a
    // `Quantized` keeps its four vectors in step).
    unsafe {
        match format {
            BlockFormat::F32 => floats::<S, F32>(tile, tokens, sums),
            BlockFormat::F16 => floats::<S, F16>(tile, tokens, sums),
            BlockFormat::BF16 => floats::<S, BF16>(tile, tokens, sums),
            BlockFormat::Q4_0 => quantized::<S, Q4_0>(tile, tokens, sums),
            BlockFormat::Q4_1 => quantized::<S, Q4_1>(tile, tokens, sums),
            BlockFormat::Q5_0 => quantized::<S, Q5_0>(tile, tokens, sums),
            BlockFormat::Q5_1 => quantized::<S, Q5_1>(tile, tokens, sums),
            BlockFormat::Q8_0 => quantized::<S, Q8_0>(tile, tokens, sums),
            BlockFormat::Q4_K => quantized::<S, Q4K>(tile, tokens, sums),
            BlockFormat::Q5_K => quantized::<S, Q5K>(tile, tokens, sums),
            BlockFormat::Q6_K => quantized::<S, Q6K>(tile, tokens, sums),
        }
    }
}

#[inline(always)]
unsafe fn quantized<S: Simd, L: Layout>(tile: &[u8], tokens: Tokens, sums: &mut Sums) {
    // SAFETY: the caller's.
    unsafe {
        if tokens.count == 1 {
            one_token::<S, L>(tile, tokens, sums);
        } else {
            many_tokens::<S, L>(tile, tokens, sums);
        }
    }
}

/// Decode: sums stay in registers.
#[inline(always)]
unsafe fn one_token<S: Simd, L: Layout>(tile: &[u8], tokens: Tokens, sums: &mut Sums) {
    let x = Row::of(tokens, 0);
    // SAFETY: `sub` runs over the tile's blocks and the token's bytes, which have one length.
    unsafe {
        let mut sum = S::splat(0.0);
        for block in 0..tokens.cols / L::BLOCK {
            let p = tile.as_ptr().add(block * L::BYTES);
            for sub in 0..L::SUBS {
                let weights = Unpacked::of::<L>(p, sub);
                sum = accumulate::<S, L>(sum, &weights, x, block * L::SUBS + sub);
            }
        }
        S::store(sums[0].as_mut_ptr(), sum);
    }
}

/// Prefill and batches: 32 weights of 16 rows are unpacked once for all tokens.
#[inline(always)]
unsafe fn many_tokens<S: Simd, L: Layout>(tile: &[u8], tokens: Tokens, sums: &mut Sums) {
    sums[..tokens.count].fill([0.0; TILE]);
    // SAFETY: as in `one_token`; `t` stays below `count`.
    unsafe {
        for block in 0..tokens.cols / L::BLOCK {
            let p = tile.as_ptr().add(block * L::BYTES);
            for sub in 0..L::SUBS {
                let weights = Unpacked::of::<L>(p, sub);
                for t in 0..tokens.count {
                    let sum = sums.get_unchecked_mut(t).as_mut_ptr();
                    let x = Row::of(tokens, t);
                    let at = block * L::SUBS + sub;
                    S::store(sum, accumulate::<S, L>(S::load(sum), &weights, x, at));
                }
            }
        }
    }
}

/// One token's quantised activations.
#[derive(Clone, Copy)]
struct Row {
    bytes: *const i8,
    scales: *const f32,
    counts: *const i32,
    sums: *const f32,
}

impl Row {
    #[inline(always)]
    fn of(tokens: Tokens, t: usize) -> Row {
        let (q, row) = (tokens.quantized, tokens.first + t);
        // Offsets inside the vectors, as `multiply_kernel` asserts.
        Row {
            bytes: q.bytes.as_ptr().wrapping_add(row * q.cols),
            scales: q.scales.as_ptr().wrapping_add(row * (q.cols / 16)),
            counts: q.counts.as_ptr().wrapping_add(row * (q.cols / 16)),
            sums: q.sums.as_ptr().wrapping_add(row * (q.cols / 32)),
        }
    }
}

/// 32 weights of 16 rows, ready to be multiplied.
struct Unpacked<S: Simd> {
    vectors: [S::B; 8],
    /// Of the first and of the last 16 weights; the same where the format has one scale.
    scales: [S::F; 2],
    minimum: S::F,
}

impl<S: Simd> Unpacked<S> {
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
                minimum: L::minimum::<S>(block, sub),
            }
        }
    }
}

/// Adds 32 weights of 16 rows times one token's 32 activations: `at` counts in 32s.
#[inline(always)]
unsafe fn accumulate<S: Simd, L: Layout>(mut sum: S::F, weights: &Unpacked<S>, x: Row, at: usize) -> S::F {
    let Unpacked { scales, minimum, .. } = weights;
    // SAFETY: `at` lies inside the token's row, the caller's contract.
    unsafe {
        let first = S::to_f32(half_dot::<S, L>(&weights.vectors, x, at, 0));
        let second = S::to_f32(half_dot::<S, L>(&weights.vectors, x, at, 1));
        let (x0, x1) = (S::splat(*x.scales.add(2 * at)), S::splat(*x.scales.add(2 * at + 1)));
        if L::SCALES == 2 {
            sum = S::fma(first, S::mul(scales[0], x0), sum);
            sum = S::fma(second, S::mul(scales[1], x1), sum);
        } else {
            sum = S::fma(S::fma(first, x0, S::mul(second, x1)), scales[0], sum);
        }
        if L::HAS_MIN {
            sum = S::fma(*minimum, S::splat(*x.sums.add(at)), sum);
        }
        sum
    }
}

/// 16 of the 32 weights, the first (`half` 0) or the last.
#[inline(always)]
unsafe fn half_dot<S: Simd, L: Layout>(weights: &[S::B; 8], x: Row, at: usize, half: usize) -> S::I {
    // SAFETY: the caller's.
    unsafe {
        let bytes = x.bytes.add(32 * at);
        let offset = if L::SIGNED { S::SIGNED_OFFSET } else { L::OFFSET };
        let mut dot = S::dot_start();
        let mut total = S::splat_i32(0);
        for (j, weights) in weights.iter().enumerate().skip(4 * half).take(4) {
            let four = S::broadcast(bytes.add(4 * j));
            if L::SIGNED {
                total = S::dot_signed(total, *weights, four);
            } else {
                dot = S::dot(dot, *weights, four);
                if (j + 1) % L::DOTS == 0 || j % 4 == 3 {
                    total = S::add_i32(total, S::dot_end(dot));
                    dot = S::dot_start();
                }
            }
        }
        match offset {
            0 => total,
            _ => S::add_i32(total, S::splat_i32(-offset * *x.counts.add(2 * at + half))),
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

/// Four interleaved partial sums hide the latency of the fused multiply-add.
#[inline(always)]
unsafe fn floats<S: Simd, W: Float>(tile: &[u8], tokens: Tokens, sums: &mut Sums) {
    let step = W::BYTES * TILE;
    for (t, sum) in sums.iter_mut().enumerate().take(tokens.count) {
        let x = &tokens.floats[(tokens.first + t) * tokens.cols..][..tokens.cols];
        // SAFETY: the tile holds `cols` columns of 16 numbers.
        unsafe {
            let mut partial = [S::splat(0.0); 4];
            let fours = x.chunks_exact(4);
            let rest = fours.remainder();
            for (i, four) in fours.enumerate() {
                for (j, x) in four.iter().enumerate() {
                    let w = W::load::<S>(tile.as_ptr().add((4 * i + j) * step));
                    partial[j] = S::fma(w, S::splat(*x), partial[j]);
                }
            }
            for (j, x) in rest.iter().enumerate() {
                let w = W::load::<S>(tile.as_ptr().add((tokens.cols - rest.len() + j) * step));
                partial[j] = S::fma(w, S::splat(*x), partial[j]);
            }
            let total = S::add(S::add(partial[0], partial[2]), S::add(partial[1], partial[3]));
            S::store(sum.as_mut_ptr(), total);
        }
    }
}

simd_fn! {
    /// `gate[t] = activation(gate[t]) * up[t]` for the first `count` tokens.
    pub(super) fn gate_sums(activation: Activation, gate: &mut Sums, up: &Sums, count: usize) = gate_kernel;
}

#[inline(always)]
unsafe fn gate_kernel<S: Simd>(activation: Activation, gate: &mut Sums, up: &Sums, count: usize) {
    for (gate, up) in gate.iter_mut().zip(up).take(count) {
        // SAFETY: both rows hold 16 numbers.
        unsafe {
            let (g, u) = (S::load(gate.as_ptr()), S::load(up.as_ptr()));
            // Both are x * sigmoid(k(x)): tanh(z) = 2 sigmoid(2z) - 1.
            let inner = match activation {
                Activation::Silu => g,
                Activation::GeluTanh => {
                    let cubic = S::mul(S::mul(g, g), S::splat(0.044_715));
                    S::mul(S::mul(g, S::add(cubic, S::splat(1.0))), S::splat(1.595_769))
                }
            };
            let e = S::exp(S::sub(S::splat(0.0), inner));
            let activated = S::div(g, S::add(S::splat(1.0), e));
            S::store(gate.as_mut_ptr(), S::mul(activated, u));
        }
    }
}
