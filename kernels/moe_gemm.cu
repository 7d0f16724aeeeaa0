// Products with experts for many rows: tiles (gemm_tile.cuh) of pairs that share an expert (moe.cu).
#include "gemm_out.cuh"
#include "gemm_tile.cuh"

namespace moe_gemm { // all files are linked into one library on the emulator

// Sums of a tile go to the rows of its pairs: out f32 [pairs, columns].
struct ToPairs {
  float* out;
  const float* x_scale; // of the rows of x; may be null
  const int32_t *rows, *pairs;
  const float *bias, *up_bias; // of the matrices' rows; may be null
  int base, columns, activation; // base: the expert's first row of the matrix

  // Four columns from n on, of which some may not be there.
  DEV void put(int m, int n, const float (&v)[4]) const {
    float* at = out + (size_t)pairs[m] * columns + (n - base);
    const int there = columns - (n - base);
    if (there > 3 && ((size_t)at & 15) == 0) {
      *(float4*)at = make_float4(v[0], v[1], v[2], v[3]);
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (i < there) at[i] = v[i];
  }
  // Four sums, scaled as the row was, with a bias.
  DEV void value(float (&v)[4], int m, int n, const float* bias) const {
    const float s = x_scale ? x_scale[rows[m]] : 1.f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      v[i] *= s;
      if (bias) v[i] += bias[min(n + i, base + columns - 1)];
    }
  }
  DEV void store(int m, int n, float4 sums) const {
    float v[4] = {sums.x, sums.y, sums.z, sums.w};
    value(v, m, n, bias);
    put(m, n, v);
  }
  DEV void store_gated(int m, int n, float4 gate, float4 up) const {
    float v[4] = {gate.x, gate.y, gate.z, gate.w}, u[4] = {up.x, up.y, up.z, up.w};
    value(v, m, n, bias);
    value(u, m, n, up_bias);
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = gated(v[i], u[i], activation);
    put(m, n, v);
  }
};

// out[p] = W_e x, or gated activation(G_e x) * (U_e x): e the expert of pair p, x row rows[i] of the
// activations where p = pairs[i]. Grid: columns / 128 (64 where gated), tiles (more than there are may be
// launched). Neighbours in the grid share their activations, and tiles of an expert its weights.
// x [.., k] f16 with a scale for each row, or bf16 without; tiles, pairs, rows: moe_offsets and moe_place.
// scales: gemm::Scales of the format.
// (q0, h0, s0, d0) planes of [experts * columns, k]; (q1..) the second matrix of a gated product, or null.
// Biases of both are f32 [experts * columns] or null.
#define MOE_PARAMS                                                                                           \
  float *out, int scales, const void *x, const float *x_scale, const int32_t *tiles, const int32_t *pairs,   \
      const int32_t *rows, const uint8_t *q0, const uint8_t *h0, const uint8_t *s0, const uint8_t *d0,       \
      const uint8_t *q1, const uint8_t *h1, const uint8_t *s1, const uint8_t *d1, const float *bias,         \
      const float *up_bias, int columns, int k, int activation
template <class F, int BM> DEV void product(MOE_PARAMS) {
  if ((int)blockIdx.y >= tiles[0]) return;
  const int32_t* t = tiles + 1 + 3 * blockIdx.y;
  const int base = t[0] * columns, first = t[1];
  const bool is_gated = q1 != nullptr;
  const gemm::Rows of_x{x, nullptr, rows + first, t[2]};
  const gemm::Columns of_w{{q0, h0, s0, d0}, {q1, h1, s1, d1}, base + (int)blockIdx.x * (is_gated ? gemm::BN / 2 : gemm::BN),
                           base + columns, is_gated, (gemm::Scales)scales};
  const ToPairs to{out, x_scale, rows + first, pairs + first, bias, up_bias, base, columns, activation};
  gemm::tile<F, BM>(of_x, of_w, k, 0, (k * F::X_SIZE + 127) / 128, to);
}

#define MOE_ARGS out, scales, x, x_scale, tiles, pairs, rows, q0, h0, s0, d0, q1, h1, s1, d1, bias, up_bias, columns, k, activation
#define MOE(name, F, BM)                                                                                     \
  extern "C" __global__ void __launch_bounds__(gemm::Tile<gemm::F, BM>::THREADS, BM == 64 ? 3 : 4)           \
      moe_gemm_##name##_##BM(MOE_PARAMS) {                                                                   \
    product<gemm::F, BM>(MOE_ARGS);                                                                          \
  }                                                                                                          \
  EXPORT_KERNEL(moe_gemm_##name##_##BM)
#define MOES(name, F) MOE(name, F, 16) MOE(name, F, 64)
MOES(f16, F16)
MOES(bf16, BF16)
MOES(bits4, Bits4)
MOES(bits5, Bits5)
MOES(bits6, Bits6)
MOES(bits8, Bits8)

}  // namespace moe_gemm
