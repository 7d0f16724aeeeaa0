// Keys and values of one layer, as they lie in memory:
//
//   [block][kv head]( K [block_size][D] | V [block_size][D] | K scales f32 [block_size] | V scales f32 [block_size] )
//
// Elements are f16, bf16, signed bytes (x = q * scale) or e4m3 bytes (x = e4m3(q) * scale); only bytes
// have scales, one for each token's key and one for its value. D is a multiple of 16. Bytes with an odd
// block_size make every other part begin at 8 bytes beside a multiple of 16: copies are of 8 bytes there.
// Blocks may be longer than their heads' parts are together: other layers keep a state there.
#pragma once
#include "common.cuh"

enum { KV_F16, KV_BF16, KV_INT8, KV_FP8 };

struct KvShape {
  int kv_heads, d, block_size;
  int element; // bytes of an element
  int scaled;  // whether there are scales
  int block_bytes;
};
DEV size_t kv_part_bytes(const KvShape& s) {
  return (size_t)s.block_size * (2 * s.d * s.element + (s.scaled ? 8 : 0));
}
// Byte at which one head's part of a block begins.
DEV size_t kv_part(const KvShape& s, int block, int head) {
  return (size_t)block * s.block_bytes + head * kv_part_bytes(s);
}

// ---- elements to f32, exactly, several at a time ----
// WORDS: 32-bit words of four elements. UNIT: what `four` gives must be multiplied with (a power of two,
// to be folded into the scale). LARGEST: what a token's largest magnitude becomes.
DEV float2 two_halves(uint32_t w) {
  __half2 h;
  memcpy(&h, &w, 4);
  return __half22float2(h);
}
struct KvF16 {
  static constexpr int BYTES = 2, WORDS = 2;
  static constexpr bool SCALED = false;
  static constexpr float UNIT = 1.f;
  static DEV void four(const uint32_t* w, float* x) {
    const float2 a = two_halves(w[0]), b = two_halves(w[1]);
    x[0] = a.x, x[1] = a.y, x[2] = b.x, x[3] = b.y;
  }
};
struct KvBf16 {
  static constexpr int BYTES = 2, WORDS = 2;
  static constexpr bool SCALED = false;
  static constexpr float UNIT = 1.f;
  static DEV void four(const uint32_t* w, float* x) {
    x[0] = __uint_as_float(w[0] << 16), x[1] = __uint_as_float(w[0] & 0xffff0000u);
    x[2] = __uint_as_float(w[1] << 16), x[3] = __uint_as_float(w[1] & 0xffff0000u);
  }
};
// A byte in the lowest bits of 2^23 is 2^23 + byte: one permutation and one exact subtraction instead of a
// conversion, of which a multiprocessor makes few in a cycle.
struct KvInt8 {
  static constexpr int BYTES = 1, WORDS = 1;
  static constexpr bool SCALED = true;
  static constexpr float UNIT = 1.f;
  static DEV void four(const uint32_t* w, float* x) {
    const uint32_t up = w[0] ^ 0x80808080u; // -128.. becomes 0..
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = __uint_as_float(__byte_perm(up, 0x4b000000u, 0x7540 + i)) - 8388736.f;
  }
};
// e4m3 has f16's order of bits with one exponent bit less: moved into place it is 2^-8 of its value, its
// subnormal numbers too. The code of "no number" (0x7f) is read as 480: nothing stores it beside a scale
// that is a number.
struct KvFp8 {
  static constexpr int BYTES = 1, WORDS = 1;
  static constexpr bool SCALED = true;
  static constexpr float UNIT = 256.f;
  static DEV void four(const uint32_t* w, float* x) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint32_t two = __byte_perm(w[0], 0, i ? 0x3424 : 0x1404); // each byte on top of a half
      const float2 a = two_halves((two & 0x80008000u) | (two & 0x7f007f00u) >> 1);
      x[2 * i] = a.x, x[2 * i + 1] = a.y;
    }
  }
};

// ---- f32 to bytes ----
DEV uint8_t to_int8(float x) { return (uint8_t)(int)rintf(x); }
// To the nearest, to even between two; beyond 448 it stays 448.
DEV uint8_t to_e4m3(float x) {
  const uint32_t sign = __float_as_uint(x) >> 24 & 0x80;
  const float a = fabsf(x);
  if (!(a == a)) return 0x7f;
  if (a >= 448.f) return sign | 0x7e;
  if (a < 0.015625f) return sign | (uint32_t)rintf(a * 512.f); // subnormal: steps of 2^-9
  const uint32_t bits = __float_as_uint(a);
  return sign | (((bits + 0x7ffffu + (bits >> 20 & 1)) >> 20) - (120 << 3));
}
