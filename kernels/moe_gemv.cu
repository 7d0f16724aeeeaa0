// Products with experts for few rows: every pair (a row's expert, moe.cu) reads its expert's weights.
#include "activation.cuh"
#include "planes.cuh"

namespace moe_gemv { // all files are linked into one library on the emulator

// Outputs of a warp. Each lane has a sub of 32 weights (or 16 bytes of them) of every one at a time, so as
// many loads of 16 bytes are on their way, twice as many where it is gated.
constexpr int OUTPUTS = 2, WARPS = 4;

// Activations as bytes: q i8 [rows, k], ds f32x2 [rows, k / 32] (rows.cu). 32 of them, and their scales.
struct Bytes {
  uint4 lo, hi;
  float2 ds;
};
DEV int dot16(const uint4& x, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t bytes[4] = {x.x, x.y, x.z, x.w}, weights[4] = {a, b, c, d};
  return ptx::dot16(weights, bytes, 0);
}
// Weights of sub b times x.
template <Format F> DEV float dot(const Planes& w, size_t b, const Bytes& x) {
  int lo, hi;
  if constexpr (F == Format::Q8_0) {
    const uint4 u = ((const uint4*)w.q)[2 * b], v = ((const uint4*)w.q)[2 * b + 1];
    lo = dot16(x.lo, u.x, u.y, u.z, u.w);
    hi = dot16(x.hi, v.x, v.y, v.z, v.w);
  } else {
    const Bits bits = load_bits<F>(w, b);
    lo = dot16(x.lo, word<F>(bits, 0), word<F>(bits, 1), word<F>(bits, 2), word<F>(bits, 3));
    hi = dot16(x.hi, word<F>(bits, 4), word<F>(bits, 5), word<F>(bits, 6), word<F>(bits, 7));
  }
  const float2 s = scales<F>(w, b);
  if constexpr (Of<F>::SIX) return x.ds.x * (s.x * (float)lo + s.y * (float)hi);
  else if constexpr (Of<F>::MINIMUM) return x.ds.x * (s.x * (float)(lo + hi)) + s.y * x.ds.y;
  else return x.ds.x * (s.x * (float)(lo + hi));
}

// Activations as they are, for weights that are floats: 16 bytes of weights at number k.
template <Format F> DEV float dot_floats(const Planes& w, size_t k, const float* x) {
  const float4 a = *(const float4*)x;
  if constexpr (F == Format::F32) {
    const float4 u = *(const float4*)(w.q + 4 * k);
    return u.x * a.x + u.y * a.y + u.z * a.z + u.w * a.w;
  } else {
    const float4 b = *(const float4*)(x + 4);
    const uint4 u = *(const uint4*)(w.q + 2 * k);
    const uint32_t words[4] = {u.x, u.y, u.z, u.w};
    const float xs[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float lo, hi;
      if constexpr (F == Format::F16) {
        const uint16_t two[2] = {(uint16_t)words[i], (uint16_t)(words[i] >> 16)};
        lo = to_f(*(const f16*)&two[0]);
        hi = to_f(*(const f16*)&two[1]);
      } else {
        lo = __uint_as_float(words[i] << 16);
        hi = __uint_as_float(words[i] & 0xffff0000u);
      }
      sum += lo * xs[2 * i] + hi * xs[2 * i + 1];
    }
    return sum;
  }
}

// out[p][n] = W_e[n] x, or gated activation(G_e[n] x) * (U_e[n] x), e the expert of pair p, and x the row of
// the activations that is p / per_row: `top` where all experts of a row have the same, 1 where each its own.
// Grid: n / 8, pairs. A pair without an expert (-1) is left alone.
// out f32 [pairs, n]; ids i32 [pairs]; activations as bytes (q, ds), or f32 (x) for weights that are floats.
// (q0, h0, s0, d0) planes of [experts * n, k]; (q1..) the second matrix of a gated product. Biases of both are
// f32 [experts * n] or null.
#define GEMV_PARAMS                                                                                          \
  float *out, const int32_t *ids, const int8_t *q, const float2 *ds, const float *x, const uint8_t *q0,      \
      const uint8_t *h0, const uint8_t *s0, const uint8_t *d0, const uint8_t *q1, const uint8_t *h1,         \
      const uint8_t *s1, const uint8_t *d1, const float *bias, const float *up_bias, int n, int k, int per_row,    \
      int activation
template <Format F, bool GATED> DEV void product(GEMV_PARAMS) {
  constexpr int SIDES = GATED ? 2 : 1;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, pair = blockIdx.y;
  const int expert = ids[pair], first = (blockIdx.x * WARPS + warp) * OUTPUTS;
  if (expert < 0 || first >= n) return;
  const Planes sides[2] = {{q0, h0, s0, d0}, {q1, h1, s1, d1}};
  size_t row[OUTPUTS]; // of the matrix
#pragma unroll
  for (int r = 0; r < OUTPUTS; r++) row[r] = (size_t)expert * n + min(first + r, n - 1);
  float sum[OUTPUTS][SIDES] = {};
  const size_t of_x = pair / per_row;
  if constexpr (Of<F>::FLOATS) {
    constexpr int AT_ONCE = F == Format::F32 ? 4 : 8;
    x += of_x * k;
    for (int i = lane * AT_ONCE; i < k; i += 32 * AT_ONCE)
#pragma unroll
      for (int r = 0; r < OUTPUTS; r++)
#pragma unroll
        for (int side = 0; side < SIDES; side++) sum[r][side] += dot_floats<F>(sides[side], row[r] * k + i, x + i);
  } else {
    const int subs = k / 32;
    for (int sub = lane; sub < subs; sub += 32) {
      const uint4* bytes = (const uint4*)(q + of_x * k) + 2 * sub;
      const Bytes b{bytes[0], bytes[1], ds[of_x * subs + sub]};
#pragma unroll
      for (int r = 0; r < OUTPUTS; r++)
#pragma unroll
        for (int side = 0; side < SIDES; side++) sum[r][side] += dot<F>(sides[side], row[r] * subs + sub, b);
    }
  }
#pragma unroll
  for (int r = 0; r < OUTPUTS; r++) {
    // Made here: over the loop there are no registers for it.
    const size_t at = (size_t)ptx::here(expert) * n + min(first + r, n - 1);
    float v = warp_sum(sum[r][0]) + (bias ? bias[at] : 0.f);
    if constexpr (GATED) v = gated(v, warp_sum(sum[r][SIDES - 1]) + (up_bias ? up_bias[at] : 0.f), activation);
    if (lane == 0 && first + r < n) out[(size_t)pair * n + first + r] = v;
  }
}

// Blocks of a multiprocessor at one time: whole bytes of two matrices take registers.
constexpr int gated_blocks(Format f) { return f == Format::Q8_0 ? 3 : 4; }

#define GEMV_ARGS out, ids, q, ds, x, q0, h0, s0, d0, q1, h1, s1, d1, bias, up_bias, n, k, per_row, activation
#define GEMV(name, format)                                                                                   \
  extern "C" __global__ void __launch_bounds__(WARPS * 32, 4) moe_gemv_##name(GEMV_PARAMS) {                    \
    product<Format::format, false>(GEMV_ARGS);                                                               \
  }                                                                                                          \
  EXPORT_KERNEL(moe_gemv_##name)                                                                             \
  extern "C" __global__ void __launch_bounds__(WARPS * 32, gated_blocks(Format::format)) moe_gemv_gated_##name(GEMV_PARAMS) {              \
    product<Format::format, true>(GEMV_ARGS);                                                                \
  }                                                                                                          \
  EXPORT_KERNEL(moe_gemv_gated_##name)
GEMV(f32, F32)
GEMV(f16, F16)
GEMV(bf16, BF16)
GEMV(q4_0, Q4_0)
GEMV(q4_1, Q4_1)
GEMV(q5_0, Q5_0)
GEMV(q5_1, Q5_1)
GEMV(q8_0, Q8_0)
GEMV(q4_k, Q4_K)
GEMV(q5_k, Q5_K)
GEMV(q6_k, Q6_K)

}  // namespace moe_gemv
