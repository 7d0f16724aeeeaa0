// Matrix products for more rows than a few: tensor cores (gemm_run.cuh, gemm_tile.cuh), and what goes with
// them.
#include "gemm_run.cuh"

// Weights and f16 activations; of f16, bf16 as they are, of blocks after dequantisation.
GEMMS(f16, F16)
GEMMS(bf16, BF16)
GEMMS(bits4, Bits4)
GEMMS(bits5, Bits5)
GEMMS(bits6, Bits6)
GEMMS(bits8, Bits8)
// Q8_0 as bytes times bytes.
GEMMS(int8, INT8)

// Weights f32, activations f32, sums in f32 by plain multiplication: few matrices are f32, and none is large.
// A block has 64 rows x 64 columns, a thread 4 x 4. w f32 [columns, k]; the rest as in gemm_run.cuh.
extern "C" __global__ void __launch_bounds__(256)
    gemm_f32(float* out, int stride, const float* x, const float* w, const float* bias, int rows, int columns, int k, int write) {
  constexpr int SIDE = 64, STEP = 32;
  __shared__ float xs[STEP][SIDE + 1], ws[STEP][SIDE + 1];
  const int tid = threadIdx.x, m0 = blockIdx.x * SIDE, n0 = blockIdx.y * SIDE;
  float acc[4][4] = {};
  for (int k0 = 0; k0 < k; k0 += STEP) {
    __syncthreads();
    for (int i = tid; i < SIDE * STEP; i += 256) {
      const int r = i / STEP, c = i % STEP;
      xs[c][r] = m0 + r < rows ? x[(size_t)(m0 + r) * k + k0 + c] : 0.f;
      ws[c][r] = n0 + r < columns ? w[(size_t)(n0 + r) * k + k0 + c] : 0.f;
    }
    __syncthreads();
#pragma unroll 8
    for (int c = 0; c < STEP; c++) {
      float a[4], b[4];
#pragma unroll
      for (int i = 0; i < 4; i++) a[i] = xs[c][tid / 16 + i * 16], b[i] = ws[c][tid % 16 + i * 16];
#pragma unroll
      for (int i = 0; i < 16; i++) acc[i / 4][i % 4] += a[i / 4] * b[i % 4];
    }
  }
#pragma unroll
  for (int i = 0; i < 16; i++) {
    const int m = m0 + ptx::here(tid) / 16 + i / 4 * 16, n = n0 + ptx::here(tid) % 16 + i % 4 * 16;
    if (m >= rows || n >= columns) continue;
    float* at = out + (size_t)m * stride + n;
    gemm::put(at, acc[i / 4][i % 4] + (bias ? bias[n] : 0.f), write);
  }
}
EXPORT_KERNEL(gemm_f32)

// Adds up the splits of a product in their order, and finishes it: out as in gemm_out.cuh.
// part f32 [splits][rows, columns], or gated [splits][rows, gate: columns | up: columns].
extern "C" __global__ void __launch_bounds__(256)
    gemm_sum(float* out, int stride, const float* part, int splits, const float* bias, const float* up_bias, int rows,
             int columns, int is_gated, int write) {
  const int n = blockIdx.y * 256 + threadIdx.x, m = blockIdx.x, width = is_gated ? 2 * columns : columns;
  if (n >= columns) return;
  const float* from = part + (size_t)m * width + n;
  float v = 0.f, up = 0.f;
  for (int i = 0; i < splits; i++, from += (size_t)rows * width) {
    v += from[0];
    if (is_gated) up += from[columns];
  }
  if (bias) v += bias[n];
  if (up_bias) up += up_bias[n];
  if (is_gated) v = gated(v, up, write - gemm::GATED);
  gemm::put(out + (size_t)m * stride + n, v, is_gated ? gemm::STORE : write);
}
EXPORT_KERNEL(gemm_sum)

// Dynamic shared memory of the kernels above, in their order: for the test of src/compute/cuda/gemm.rs.
template <class F> DEV void shared_of(int*& out) {
  *out++ = gemm::Tile<F, 16>::SHARED;
  *out++ = gemm::Tile<F, 32>::SHARED;
  *out++ = gemm::Tile<F, 64>::SHARED;
  *out++ = gemm::Tile<F, 128>::SHARED;
}
extern "C" __global__ void gemm_shared(int* out) {
  shared_of<gemm::F16>(out);
  shared_of<gemm::BF16>(out);
  shared_of<gemm::Bits4>(out);
  shared_of<gemm::Bits5>(out);
  shared_of<gemm::Bits6>(out);
  shared_of<gemm::Bits8>(out);
  shared_of<gemm::INT8>(out);
  shared_of<gemm::E4M3>(out);
}
EXPORT_KERNEL(gemm_shared)
