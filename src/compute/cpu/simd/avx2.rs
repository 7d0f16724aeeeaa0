//! AVX2, FMA and F16C, with or without AVX-VNNI: 16 lanes are two registers.

use super::Simd;
use std::arch::x86_64::*;

/// With VNNI the integer dot product is `vpdpbusd`, else `vpmaddubsw` summed in 16 bits.
#[derive(Clone, Copy)]
pub(crate) struct Ymm<const VNNI: bool>;
pub(crate) type Avx2 = Ymm<false>;
pub(crate) type AvxVnni = Ymm<true>;

type F = [__m256; 2];
type I = [__m256i; 2];

// Every SAFETY below is the same: the caller has AVX2, FMA and F16C (the trait's contract), and
// pointers reach as far as the trait says.
macro_rules! both {
    ($f:ident($($a:expr),*)) => { [unsafe { $f($(($a)[0]),*) }, unsafe { $f($(($a)[1]),*) }] };
}

#[allow(clippy::undocumented_unsafe_blocks)]
impl<const VNNI: bool> Simd for Ymm<VNNI> {
    type F = F;
    type I = I;
    type B = I;
    const WIDE: bool = VNNI;
    const TOKENS: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> F {
        unsafe { [_mm256_set1_ps(x); 2] }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> F {
        unsafe { [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))] }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, x: F) {
        unsafe {
            _mm256_storeu_ps(p, x[0]);
            _mm256_storeu_ps(p.add(8), x[1]);
        }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> F {
        unsafe {
            [_mm256_cvtph_ps(_mm_loadu_si128(p.cast())), _mm256_cvtph_ps(_mm_loadu_si128(p.add(8).cast()))]
        }
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, x: F) {
        unsafe {
            _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[0]));
            _mm_storeu_si128(p.add(8).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[1]));
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> F {
        unsafe {
            let widen = |p: *const u16| {
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            };
            [widen(p), widen(p.add(8))]
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, x: F) {
        unsafe {
            let narrow = |x: __m256| {
                let bits = _mm256_castps_si256(x);
                let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
                let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
                // Rounding would carry a NaN's bits into the sign.
                let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
                let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
                _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan))
            };
            // packus works in 128-bit halves: [l0 h0 | l1 h1] -> put the quarters back in order.
            let packed = _mm256_packus_epi32(narrow(x[0]), narrow(x[1]));
            _mm256_storeu_si256(p.cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(packed))
        }
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> F {
        unsafe {
            let widen = |p: *const u8| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())));
            [widen(p), widen(p.add(8))]
        }
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> F {
        unsafe {
            let widen = |p: *const i8| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())));
            [widen(p), widen(p.add(8))]
        }
    }
    #[inline(always)]
    unsafe fn load_e4m3(p: *const u8) -> F {
        unsafe {
            // Bits of f16 that are 2^8 times smaller; the byte's sign, widened, is one bit too many.
            let wide = _mm256_slli_epi16::<7>(_mm256_cvtepi8_epi16(_mm_loadu_si128(p.cast())));
            let bits = _mm256_and_si256(wide, _mm256_set1_epi16(0xbf80_u16 as i16));
            let scale = _mm256_set1_ps(256.0);
            [
                _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(bits)), scale),
                _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256::<1>(bits)), scale),
            ]
        }
    }
    #[inline(always)]
    unsafe fn add(a: F, b: F) -> F {
        both!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    unsafe fn sub(a: F, b: F) -> F {
        both!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    unsafe fn mul(a: F, b: F) -> F {
        both!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    unsafe fn div(a: F, b: F) -> F {
        both!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    unsafe fn max(a: F, b: F) -> F {
        both!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    unsafe fn min(a: F, b: F) -> F {
        both!(_mm256_min_ps(a, b))
    }
    #[inline(always)]
    unsafe fn abs(a: F) -> F {
        let sign = unsafe { [_mm256_set1_ps(-0.0); 2] };
        both!(_mm256_andnot_ps(sign, a))
    }
    #[inline(always)]
    unsafe fn fma(a: F, b: F, c: F) -> F {
        both!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    unsafe fn round(a: F) -> F {
        unsafe {
            [
                _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a[0]),
                _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a[1]),
            ]
        }
    }
    #[inline(always)]
    unsafe fn scale_by_power(a: F, n: F) -> F {
        unsafe {
            let power = |n: __m256| {
                let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
            };
            [_mm256_mul_ps(a[0], power(n[0])), _mm256_mul_ps(a[1], power(n[1]))]
        }
    }
    #[inline(always)]
    unsafe fn sum(a: F) -> f32 {
        unsafe {
            let eight = _mm256_add_ps(a[0], a[1]);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
    #[inline(always)]
    unsafe fn largest(a: F) -> f32 {
        unsafe {
            let eight = _mm256_max_ps(a[0], a[1]);
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
    #[inline(always)]
    unsafe fn store_i8(p: *mut i8, a: F) -> i32 {
        unsafe {
            let (low, high) = (_mm256_cvtps_epi32(a[0]), _mm256_cvtps_epi32(a[1]));
            // packs works in 128-bit halves: [l0 h0 | l1 h1] -> put the quarters back in order.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(low, high));
            let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storeu_si128(p.cast(), bytes);
            // Sum of the stored bytes: pairs to 32 bits, then across.
            let pairs = _mm256_madd_epi16(_mm256_cvtepi8_epi16(bytes), _mm256_set1_epi16(1));
            let four = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs));
            let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b00_00_11_10>(four));
            _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<1>(two)))
        }
    }

    #[inline(always)]
    unsafe fn to_f32(a: I) -> F {
        both!(_mm256_cvtepi32_ps(a))
    }
    #[inline(always)]
    unsafe fn splat_i32(x: i32) -> I {
        unsafe { [_mm256_set1_epi32(x); 2] }
    }

    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    unsafe fn load_bytes(p: *const u8) -> I {
        unsafe { [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(32).cast())] }
    }
    #[inline(always)]
    unsafe fn store_bytes(p: *mut u8, b: I) {
        unsafe {
            _mm256_storeu_si256(p.cast(), b[0]);
            _mm256_storeu_si256(p.add(32).cast(), b[1]);
        }
    }
    #[inline(always)]
    unsafe fn and(a: I, mask: u8) -> I {
        let mask = unsafe { [_mm256_set1_epi8(mask as i8); 2] };
        both!(_mm256_and_si256(a, mask))
    }
    #[inline(always)]
    unsafe fn or(a: I, b: I) -> I {
        both!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    unsafe fn shift_right<const N: i32>(a: I) -> I {
        unsafe { [_mm256_srli_epi16::<N>(a[0]), _mm256_srli_epi16::<N>(a[1])] }
    }
    #[inline(always)]
    unsafe fn shift_left<const N: i32>(a: I) -> I {
        unsafe { [_mm256_slli_epi16::<N>(a[0]), _mm256_slli_epi16::<N>(a[1])] }
    }

    #[inline(always)]
    unsafe fn lookup(codes: I, table: &[i8; 16]) -> I {
        let table = unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())) };
        let table = [table; 2];
        both!(_mm256_shuffle_epi8(table, codes))
    }

    #[inline(always)]
    unsafe fn add_bytes(a: I, x: u8) -> I {
        let x = unsafe { [_mm256_set1_epi8(x as i8); 2] };
        both!(_mm256_add_epi8(a, x))
    }

    #[inline(always)]
    unsafe fn dot<const N: usize, const MOST: usize>(mut total: I, weights: &[I; N], x: *const i8) -> I {
        let ones = unsafe { [_mm256_set1_epi16(1); 2] };
        let mut sums = unsafe { [_mm256_setzero_si256(); 2] };
        for (j, weights) in weights.iter().enumerate() {
            let x = [unsafe { four(x.add(4 * j)) }; 2];
            if VNNI {
                total = both!(_mm256_dpbusd_avx_epi32(total, *weights, x));
                continue;
            }
            let products = both!(_mm256_maddubs_epi16(*weights, x));
            sums = if j % MOST == 0 { products } else { both!(_mm256_add_epi16(sums, products)) };
            if (j + 1) % MOST == 0 || j + 1 == N {
                let wide = both!(_mm256_madd_epi16(sums, ones));
                total = both!(_mm256_add_epi32(total, wide));
            }
        }
        total
    }
    #[inline(always)]
    unsafe fn dot_signed<const N: usize>(mut total: I, weights: &[I; N], x: *const i8) -> I {
        // |w| * (x with w's sign): a pair is at most 2 * 127 * 127, which fits 16 bits.
        let ones = unsafe { [_mm256_set1_epi16(1); 2] };
        for (j, weights) in weights.iter().enumerate() {
            let x = [unsafe { four(x.add(4 * j)) }; 2];
            let magnitudes = both!(_mm256_abs_epi8(*weights));
            let signed = both!(_mm256_sign_epi8(x, *weights));
            let products = both!(_mm256_maddubs_epi16(magnitudes, signed));
            let wide = both!(_mm256_madd_epi16(products, ones));
            total = both!(_mm256_add_epi32(total, wide));
        }
        total
    }
}

/// Four activations of one token, the same in every lane.
#[inline(always)]
unsafe fn four(x: *const i8) -> __m256i {
    // SAFETY: 4 bytes are readable; the caller has the instruction set.
    unsafe { _mm256_set1_epi32(x.cast::<i32>().read_unaligned()) }
}
