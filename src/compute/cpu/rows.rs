//! Operations on one token's row: activations to bytes, sums, rotary embedding.

use super::shared::Slots;
use super::simd::{Simd, simd_fn};
use crate::compute::RopeStyle;
use std::ops::Range;

/// Activations of several tokens as bytes, one scale for each 32 of them (as llama.cpp's Q8_0; its
/// Q8_K, for the K formats, has one for 256).
///
/// Tokens stand in groups of `width`, fewer in the last, as the kernels take them. Inside a group lie
/// the first 32 activations of every token, then the next 32 of every token, and so on.
#[derive(Default)]
pub(super) struct Quantized {
    cols: usize,
    rows: usize,
    width: usize,
    /// [group, cols / 32, token, 32]
    bytes: Vec<i8>,
    /// [group, cols / 32, token]
    scales: Vec<f32>,
    /// Sums of 32 activations, as rounded: what a weight's minimum is multiplied by.
    sums: Vec<f32>,
    /// -128 times the sums of 32 bytes: where a dot product with weights + 128 begins.
    starts: Vec<i32>,
    /// The same of the two halves of 16.
    half_starts: Vec<[i32; 2]>,
}

/// Where a group of tokens lies.
#[derive(Clone, Copy)]
pub(super) struct Group {
    pub(super) tokens: usize,
    pub(super) bytes: *const i8,
    pub(super) scales: *const f32,
    pub(super) sums: *const f32,
    pub(super) starts: *const i32,
    pub(super) half_starts: *const [i32; 2],
}

impl Group {
    /// Everything `places` of 32 activations on.
    ///
    /// # Safety
    /// The group has as many.
    #[inline(always)]
    pub(super) unsafe fn skip(self, places: usize) -> Self {
        // SAFETY: the caller's.
        unsafe {
            Self {
                tokens: self.tokens,
                bytes: self.bytes.add(32 * places),
                scales: self.scales.add(places),
                sums: self.sums.add(places),
                starts: self.starts.add(places),
                half_starts: self.half_starts.add(places),
            }
        }
    }
}

impl Quantized {
    /// Memory for so many rows: a byte for each activation, five numbers for each 32.
    pub(super) fn bytes_for(rows: usize, cols: usize) -> usize {
        rows * (cols + cols / 32 * 20)
    }

    /// Makes room; contents are undefined.
    pub(super) fn resize(&mut self, rows: usize, cols: usize, width: usize) {
        (self.rows, self.cols, self.width) = (rows, cols, width);
        let blocks = rows * cols / 32;
        self.bytes.resize(32 * blocks, 0);
        self.scales.resize(blocks, 0.0);
        self.sums.resize(blocks, 0.0);
        self.starts.resize(blocks, 0);
        self.half_starts.resize(blocks, [0; 2]);
    }

    pub(super) fn cols(&self) -> usize {
        self.cols
    }

    /// Groups of a range of rows that begins with a group and ends with one.
    pub(super) fn groups(&self, rows: Range<usize>) -> impl Iterator<Item = Group> {
        assert!(rows.start.is_multiple_of(self.width) && rows.end <= self.rows);
        assert!(rows.end.is_multiple_of(self.width) || rows.end == self.rows);
        rows.step_by(self.width).map(|first| {
            let block = first * (self.cols / 32);
            Group {
                tokens: self.width.min(self.rows - first),
                bytes: self.bytes[32 * block..].as_ptr(),
                scales: self.scales[block..].as_ptr(),
                sums: self.sums[block..].as_ptr(),
                starts: self.starts[block..].as_ptr(),
                half_starts: self.half_starts[block..].as_ptr(),
            }
        })
    }

    /// To be written by several threads.
    pub(super) fn writer(&mut self) -> QuantizedRows<'_> {
        QuantizedRows {
            cols: self.cols,
            rows: self.rows,
            width: self.width,
            bytes: Slots::new(&mut self.bytes),
            scales: Slots::new(&mut self.scales),
            sums: Slots::new(&mut self.sums),
            starts: Slots::new(&mut self.starts),
            half_starts: Slots::new(&mut self.half_starts),
        }
    }
}

/// The rows of a [`Quantized`], each to be written by one thread.
pub(super) struct QuantizedRows<'a> {
    cols: usize,
    rows: usize,
    width: usize,
    bytes: Slots<'a, i8>,
    scales: Slots<'a, f32>,
    sums: Slots<'a, f32>,
    starts: Slots<'a, i32>,
    half_starts: Slots<'a, [i32; 2]>,
}

simd_fn! {
    /// One row's activations to bytes, 32 at a time: scale = max |x| / 127.
    ///
    /// The row is written by nobody else.
    pub(super) fn quantize(x: &[f32], row: usize, rows: &QuantizedRows) = quantize_kernel;
}

unsafe fn quantize_kernel<S: Simd>(x: &[f32], row: usize, rows: &QuantizedRows) {
    assert!(x.len() == rows.cols && row < rows.rows && x.len().is_multiple_of(32));
    let first = row / rows.width * rows.width;
    let tokens = rows.width.min(rows.rows - first);
    for block in 0..x.len() / 32 {
        let at = first * (rows.cols / 32) + block * tokens + row - first;
        // SAFETY: 32 elements from `32 block` lie inside `x`; a row's places are its own.
        unsafe {
            let from = x.as_ptr().add(32 * block);
            let (a, b) = (S::load(from), S::load(from.add(16)));
            let largest = S::largest(S::max(S::abs(a), S::abs(b)));
            let scale = largest / 127.0;
            let inverse = S::splat(if largest > 0.0 { 127.0 / largest } else { 0.0 });
            let bytes = rows.bytes.take(32 * at..32 * at + 32).as_mut_ptr();
            let halves =
                [S::store_i8(bytes, S::mul(a, inverse)), S::store_i8(bytes.add(16), S::mul(b, inverse))];
            let sum = halves[0] + halves[1];
            *rows.scales.one(at) = scale;
            *rows.sums.one(at) = scale * sum as f32;
            *rows.starts.one(at) = -128 * sum;
            *rows.half_starts.one(at) = [-128 * halves[0], -128 * halves[1]];
        }
    }
}

simd_fn! {
    /// `x += y * scale`
    pub(super) fn add(x: &mut [f32], y: &[f32], scale: f32) = add_kernel;
}

#[inline(always)]
unsafe fn add_kernel<S: Simd>(x: &mut [f32], y: &[f32], scale: f32) {
    assert_eq!(x.len(), y.len());
    for (a, b) in x.iter_mut().zip(y) {
        *a += b * scale;
    }
}

simd_fn! {
    /// Rotary position embedding (Su et al. 2021, section 3.4): turns the first `2 * cos.len()` elements
    /// of a head; the rest stay.
    pub(super) fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32], style: RopeStyle) = rotate_kernel;
}

unsafe fn rotate_kernel<S: Simd>(head: &mut [f32], cos: &[f32], sin: &[f32], style: RopeStyle) {
    let n = cos.len();
    match style {
        RopeStyle::Interleaved => {
            for ((pair, c), s) in head[..2 * n].chunks_exact_mut(2).zip(cos).zip(sin) {
                let (a, b) = (pair[0], pair[1]);
                pair[0] = a * c - b * s;
                pair[1] = a * s + b * c;
            }
        }
        RopeStyle::Halves => {
            let (first, second) = head[..2 * n].split_at_mut(n);
            for (((a, b), c), s) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                let (x, y) = (*a, *b);
                *a = x * c - y * s;
                *b = x * s + y * c;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::simd::Isa;
    use super::*;

    fn wave(n: usize, seed: f32) -> Vec<f32> {
        (0..n).map(|i| ((i as f32 + seed) * 0.7).sin() * (1.0 + i as f32 * 0.01)).collect()
    }

    /// Whatever the groups: every activation is found, within half a step, and sums are exact.
    #[test]
    fn bytes_are_within_half_a_step_and_sums_are_exact() {
        let (rows, cols) = (7, 96);
        let mut x = wave(rows * cols, 1.0);
        x[64..cols].fill(0.0);
        for (isa, width) in Isa::available().into_iter().flat_map(|isa| [1, 3, 4, 8].map(|w| (isa, w))) {
            let mut q = Quantized::default();
            q.resize(rows, cols, width);
            let writer = q.writer();
            x.chunks_exact(cols).enumerate().for_each(|(row, x)| quantize(isa, x, row, &writer));
            let mut row = 0;
            for group in q.groups(0..rows) {
                for (token, block) in (0..group.tokens).flat_map(|t| (0..3).map(move |b| (t, b))) {
                    let at = block * group.tokens + token;
                    // SAFETY: inside the group.
                    let (bytes, scale, sum, start, halves) = unsafe {
                        (
                            std::slice::from_raw_parts(group.bytes.add(32 * at), 32),
                            *group.scales.add(at),
                            *group.sums.add(at),
                            *group.starts.add(at),
                            *group.half_starts.add(at),
                        )
                    };
                    let x = &x[(row + token) * cols + 32 * block..][..32];
                    for (q, x) in bytes.iter().zip(x) {
                        assert!((f32::from(*q) * scale - x).abs() <= scale * 0.5001, "{}", isa.name());
                    }
                    let count = |bytes: &[i8]| bytes.iter().map(|q| i32::from(*q)).sum::<i32>();
                    assert_eq!(halves, [-128 * count(&bytes[..16]), -128 * count(&bytes[16..])]);
                    assert_eq!((start, sum), (-128 * count(bytes), scale * count(bytes) as f32));
                }
                row += group.tokens;
            }
            assert_eq!(row, rows);
        }
    }

    #[test]
    fn rotation_keeps_lengths_and_both_styles_agree_after_reordering() {
        let (cos, sin): (Vec<f32>, Vec<f32>) = (0..4).map(|i| ((i as f32).cos(), (i as f32).sin())).unzip();
        let mut halves = wave(10, 2.0);
        let original = halves.clone();
        let mut pairs: Vec<f32> = (0..4).flat_map(|i| [original[i], original[i + 4]]).collect();
        rotate(Isa::Portable, &mut halves, &cos, &sin, RopeStyle::Halves);
        rotate(Isa::Portable, &mut pairs, &cos, &sin, RopeStyle::Interleaved);
        for i in 0..4 {
            assert_eq!((pairs[2 * i], pairs[2 * i + 1]), (halves[i], halves[i + 4]));
        }
        assert_eq!(halves[8..], original[8..]);
        let length = |v: &[f32]| v.iter().map(|x| x * x).sum::<f32>();
        assert!((length(&halves) - length(&original)).abs() < 1e-5);
    }
}
