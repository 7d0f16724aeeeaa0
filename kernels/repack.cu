// From a GGUF file's blocks to planes (planes.cuh): one thread a sub of 32 weights.
#include "planes.cuh"

// Blocks are of even length and begin anywhere even.
DEV uint32_t word_at(const uint8_t* p) { return *(const uint16_t*)p | (uint32_t)*(const uint16_t*)(p + 2) << 16; }
DEV void put_half(uint8_t* to, const uint8_t* from) { *(uint16_t*)to = *(const uint16_t*)from; }

// A bit for each of 32 weights -> bit f of byte i for weight 4f + i.
DEV uint32_t spread(uint32_t bits) {
  uint32_t h = 0;
#pragma unroll
  for (int j = 0; j < 32; j++) h |= (bits >> j & 1) << (8 * (j % 4) + j / 4);
  return h;
}

// Formats with a block for each sub: f16 scale, f16 minimum (Q4_1, Q5_1), u32 fifth bits (Q5_0, Q5_1),
// then the bits of q as they stay.
template <Format F> DEV void repack_small(uint8_t* q, uint8_t* h, uint8_t* s, const uint8_t* block, size_t b) {
  constexpr int scales = Of<F>::S_BYTES, high = Of<F>::H_BYTES, words = Of<F>::Q_BYTES / 4;
#pragma unroll
  for (int i = 0; i < scales; i += 2) put_half(s + scales * b + i, block + i);
  if constexpr (high > 0) ((uint32_t*)h)[b] = spread(word_at(block + scales));
#pragma unroll
  for (int i = 0; i < words; i++) ((uint32_t*)q)[words * b + i] = word_at(block + scales + high + 4 * i);
}

// The four bits of weights 4i.. of a run of 32 bytes, in the low or the high nibbles.
DEV uint32_t nibbles(const uint8_t* run, int i, int high) { return word_at(run + 4 * i) >> 4 * high & 0x0f0f0f0fu; }
// q's 16 bytes out of such a run: weight j low, weight j + 16 high.
DEV uint4 pair_up(const uint8_t* run, int high) {
  uint32_t w[4];
#pragma unroll
  for (int i = 0; i < 4; i++) w[i] = nibbles(run, i, high) | nibbles(run, i + 4, high) << 4;
  return make_uint4(w[0], w[1], w[2], w[3]);
}

// Q4_K, Q5_K, sub j of a block: f16 d, f16 dmin, 12 bytes of six-bit pairs, 32 bytes of fifth bits
// (Q5_K: bit j of byte i for weight i), 4 runs of 32 nibble bytes, two subs each.
template <Format F> DEV void repack_k(uint8_t* q, uint8_t* h, uint8_t* s, uint8_t* d, const uint8_t* block, size_t b) {
  const int j = b % 8;
  const uint8_t *pairs = block + 4, *high = block + 16, *run = block + 16 + (Of<F>::FIVE ? 32 : 0) + 32 * (j / 2);
  ((uint4*)q)[b] = pair_up(run, j % 2);
  if constexpr (Of<F>::FIVE) {
    uint32_t bits = 0;
#pragma unroll
    for (int f = 0; f < 8; f++) bits |= (word_at(high + 4 * f) >> j & 0x01010101u) << f;
    ((uint32_t*)h)[b] = bits;
  }
  s[2 * b] = j < 4 ? pairs[j] & 63 : (pairs[j + 4] & 15) | pairs[j - 4] >> 6 << 4;
  s[2 * b + 1] = j < 4 ? pairs[j + 4] & 63 : pairs[j + 4] >> 4 | pairs[j] >> 6 << 4;
  if (j == 0) ((uint32_t*)d)[b / 8] = word_at(block);
}

// Q6_K, sub j of a block: 2 halves of 64 bytes of nibbles, 2 of 32 bytes of bit pairs, 16 i8 scales, f16 d.
// A half of 128 weights is four runs of 32: the nibbles of runs r and r + 2 share bytes, and run r has its
// bit pair at bit 2r.
DEV void repack_6k(uint8_t* q, uint8_t* h, uint8_t* s, uint8_t* d, const uint8_t* block, size_t b) {
  const int j = b % 8, half = j / 4, r = j % 4;
  ((uint4*)q)[b] = pair_up(block + 64 * half + 32 * (r % 2), r / 2);
  const uint8_t* high = block + 128 + 32 * half;
  uint32_t bits[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 8; i++) bits[i / 4] |= (word_at(high + 4 * i) >> 2 * r & 0x03030303u) << 2 * (i % 4);
  ((uint2*)h)[b] = make_uint2(bits[0], bits[1]);
  put_half(s + 2 * b, block + 192 + 2 * j);
  if (j == 0) put_half(d + 2 * (b / 8), block + 208);
}

// q, h, s, d: the planes of a part. blocks: of `subs` subs, the first of which is the part's sub `first`
// (of whole blocks).
#define REPACK(name, subs_of_block, block_bytes, call)                                                      \
  extern "C" __global__ void __launch_bounds__(128)                                                                 \
      repack_##name(uint8_t* q, uint8_t* h, uint8_t* s, uint8_t* d, const uint8_t* blocks, int first, int subs) {    \
    const int i = blockIdx.x * blockDim.x + threadIdx.x;                                                            \
    if (i >= subs) return;                                                                                          \
    const uint8_t* block = blocks + (size_t)(i / subs_of_block) * block_bytes;                                      \
    const size_t b = (size_t)first + i;                                                                             \
    call;                                                                                                           \
  }                                                                                                                 \
  EXPORT_KERNEL(repack_##name)
#define SMALL(format, name, bytes) REPACK(name, 1, bytes, repack_small<Format::format>(q, h, s, block, b))
#define LARGE(format, name, bytes) REPACK(name, 8, bytes, repack_k<Format::format>(q, h, s, d, block, b))
SMALL(Q4_0, q4_0, 18)
SMALL(Q4_1, q4_1, 20)
SMALL(Q5_0, q5_0, 22)
SMALL(Q5_1, q5_1, 24)
SMALL(Q8_0, q8_0, 34)
LARGE(Q4_K, q4_k, 144)
LARGE(Q5_K, q5_k, 176)
REPACK(q6_k, 8, 210, repack_6k(q, h, s, d, block, b))
