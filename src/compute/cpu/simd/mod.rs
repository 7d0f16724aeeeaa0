//! One kernel source for every instruction set.
//!
//! A kernel is written once over [`Simd`]: 16 lanes of f32, 64 bytes of weights, an integer dot
//! product. Three implementations exist: AVX-512 with VNNI, AVX2 (with and without VNNI), and plain Rust. [`simd_fn!`]
//! compiles a kernel for each and picks one at run time.
//!
//! The float operations of AVX2 and AVX-512 are the same lane by lane, so their results are equal
//! to the bit; the portable one has no fused multiply-add and differs by rounding.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
pub(super) mod portable;

use crate::compute::DeviceError;
use std::fmt;
use std::str::FromStr;

/// The instruction set in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
}

impl Isa {
    /// The best one this processor has.
    pub fn detect() -> Isa {
        *Self::available().last().expect("the portable one always is")
    }

    /// All that can run here, the best last.
    pub fn available() -> Vec<Isa> {
        #[allow(unused_mut)]
        let mut found = vec![Isa::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("avx2") && has!("fma") && has!("f16c") {
                found.push(Isa::Avx2);
                if has!("avxvnni") {
                    found.push(Isa::AvxVnni);
                }
                if has!("avx512f")
                    && has!("avx512bw")
                    && has!("avx512dq")
                    && has!("avx512vl")
                    && has!("avx512vnni")
                {
                    found.push(Isa::Avx512Vnni);
                }
            }
        }
        found
    }

    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => "AVX-VNNI",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => "AVX-512 VNNI",
        }
    }
}

/// As settings spell it.
impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Isa::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => "avx-vnni",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => "avx512-vnni",
        })
    }
}

/// Only what this processor has.
impl FromStr for Isa {
    type Err = DeviceError;

    fn from_str(name: &str) -> Result<Self, DeviceError> {
        let here = Self::available();
        here.iter().find(|isa| isa.to_string() == name).copied().ok_or_else(|| {
            let here: Vec<String> = here.iter().map(Isa::to_string).collect();
            DeviceError(format!("this processor has no {name}: {} can be had", here.join(", ")))
        })
    }
}

/// Sixteen rows at a time.
///
/// # Safety
/// Every function needs the instruction set it is implemented for, and pointers valid for what it
/// reads or writes (16 elements unless it says otherwise; no alignment is asked for).
pub(super) trait Simd: Copy {
    /// 16 x f32.
    type F: Copy;
    /// 16 x i32.
    type I: Copy;
    /// 64 bytes: lane `r` (of 4 bytes) holds four consecutive weights of row `r`.
    type B: Copy;

    /// Products of whole bytes, unsigned with signed, are summed in 32 bits at once: signed weights are
    /// best multiplied as `w + 128`.
    const WIDE: bool;
    /// Tokens that are multiplied with a panel of weights at a time: as many as registers hold sums of.
    const TOKENS: usize;

    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn load(p: *const f32) -> Self::F;
    unsafe fn store(p: *mut f32, x: Self::F);
    unsafe fn load_f16(p: *const u16) -> Self::F;
    unsafe fn store_f16(p: *mut u16, x: Self::F);
    unsafe fn load_bf16(p: *const u16) -> Self::F;
    unsafe fn store_bf16(p: *mut u16, x: Self::F);
    unsafe fn load_u8(p: *const u8) -> Self::F;
    unsafe fn load_i8(p: *const i8) -> Self::F;
    /// Bytes as e4m3. The two that are not a number, which nobody stores, are read as 480.
    unsafe fn load_e4m3(p: *const u8) -> Self::F;
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// `b` where one of the two is not a number.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// `b` where one of the two is not a number.
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn abs(a: Self::F) -> Self::F;
    /// `a * b + c`.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    unsafe fn round(a: Self::F) -> Self::F;
    /// `a * 2^n` for a whole `n` from -126 to 127.
    unsafe fn scale_by_power(a: Self::F, n: Self::F) -> Self::F;
    /// Lanes are added in one fixed order, the same in every implementation.
    unsafe fn sum(a: Self::F) -> f32;
    unsafe fn largest(a: Self::F) -> f32;
    /// Rounds to the nearest (ties to even), clamps to a byte, stores 16 of them, returns their sum.
    unsafe fn store_i8(p: *mut i8, a: Self::F) -> i32;

    /// To the nearest e4m3, ties to even; what is too large becomes the largest, 448.
    #[inline(always)]
    unsafe fn store_e4m3(p: *mut u8, a: Self::F) {
        let mut x = [0.0; 16];
        // SAFETY: the caller has the instruction set, and 16 bytes are writable.
        unsafe {
            Self::store(x.as_mut_ptr(), a);
            p.cast::<[u8; 16]>().write_unaligned(x.map(to_e4m3));
        }
    }

    unsafe fn to_f32(a: Self::I) -> Self::F;
    unsafe fn splat_i32(x: i32) -> Self::I;

    /// Asks for a cache line ahead of its use; any address will do.
    unsafe fn prefetch(p: *const u8);

    /// 64 bytes.
    unsafe fn load_bytes(p: *const u8) -> Self::B;
    unsafe fn store_bytes(p: *mut u8, b: Self::B);
    unsafe fn and(a: Self::B, mask: u8) -> Self::B;
    unsafe fn or(a: Self::B, b: Self::B) -> Self::B;
    /// Of 16-bit halves: bits cross from one byte into its neighbour and must be masked.
    unsafe fn shift_right<const N: i32>(a: Self::B) -> Self::B;
    unsafe fn shift_left<const N: i32>(a: Self::B) -> Self::B;

    /// Of each byte, a number below 16, its entry.
    unsafe fn lookup(codes: Self::B, table: &[i8; 16]) -> Self::B;

    /// To every byte, modulo 256.
    unsafe fn add_bytes(a: Self::B, x: u8) -> Self::B;

    /// Adds `4 N` unsigned weights of each row times as many activations, which lie at `x`. Where the
    /// dot product is not [`Simd::WIDE`], the products of `MOST` vectors must fit 16 bits: at most
    /// `32767 / (254 * w)`, w being the largest weight.
    unsafe fn dot<const N: usize, const MOST: usize>(
        total: Self::I,
        weights: &[Self::B; N],
        x: *const i8,
    ) -> Self::I;
    /// The same for signed weights from -127 on, without a limit: for sets that are not [`Simd::WIDE`].
    /// Activations lie in -127 ..= 127.
    unsafe fn dot_signed<const N: usize>(total: Self::I, weights: &[Self::B; N], x: *const i8) -> Self::I;

    /// e^x, relative error below 3e-7; e^-87.3 (about 1e-38) for everything below. What is not a number
    /// stays so.
    ///
    /// Cody-Waite reduction to |r| <= ln(2)/2 and a polynomial of degree 6.
    #[inline(always)]
    unsafe fn exp(x: Self::F) -> Self::F {
        // SAFETY: the caller has the instruction set; no memory is touched.
        unsafe {
            let (n, r) = Self::reduce(x);
            let mut p = Self::splat(1.0 / 720.0);
            for c in [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
                p = Self::fma(p, r, Self::splat(c));
            }
            Self::scale_by_power(p, n)
        }
    }

    /// e^x - 1, as exact near zero: 2^n (e^r - 1) + 2^n - 1.
    #[inline(always)]
    unsafe fn exp_m1(x: Self::F) -> Self::F {
        // SAFETY: the caller has the instruction set; no memory is touched.
        unsafe {
            let (n, r) = Self::reduce(x);
            let mut p = Self::splat(1.0 / 720.0);
            for c in [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0] {
                p = Self::fma(p, r, Self::splat(c));
            }
            let power = Self::scale_by_power(Self::splat(1.0), n);
            Self::fma(Self::mul(p, r), power, Self::sub(power, Self::splat(1.0)))
        }
    }

    /// x = n ln 2 + r with a whole n, x clamped to -87.3 ..= 88.3.
    #[inline(always)]
    unsafe fn reduce(x: Self::F) -> (Self::F, Self::F) {
        // SAFETY: the caller has the instruction set; no memory is touched.
        unsafe {
            let x = Self::min(Self::splat(88.3), Self::max(Self::splat(-87.3), x));
            let n = Self::round(Self::mul(x, Self::splat(std::f32::consts::LOG2_E)));
            let r = Self::fma(n, Self::splat(-0.693_359_4), x);
            (n, Self::fma(n, Self::splat(2.121_944_4e-4), r))
        }
    }
}

/// Without a branch, so that compilers make vectors of it.
#[inline(always)]
fn to_e4m3(x: f32) -> u8 {
    /// Below it numbers are multiples of 2^-9.
    const LEAST_NORMAL: f32 = 0.015_625;
    /// Its neighbours are 2^-9 apart: an addition rounds as is wanted.
    const ROUNDER: f32 = 16384.0;
    let (sign, size) = ((x.to_bits() >> 24) as u8 & 0x80, x.abs().min(448.0));
    let small = (size + ROUNDER).to_bits().wrapping_sub(ROUNDER.to_bits());
    let bits = size.to_bits();
    // 20 of f32's 23 bits of mantissa go, and the exponent counts from -7 instead of -127.
    let normal = ((bits + 0x7_ffff + (bits >> 20 & 1)) >> 20).wrapping_sub(120 << 3);
    sign | if size < LEAST_NORMAL { small } else { normal } as u8
}

/// Compiles a generic kernel for every instruction set and defines a safe function that runs the
/// one asked for: `simd_fn! { fn name(a: A, b: B) -> R = kernel; }` where `kernel` is
/// `unsafe fn kernel<S: Simd>(a: A, b: B) -> R`, sound for any arguments once its instruction set
/// is there.
macro_rules! simd_fn {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? = $kernel:ident;) => {
        $(#[$doc])*
        $vis fn $name(isa: $crate::compute::cpu::simd::Isa, $($arg: $type),*) $(-> $ret)? {
            use $crate::compute::cpu::simd::{Isa, portable::Portable};
            #[cfg(target_arch = "x86_64")]
            use $crate::compute::cpu::simd::{avx2::{Avx2, AvxVnni}, avx512::Avx512};
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2($($arg: $type),*) $(-> $ret)? {
                // SAFETY: the caller has AVX2.
                unsafe { $kernel::<Avx2>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
            unsafe fn avx_vnni($($arg: $type),*) $(-> $ret)? {
                // SAFETY: the caller has AVX2 and AVX-VNNI.
                unsafe { $kernel::<AvxVnni>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            unsafe fn avx512($($arg: $type),*) $(-> $ret)? {
                // SAFETY: the caller has AVX-512 with VNNI.
                unsafe { $kernel::<Avx512>($($arg),*) }
            }
            match isa {
                // SAFETY: plain Rust needs nothing of the processor.
                Isa::Portable => unsafe { $kernel::<Portable>($($arg),*) },
                // SAFETY: `Isa::available` hands out only what the processor has.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Isa::AvxVnni => unsafe { avx_vnni($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512Vnni => unsafe { avx512($($arg),*) },
            }
        }
    };
}
pub(super) use simd_fn;

simd_fn! {
    /// [`Simd::TOKENS`]
    pub(super) fn tokens_at_a_time() -> usize = tokens_kernel;
}

unsafe fn tokens_kernel<S: Simd>() -> usize {
    S::TOKENS
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_the_processor_has_is_found_by_its_name_and_nothing_else() {
        for isa in Isa::available() {
            assert_eq!(isa.to_string().parse(), Ok(isa));
        }
        let refused = "avx3".parse::<Isa>().unwrap_err().to_string();
        assert!(refused.starts_with("this processor has no avx3: portable"), "{refused}");
    }

    unsafe fn exp_kernel<S: Simd>(x: &[f32; 16]) -> [f32; 16] {
        let mut out = [0.0; 16];
        // SAFETY: both arrays have 16 elements.
        unsafe { S::store(out.as_mut_ptr(), S::exp(S::load(x.as_ptr()))) };
        out
    }
    simd_fn! { fn exp(x: &[f32; 16]) -> [f32; 16] = exp_kernel; }

    #[test]
    fn exp_is_close_everywhere() {
        for isa in Isa::available() {
            let mut worst = (0.0f64, 0.0);
            for i in 0..20_000 {
                let x: [f32; 16] = std::array::from_fn(|lane| -87.0 + (i * 16 + lane) as f32 * 5.4e-4);
                for (x, y) in x.into_iter().zip(exp(isa, &x)) {
                    let error = (f64::from(y) / f64::from(x).exp() - 1.0).abs();
                    if error > worst.0 {
                        worst = (error, f64::from(x));
                    }
                }
            }
            assert!(worst.0 < 3e-7, "{}: relative error {} at {}", isa.name(), worst.0, worst.1);
            assert!(exp(isa, &[f32::NEG_INFINITY; 16]).iter().all(|y| *y < 1e-37));
            assert!(exp(isa, &[f32::NAN; 16]).iter().all(|y| y.is_nan()));
        }
    }

    unsafe fn bf16_kernel<S: Simd>(x: &[f32; 16]) -> [u16; 16] {
        let mut out = [0; 16];
        // SAFETY: both arrays have 16 elements.
        unsafe { S::store_bf16(out.as_mut_ptr(), S::load(x.as_ptr())) };
        out
    }
    simd_fn! { fn to_bf16(x: &[f32; 16]) -> [u16; 16] = bf16_kernel; }

    /// Ties go to even, what is too large becomes infinite, and a NaN stays one.
    #[test]
    fn bf16_rounds_as_the_reference_does() {
        let bits = (0..u32::MAX).step_by(65_521).chain([0x7fff_ffff, 0x7f80_0001, 0xffff_ffff, 0x3f80_8000]);
        let all: Vec<f32> = bits.map(f32::from_bits).collect();
        for isa in Isa::available() {
            for x in all.as_chunks::<16>().0 {
                assert_eq!(to_bf16(isa, x), x.map(|x| half::bf16::from_f32(x).to_bits()), "{}", isa.name());
            }
        }
    }

    unsafe fn to_e4m3_kernel<S: Simd>(x: &[f32; 16]) -> [u8; 16] {
        let mut out = [0; 16];
        // SAFETY: both arrays have 16 elements.
        unsafe { S::store_e4m3(out.as_mut_ptr(), S::load(x.as_ptr())) };
        out
    }
    simd_fn! { fn to_e4m3s(x: &[f32; 16]) -> [u8; 16] = to_e4m3_kernel; }

    unsafe fn of_e4m3_kernel<S: Simd>(bytes: &[u8; 16]) -> [f32; 16] {
        let mut out = [0.0; 16];
        // SAFETY: both arrays have 16 elements.
        unsafe { S::store(out.as_mut_ptr(), S::load_e4m3(bytes.as_ptr())) };
        out
    }
    simd_fn! { fn of_e4m3s(bytes: &[u8; 16]) -> [f32; 16] = of_e4m3_kernel; }

    /// As the format's table says (Micikevicius et al. 2022, table 1).
    fn e4m3(byte: u8) -> f64 {
        let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f64::from(byte & 7));
        let size = match exponent {
            0 => mantissa / 8.0 * 2f64.powi(-6),
            e => (1.0 + mantissa / 8.0) * 2f64.powi(e - 7),
        };
        if byte & 0x80 == 0 { size } else { -size }
    }

    #[test]
    fn every_byte_is_the_number_it_stands_for_and_is_written_again() {
        let numbers = (0..=255u8).filter(|byte| byte & 0x7f != 0x7f).collect::<Vec<_>>();
        for isa in Isa::available() {
            for bytes in numbers.chunks(16) {
                let bytes: [u8; 16] = std::array::from_fn(|i| bytes[i.min(bytes.len() - 1)]);
                let read = of_e4m3s(isa, &bytes);
                assert_eq!(read.map(f64::from), bytes.map(e4m3), "{}", isa.name());
                assert_eq!(to_e4m3s(isa, &read), bytes, "{}", isa.name());
            }
        }
    }

    /// Numbers at, beside and between all neighbours: the nearer one, of two as near the even one.
    #[test]
    fn e4m3_rounds_to_the_nearest_and_saturates() {
        for isa in Isa::available() {
            for byte in 0..0x7eu8 {
                let (low, high) = (e4m3(byte), e4m3(byte + 1));
                let middle = f64::midpoint(low, high) as f32;
                let even = byte + (byte & 1);
                let cases = [
                    (low as f32, byte),
                    (middle.next_down(), byte),
                    (middle, even),
                    (middle.next_up(), byte + 1),
                ];
                for (x, right) in cases {
                    let ours = to_e4m3s(isa, &std::array::from_fn(|i| if i % 2 == 0 { x } else { -x }));
                    assert_eq!(ours[..2], [right, right | 0x80], "{x} on {}", isa.name());
                }
            }
            let large = to_e4m3s(
                isa,
                &[
                    448.0,
                    448.1,
                    464.0,
                    1e9,
                    f32::INFINITY,
                    -449.0,
                    1e-9,
                    -0.0,
                    0.0,
                    1.0,
                    1.0,
                    1.0,
                    1.0,
                    1.0,
                    1.0,
                    1.0,
                ],
            );
            assert_eq!(large[..9], [0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0xfe, 0, 0x80, 0], "{}", isa.name());
        }
    }

    unsafe fn primitives_kernel<S: Simd>(x: &[f32; 16], bytes: &[u8; 64]) -> Vec<f64> {
        let mut out = Vec::new();
        let (mut f, mut b, mut h, mut i8s) = ([0f32; 16], [0u8; 64], [0u16; 16], [0i8; 16]);
        // SAFETY: every array has the size its operation names.
        unsafe {
            let v = S::load(x.as_ptr());
            let mut keep = |v: S::F, out: &mut Vec<f64>| {
                S::store(f.as_mut_ptr(), v);
                out.extend(f.iter().map(|x| f64::from(*x)));
            };
            keep(S::round(v), &mut out);
            keep(S::abs(v), &mut out);
            keep(S::max(v, S::splat(0.5)), &mut out);
            keep(S::min(v, S::splat(0.5)), &mut out);
            keep(S::sub(S::add(v, v), S::splat(1.0)), &mut out);
            keep(S::div(v, S::splat(4.0)), &mut out);
            keep(S::scale_by_power(v, S::splat(-3.0)), &mut out);
            keep(S::load_u8(bytes.as_ptr()), &mut out);
            keep(S::load_i8(bytes.as_ptr().cast()), &mut out);
            keep(S::load_bf16(bytes.as_ptr().cast()), &mut out);
            keep(S::load_e4m3(bytes.as_ptr()), &mut out);
            S::store_e4m3(b.as_mut_ptr(), v);
            keep(S::load_e4m3(b.as_ptr()), &mut out);
            S::store_f16(h.as_mut_ptr(), v);
            keep(S::load_f16(h.as_ptr()), &mut out);
            S::store_bf16(h.as_mut_ptr(), v);
            keep(S::load_bf16(h.as_ptr()), &mut out);
            out.push(f64::from(S::sum(v)));
            out.push(f64::from(S::largest(v)));
            out.push(f64::from(S::store_i8(i8s.as_mut_ptr(), v)));
            out.extend(i8s.iter().map(|x| f64::from(*x)));
            let w = S::load_bytes(bytes.as_ptr());
            for v in [
                S::and(w, 15),
                S::and(S::shift_right::<4>(w), 15),
                S::and(S::shift_left::<2>(w), 0x30),
                S::or(S::and(w, 15), S::and(w, 0x10)),
                S::lookup(S::and(w, 15), &[-127, 3, 5, -1, 127, 9, -128, 0, 8, 7, 6, 5, 4, 3, 2, 1]),
            ] {
                S::store_bytes(b.as_mut_ptr(), v);
                out.extend(b.iter().map(|x| f64::from(*x)));
            }
            let q = Q.as_ptr();
            keep(S::to_f32(S::dot::<8, 8>(S::splat_i32(7), &[S::and(w, 15); 8], q)), &mut out);
            keep(S::to_f32(S::dot::<8, 4>(S::splat_i32(7), &[S::and(w, 31); 8], q)), &mut out);
            if S::WIDE {
                let offset = 128 * Q.iter().map(|q| i32::from(*q)).sum::<i32>();
                let w = S::add_bytes(w, 128);
                keep(S::to_f32(S::dot::<8, 1>(S::splat_i32(7 - offset), &[w; 8], q)), &mut out);
            } else {
                keep(S::to_f32(S::dot_signed(S::splat_i32(7), &[w; 8], q)), &mut out);
            }
            keep(
                S::to_f32(S::dot::<4, 1>(S::splat_i32(7), &[S::add_bytes(S::and(w, 15), 100); 4], q)),
                &mut out,
            );
        }
        out
    }
    const Q: [i8; 32] = {
        let mut q = [0i8; 32];
        let mut i = 0;
        while i < 32 {
            q[i] = [-127, 5, 127, -90, 127, 127, -1, 0, 64][i % 9];
            i += 1;
        }
        q
    };
    simd_fn! { fn primitives(x: &[f32; 16], bytes: &[u8; 64]) -> Vec<f64> = primitives_kernel; }

    #[test]
    fn every_operation_means_the_same_on_every_instruction_set() {
        let x: [f32; 16] = std::array::from_fn(|i| (i as f32 - 7.5) * 3.25 + 0.25);
        let bytes: [u8; 64] =
            std::array::from_fn(|i| (i * 37 + 11) as u8 & 0x7f | ((i as u8 % 3) << 7 & 0x80));
        let bytes = bytes.map(|b| if b == 0x80 { 0x81 } else { b });
        let expected = primitives(Isa::Portable, &x, &bytes);
        for isa in Isa::available() {
            assert_eq!(primitives(isa, &x, &bytes), expected, "{}", isa.name());
        }
    }
}
