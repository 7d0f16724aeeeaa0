//! AVX-512 with VNNI: 16 lanes are one register, and one `vpdpbusd` multiplies and sums 64 weights.

use super::Simd;
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(crate) struct Avx512;

// Every SAFETY below is the same: the caller has AVX-512 F, BW, DQ, VL and VNNI (the trait's
// contract), and pointers reach as far as the trait says.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    type B = __m512i;
    const WIDE: bool = true;
    const TOKENS: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, x: __m512) {
        unsafe { _mm512_storeu_ps(p, x) }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, x: __m512) {
        unsafe { _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> __m512 {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, x: __m512) {
        unsafe {
            let bits = _mm512_castps_si512(x);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
            // Rounding would carry a NaN's bits into the sign.
            let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
            let wide = _mm512_srli_epi32::<16>(_mm512_mask_blend_epi32(nan, rounded, quiet));
            _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(wide))
        }
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_e4m3(p: *const u8) -> __m512 {
        unsafe {
            // As AVX2 does.
            let wide = _mm256_slli_epi16::<7>(_mm256_cvtepi8_epi16(_mm_loadu_si128(p.cast())));
            let bits = _mm256_and_si256(wide, _mm256_set1_epi16(0xbf80_u16 as i16));
            _mm512_mul_ps(_mm512_cvtph_ps(bits), _mm512_set1_ps(256.0))
        }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn abs(a: __m512) -> __m512 {
        unsafe { _mm512_abs_ps(a) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn round(a: __m512) -> __m512 {
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT }>(a) }
    }
    #[inline(always)]
    unsafe fn scale_by_power(a: __m512, n: __m512) -> __m512 {
        unsafe {
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_mul_ps(a, _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased)))
        }
    }
    #[inline(always)]
    unsafe fn sum(a: __m512) -> f32 {
        unsafe {
            let eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
    #[inline(always)]
    unsafe fn largest(a: __m512) -> f32 {
        unsafe { _mm512_reduce_max_ps(a) }
    }
    #[inline(always)]
    unsafe fn store_i8(p: *mut i8, a: __m512) -> i32 {
        unsafe {
            let bytes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a));
            _mm_storeu_si128(p.cast(), bytes);
            _mm512_reduce_add_epi32(_mm512_cvtepi8_epi32(bytes))
        }
    }

    #[inline(always)]
    unsafe fn to_f32(a: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(a) }
    }
    #[inline(always)]
    unsafe fn splat_i32(x: i32) -> __m512i {
        unsafe { _mm512_set1_epi32(x) }
    }

    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    unsafe fn load_bytes(p: *const u8) -> __m512i {
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, b: __m512i) {
        unsafe { _mm512_storeu_si512(p.cast(), b) }
    }
    #[inline(always)]
    unsafe fn and(a: __m512i, mask: u8) -> __m512i {
        unsafe { _mm512_and_si512(a, _mm512_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn shift_right<const N: i32>(a: __m512i) -> __m512i {
        unsafe { _mm512_srl_epi16(a, _mm_cvtsi32_si128(N)) }
    }
    #[inline(always)]
    unsafe fn shift_left<const N: i32>(a: __m512i) -> __m512i {
        unsafe { _mm512_sll_epi16(a, _mm_cvtsi32_si128(N)) }
    }

    #[inline(always)]
    unsafe fn lookup(codes: __m512i, table: &[i8; 16]) -> __m512i {
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, codes)
        }
    }

    #[inline(always)]
    unsafe fn add_bytes(a: __m512i, x: u8) -> __m512i {
        unsafe { _mm512_add_epi8(a, _mm512_set1_epi8(x as i8)) }
    }

    #[inline(always)]
    unsafe fn dot<const N: usize, const MOST: usize>(
        mut total: __m512i,
        weights: &[__m512i; N],
        x: *const i8,
    ) -> __m512i {
        unsafe {
            for (j, weights) in weights.iter().enumerate() {
                total = _mm512_dpbusd_epi32(total, *weights, four(x.add(4 * j)));
            }
            total
        }
    }
    #[inline(always)]
    unsafe fn dot_signed<const N: usize>(_: __m512i, _: &[__m512i; N], _: *const i8) -> __m512i {
        unreachable!("wide")
    }
}

/// Four activations of one token, the same in every lane.
#[inline(always)]
unsafe fn four(x: *const i8) -> __m512i {
    // SAFETY: 4 bytes are readable; the caller has the instruction set.
    unsafe { _mm512_set1_epi32(x.cast::<i32>().read_unaligned()) }
}
