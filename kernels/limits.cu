// What the device can do at most: read, copy, multiply. Speeds are held against these.
#include "common.cuh"

// to[i] = from[i], 16 bytes a thread and turn, four of them in flight. n counts 16 bytes.
extern "C" __global__ void __launch_bounds__(512) limits_copy(uint4* to, const uint4* from, uint64_t n) {
  const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
  uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + 3 * step < n; i += 4 * step) {
    const uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    to[i] = a;
    to[i + step] = b;
    to[i + 2 * step] = c;
    to[i + 3 * step] = d;
  }
  for (; i < n; i += step) to[i] = from[i];
}
EXPORT_KERNEL(limits_copy)

// out[block] = all words of the block's share, xored: nothing is written but that.
extern "C" __global__ void __launch_bounds__(512) limits_read(uint32_t* out, const uint4* from, uint64_t n) {
  const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
  uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  uint32_t seen = 0;
  for (; i + 3 * step < n; i += 4 * step) {
    const uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    seen ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  for (; i < n; i += step) {
    const uint4 a = from[i];
    seen ^= a.x ^ a.y ^ a.z ^ a.w;
  }
#pragma unroll
  for (int o = 16; o; o >>= 1) seen ^= __shfl_xor_sync(FULL, seen, o);
  __shared__ uint32_t warps[16];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = seen;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < (int)blockDim.x / 32; w++) seen ^= warps[w];
    out[blockIdx.x] = seen;
  }
}
EXPORT_KERNEL(limits_read)

// `turns` times CHAINS products on tensor cores that do not wait for each other. Every product adds what
// the one before made, so that none can be left out. out f32 [threads].
#define CHAINS 8
// Operands are numbers like any: a device that multiplies zeros draws less power and is faster.
DEV uint32_t mixed(uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}
struct F16 {
  static constexpr uint32_t KEEP = 0x83ff83ff, SET = 0x38003800; // +-[0.5, 1)
  static DEV void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { ptx::mma_f16_16816(d, a, b); }
};
struct Bf16 {
  static constexpr uint32_t KEEP = 0x807f807f, SET = 0x3f003f00;
  static DEV void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { ptx::mma_bf16_16816(d, a, b); }
};
template <class T> DEV void multiply(float* out, int turns) {
  float d[CHAINS][4] = {};
  uint32_t a[4], b[2];
#pragma unroll
  for (int i = 0; i < 4; i++) a[i] = (mixed(threadIdx.x * 8 + i) & T::KEEP) | T::SET;
#pragma unroll
  for (int i = 0; i < 2; i++) b[i] = (mixed(threadIdx.x * 8 + 4 + i) & T::KEEP) | T::SET;
  for (int i = 0; i < turns; i++) {
#pragma unroll
    for (int c = 0; c < CHAINS; c++) T::mma(d[c], a, b);
  }
  float sum = 0.f;
#pragma unroll
  for (int c = 0; c < CHAINS; c++) sum += d[c][0] + d[c][1] + d[c][2] + d[c][3];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
extern "C" __global__ void __launch_bounds__(256) limits_mma_f16(float* out, int turns) { multiply<F16>(out, turns); }
EXPORT_KERNEL(limits_mma_f16)
extern "C" __global__ void __launch_bounds__(256) limits_mma_bf16(float* out, int turns) { multiply<Bf16>(out, turns); }
EXPORT_KERNEL(limits_mma_bf16)

// The same with bytes.
extern "C" __global__ void __launch_bounds__(256) limits_mma_s8(float* out, int turns) {
  int32_t d[CHAINS][4] = {};
  uint32_t a[4], b[2];
#pragma unroll
  for (int i = 0; i < 4; i++) a[i] = mixed(threadIdx.x * 8 + i);
#pragma unroll
  for (int i = 0; i < 2; i++) b[i] = mixed(threadIdx.x * 8 + 4 + i);
  for (int i = 0; i < turns; i++) {
#pragma unroll
    for (int c = 0; c < CHAINS; c++) ptx::mma_s8_16832(d[c], a, b);
  }
  int32_t sum = 0;
#pragma unroll
  for (int c = 0; c < CHAINS; c++) sum ^= d[c][0] ^ d[c][1] ^ d[c][2] ^ d[c][3];
  out[blockIdx.x * blockDim.x + threadIdx.x] = (float)sum;
}
EXPORT_KERNEL(limits_mma_s8)

// `turns` times CHAINS multiplications and additions of f32.
extern "C" __global__ void __launch_bounds__(256) limits_f32(float* out, int turns) {
  float d[CHAINS];
#pragma unroll
  for (int c = 0; c < CHAINS; c++) d[c] = (float)c;
  const float m = 0.999f - threadIdx.x * 1e-6f, add = 1.001f;
  for (int i = 0; i < turns; i++) {
#pragma unroll
    for (int c = 0; c < CHAINS; c++) d[c] = fmaf(d[c], m, add);
  }
  float sum = 0.f;
#pragma unroll
  for (int c = 0; c < CHAINS; c++) sum += d[c];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
EXPORT_KERNEL(limits_f32)
