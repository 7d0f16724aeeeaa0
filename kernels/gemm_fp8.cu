// target: sm_89
// Matrix products of e4m3 with e4m3 (W8A8 FP8): gemm_run.cuh, as in gemm.cu, from Ada on.
// Ada and Blackwell multiply e4m3 as it is; on Hopper ptxas turns it into f16 first, and only memory is saved.
#include "gemm_run.cuh"
#include "norm.cuh"

// w: the q planes hold e4m3 [columns, k]; w_scale f32 [columns], or one with w_step 0.
GEMMS(e4m3, E4M3)

// Four exponent and three mantissa bits, one scale a row: norm(x) = e4m3(q) * scale, scale = max|norm(x)| / 448.
// q [rows, n]; scale f32 [rows]; x f32 [rows, n]; w, b f32 [n] or null, and the rest as in rows.cu. n is even.
extern "C" __global__ void __launch_bounds__(256)
    rows_to_e4m3(uint16_t* q, float* scale, const float* x, const float* w, const float* b, int n, float eps, int layer) {
  __shared__ float red[33];
  q += (size_t)blockIdx.x * (n / 2);
  const Row row = normed(x + (size_t)blockIdx.x * n, w, b, n, eps, layer, red);
  float most = 0.f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) most = fmaxf(most, fabsf(row[i]));
  most = block_max(most, red);
  // Below this a row's scale would be no normal number, and division by it none at all: the row is zeros.
  const float d = most > 1e-30f ? most / 448.f : 0.f;
  if (threadIdx.x == 0) scale[blockIdx.x] = d;
  for (int i = threadIdx.x; i < n / 2; i += blockDim.x) {
    float v[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const float of = row[2 * i + j];
      v[j] = d > 0.f ? of / d : of; // what is no number stays none
    }
    q[i] = ptx::e4m3x2(v[0], v[1]);
  }
}
EXPORT_KERNEL(rows_to_e4m3)
