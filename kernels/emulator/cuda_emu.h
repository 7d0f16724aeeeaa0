// Host emulation of the CUDA device language subset that kernels/*.cu use. One fiber per CUDA thread.
#pragma once
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>
#include <algorithm>

#define __CUDA_ARCH__ 800
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict
#define __grid_constant__
#define __shared__ thread_local          // block-scope 'thread_local' is static; 'extern thread_local' also fits

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x = 1, y = 1, z = 1; };
#define EMU_VEC(T, N, A) struct __attribute__((aligned(A))) N##2 { T x, y; }; struct N##3 { T x, y, z; }; \
  inline N##2 make_##N##2(T x, T y) { return {x, y}; }
EMU_VEC(float, float, 8) EMU_VEC(int, int, 8)
struct __attribute__((aligned(8))) uint2 { unsigned x, y; };
struct __attribute__((aligned(16))) float4 { float x, y, z, w; };
struct __attribute__((aligned(16))) int4 { int x, y, z, w; };
struct __attribute__((aligned(16))) uint4 { unsigned x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

namespace emu {
struct Block;
struct Thread {                          // one per CUDA thread of the running block
  void* sp;
  uint3 tid;
  unsigned lin, lane, warp;
  Block* blk;
  // pending collective
  uint32_t mask; void* arg; void (*op)(void**, uint32_t, uint32_t); const char* what;
  // cp.async: committed and open copies
  struct Copy { void* d; const void* s; uint32_t n, size; };
  Copy cp[128]; unsigned ncp; unsigned grp_end[16]; unsigned ngrp;
};
struct Block { uint3 bid; dim3 bdim, gdim; void** args; void (*call)(void**); unsigned nthr; };
extern thread_local Thread* cur;
void barrier(int mode, int pred, int* out, const char* what);      // whole block
// Every non-exited lane of mask posts arg; the last one runs op(args, mask, present) for all of them.
void collective(uint32_t mask, void* arg, void (*op)(void**, uint32_t, uint32_t), const char* what);
[[noreturn]] void fail(const char* msg);
using Call = void (*)(void**);
struct Kernel { const char* name; Call call; unsigned nargs; const uint32_t* sizes; Kernel* next; };
void reg(Kernel* k);
template <auto F> struct Tramp;
template <class... A, void (*F)(A...)> struct Tramp<F> {
  static constexpr uint32_t sizes[sizeof...(A) + 1] = {sizeof(A)..., 0};
  template <size_t... I> static void go(void** a, std::index_sequence<I...>) { F(*(std::remove_cv_t<A>*)a[I]...); }
  static void call(void** a) { go(a, std::index_sequence_for<A...>{}); }
  static constexpr unsigned n = sizeof...(A);
};
struct Reg { Kernel k; Reg(const char* n, Call c, unsigned na, const uint32_t* s) : k{n, c, na, s, nullptr} { reg(&k); } };
template <class T> struct Sh { T v, r; int src; };
template <class T> void sh_op(void** a, uint32_t mask, uint32_t present) {
  for (int i = 0; i < 32; i++) if (present >> i & 1) {
    auto* me = (Sh<T>*)a[i];
    if (present >> me->src & 1) me->r = ((Sh<T>*)a[me->src])->v; else memset((void*)&me->r, 0xff, sizeof(T));
  }
}
template <class T> inline T shfl(uint32_t mask, T v, int src) {
  Sh<T> s; s.v = v; s.src = src;
  collective(mask, &s, &sh_op<T>, "shfl"); return s.r;
}
inline int lane() { return cur->lane; }
}  // namespace emu
#define EXPORT_KERNEL(name) static ::emu::Reg emu_reg_##name(#name, &::emu::Tramp<&name>::call, ::emu::Tramp<&name>::n, ::emu::Tramp<&name>::sizes);

#define threadIdx (::emu::cur->tid)
#define blockIdx (::emu::cur->blk->bid)
#define blockDim (::emu::cur->blk->bdim)
#define gridDim (::emu::cur->blk->gdim)
#define warpSize 32

inline void __syncthreads() { emu::barrier(0, 0, nullptr, "__syncthreads"); }
inline int __syncthreads_or(int p) { int r; emu::barrier(1, p, &r, "__syncthreads_or"); return r; }
inline int __syncthreads_and(int p) { int r; emu::barrier(2, p, &r, "__syncthreads_and"); return r; }
inline int __syncthreads_count(int p) { int r; emu::barrier(3, p, &r, "__syncthreads_count"); return r; }
inline void __syncwarp(uint32_t mask = 0xffffffffu) { emu::collective(mask, nullptr, [](void**, uint32_t, uint32_t) {}, "__syncwarp"); }
template <class T> inline T __shfl_sync(uint32_t m, T v, int src, int w = 32) { int l = emu::lane(); return emu::shfl(m, v, (l & ~(w - 1)) | (src & (w - 1))); }
template <class T> inline T __shfl_xor_sync(uint32_t m, T v, int x, int w = 32) { int l = emu::lane(), s = l ^ x; return emu::shfl(m, v, s / w == l / w ? s : l); }
template <class T> inline T __shfl_down_sync(uint32_t m, T v, int d, int w = 32) { int l = emu::lane(); return emu::shfl(m, v, l % w + d < w ? l + d : l); }
template <class T> inline T __shfl_up_sync(uint32_t m, T v, int d, int w = 32) { int l = emu::lane(); return emu::shfl(m, v, l % w - d >= 0 ? l - d : l); }
namespace emu {
struct Vote { int p; uint32_t r; };
inline void ballot_op(void** a, uint32_t, uint32_t present) {
  uint32_t r = 0;
  for (int i = 0; i < 32; i++) if (present >> i & 1 && ((Vote*)a[i])->p) r |= 1u << i;
  for (int i = 0; i < 32; i++) if (present >> i & 1) ((Vote*)a[i])->r = r;
}
}
inline uint32_t __ballot_sync(uint32_t m, int p) { emu::Vote v{p, 0}; emu::collective(m, &v, emu::ballot_op, "ballot"); return v.r; }
inline int __any_sync(uint32_t m, int p) { return __ballot_sync(m, p) != 0; }
inline int __all_sync(uint32_t m, int p) { return __ballot_sync(m, !p) == 0; }
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __trap() { emu::fail("__trap"); }
template <class T> inline T __ldg(const T* p) { return *p; }
inline int __dp4a(int a, int b, int c) { for (int i = 0; i < 4; i++) c += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i); return c; }
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t s) {
  uint64_t v = (uint64_t)b << 32 | a; uint32_t r = 0;
  for (int i = 0; i < 4; i++) r |= (uint32_t)((v >> 8 * (s >> 4 * i & 7)) & 0xff) << 8 * i;
  return r;
}
// math
using std::min; using std::max;
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __int_as_float(int x) { float f; memcpy(&f, &x, 4); return f; }
inline int __float_as_int(float x) { int f; memcpy(&f, &x, 4); return f; }
inline float __uint_as_float(uint32_t x) { float f; memcpy(&f, &x, 4); return f; }
inline uint32_t __float_as_uint(float x) { uint32_t f; memcpy(&f, &x, 4); return f; }

// ---- 16-bit floats --------------------------------------------------------------------------------
struct __nv_bfloat16 { uint16_t u; };
struct __attribute__((aligned(4))) __nv_bfloat162 { __nv_bfloat16 x, y; };
struct __half { uint16_t u; };
struct __attribute__((aligned(4))) __half2 { __half x, y; };
using half = __half; using half2 = __half2;
inline float __bfloat162float(__nv_bfloat16 a) { return __uint_as_float((uint32_t)a.u << 16); }
inline __nv_bfloat16 __float2bfloat16_rn(float f) {
  uint32_t u = __float_as_uint(f);
  if ((u & 0x7fffffff) > 0x7f800000) return {0x7fff};
  return {(uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}
inline __nv_bfloat16 __float2bfloat16(float f) { return __float2bfloat16_rn(f); }
inline float2 __bfloat1622float2(__nv_bfloat162 a) { return {__bfloat162float(a.x), __bfloat162float(a.y)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__float2bfloat16_rn(a), __float2bfloat16_rn(b)}; }
#if defined(__F16C__)
#include <immintrin.h>
inline float __half2float(__half h) { return _cvtsh_ss(h.u); }
inline __half __float2half_rn(float f) { return {(uint16_t)_cvtss_sh(f, 0)}; }
#else
inline float __half2float(__half h) {
  uint32_t s = (uint32_t)(h.u & 0x8000) << 16, e = h.u >> 10 & 31, m = h.u & 1023;
  if (e == 0) return (s ? -1.f : 1.f) * ldexpf((float)m, -24);
  if (e == 31) return __uint_as_float(s | 0x7f800000 | m << 13);
  return __uint_as_float(s | (e + 112) << 23 | m << 13);
}
inline __half __float2half_rn(float f) {
  uint32_t u = __float_as_uint(f), s = u >> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000) return {0x7fff};
  if (a >= 0x47800000) return {(uint16_t)(s | 0x7c00)};
  if (a < 0x38800000) { float r = nearbyintf(ldexpf(__uint_as_float(a), 24)); return {(uint16_t)(s | (uint32_t)r)}; }
  a += 0xfff + (a >> 13 & 1);
  return {(uint16_t)(s | ((a >> 13) - (112 << 10)))};
}
#endif
inline __half __ushort_as_half(unsigned short u) { return {u}; }
inline __half __float2half(float f) { return __float2half_rn(f); }
inline float2 __half22float2(__half2 a) { return {__half2float(a.x), __half2float(a.y)}; }
inline __half2 __floats2half2_rn(float a, float b) { return {__float2half_rn(a), __float2half_rn(b)}; }
inline __half2 __hsub2(__half2 a, __half2 b) { return {__float2half_rn(__half2float(a.x) - __half2float(b.x)), __float2half_rn(__half2float(a.y) - __half2float(b.y))}; }
inline __half2 __hmul2(__half2 a, __half2 b) { return {__float2half_rn(__half2float(a.x) * __half2float(b.x)), __float2half_rn(__half2float(a.y) * __half2float(b.y))}; }
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return {__float2half_rn(fmaf(__half2float(a.x), __half2float(b.x), __half2float(c.x))), __float2half_rn(fmaf(__half2float(a.y), __half2float(b.y), __half2float(c.y)))};
}
// ---- atomics (blocks may run on several OS threads) ------------------------------------------------
inline int atomicAdd(int* p, int v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
inline unsigned atomicAdd(unsigned* p, unsigned v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
inline float atomicAdd(float* p, float v) {
  uint32_t o = __atomic_load_n((uint32_t*)p, __ATOMIC_RELAXED), n;
  do n = __float_as_uint(__uint_as_float(o) + v); while (!__atomic_compare_exchange_n((uint32_t*)p, &o, n, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return __uint_as_float(o);
}
inline int atomicMax(int* p, int v) { int o = __atomic_load_n(p, __ATOMIC_RELAXED); while (o < v && !__atomic_compare_exchange_n(p, &o, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)); return o; }
inline unsigned atomicCAS(unsigned* p, unsigned c, unsigned v) { __atomic_compare_exchange_n(p, &c, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED); return c; }
inline unsigned atomicInc(unsigned* p, unsigned lim) { unsigned o = __atomic_load_n(p, __ATOMIC_RELAXED); while (!__atomic_compare_exchange_n(p, &o, o >= lim ? 0 : o + 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)); return o; }

// ---- PTX wrappers -----------------------------------------------------------------------------------
namespace ptx {
struct MmaArg { float* d; const uint32_t* a; const uint32_t* b; };
template <bool HALF> inline float part(uint32_t r, int hi) {
  const uint16_t u = hi ? r >> 16 : r;
  return HALF ? __half2float(__half{u}) : __bfloat162float(__nv_bfloat16{u});
}
template <bool HALF> inline void mma_op(void** p, uint32_t, uint32_t present) {
  if (present != 0xffffffffu) emu::fail("mma.sync with exited lanes");
  float A[16][16], B[8][16], D[16][8];
  for (int l = 0; l < 32; l++) {
    auto* m = (MmaArg*)p[l]; int g = l / 4, t = l % 4;
    for (int r = 0; r < 4; r++) for (int h = 0; h < 2; h++) A[g + (r & 1) * 8][t * 2 + (r >> 1) * 8 + h] = part<HALF>(m->a[r], h);
    for (int r = 0; r < 2; r++) for (int h = 0; h < 2; h++) B[g][t * 2 + r * 8 + h] = part<HALF>(m->b[r], h);
    for (int r = 0; r < 4; r++) D[g + (r >> 1) * 8][t * 2 + (r & 1)] = m->d[r];
  }
  for (int i = 0; i < 16; i++) for (int j = 0; j < 8; j++) { float s = 0; for (int k = 0; k < 16; k++) s += A[i][k] * B[j][k]; D[i][j] += s; }
  for (int l = 0; l < 32; l++) { auto* m = (MmaArg*)p[l]; int g = l / 4, t = l % 4; for (int r = 0; r < 4; r++) m->d[r] = D[g + (r >> 1) * 8][t * 2 + (r & 1)]; }
}
inline void mma_bf16_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MmaArg m{d, a, b}; emu::collective(0xffffffffu, &m, mma_op<false>, "mma.m16n8k16.bf16");
}
inline void mma_f16_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MmaArg m{d, a, b}; emu::collective(0xffffffffu, &m, mma_op<true>, "mma.m16n8k16.f16");
}
struct MmaBytes { int32_t* d; const uint32_t* a; const uint32_t* b; };
inline void mma_s8_op(void** p, uint32_t, uint32_t present) {
  if (present != 0xffffffffu) emu::fail("mma.sync with exited lanes");
  int32_t A[16][32], B[8][32], D[16][8];
  for (int l = 0; l < 32; l++) {
    auto* m = (MmaBytes*)p[l]; int g = l / 4, t = l % 4;
    for (int r = 0; r < 4; r++) for (int i = 0; i < 4; i++) A[g + (r & 1) * 8][t * 4 + (r >> 1) * 16 + i] = (int8_t)(m->a[r] >> 8 * i);
    for (int r = 0; r < 2; r++) for (int i = 0; i < 4; i++) B[g][t * 4 + r * 16 + i] = (int8_t)(m->b[r] >> 8 * i);
    for (int r = 0; r < 4; r++) D[g + (r >> 1) * 8][t * 2 + (r & 1)] = m->d[r];
  }
  for (int i = 0; i < 16; i++) for (int j = 0; j < 8; j++) for (int k = 0; k < 32; k++) D[i][j] += A[i][k] * B[j][k];
  for (int l = 0; l < 32; l++) { auto* m = (MmaBytes*)p[l]; int g = l / 4, t = l % 4; for (int r = 0; r < 4; r++) m->d[r] = D[g + (r >> 1) * 8][t * 2 + (r & 1)]; }
}
inline void mma_s8_16832(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MmaBytes m{d, a, b}; emu::collective(0xffffffffu, &m, mma_s8_op, "mma.m16n8k32.s8");
}
// ---- e4m3: 1 sign, 4 exponent (bias 7), 3 mantissa bits; 0x7f is no number, there is no infinity ----
inline float from_e4m3(uint8_t b) {
  const int e = b >> 3 & 15, m = b & 7;
  const float x = (b & 0x7f) == 0x7f ? NAN : e ? ldexpf(8 + m, e - 10) : ldexpf(m, -9);
  return b & 0x80 ? -x : x;
}
inline uint8_t to_e4m3(float x) {
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  x = fabsf(x);
  if (x != x) return 0x7f;
  if (x >= 448.f) return sign | 0x7e;
  int e;
  frexpf(x, &e);
  e = std::max(e - 1, -6);                       // 2^e <= x < 2^(e+1), subnormals at -6
  const int q = (int)nearbyintf(ldexpf(x, 3 - e));  // 8..16, below 8 when subnormal
  return sign | (uint8_t)(q < 8 ? q : (e + 7) * 8 + q - 8);
}
inline void mma_e4m3_op(void** p, uint32_t, uint32_t present) {
  if (present != 0xffffffffu) emu::fail("mma.sync with exited lanes");
  static const struct Table { float x[256]; Table() { for (int i = 0; i < 256; i++) x[i] = from_e4m3(i); } } table;
  float A[16][32], B[8][32], D[16][8];
  for (int l = 0; l < 32; l++) {
    auto* m = (MmaArg*)p[l]; int g = l / 4, t = l % 4;
    for (int r = 0; r < 4; r++) for (int i = 0; i < 4; i++) A[g + (r & 1) * 8][t * 4 + (r >> 1) * 16 + i] = table.x[m->a[r] >> 8 * i & 255];
    for (int r = 0; r < 2; r++) for (int i = 0; i < 4; i++) B[g][t * 4 + r * 16 + i] = table.x[m->b[r] >> 8 * i & 255];
    for (int r = 0; r < 4; r++) D[g + (r >> 1) * 8][t * 2 + (r & 1)] = m->d[r];
  }
  for (int i = 0; i < 16; i++) for (int j = 0; j < 8; j++) { float s = 0; for (int k = 0; k < 32; k++) s += A[i][k] * B[j][k]; D[i][j] += s; }
  for (int l = 0; l < 32; l++) { auto* m = (MmaArg*)p[l]; int g = l / 4, t = l % 4; for (int r = 0; r < 4; r++) m->d[r] = D[g + (r >> 1) * 8][t * 2 + (r & 1)]; }
}
inline void mma_e4m3_16832(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MmaArg m{d, a, b}; emu::collective(0xffffffffu, &m, mma_e4m3_op, "mma.m16n8k32.e4m3");
}
inline uint16_t e4m3x2(float lo, float hi) { return to_e4m3(lo) | (uint16_t)to_e4m3(hi) << 8; }
inline int here(int x) { return x; }
struct LdArg { uint32_t* r; const char* p; };
template <int N> void ld_op(void** a, uint32_t, uint32_t) {
  for (int l = 0; l < 32; l++) for (int m = 0; m < N; m++) {
    const char* row = ((LdArg*)a[m * 8 + l / 4])->p;
    if ((uintptr_t)row & 15) emu::fail("ldmatrix: misaligned row");
    memcpy(&((LdArg*)a[l])->r[m], row + (l % 4) * 4, 4);
  }
}
template <int N> void ld_trans_op(void** a, uint32_t, uint32_t) {
  for (int l = 0; l < 32; l++) for (int m = 0; m < N; m++) {
    uint16_t two[2];
    for (int h = 0; h < 2; h++) {
      const char* row = ((LdArg*)a[m * 8 + (l % 4) * 2 + h])->p;
      if ((uintptr_t)row & 15) emu::fail("ldmatrix: misaligned row");
      memcpy(&two[h], row + (l / 4) * 2, 2);
    }
    ((LdArg*)a[l])->r[m] = two[0] | (uint32_t)two[1] << 16;
  }
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* p) { LdArg a{r, (const char*)p}; emu::collective(0xffffffffu, &a, ld_trans_op<4>, "ldmatrix.x4.trans"); }
inline void ldmatrix_x4(uint32_t (&r)[4], const void* p) { LdArg a{r, (const char*)p}; emu::collective(0xffffffffu, &a, ld_op<4>, "ldmatrix.x4"); }
inline void ldmatrix_x2(uint32_t (&r)[2], const void* p) { LdArg a{r, (const char*)p}; emu::collective(0xffffffffu, &a, ld_op<2>, "ldmatrix.x2"); }
// Copies run only when waited for, so a missing wait_group or __syncthreads shows.
inline void cp_async16(void* d, const void* s, bool pred = true) {
  auto* t = emu::cur;
  if (((uintptr_t)d | (uintptr_t)s) & 15) emu::fail("cp.async: misaligned");
  if (t->ncp == 128) emu::fail("cp.async: too many in flight");
  t->cp[t->ncp++] = {d, s, pred ? 16u : 0u, 16u};
}
template <int BYTES> inline void cp_async(void* d, const void* s, bool pred) {
  auto* t = emu::cur;
  if (((uintptr_t)d | (uintptr_t)s) & (BYTES - 1)) emu::fail("cp.async: misaligned");
  if (t->ncp == 128) emu::fail("cp.async: too many in flight");
  t->cp[t->ncp++] = {d, s, pred ? (unsigned)BYTES : 0u, (unsigned)BYTES};
}
inline void cp_async_commit() { auto* t = emu::cur; if (t->ngrp == 16) emu::fail("cp.async: too many groups"); t->grp_end[t->ngrp++] = t->ncp; }
inline void cp_wait(unsigned keep) {
  auto* t = emu::cur;
  if (t->ngrp <= keep) return;
  unsigned k = t->ngrp - keep, n = t->grp_end[k - 1];
  for (unsigned i = 0; i < n; i++) { auto& c = t->cp[i]; if (c.n) memcpy(c.d, c.s, c.n); if (c.size > c.n) memset((char*)c.d + c.n, 0, c.size - c.n); }
  memmove(t->cp, t->cp + n, (t->ncp - n) * sizeof(t->cp[0])); t->ncp -= n;
  for (unsigned i = k; i < t->ngrp; i++) t->grp_end[i - k] = t->grp_end[i] - n;
  t->ngrp -= k;
}
template <int N> inline void cp_async_wait() { cp_wait(N); }
inline int32_t dot16(const uint32_t* a, const uint32_t* b, int32_t c) { for (int i = 0; i < 4; i++) c = __dp4a((int)a[i], (int)b[i], c); return c; }
inline void pin(float&) {}
inline uint4 load_once(const uint4* p) { return *p; }
}  // namespace ptx
