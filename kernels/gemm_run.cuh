// The kernels around a tile (gemm_tile.cuh): which tile a block has, and where its sums go.
#pragma once
#include "gemm_out.cuh"
#include "gemm_tile.cuh"

namespace gemm {

// x [rows, k] of the format's type; ds its scales where it is bytes. out and the rest: gemm_out.cuh.
// `scales` is what 4- and 5-bit formats have (gemm::Scales), of both matrices.
// (q0, h0, s0, d0) planes of `columns` rows; (q1..) those of the second matrix of a gated product, or null.
// Blocks (x) go through the tiles of 16 * BM rows and all columns, then the next rows: what runs at one time
// shares its activations and its weights in the L2. Block z has steps z * per_split.. and, where there are
// several, its own out [gridDim.z][rows, stride], that gemm_sum adds up in their order.
#define GEMM_PARAMS                                                                                          \
  float *out, int stride, int scales, const void *x, const float2 *ds, const float *x_scale, const uint8_t *q0,          \
      const uint8_t *h0, const uint8_t *s0, const uint8_t *d0, const uint8_t *q1, const uint8_t *h1,         \
      const uint8_t *s1, const uint8_t *d1, const float *w_scale, const float *up_scale, int w_step,         \
      const float *bias, const float *up_bias, int rows, int columns, int k, int write,                      \
      int per_split

template <class F, int BM> DEV void product(GEMM_PARAMS) {
  constexpr int GROUP = 16;
  const bool gated = q1 != nullptr;
  const int width = gated ? BN / 2 : BN, tiles_m = (rows + BM - 1) / BM, tiles_n = (columns + width - 1) / width;
  const int group = blockIdx.x / (GROUP * tiles_n), in_group = blockIdx.x % (GROUP * tiles_n);
  const int of_group = min(GROUP, tiles_m - group * GROUP);
  const int m0 = (group * GROUP + in_group % of_group) * BM, n0 = in_group / of_group * width;
  const int steps = (k * F::X_SIZE + 127) / 128, from = blockIdx.z * per_split;

  Rows of_x{(const char*)x + (size_t)m0 * k * F::X_SIZE, ds ? ds + (size_t)m0 * (k / 32) : nullptr, nullptr, rows - m0};
  const Columns of_w{{q0, h0, s0, d0}, {q1, h1, s1, d1}, n0, columns, gated, (Scales)scales};
  const Output to{out, x_scale, w_scale, up_scale, bias, up_bias, m0, rows, stride, columns, w_step, write};
  tile<F, BM>(of_x, of_w, k, from, min(from + per_split, steps), to);
}

// Blocks of a multiprocessor at one time: what registers and, on an H100, shared memory leave. Hopper's
// mma.sync has no FP8 of its own (ptxas makes it f16's), which takes registers.
template <class F, int BM> constexpr int blocks() {
  return BM == 128 ? (F::X_SIZE == 1 && !F::BYTES ? 1 : 2) : BM == 64 ? 3 : 4;
}

#define GEMM_ARGS                                                                                            \
  out, stride, scales, x, ds, x_scale, q0, h0, s0, d0, q1, h1, s1, d1, w_scale, up_scale, w_step, bias, up_bias,     \
      rows, columns, k, write, per_split

#define GEMM(name, F, BM)                                                                                    \
  extern "C" __global__ void __launch_bounds__(gemm::Tile<gemm::F, BM>::THREADS, gemm::blocks<gemm::F, BM>()) \
      gemm_##name##_##BM(GEMM_PARAMS) {                                                                      \
    gemm::product<gemm::F, BM>(GEMM_ARGS);                                                                   \
  }                                                                                                          \
  EXPORT_KERNEL(gemm_##name##_##BM)
#define GEMMS(name, F) GEMM(name, F, 16) GEMM(name, F, 32) GEMM(name, F, 64) GEMM(name, F, 128)

}  // namespace gemm
