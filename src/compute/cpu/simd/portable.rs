//! Plain Rust over arrays of 16: what every processor can run, and the others' slow twin.

use super::Simd;
use half::{bf16, f16};

#[derive(Clone, Copy)]
pub(crate) struct Portable;

type F = [f32; 16];

#[inline(always)]
fn map(a: F, f: impl Fn(f32) -> f32) -> F {
    a.map(f)
}

#[inline(always)]
fn zip(a: F, b: F, f: impl Fn(f32, f32) -> f32) -> F {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Portable {
    type F = F;
    type I = [i32; 16];
    type B = [u8; 64];
    const WIDE: bool = false;
    const TOKENS: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> F {
        [x; 16]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> F {
        // SAFETY: 16 elements are readable, as the trait asks.
        unsafe { p.cast::<F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, x: F) {
        // SAFETY: 16 elements are writable.
        unsafe { p.cast::<F>().write_unaligned(x) }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> F {
        // SAFETY: 16 elements are readable.
        unsafe { p.cast::<[u16; 16]>().read_unaligned() }.map(|bits| f16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, x: F) {
        // SAFETY: 16 elements are writable.
        unsafe { p.cast::<[u16; 16]>().write_unaligned(x.map(|x| f16::from_f32(x).to_bits())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> F {
        // SAFETY: 16 elements are readable.
        unsafe { p.cast::<[u16; 16]>().read_unaligned() }.map(|bits| bf16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, x: F) {
        // SAFETY: 16 elements are writable.
        unsafe { p.cast::<[u16; 16]>().write_unaligned(x.map(|x| bf16::from_f32(x).to_bits())) }
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> F {
        // SAFETY: 16 elements are readable.
        unsafe { p.cast::<[u8; 16]>().read_unaligned() }.map(f32::from)
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> F {
        // SAFETY: 16 elements are readable.
        unsafe { p.cast::<[i8; 16]>().read_unaligned() }.map(f32::from)
    }
    /// Its bits are those of an f16 that is 2^8 times smaller.
    #[inline(always)]
    unsafe fn load_e4m3(p: *const u8) -> F {
        // SAFETY: 16 elements are readable.
        unsafe { p.cast::<[u8; 16]>().read_unaligned() }.map(|byte| {
            let byte = u16::from(byte);
            f16::from_bits((byte & 0x80) << 8 | (byte & 0x7f) << 7).to_f32() * 256.0
        })
    }
    #[inline(always)]
    unsafe fn add(a: F, b: F) -> F {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(a: F, b: F) -> F {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(a: F, b: F) -> F {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn div(a: F, b: F) -> F {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    unsafe fn max(a: F, b: F) -> F {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn min(a: F, b: F) -> F {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    unsafe fn abs(a: F) -> F {
        map(a, f32::abs)
    }
    #[inline(always)]
    unsafe fn fma(a: F, b: F, c: F) -> F {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn round(a: F) -> F {
        map(a, f32::round_ties_even)
    }
    #[inline(always)]
    unsafe fn scale_by_power(a: F, n: F) -> F {
        zip(a, n, |a, n| a * f32::from_bits(((n as i32 + 127) << 23) as u32))
    }
    #[inline(always)]
    unsafe fn sum(a: F) -> f32 {
        let eight: [f32; 8] = std::array::from_fn(|i| a[i] + a[i + 8]);
        let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
        (four[0] + four[2]) + (four[1] + four[3])
    }
    #[inline(always)]
    unsafe fn largest(a: F) -> f32 {
        a.into_iter().fold(f32::NEG_INFINITY, |m, x| if x > m { x } else { m })
    }
    #[inline(always)]
    unsafe fn store_i8(p: *mut i8, a: F) -> i32 {
        let bytes = a.map(|x| x.round_ties_even() as i8);
        // SAFETY: 16 elements are writable.
        unsafe { p.cast::<[i8; 16]>().write_unaligned(bytes) };
        bytes.into_iter().map(i32::from).sum()
    }

    #[inline(always)]
    unsafe fn to_f32(a: [i32; 16]) -> F {
        a.map(|x| x as f32)
    }
    #[inline(always)]
    unsafe fn splat_i32(x: i32) -> [i32; 16] {
        [x; 16]
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
    #[inline(always)]
    unsafe fn load_bytes(p: *const u8) -> [u8; 64] {
        // SAFETY: 64 bytes are readable.
        unsafe { p.cast::<[u8; 64]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, b: [u8; 64]) {
        // SAFETY: 64 bytes are writable.
        unsafe { p.cast::<[u8; 64]>().write_unaligned(b) }
    }
    #[inline(always)]
    unsafe fn and(a: [u8; 64], mask: u8) -> [u8; 64] {
        a.map(|x| x & mask)
    }
    #[inline(always)]
    unsafe fn or(a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        std::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    unsafe fn shift_right<const N: i32>(a: [u8; 64]) -> [u8; 64] {
        // Bits from the neighbour, which callers mask away, are left out.
        a.map(|x| x >> N)
    }
    #[inline(always)]
    unsafe fn shift_left<const N: i32>(a: [u8; 64]) -> [u8; 64] {
        a.map(|x| x << N)
    }

    #[inline(always)]
    unsafe fn lookup(codes: [u8; 64], table: &[i8; 16]) -> [u8; 64] {
        codes.map(|code| table[usize::from(code & 15)] as u8)
    }

    #[inline(always)]
    unsafe fn add_bytes(a: [u8; 64], x: u8) -> [u8; 64] {
        a.map(|a| a.wrapping_add(x))
    }

    #[inline(always)]
    unsafe fn dot<const N: usize, const MOST: usize>(
        total: [i32; 16],
        weights: &[[u8; 64]; N],
        x: *const i8,
    ) -> [i32; 16] {
        // SAFETY: 4 N bytes are readable at `x`.
        unsafe { sum_products(total, weights, x, i32::from) }
    }
    #[inline(always)]
    unsafe fn dot_signed<const N: usize>(
        total: [i32; 16],
        weights: &[[u8; 64]; N],
        x: *const i8,
    ) -> [i32; 16] {
        // SAFETY: as above.
        unsafe { sum_products(total, weights, x, |w| i32::from(w as i8)) }
    }
}

/// # Safety
/// `4 N` bytes are readable at `x`.
#[inline(always)]
unsafe fn sum_products<const N: usize>(
    mut total: [i32; 16],
    weights: &[[u8; 64]; N],
    x: *const i8,
    value: impl Fn(u8) -> i32,
) -> [i32; 16] {
    for (j, weights) in weights.iter().enumerate() {
        // SAFETY: the caller's.
        let x = unsafe { x.add(4 * j).cast::<[i8; 4]>().read_unaligned() };
        for (r, total) in total.iter_mut().enumerate() {
            *total += (0..4).map(|i| value(weights[4 * r + i]) * i32::from(x[i])).sum::<i32>();
        }
    }
    total
}
