// Weights as they lie on the device: planes (src/compute/cuda/weights.rs makes them).
//
// A matrix [rows, cols], cols a multiple of 32, is cut along its rows into subs of 32 weights; sub
// b = row * (cols / 32) + k / 32. What belongs to a sub lies in up to four planes, each one array:
//
//   q  4-, 5- and 6-bit: 16 bytes, byte j = weight j in the low nibble, weight j + 16 in the high one.
//      Q8_0: 32 signed bytes. F16, BF16: 2 bytes a weight. F32: 4.
//   h  5-bit: u32, bit f of byte i = fifth bit of weight 4f + i.
//      6-bit: u32 [2], bits 2f.. of byte i of word w = high bits of weight 16w + 4f + i.
//   s  Q4_0, Q5_0, Q8_0: f16 scale. Q4_1, Q5_1: f16 scale, f16 minimum. Q4_K, Q5_K: u8 scale, u8 minimum.
//      Q6_K: i8 [2], one for each 16 weights.
//   d  for each 8 subs. Q4_K, Q5_K: f16 scale of scales, f16 scale of minima. Q6_K: f16.
//
// In every format with q of few bits, weight = scale * byte + minimum with signed bytes, four to a word.
// Formats around zero have theirs in the byte's high bits, for there an offset costs nothing: flipping
// the top bit takes it off. Q4_0's byte is 16 times its weight, and its scale a sixteenth.
#pragma once
#include "common.cuh"

enum class Format { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K }; // as BlockFormat::ALL

struct Planes {
  const uint8_t *q, *h, *s, *d;
};

template <Format F> struct Of {
  static constexpr bool FLOATS = F == Format::F32 || F == Format::F16 || F == Format::BF16;
  static constexpr bool SUPER = F == Format::Q4_K || F == Format::Q5_K || F == Format::Q6_K; // has a d plane
  static constexpr bool FIVE = F == Format::Q5_0 || F == Format::Q5_1 || F == Format::Q5_K;
  static constexpr bool SIX = F == Format::Q6_K;
  // weight = scale * byte + minimum, with a minimum that is not 0.
  static constexpr bool MINIMUM = F == Format::Q4_1 || F == Format::Q5_1 || F == Format::Q4_K || F == Format::Q5_K;
  // Byte = (value - zero) << SHIFT, where the value has 8 - SHIFT bits.
  static constexpr int SHIFT = F == Format::Q4_0 ? 4 : F == Format::Q5_0 ? 3 : SIX ? 2 : 0;
  static constexpr int Q_BYTES = F == Format::F32 ? 128 : FLOATS ? 64 : F == Format::Q8_0 ? 32 : 16;
  static constexpr int H_BYTES = FIVE ? 4 : SIX ? 8 : 0;
  static constexpr int S_BYTES = FLOATS ? 0 : F == Format::Q4_1 || F == Format::Q5_1 ? 4 : 2;
  static constexpr int D_BYTES = F == Format::Q4_K || F == Format::Q5_K ? 4 : SIX ? 2 : 0; // of 8 subs
};

// Bits of a 4-, 5- or 6-bit sub. Loaded first, unpacked later.
struct Bits {
  uint4 q;
  uint2 h; // y for 6 bits only
};
template <Format F> DEV Bits load_bits(const Planes& p, size_t b) {
  Bits bits;
  bits.q = ((const uint4*)p.q)[b];
  bits.h = make_uint2(0, 0);
  if constexpr (Of<F>::FIVE) bits.h.x = ((const uint32_t*)p.h)[b];
  if constexpr (Of<F>::SIX) bits.h = ((const uint2*)p.h)[b];
  return bits;
}

// x moved by n bits, to the left where n > 0. n is known when it is compiled.
DEV uint32_t moved(uint32_t x, int n) { return n >= 0 ? x << n : x >> -n; }

// Weights 4i .. 4i + 3 of a sub as signed bytes; i in 0..8, known when it is compiled.
template <Format F> DEV uint32_t word(const Bits& bits, int i) {
  constexpr int up = Of<F>::SHIFT;
  const uint32_t four = (i & 3) == 0 ? bits.q.x : (i & 3) == 1 ? bits.q.y : (i & 3) == 2 ? bits.q.z : bits.q.w;
  uint32_t bytes = moved(four, (i < 4 ? 0 : -4) + up) & (0x0f0f0f0fu << up);
  if constexpr (Of<F>::FIVE) bytes |= moved(bits.h.x, 4 + up - i) & (0x10101010u << up);
  if constexpr (Of<F>::SIX) bytes |= moved(i < 4 ? bits.h.x : bits.h.y, 4 + up - 2 * (i & 3)) & (0x30303030u << up);
  if constexpr (up > 0) bytes ^= 0x80808080u;
  return bytes;
}

// An integer below 2^23 as a float, quicker than by a conversion of bytes.
DEV float small(uint32_t x) { return __uint_as_float(0x4b000000u | x) - 8388608.f; }
DEV float small_signed(uint32_t byte) { return __uint_as_float(0x4b000000u | (byte ^ 0x80u)) - 8388736.f; }

DEV float half_at(const uint8_t* p) { return __half2float(*(const f16*)p); }
DEV float2 halves_at(const uint8_t* p) { return __half22float2(*(const __half2*)p); }

// Scale (x) and minimum (y) of sub b's bytes; Q6_K: scales of its first and of its last 16 weights.
// Products as in src/weights/decode.rs, bit for bit: those that could round are taken last.
template <Format F> DEV float2 scales(const Planes& p, size_t b) {
  constexpr float unit = 1.f / (1 << Of<F>::SHIFT);
  if constexpr (F == Format::Q4_1 || F == Format::Q5_1) return halves_at(p.s + 4 * b);
  else if constexpr (F == Format::Q4_K || F == Format::Q5_K) {
    const uint32_t s = *(const uint16_t*)(p.s + 2 * b);
    const float2 d = halves_at(p.d + 4 * (b / 8));
    return make_float2(d.x * small(s & 255), -(d.y * small(s >> 8)));
  } else if constexpr (Of<F>::SIX) {
    const uint32_t s = *(const uint16_t*)(p.s + 2 * b);
    const float d = half_at(p.d + 2 * (b / 8)) * unit;
    return make_float2(d * small_signed(s & 255), d * small_signed(s >> 8));
  } else return make_float2(half_at(p.s + 2 * b) * unit, 0.f);
}

// Weight k of a matrix of `cols` columns, k counted through all rows. For what is not in a hurry.
template <Format F> DEV float weight(const Planes& p, size_t k) {
  if constexpr (F == Format::F32) return ((const float*)p.q)[k];
  else if constexpr (F == Format::F16) return to_f(((const f16*)p.q)[k]);
  else if constexpr (F == Format::BF16) return to_f(((const bf16*)p.q)[k]);
  else {
    const size_t b = k / 32;
    const int j = k % 32, i = j % 4;
    int byte;
    if constexpr (F == Format::Q8_0) byte = (int8_t)p.q[k];
    else {
      byte = p.q[16 * b + j % 16] >> (j < 16 ? 0 : 4) & 15;
      if constexpr (Of<F>::FIVE) byte |= (p.h[4 * b + i] >> (j / 4) & 1) << 4;
      if constexpr (Of<F>::SIX) byte |= (p.h[8 * b + (j < 16 ? 0 : 4) + i] >> 2 * (j % 16 / 4) & 3) << 4;
      if constexpr (Of<F>::SHIFT > 0) byte = (int8_t)(byte << Of<F>::SHIFT ^ 0x80);
    }
    const float2 s = scales<F>(p, b);
    if constexpr (Of<F>::SIX) return (j < 16 ? s.x : s.y) * (float)byte;
    else if constexpr (Of<F>::MINIMUM) return s.x * (float)byte + s.y;
    else return s.x * (float)byte;
  }
}
