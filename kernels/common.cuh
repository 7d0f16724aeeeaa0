// What every kernel shares. Read by NVRTC and nvcc for a GPU, and by g++ (-DCUDA_EMU) for the emulator.
#pragma once
#ifdef CUDA_EMU
#include "cuda_emu.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define EXPORT_KERNEL(name)
#endif
#ifdef __CUDACC_RTC__ // NVRTC has neither <stdint.h> nor <math.h>
#define INFINITY __int_as_float(0x7f800000)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#elif !defined(CUDA_EMU)
#include <stdint.h>
#endif

typedef __nv_bfloat16 bf16;
typedef __half f16;
#define DEV __device__ __forceinline__
#define FULL 0xffffffffu

// One name and type for dynamic shared memory in every kernel: the emulator defines it once.
extern __shared__ __align__(16) unsigned char smem[];

DEV float to_f(float x) { return x; }
DEV float to_f(bf16 x) { return __bfloat162float(x); }
DEV float to_f(f16 x) { return __half2float(x); }
template <class T> DEV T from_f(float x);
template <> DEV float from_f<float>(float x) { return x; }
template <> DEV bf16 from_f<bf16>(float x) { return __float2bfloat16_rn(x); }
template <> DEV f16 from_f<f16>(float x) { return __float2half_rn(x); }

DEV float warp_sum(float v) {
#pragma unroll
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(FULL, v, o);
  return v;
}
// fmaxf drops what is no number; sums beside it show it.
DEV float warp_max(float v) {
#pragma unroll
  for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(FULL, v, o));
  return v;
}

// Of a whole block, to every thread of it. `red` is 33 floats of shared memory; may be called again with
// the same `red` at once.
DEV float block_sum(float v, float* red) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = (blockDim.x + 31) / 32;
  v = warp_sum(v);
  __syncthreads();
  if (lane == 0) red[warp] = v;
  __syncthreads();
  if (warp == 0) {
    const float all = warp_sum(lane < warps ? red[lane] : 0.f);
    if (lane == 0) red[32] = all;
  }
  __syncthreads();
  return red[32];
}
DEV float block_max(float v, float* red) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = (blockDim.x + 31) / 32;
  v = warp_max(v);
  __syncthreads();
  if (lane == 0) red[warp] = v;
  __syncthreads();
  if (warp == 0) {
    const float all = warp_max(lane < warps ? red[lane] : -INFINITY);
    if (lane == 0) red[32] = all;
  }
  __syncthreads();
  return red[32];
}

// ---- one step's work, as the host wrote it (src/compute/cuda/step.rs) ----
// A block of 32-bit words: this header, then arrays at the offsets it names (in words, from its start).
// The block lies at one address for ever, so that a captured graph can be replayed over other steps.
#define MOST_GROUPS 4
#define MOST_ROPES 4
struct Step {
  int32_t rows;     // tokens of the step; a graph may have more rows than that
  int32_t spans;    // sequences
  int32_t outputs;  // rows whose hidden state is wanted
  int32_t tokens;    // offset of u32 [rows]
  int32_t positions; // offset of i32 [rows]
  int32_t span_of;   // offset of i32 [rows]: whose token it is
  int32_t first;     // offset of i32 [spans]: its first row
  int32_t len;       // offset of i32 [spans]: its rows
  int32_t start;     // offset of i32 [spans]: position of its first row
  int32_t wanted;    // offset of i32 [outputs]: rows
  int32_t table[MOST_GROUPS]; // offset of i32 [spans + 1]: where, from the start of the block, each span's
                              // block table begins; the table of span s ends where s + 1 begins
  int32_t cosine[MOST_ROPES]; // offset of f32 [rows, half]
  int32_t sine[MOST_ROPES];   // offset of f32 [rows, half]
  int32_t half[MOST_ROPES];
  int32_t tiles;     // how many tiles of prefill there are
  int32_t tile_span; // offset of i32 [tiles]: span of the tile
  int32_t tile_row;  // offset of i32 [tiles]: its first row within the span
};
DEV const int32_t* ints(const Step* s, int32_t offset) { return (const int32_t*)s + offset; }
DEV const float* floats(const Step* s, int32_t offset) { return (const float*)s + offset; }
DEV const int32_t* block_table(const Step* s, int group, int span) {
  return (const int32_t*)s + ints(s, s->table[group])[span];
}

// ---- activations made ready for a matrix ----
// Bytes: q [rows][cols], and for each 32 of them `ds` = (scale, scale * sum of the 32 bytes).

// ---- wrappers over inline PTX; each has an emulated twin in emulator/cuda_emu.h ----
namespace ptx {
#ifndef CUDA_EMU
DEV void mma_bf16_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEV void mma_f16_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Four signed bytes a register: a[0] row g, k 4t..; a[1] row g + 8; a[2] row g, k 16 + 4t..; a[3] row g + 8.
DEV void mma_s8_16832(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#if __CUDA_ARCH__ >= 890
// Four e4m3 a register, laid out as the signed bytes above.
DEV void mma_e4m3_16832(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// lo in the low byte, to nearest even; beyond 448 it is 448, what is no number stays none.
DEV uint16_t e4m3x2(float lo, float hi) {
  uint16_t r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;\n" : "=h"(r) : "f"(hi), "f"(lo));
  return r;
}
#endif
// x, of which the compiler knows nothing: what is made of it is made anew, and not kept in registers over a loop.
DEV int here(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
DEV uint32_t smem_addr(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
DEV void ldmatrix_x4(uint32_t (&r)[4], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(smem_addr(p)) : "memory");
}
DEV void ldmatrix_x4_trans(uint32_t (&r)[4], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(smem_addr(p)) : "memory");
}
DEV void ldmatrix_x2(uint32_t (&r)[2], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];\n" : "=r"(r[0]), "=r"(r[1]) : "r"(smem_addr(p)) : "memory");
}
// 16 bytes; pred = false writes zeros.
DEV void cp_async16(void* dst, const void* src, bool pred = true) {
  int n = pred ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(smem_addr(dst)), "l"(src), "r"(n) : "memory");
}
// 4, 8 or 16 bytes, zeros where pred is false. The 16 let the L2 fetch the whole line: a tile of packed
// weights reads 32 bytes of it now and the rest in its next steps.
template <int BYTES> DEV void cp_async(void* dst, const void* src, bool pred) {
  const int n = pred ? BYTES : 0;
  if (BYTES == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(smem_addr(dst)), "l"(src), "r"(n) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(smem_addr(dst)), "l"(src), "n"(BYTES), "r"(n) : "memory");
}
DEV void cp_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int N> DEV void cp_async_wait() { asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory"); }
// c + the products of 16 signed bytes. (NVRTC declares __dp4a and has no body for it.)
DEV int32_t dot16(const uint32_t* a, const uint32_t* b, int32_t c) {
  int32_t d;
  asm("{ .reg .s32 t; dp4a.s32.s32 t, %1, %2, %9; dp4a.s32.s32 t, %3, %4, t;\n\t"
      "dp4a.s32.s32 t, %5, %6, t; dp4a.s32.s32 %0, %7, %8, t; }\n"
      : "=r"(d) : "r"(a[0]), "r"(b[0]), "r"(a[1]), "r"(b[1]), "r"(a[2]), "r"(b[2]), "r"(a[3]), "r"(b[3]), "r"(c));
  return d;
}
// Made here, and not again wherever it is used.
DEV void pin(float& x) { asm volatile("" : "+f"(x)); }
// 16 bytes that nobody reads again: they do not push others out of L1. Not for what this kernel writes.
DEV uint4 load_once(const uint4* p) {
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];\n" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
#endif
}  // namespace ptx
