// Keys and values: made ready and written to the cache, and blocks of the cache copied.
#include "cache.cuh"

// One element of the cache. `at` counts elements; `inverse` is 1 / scale where there are scales.
DEV void kv_put(uint8_t* to, int at, float x, float inverse, int dtype) {
  switch (dtype) {
  case KV_F16: ((f16*)to)[at] = from_f<f16>(x); break;
  case KV_BF16: ((bf16*)to)[at] = from_f<bf16>(x); break;
  case KV_INT8: to[at] = to_int8(x * inverse); break;
  default: to[at] = to_e4m3(x * inverse); break;
  }
}

// How query or key heads are normalised: by w, b f32 [D], or by those of each head, `each` = D further.
struct HeadNorm {
  const float *w, *b; // w null: not at all; b may be null
  float eps;
  int layer, each;
};

// A head, of which a lane has pairs: as norm.cuh, but a warp.
template <int PAIRS>
DEV void normalise(float (&a)[PAIRS], float (&b)[PAIRS], const int (&at)[PAIRS], const int (&to)[PAIRS], int d,
                   const HeadNorm& norm, int head) {
  const int lane = threadIdx.x % 32;
  float mean = 0.f, ss = 0.f;
  if (norm.layer) {
#pragma unroll
    for (int i = 0; i < PAIRS; i++) mean += a[i] + b[i]; // zeros beyond the head
    mean = warp_sum(mean) / d;
  }
#pragma unroll
  for (int i = 0; i < PAIRS; i++)
    if (lane + 32 * i < d / 2) ss += (a[i] - mean) * (a[i] - mean) + (b[i] - mean) * (b[i] - mean);
  const float s = 1.f / sqrtf(warp_sum(ss) / d + norm.eps);
  const float* w = norm.w + head * norm.each;
  const float* bias = norm.b ? norm.b + head * norm.each : nullptr;
#pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    if (lane + 32 * i >= d / 2) continue;
    a[i] = (a[i] - mean) * (s * w[at[i]]), b[i] = (b[i] - mean) * (s * w[to[i]]);
    if (bias) a[i] += bias[at[i]], b[i] += bias[to[i]];
  }
}

// For every row of the step: query and key heads are normalised (where there are weights) and rotated (where
// there is a rope: not -1); queries go back to where they were, keys and values into the cache, at the row's
// position.
//
// A warp has a head. A lane has whole pairs of dimensions that turn together, so nothing is exchanged but
// sums and maxima, and queries can be written in place.
//
// qkv f32 [rows, (heads + 2 kv_heads) * D]; cache as in cache.cuh.
// Grid: rows (of the bucket), heads of all three kinds in fours. D / 2 is at most 32 PAIRS.
template <int PAIRS>
DEV void kv_store(float* qkv, uint8_t* cache, const Step* step, int group, int rope, int interleaved, int heads,
                  int kv_heads, int d, int block_size, int block_bytes, int dtype, const HeadNorm& query_norm,
                  const HeadNorm& key_norm) {
  const int row = blockIdx.x, head = blockIdx.y * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= step->rows || head >= heads + 2 * kv_heads) return;
  const bool is_query = head < heads, is_value = head >= heads + kv_heads;
  float* x = qkv + (size_t)row * (heads + 2 * kv_heads) * d + (size_t)head * d;

  // A pair beyond those that turn is two neighbours.
  const int half = rope < 0 ? 0 : step->half[rope];
  float a[PAIRS], b[PAIRS];
  int at[PAIRS], to[PAIRS];
#pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    const int pair = lane + 32 * i;
    const bool apart = pair < half && !interleaved;
    at[i] = apart ? pair : 2 * pair;
    to[i] = apart ? pair + half : 2 * pair + 1;
    a[i] = b[i] = 0.f;
    if (pair < d / 2) a[i] = x[at[i]], b[i] = x[to[i]];
  }

  if (!is_value) {
    if (is_query && query_norm.w) normalise<PAIRS>(a, b, at, to, d, query_norm, head);
    if (!is_query && key_norm.w) normalise<PAIRS>(a, b, at, to, d, key_norm, head - heads);
  }
  if (!is_value && half > 0) {
    const float* cosine = floats(step, step->cosine[rope]) + (size_t)row * half;
    const float* sine = floats(step, step->sine[rope]) + (size_t)row * half;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
      const int pair = lane + 32 * i;
      if (pair < half) {
        const float c = cosine[pair], s = sine[pair], u = a[i], v = b[i];
        a[i] = u * c - v * s;
        b[i] = u * s + v * c;
      }
    }
  }
  if (is_query) {
#pragma unroll
    for (int i = 0; i < PAIRS; i++)
      if (lane + 32 * i < d / 2) x[at[i]] = a[i], x[to[i]] = b[i];
    return;
  }

  const bool scaled = dtype == KV_INT8 || dtype == KV_FP8;
  const KvShape shape = {kv_heads, d, block_size, scaled ? 1 : 2, scaled, block_bytes};
  const int position = ints(step, step->positions)[row], offset = position % block_size;
  const int32_t* table = block_table(step, group, ints(step, step->span_of)[row]);
  const int kv_head = head - heads - (is_value ? kv_heads : 0);
  uint8_t* part = cache + kv_part(shape, table[position / block_size], kv_head);
  const size_t side = (size_t)block_size * d * shape.element;

  float inverse = 1.f;
  if (scaled) {
    float most = 0.f, zero = 0.f;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
      most = fmaxf(most, fmaxf(fabsf(a[i]), fabsf(b[i])));
      zero += a[i] * 0.f + b[i] * 0.f;
    }
    // Bytes cannot say that something is no number: the scale does.
    const float scale = warp_max(most) / (dtype == KV_INT8 ? 127.f : 448.f) + warp_sum(zero);
    inverse = scale > 1.17549435e-38f ? __frcp_rn(scale) : 0.f; // zeros need none
    if (lane == 0) ((float*)(part + 2 * side))[(is_value ? block_size : 0) + offset] = scale;
  }
  uint8_t* into = part + (is_value ? side : 0) + (size_t)offset * d * shape.element;
#pragma unroll
  for (int i = 0; i < PAIRS; i++)
    if (lane + 32 * i < d / 2) {
      kv_put(into, at[i], a[i], inverse, dtype);
      kv_put(into, to[i], b[i], inverse, dtype);
    }
}

#define KV_STORE(name, pairs)                                                                                        \
  extern "C" __global__ void __launch_bounds__(128)                                                                  \
      name(float* qkv, uint8_t* cache, const Step* step, int group, int rope, int interleaved, int heads,            \
           int kv_heads, int d, int block_size, int block_bytes, int dtype, const float* query_w,                    \
           const float* query_b, float query_eps, int query_layer, int query_each, const float* key_w,               \
           const float* key_b, float key_eps, int key_layer, int key_each) {                                         \
    kv_store<pairs>(qkv, cache, step, group, rope, interleaved, heads, kv_heads, d, block_size, block_bytes, dtype,  \
                    {query_w, query_b, query_eps, query_layer, query_each},                                          \
                    {key_w, key_b, key_eps, key_layer, key_each});                                                   \
  }                                                                                                                  \
  EXPORT_KERNEL(name)
KV_STORE(kv_store_2, 2) // D at most 128
KV_STORE(kv_store_8, 8) // D at most 512

// Block pairs[2 i] of the cache to block pairs[2 i + 1]; no block is in two pairs unless both read it.
// Grid: pairs, parts of a block. `words` are those of a block, 8 bytes each.
extern "C" __global__ void __launch_bounds__(256)
    kv_copy_blocks(uint2* cache, const int32_t* pairs, int words) {
  const uint2* from = cache + (size_t)pairs[2 * blockIdx.x] * words;
  uint2* to = cache + (size_t)pairs[2 * blockIdx.x + 1] * words;
  const int first = blockIdx.y * blockDim.x + threadIdx.x, stride = gridDim.y * blockDim.x;
  if (words % 2 == 0) {
    for (int i = first; i < words / 2; i += stride) ((uint4*)to)[i] = ((const uint4*)from)[i];
  } else {
    for (int i = first; i < words; i += stride) to[i] = from[i];
  }
}
EXPORT_KERNEL(kv_copy_blocks)
