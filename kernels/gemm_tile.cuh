// One tile of a matrix product on tensor cores: BM rows of activations times 128 rows of a matrix.
//
//   shared memory, a ring of STAGES steps, each 128 bytes of every row of activations:
//     x  [BM][128 bytes]   64 f16 or bf16, or 128 bytes; chunks of 16 bytes swizzled
//     w  wide   [128][128 bytes]             weights that the tensor core takes as they are
//        packed [chunk][128][16 bytes]       the q plane of 2 subs, as it lies in memory
//     h, s, d planes of packed weights, and of bytes both sides' scales
//   registers: packed weights become f16 in the order of an mma's fragment; sums are f32.
//
// Each warp has 16 to 64 rows x 32 columns. Copies (cp.async) run STAGES - 1 steps ahead of the sums.
// Weights are dequantised in registers: d*q as f16, so a weight is off by at most 2^-11 of its value and of its
// terms (d*q and the minimum), or by 2^-25 where f16 has no exponent left.
#pragma once
#include "planes.cuh"

namespace gemm {

constexpr int BN = 128;

// ---- what weights are made of ----
enum Scales {
  NONE,      // none here
  ONE,       // f16 d:                                w = d * (q - zero)
  WITH_MIN,  // half2 (d, m):                         w = d * q + m
  SUPER,     // u8 (scale, min) and half2 (d, dmin):  w = d * scale * q - dmin * min
  SUPER_6,   // 2 x i8 scale, for 16 each, and f16 d: w = d * scale * (q - zero)
};
// Subs of 32 weights in planes (planes.cuh); activations f16. q is unsigned. Formats of 4 and 5 bits differ in
// their scales only, which are made ready once a step: they share a kernel, and are told apart when it runs.
template <int BITS_> struct Packed {
  static constexpr bool PACKED = true, BYTES = false, ANY_SCALES = BITS_ < 6;
  static constexpr int BITS = BITS_, ZERO = 1 << (BITS - 1), X_SIZE = 2;
  static constexpr Scales SCALES = BITS == 6 ? SUPER_6 : BITS == 8 ? ONE : SUPER;  // the most it may have
  static constexpr int SUB_CHUNKS = BITS == 8 ? 2 : 1;            // of 16 bytes in the q plane
  static constexpr int HIGH = BITS == 5 ? 4 : BITS == 6 ? 8 : 0;  // bytes of a sub in the h plane
};
using Bits4 = Packed<4>;  // Q4_0 (ONE), Q4_1 (WITH_MIN), Q4_K (SUPER)
using Bits5 = Packed<5>;  // Q5_0, Q5_1, Q5_K
using Bits6 = Packed<6>;  // Q6_K
using Bits8 = Packed<8>;  // Q8_0
// Weights of the activations' own type: rows of k numbers in the q plane.
template <int SIZE, Scales SCALES_ = NONE> struct Wide {
  static constexpr bool PACKED = false, BYTES = SCALES_ == ONE, ANY_SCALES = false;
  static constexpr int X_SIZE = SIZE, ZERO = 0, SUB_CHUNKS = 0, HIGH = 0;
  static constexpr Scales SCALES = SCALES_;
};
struct F16 : Wide<2> {};
struct BF16 : Wide<2> {};
struct E4M3 : Wide<1> {};
struct INT8 : Wide<1, ONE> {};  // Q8_0 as it is; activations bytes with a scale for 32

// ---- what a tile is given ----
// Activations; row m of the tile is row map[m] of x, or row m without a map.
struct Rows {
  const void* x;
  const float2* ds;    // of bytes: (scale, scale * sum) [rows, k / 32]
  const int32_t* map;
  int count;           // rows of the tile there are; beyond is nothing
};
// Rows `first`.. of a matrix of `count` rows. Gated: 64 rows of each of two matrices, 8 and 8 in turns,
// so that a thread has the sums of both.
struct Columns {
  Planes gate, up;  // without `gated` only the first
  int first, count;
  bool gated;
  Scales scales;    // of formats of 4 and 5 bits
};

// Four, or as many as 99 KiB hold, which is what a block may have on every GPU from Ampere on; two such blocks
// fit an H100. Steps of bytes are twice as long, and two are enough.
template <class F, int BM> constexpr int stages() {
  return F::BYTES && BM >= 64 ? 2 : BM == 128 && (!F::PACKED || F::SUB_CHUNKS == 2 || F::HIGH == 8) ? 3 : 4;
}

template <class F, int BM> struct Tile {
  static constexpr int WARPS_M = BM == 128 ? 2 : 1, WARPS_N = 4, THREADS = 32 * WARPS_M * WARPS_N;
  static constexpr int MI = BM / WARPS_M / 16, NI = BN / WARPS_N / 8;  // mma tiles of a warp
  static constexpr int STAGES = stages<F, BM>();
  static constexpr int SUBS = F::BYTES ? 4 : 2;  // of a step
  // Packed chunks in planes; apart, so that 8 threads which copy hit 8 groups of banks.
  static constexpr int CHUNKS = F::PACKED ? 2 * F::SUB_CHUNKS : 8;
  static constexpr int PLANE = BN * 16 + 128 / CHUNKS;
  static constexpr bool SCALED = F::SCALES != NONE, TWO = F::SCALES == SUPER || F::SCALES == SUPER_6;
  // A step in shared memory:
  static constexpr int W = BM * 128;
  static constexpr int H = W + (F::PACKED ? CHUNKS * PLANE : BN * 128);
  static constexpr int S = H + SUBS * BN * F::HIGH;           // a 32-bit word for each sub, as it lies in memory
  static constexpr int D = S + (SCALED ? SUBS * BN * 4 : 0);  // and of the d plane
  static constexpr int XS = D + (TWO ? SUBS * BN * 4 : 0);    // float2 [SUBS][BM]
  static constexpr int STAGE = XS + (F::BYTES ? SUBS * BM * 8 : 0);
  // Scales as the sums want them, for two steps: words [SUBS][BN].
  static constexpr int READY = F::SCALES == ONE ? 4 : 8;
  static constexpr int SHARED = STAGES * STAGE + (SCALED ? 2 * SUBS * BN * READY : 0);
  static_assert(SHARED <= 101376, "");
  // The sums at the end, f32 [BM][OUT_STRIDE], in the place of the stages.
  static constexpr int OUT_STRIDE = BN + 8;
  static_assert(BM * OUT_STRIDE * 4 <= STAGES * STAGE, "");
};

// Row r, chunk c of 16 bytes of a [..][128 bytes] array: 8 rows at one chunk (ldmatrix), and 4 rows at two
// neighbouring ones (packed_rows), lie in different banks.
DEV uint32_t swizzled(uint32_t r, uint32_t c) { return r * 128 + ((c ^ ((r & 3) << 1 | (r >> 2 & 1))) << 4); }

DEV __half2 as_half2(uint32_t u) { return *(const __half2*)&u; }
DEV uint32_t as_word(__half2 h) { return *(const uint32_t*)&h; }
DEV uint32_t twice(f16 h) { return as_word({h, h}); }

// Four bytes q (at most 255) to q - zero in f16, two registers, exactly: 0x6400 | q is 1024 + q. `zero` is
// 1024 + zero, twice.
DEV void to_halves(__half2 (&out)[2], uint32_t q, __half2 zero) {
  out[0] = __hsub2(as_half2(__byte_perm(q, 0x64646464u, 0x4140)), zero);
  out[1] = __hsub2(as_half2(__byte_perm(q, 0x64646464u, 0x4342)), zero);
}
// A format's, known when it is compiled where only one has these bits.
template <class F> DEV Scales scales_of(const Columns& w) { return F::ANY_SCALES ? w.scales : F::SCALES; }

// The lane's 8 weights of a sub, as bytes: 4t.. in lo, 16 + 4t.. in hi.
template <class F> DEV void unpack(uint32_t& lo, uint32_t& hi, uint32_t q, uint32_t q_hi, uint2 h, uint32_t t) {
  if (F::BITS == 8) {
    lo = q ^ 0x80808080u;
    hi = q_hi ^ 0x80808080u;
    return;
  }
  lo = q & 0x0f0f0f0fu;
  hi = q >> 4 & 0x0f0f0f0fu;
  if (F::BITS == 5) {
    lo |= (h.x >> t & 0x01010101u) << 4;
    hi |= (h.x >> (4 + t) & 0x01010101u) << 4;
  }
  if (F::BITS == 6) {
    lo |= (h.x >> 2 * t & 0x03030303u) << 4;
    hi |= (h.y >> 2 * t & 0x03030303u) << 4;
  }
}

// Scale and minimum (or the two scales) of a sub from the words `s` and `d` its planes have around it.
template <class F> DEV uint2 ready(Scales scales, uint32_t s, uint32_t d, uint32_t sub) {
  const __half2 hs = as_half2(s), hd = as_half2(d);
  switch (scales) {
    case ONE: {
      const f16 one = sub & 1 ? hs.y : hs.x;
      return make_uint2(F::BYTES ? __float_as_uint(to_f(one)) : twice(one), 0);
    }
    case WITH_MIN: return make_uint2(twice(hs.x), twice(hs.y));
    case SUPER: {
      const uint32_t two = sub & 1 ? s >> 16 : s;
      const float scale = to_f(hd.x) * (float)(two & 255), min = to_f(hd.y) * (float)(two >> 8 & 255);
      return make_uint2(twice(from_f<f16>(scale)), twice(from_f<f16>(-min)));
    }
    case SUPER_6: {
      const uint32_t two = sub & 1 ? s >> 16 : s;
      const float of = to_f(sub >> 3 & 1 ? hd.y : hd.x);
      return make_uint2(twice(from_f<f16>(of * (float)(int8_t)(two & 255))),
                        twice(from_f<f16>(of * (float)(int8_t)(two >> 8 & 255))));
    }
    default: return make_uint2(0, 0);
  }
}

// What a thread copies and makes, step by step. Addresses are made anew each time (ptx::here): the sums need
// the registers more. The thread's copies of one array are a fixed number of rows apart; a multiple of 16, so
// that one side of a gated pair has them all.
template <class F, int BM> struct Loader {
  using T = Tile<F, BM>;
  static constexpr int X_COPIES = BM * 8 / T::THREADS, W_COPIES = BN * T::CHUNKS / T::THREADS;
  static constexpr int S_COPIES = T::SUBS * BN / T::THREADS;  // subs whose scales are this thread's
  static constexpr int X_ROWS = T::THREADS / 8, W_ROWS = T::THREADS / T::CHUNKS, S_ROWS = T::THREADS / T::SUBS;
  const Rows& x;
  const Columns& w;
  const int subs, x_bytes;  // of a row
  int x_row[X_COPIES];      // with a map

  DEV Loader(const Rows& x, const Columns& w, int k) : x(x), w(w), subs(k / 32), x_bytes(k * F::X_SIZE) {
#pragma unroll
    for (int i = 0; i < X_COPIES; i++) {
      const int m = threadIdx.x / 8 + i * X_ROWS;
      x_row[i] = x.map && m < x.count ? x.map[m] : 0;
    }
  }

  // By value: a choice between two of them by address would put them into memory.
  DEV Planes side(uint32_t r) const {
    const bool up = w.gated && (r / 8 & 1);
    return {up ? w.up.q : w.gate.q, up ? w.up.h : w.gate.h, up ? w.up.s : w.gate.s, up ? w.up.d : w.gate.d};
  }
  DEV int row(uint32_t r) const { return w.first + (w.gated ? r / 16 * 8 + r % 8 : r); }
  DEV size_t q_bytes() const { return F::PACKED ? (size_t)subs * F::SUB_CHUNKS * 16 : x_bytes; }  // of a row

  // Gated, two rows of one side are half as far apart in the matrix as in the tile.
  DEV void fetch(unsigned char* stage, int step) const {
    const uint32_t tid = ptx::here(threadIdx.x);
    const int halved = w.gated ? 2 : 1;
    {
      const uint32_t m = tid / 8, c = tid % 8, at = step * 128 + c * 16;
      const char* from = (const char*)x.x + at + (x.map ? 0 : (size_t)m * x_bytes);
#pragma unroll
      for (int i = 0; i < X_COPIES; i++) {
        const bool there = at < (uint32_t)x_bytes && m + i * X_ROWS < (uint32_t)x.count;
        const size_t ahead = (size_t)(x.map ? x_row[i] : i * X_ROWS) * x_bytes;
        ptx::cp_async<16>(stage + swizzled(m, c) + i * X_ROWS * 128, from + ahead, there);
      }
    }
    {
      const uint32_t r = tid / T::CHUNKS, c = tid % T::CHUNKS, at = (step * T::CHUNKS + c) * 16;
      const int n = row(r);
      const uint8_t* from = side(r).q + n * q_bytes() + at;
      unsigned char* to = stage + T::W + (F::PACKED ? c * T::PLANE + r * 16 : swizzled(r, c));
#pragma unroll
      for (int i = 0; i < W_COPIES; i++) {
        const int ahead = i * (W_ROWS / halved);
        const bool there = at < (uint32_t)q_bytes() && n + ahead < w.count;
        ptx::cp_async<16>(to + i * W_ROWS * (F::PACKED ? 16 : 128), from + ahead * q_bytes(), there);
      }
    }
    if (T::SCALED) {
      const uint32_t r = tid / T::SUBS, j = tid % T::SUBS;
      const bool in = step * T::SUBS + j < (uint32_t)subs;
      const Planes p = side(r);
      const int n = row(r);
#pragma unroll
      for (int i = 0; i < S_COPIES; i++) {
        const bool mine = in && n + i * (S_ROWS / halved) < w.count;
        const uint32_t b = (n + i * (S_ROWS / halved)) * subs + step * T::SUBS + j;
        unsigned char* to = stage + (j * BN + r + i * S_ROWS) * 4;
        if (F::HIGH > 0)
          ptx::cp_async<F::HIGH ? F::HIGH : 4>(stage + T::H + (j * BN + r + i * S_ROWS) * F::HIGH, p.h + (size_t)b * F::HIGH, mine);
        // Two bytes cannot be copied: the word that has them.
        const Scales scales = scales_of<F>(w);
        ptx::cp_async<4>(to + T::S, (const uint32_t*)p.s + (scales == WITH_MIN ? b : b / 2), mine);
        if (T::TWO && scales >= SUPER)
          ptx::cp_async<4>(to + T::D, (const uint32_t*)p.d + (scales == SUPER ? b / 8 : b / 16), mine);
      }
    }
    if (F::BYTES) {
#pragma unroll 1
      for (uint32_t i = tid; i < BM * T::SUBS; i += T::THREADS) {
        const uint32_t m = i / T::SUBS, j = i % T::SUBS, sub = step * T::SUBS + j;
        const bool there = m < (uint32_t)x.count && sub < (uint32_t)subs;
        const size_t row = there && x.map ? x.map[m] : m;
        ptx::cp_async<8>(stage + T::XS + (j * BM + m) * 8, x.ds + row * subs + sub, there);
      }
    }
  }

  // Scales from words that this thread copied itself, so no barrier is needed between.
  DEV void make_ready(unsigned char* to, const unsigned char* stage, int step) const {
    const uint32_t tid = ptx::here(threadIdx.x), r = tid / T::SUBS, j = tid % T::SUBS;
#pragma unroll
    for (int i = 0; i < S_COPIES; i++) {
      const uint32_t at = j * BN + r + i * S_ROWS;
      const uint32_t b = row(r + i * S_ROWS) * subs + step * T::SUBS + j;  // its low bits count
      const uint32_t s = *(const uint32_t*)(stage + T::S + at * 4);
      const uint2 made = ready<F>(scales_of<F>(w), s, T::TWO ? *(const uint32_t*)(stage + T::D + at * 4) : 0, b);
      if (T::READY == 4) *(uint32_t*)(to + at * 4) = made.x;
      else *(uint2*)(to + at * 8) = made;
    }
  }
};

DEV void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], F16) { ptx::mma_f16_16816(d, a, b); }
DEV void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], BF16) { ptx::mma_bf16_16816(d, a, b); }
#if defined(CUDA_EMU) || __CUDA_ARCH__ >= 890
DEV void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], E4M3) { ptx::mma_e4m3_16832(d, a, b); }
#endif

// The sums of a warp's part of the tile: rows m0 + 16 mi + (g, g + 8), columns n0 + 8 j + (2t, 2t + 1).
template <class F, int BM> struct Sums {
  using T = Tile<F, BM>;
  float acc[T::MI][T::NI][4];

  // Where the warp's part begins in the tile.
  static DEV uint32_t first_row(uint32_t tid) { return tid / 32 / T::WARPS_N * T::MI * 16; }
  static DEV uint32_t first_column(uint32_t tid) { return tid / 32 % T::WARPS_N * T::NI * 8; }

  DEV void clear() {
#pragma unroll
    for (int i = 0; i < T::MI * T::NI * 4; i++) acc[i / 4 / T::NI][i / 4 % T::NI][i % 4] = 0.f;
  }

  // To shared memory, from where they go out in the order of the matrix.
  DEV void keep(float* to) const {
    const uint32_t tid = threadIdx.x, g = tid % 32 / 4, t = tid % 4, m0 = first_row(tid), n0 = first_column(tid);
#pragma unroll
    for (int i = 0; i < T::MI * T::NI * 2; i++) {
      const int mi = i / 2 / T::NI, j = i / 2 % T::NI, half = i % 2;
      *(float2*)(to + (m0 + mi * 16 + half * 8 + g) * T::OUT_STRIDE + n0 + j * 8 + 2 * t) =
          make_float2(acc[mi][j][half * 2], acc[mi][j][half * 2 + 1]);
    }
  }

  // A lane has words t of its column's sub, so weights 4t.. and 16 + 4t..: activations in the same order,
  // where the mma's own is 2t.. and 8 + 2t... A sum does not mind.
  DEV void packed(const unsigned char* stage, const unsigned char* scales, Scales kind) {
    const uint32_t tid = ptx::here(threadIdx.x), m0 = first_row(tid), n0 = first_column(tid);
    const uint32_t lane = tid % 32, g = lane / 4, t = lane % 4;
    const bool has_min = ptx::here(kind) == WITH_MIN || ptx::here(kind) == SUPER;
    const __half2 zero = as_half2((0x6400u + (has_min ? 0 : F::ZERO)) * 0x10001u);
#pragma unroll 1
    for (int sub = 0; sub < 2; sub++) {
      uint32_t q[F::SUB_CHUNKS][4], b[T::NI][2][2];
#pragma unroll
      for (int c = 0; c < F::SUB_CHUNKS; c++)
        ptx::ldmatrix_x4(q[c], stage + T::W + (sub * F::SUB_CHUNKS + c) * T::PLANE + (n0 + lane) * 16);
#pragma unroll
      for (int j = 0; j < T::NI; j++) {
        const uint32_t at = sub * BN + n0 + j * 8 + g;
        uint2 h = make_uint2(0, 0), s = make_uint2(0, 0);
        if (F::HIGH == 4) h.x = *(const uint32_t*)(stage + T::H + at * 4);
        if (F::HIGH == 8) h = *(const uint2*)(stage + T::H + at * 8);
        if (T::READY == 4) s.x = *(const uint32_t*)(scales + at * 4);
        else s = *(const uint2*)(scales + at * 8);
        uint32_t lo, hi;
        unpack<F>(lo, hi, q[0][j], q[F::SUB_CHUNKS - 1][j], h, t);
#pragma unroll
        for (int half = 0; half < 2; half++) {
          __half2 w[2];
          to_halves(w, half ? hi : lo, zero);
          const __half2 d = as_half2(F::SCALES == SUPER_6 && half ? s.y : s.x), min = as_half2(s.y);
#pragma unroll
          for (int i = 0; i < 2; i++)
            b[j][half][i] = as_word(F::ANY_SCALES ? __hfma2(w[i], d, min) : __hmul2(w[i], d));
        }
      }
#pragma unroll
      for (int mi = 0; mi < T::MI; mi++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const unsigned char* x = stage + swizzled(m0 + mi * 16 + g, sub * 4 + half * 2 + t / 2) + t % 2 * 8;
          const uint2 u = *(const uint2*)x, v = *(const uint2*)(x + 8 * 128);
          const uint32_t a[4] = {u.x, v.x, u.y, v.y};
#pragma unroll
          for (int j = 0; j < T::NI; j++) mma(acc[mi][j], a, b[j][half], F16());
        }
    }
  }

  // Fragments of 32 bytes of k: of the warp's columns, two mma tiles in one ldmatrix, and of 16 rows.
  static DEV void wide_columns(uint32_t (&b)[T::NI][2], const unsigned char* stage, uint32_t n0, int kk) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < T::NI; j += 2) {
      uint32_t r[4];
      ptx::ldmatrix_x4(r, stage + T::W + swizzled(n0 + j * 8 + lane / 16 * 8 + lane % 8, kk * 2 + lane / 8 % 2));
      b[j][0] = r[0], b[j][1] = r[1], b[j + 1][0] = r[2], b[j + 1][1] = r[3];
    }
  }
  static DEV void wide_rows(uint32_t (&a)[4], const unsigned char* stage, uint32_t m, int kk) {
    const uint32_t lane = threadIdx.x % 32;
    ptx::ldmatrix_x4(a, stage + swizzled(m + lane % 16, kk * 2 + lane / 16));
  }

  DEV void wide(const unsigned char* stage) {
    const uint32_t tid = ptx::here(threadIdx.x), m0 = first_row(tid), n0 = first_column(tid);
#pragma unroll (F::X_SIZE == 1 ? 1 : 4)
    for (int kk = 0; kk < 4; kk++) {
      uint32_t b[T::NI][2];
      wide_columns(b, stage, n0, kk);
#pragma unroll
      for (int mi = 0; mi < T::MI; mi++) {
        uint32_t a[4];
        wide_rows(a, stage, m0 + mi * 16, kk);
#pragma unroll
        for (int j = 0; j < T::NI; j++) mma(acc[mi][j], a, b[j], F());
      }
    }
  }

  // One mma is one sub: its sum, an integer below 2^22 in size, times both scales. It starts at the bits of
  // 1.5 * 2^23, where f32 counts in ones, and so is an f32 already.
  DEV void bytes(const unsigned char* stage, const unsigned char* scales) {
    const uint32_t tid = ptx::here(threadIdx.x), m0 = first_row(tid), n0 = first_column(tid);
    const uint32_t g = tid % 32 / 4, t = tid % 4;
#pragma unroll 1
    for (int sub = 0; sub < 4; sub++) {
      uint32_t b[T::NI][2];
      wide_columns(b, stage, n0, sub);
#pragma unroll
      for (int mi = 0; mi < T::MI; mi++) {
        uint32_t a[4];
        wide_rows(a, stage, m0 + mi * 16, sub);
        const float* dx = (const float*)(stage + T::XS + (sub * BM + m0 + mi * 16 + g) * 8);
        const float upper = dx[0], lower = dx[16];
#pragma unroll
        for (int j = 0; j < T::NI; j++) {
          int32_t c[4] = {0x4b400000, 0x4b400000, 0x4b400000, 0x4b400000};
          ptx::mma_s8_16832(c, a, b[j]);
          const float2 dw = *(const float2*)(scales + (sub * BN + n0 + j * 8 + 2 * t) * 4);
#pragma unroll
          for (int i = 0; i < 4; i++)
            acc[mi][j][i] += (__int_as_float(c[i]) - 12582912.f) * ((i < 2 ? upper : lower) * (i % 2 ? dw.y : dw.x));
        }
      }
    }
  }
};

// Steps [from, to) of the product of rows and columns, then for all of the tile, four columns at a time,
//   out.store(m, n, sums)  or, gated,  out.store_gated(m, n, sums of gate, sums of up)
// m is the row of the tile, n the row of the matrix; rows n + 1 to n + 3 of it need not be there. A step is
// 128 bytes of a row of activations; the last one may be short. Uses Tile::SHARED bytes of smem.
template <class F, int BM, class Output>
DEV void tile(const Rows& rows, const Columns& columns, int k, int from, int to, const Output& out) {
  using T = Tile<F, BM>;
  constexpr int AHEAD = T::STAGES - 1;
  const Loader<F, BM> loader(rows, columns, k);
  Sums<F, BM> sums;
  sums.clear();
  __syncthreads();  // of a tile before
  int now = 1;  // the step's stage
#pragma unroll 1
  for (int step = from - AHEAD; step < to; step++) {
    unsigned char* stage = smem + now * T::STAGE;
    unsigned char* scales = smem + T::STAGES * T::STAGE + (step & 1) * T::SUBS * BN * T::READY;
    if (step >= from) {
      ptx::cp_async_wait<AHEAD - 1>();
      if (T::SCALED) loader.make_ready(scales, stage, step);
      __syncthreads();  // everyone's copies are there, and nobody is in the stage before
    }
    if (step + AHEAD < to) loader.fetch(smem + (now == 0 ? AHEAD : now - 1) * T::STAGE, step + AHEAD);
    ptx::cp_async_commit();
    if (step >= from) {
      if constexpr (F::PACKED) sums.packed(stage, scales, scales_of<F>(columns));
      else if constexpr (F::BYTES) sums.bytes(stage, scales);
      else sums.wide(stage);
    }
    now = now + 1 == T::STAGES ? 0 : now + 1;
  }
  __syncthreads();
  sums.keep((float*)smem);
  __syncthreads();
  const uint32_t fours = (columns.gated ? BN / 2 : BN) / 4;
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < BM * fours; i += T::THREADS) {
    const uint32_t m = columns.gated ? i / (BN / 8) : i / (BN / 4), c = i % fours * 4;
    const int n = columns.first + c;
    if ((int)m >= rows.count || n >= columns.count) continue;
    const float* sum = (const float*)smem + m * T::OUT_STRIDE + (columns.gated ? c / 8 * 16 + c % 8 : c);
    if (columns.gated) out.store_gated(m, n, *(const float4*)sum, *(const float4*)(sum + 8));
    else out.store(m, n, *(const float4*)sum);
  }
}

}  // namespace gemm
