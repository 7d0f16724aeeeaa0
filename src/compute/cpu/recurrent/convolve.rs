use super::{LANES, States};
use crate::compute::cpu::Cpu;
use crate::compute::cpu::shared::Slots;
use crate::compute::cpu::simd::{Simd, simd_fn};
use crate::compute::{Columns, Convolution, DeviceError, Result, Span, State};

/// Of a kernel: its weights and the inputs before are kept in registers.
const MOST_WIDTH: usize = 8;

/// Channels of a task.
const STRIP: usize = 16 * LANES;

impl Cpu {
    pub(in crate::compute::cpu) fn convolve_spans(
        &self,
        (x, columns): (&mut [f32], Columns),
        spans: &[Span],
        convolution: &Convolution<Self>,
        state: State<Self>,
    ) -> Result<()> {
        let (channels, width) = (columns.len, convolution.width);
        if !(1..=MOST_WIDTH).contains(&width) {
            return Err(DeviceError(format!("the CPU convolves over 1 to {MOST_WIDTH} tokens, not {width}")));
        }
        assert_eq!(convolution.weight.len(), channels * width);
        let states = States::new(state.cache, state.first, (width - 1) * channels);
        let (x, strips) = (Slots::new(x), channels.div_ceil(STRIP));
        self.pool.run(spans.len() * strips, |task, _| {
            let (span, first) = (&spans[task / strips], task % strips * STRIP);
            for channel in (first..channels.min(first + STRIP)).step_by(LANES) {
                let lanes = LANES.min(channels - channel);
                let strip = Strip { channels, channel, lanes, first: columns.first, stride: columns.stride };
                convolve(self.isa, &strip, &x, span, convolution, &states);
            }
        });
        Ok(())
    }
}

/// Neighbouring channels, as many as a vector has lanes, or what is left.
struct Strip {
    channels: usize,
    channel: usize,
    lanes: usize,
    /// Of a row: all channels.
    first: usize,
    stride: usize,
}

simd_fn! {
    /// `x[t] = sum of weight[j] x[t - (width - 1) + j] (+ bias)`, and SiLU of it where that is wanted. The
    /// inputs before the first are the state, which ends as the last of all.
    ///
    /// The strip's columns and states are nobody else's.
    fn convolve(strip: &Strip, x: &Slots<f32>, span: &Span, convolution: &Convolution<Cpu>, states: &States)
        = convolve_kernel;
}

unsafe fn convolve_kernel<S: Simd>(
    strip: &Strip,
    x: &Slots<f32>,
    span: &Span,
    convolution: &Convolution<Cpu>,
    states: &States,
) {
    let Convolution { weight, bias, width, silu } = convolution;
    let (before, lanes) = (width - 1, strip.lanes);
    // SAFETY: vectors are loaded from and stored to arrays and slices of as many lanes; a strip belongs to
    // one task.
    unsafe {
        let weights: [S::F; MOST_WIDTH] = std::array::from_fn(|j| {
            let lane = |lane: usize| match lane < lanes && j < *width {
                true => weight[(strip.channel + lane) * width + j],
                false => 0.0,
            };
            S::load(std::array::from_fn::<f32, LANES, _>(lane).as_ptr())
        });
        let bias = bias.map_or(S::splat(0.0), |bias| load::<S>(&bias[strip.channel..][..lanes]));
        let place = |j: usize| j * strip.channels + strip.channel..j * strip.channels + strip.channel + lanes;
        let mut past = [S::splat(0.0); MOST_WIDTH];
        for (j, past) in past.iter_mut().enumerate().take(before) {
            *past = load::<S>(states.take(span, place(j)));
        }
        for t in 0..span.len {
            let start = (span.first + t) * strip.stride + strip.first + strip.channel;
            let x = x.take(start..start + lanes);
            past[before] = load::<S>(x);
            let mut sum = bias;
            for (past, weight) in past.iter().zip(&weights).take(*width) {
                sum = S::fma(*past, *weight, sum);
            }
            if *silu {
                let e = S::exp(S::sub(S::splat(0.0), sum));
                sum = S::div(sum, S::add(S::splat(1.0), e));
            }
            store::<S>(x, sum);
            past.copy_within(1..*width, 0);
        }
        for (j, past) in past.iter().enumerate().take(before) {
            store::<S>(states.take(span, place(j)), *past);
        }
    }
}

/// Up to 16 values; zeros stand for those that are not there.
#[inline(always)]
unsafe fn load<S: Simd>(from: &[f32]) -> S::F {
    let mut padded = [0.0; LANES];
    // SAFETY: 16 values are readable, there or in the array; the caller has the instruction set.
    unsafe {
        if from.len() == LANES {
            return S::load(from.as_ptr());
        }
        padded[..from.len()].copy_from_slice(from);
        S::load(padded.as_ptr())
    }
}

#[inline(always)]
unsafe fn store<S: Simd>(to: &mut [f32], x: S::F) {
    // SAFETY: 16 values are writable, there or in the array; the caller has the instruction set.
    unsafe {
        if to.len() == LANES {
            return S::store(to.as_mut_ptr(), x);
        }
        let mut padded = [0.0; LANES];
        S::store(padded.as_mut_ptr(), x);
        to.copy_from_slice(&padded[..to.len()]);
    }
}
