// Kernels with one mistake each, for tests of how mistakes are reported (tests/cuda/faults.rs). They are
// in the emulator only.
#include "common.cuh"

// Writes one number behind the last. x f32 [n], one block of n threads.
extern "C" __global__ void broken_bounds(float* x, int n) { x[threadIdx.x + 1] = (float)n; }
EXPORT_KERNEL(broken_bounds)

// Each thread reads what the one before it wrote, without waiting for it. out f32 [n], one block of n threads.
extern "C" __global__ void broken_sync(float* out, int n) {
  float* shared = (float*)smem;
  shared[threadIdx.x] = (float)threadIdx.x;
  out[threadIdx.x] = threadIdx.x ? shared[threadIdx.x - 1] : (float)n;
}
EXPORT_KERNEL(broken_sync)

// Reads shared memory that nobody wrote. out f32 [n].
extern "C" __global__ void broken_poison(float* out, int n) { out[threadIdx.x] = ((float*)smem)[threadIdx.x % n]; }
EXPORT_KERNEL(broken_poison)

// Half of a warp waits for the block, the other half for the whole warp. out f32 [1], one block of 32 threads.
extern "C" __global__ void broken_barrier(float* out, int n) {
  if ((int)threadIdx.x < n / 2) __syncthreads();
  else out[0] = __shfl_sync(FULL, out[0], 0);
}
EXPORT_KERNEL(broken_barrier)

// Loads 16 bytes from where only 4 are aligned. x f32 [n].
extern "C" __global__ void broken_alignment(float* x, int n) {
  const float4 four = *(const float4*)(x + 1);
  if (threadIdx.x == 0) x[0] = four.x + n;
}
EXPORT_KERNEL(broken_alignment)

// Reads what an asynchronous copy brings before it has waited for the copy. out f32 [4], one thread.
extern "C" __global__ void broken_copy(float* x, int n) {
  ptx::cp_async16(smem, x);
  ptx::cp_async_commit();
  x[0] = ((float*)smem)[n - 1];
}
EXPORT_KERNEL(broken_copy)
