// W x for one to eight rows of x, where reading W is all the cost.
//
// A team of threads (8 to 128, a power of two) takes a lot of four of W's rows. Its lanes stride along
// them, each with a piece of every row at a time: 16 bytes of the q plane. So a lane has four loads of
// weights on their way, what it reads of x serves four rows of W, and the loads of a team are side by side.
// A row's result is summed in the same order whatever other rows there are, and however many.
#include "activation.cuh"
#include "planes.cuh"

#define LOT 4 // of W's rows; gated: two of the gate's and the same two of the other's

// What a lane holds of one row of W: 16 bytes of its q plane and what belongs to them.
template <Format F> struct Piece {
  static constexpr int WEIGHTS = Of<F>::FLOATS ? 512 / Of<F>::Q_BYTES : F == Format::Q8_0 ? 16 : 32;
  static constexpr int PER_SUB = 32 / WEIGHTS;
  Bits bits;
  float2 scale; // of floats: none
};

// Piece i of a matrix, counted through all its rows.
template <Format F> DEV Piece<F> load_piece(const Planes& p, uint32_t i) {
  Piece<F> piece;
  piece.bits.q = ptx::load_once((const uint4*)p.q + i);
  piece.bits.h = make_uint2(0, 0);
  if constexpr (Of<F>::FIVE) piece.bits.h.x = ((const uint32_t*)p.h)[i];
  if constexpr (Of<F>::SIX) piece.bits.h = ((const uint2*)p.h)[i];
  if constexpr (!Of<F>::FLOATS) piece.scale = scales<F>(p, i / Piece<F>::PER_SUB);
  return piece;
}

// A piece unpacked: words of four signed bytes, or floats.
template <Format F, bool FLOATS = Of<F>::FLOATS> struct Plain {
  static constexpr int WORDS = Piece<F>::WEIGHTS / 4;
  uint32_t w[WORDS];
  float2 scale;
  DEV void unpack(const Piece<F>& p) {
    scale = p.scale;
    if constexpr (F == Format::Q8_0) w[0] = p.bits.q.x, w[1] = p.bits.q.y, w[2] = p.bits.q.z, w[3] = p.bits.q.w;
    else {
#pragma unroll
      for (int i = 0; i < WORDS; i++) w[i] = word<F>(p.bits, i);
    }
  }
};
template <Format F> struct Plain<F, true> {
  float w[Piece<F>::WEIGHTS];
  DEV void unpack(const Piece<F>& p) {
    const uint32_t q[4] = {p.bits.q.x, p.bits.q.y, p.bits.q.z, p.bits.q.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if constexpr (F == Format::F32) w[i] = __uint_as_float(q[i]);
      else if constexpr (F == Format::BF16) {
        w[2 * i] = __uint_as_float(q[i] << 16);
        w[2 * i + 1] = __uint_as_float(q[i] & 0xffff0000u);
      } else {
        w[2 * i] = __half2float(__ushort_as_half((unsigned short)q[i]));
        w[2 * i + 1] = __half2float(__ushort_as_half((unsigned short)(q[i] >> 16)));
      }
    }
#pragma unroll
    for (int i = 0; i < Piece<F>::WEIGHTS; i++) ptx::pin(w[i]);
  }
};

// The same stretch of one row of x. x f32 [rows, cols], or bytes [rows, cols] with ds [rows, cols / 32].
template <Format F, bool FLOATS = Of<F>::FLOATS> struct Stretch {
  static constexpr int WORDS = Piece<F>::WEIGHTS / 4;
  uint32_t x[WORDS];
  float2 ds;
  DEV void load(const void* rows, const float2* all_ds, int t, int cols, int i) {
    const uint4* from = (const uint4*)((const int8_t*)rows + (size_t)t * cols) + (size_t)i * (WORDS / 4);
#pragma unroll
    for (int j = 0; j < WORDS / 4; j++) {
      const uint4 four = __ldg(from + j);
      x[4 * j] = four.x, x[4 * j + 1] = four.y, x[4 * j + 2] = four.z, x[4 * j + 3] = four.w;
    }
    ds = __ldg(all_ds + t * (cols / 32) + i / Piece<F>::PER_SUB);
  }
};
template <Format F> struct Stretch<F, true> {
  static constexpr int WEIGHTS = Piece<F>::WEIGHTS;
  float x[WEIGHTS];
  DEV void load(const void* rows, const float2*, int t, int cols, int i) {
    const float4* from = (const float4*)((const float*)rows + (size_t)t * cols) + (size_t)i * (WEIGHTS / 4);
#pragma unroll
    for (int j = 0; j < WEIGHTS / 4; j++) {
      const float4 four = __ldg(from + j);
      x[4 * j] = four.x, x[4 * j + 1] = four.y, x[4 * j + 2] = four.z, x[4 * j + 3] = four.w;
    }
  }
};

template <int WORDS> DEV float dot(const uint32_t* a, const uint32_t* b) {
  int sum = 0;
#pragma unroll
  for (int i = 0; i < WORDS; i += 4) sum = ptx::dot16(a + i, b + i, sum);
  return (float)sum;
}

// sum + w x. Every multiply-add is written out: the compiler has none to make, and no choice of order.
template <Format F> DEV float add_dot(const Plain<F>& w, const Stretch<F>& x, float sum) {
  if constexpr (Of<F>::FLOATS) {
#pragma unroll
    for (int i = 0; i < Piece<F>::WEIGHTS; i++) sum = fmaf(w.w[i], x.x[i], sum);
    return sum;
  } else if constexpr (Of<F>::SIX) { // two scales
    const float first = dot<4>(w.w, x.x), last = dot<4>(w.w + 4, x.x + 4);
    return fmaf(x.ds.x, fmaf(w.scale.x, first, w.scale.y * last), sum);
  } else {
    sum = fmaf(w.scale.x * x.ds.x, dot<Plain<F>::WORDS>(w.w, x.x), sum);
    if constexpr (Of<F>::MINIMUM) sum = fmaf(w.scale.y, x.ds.y, sum);
    return sum;
  }
}

// One step of a sum over lanes: with the lane `o` away each keeps half of the N values, or the one.
template <int N> DEV void fold(float* v, int o, int lane) {
  if constexpr (N == 1) v[0] += __shfl_xor_sync(FULL, v[0], o);
  else {
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
      const bool upper = lane & o;
      const float kept = upper ? v[i + N / 2] : v[i], sent = upper ? v[i] : v[i + N / 2];
      v[i] = kept + __shfl_xor_sync(FULL, sent, o);
    }
  }
}
DEV constexpr int half_of(int n) { return n > 1 ? n / 2 : 1; }

// Where a lane's first value stands after fold with 4, 2, 1.
template <int N> DEV int place(int lane) {
  int at = 0, n = N;
#pragma unroll
  for (int o = 4; o; o /= 2)
    if (n > 1) n /= 2, at += lane & o ? n : 0;
  return at;
}

enum Write { STORE, ADD, GATED }; // and beyond: GATED + Activation

// a, b: the planes of one matrix and, gated, of a second; else b is a. [wide, cols]
// out f32 [rows, columns], its first `wide` columns; bias f32 [wide] or null.
template <Format F, int ROWS>
DEV void gemv(float* out, int columns, const float* bias, const float* bias_b, const Planes& a, const Planes& b,
              const void* x, const float2* ds, int wide, int cols, int rows, int team_log, int write) {
  constexpr int N = LOT * ROWS, SHARE = N > 8 ? N / 8 : 1; // sums of a team; those that a lane ends up with
  __shared__ float parts[128 / 8 * N];                    // [segment][N], a segment is a team's part of a warp
  const int team = 1 << team_log, lane = threadIdx.x & (team - 1), pieces = cols / Piece<F>::WEIGHTS;
  const bool is_gated = write >= GATED;
  const int lot_rows = is_gated ? LOT / 2 : LOT, teams = blockDim.x >> team_log;
  const int lot = blockIdx.x * teams + (threadIdx.x >> team_log);

  uint32_t first[LOT]; // piece of each row; behind the last row: of the last once more
#pragma unroll
  for (int r = 0; r < LOT; r++) first[r] = min(lot * lot_rows + (is_gated ? r % (LOT / 2) : r), wide - 1) * pieces;
  float sum[N]; // [row of x][row of the lot]
#pragma unroll
  for (int i = 0; i < N; i++) sum[i] = 0.f;

#pragma unroll 1
  for (int i = lane; i < pieces; i += team) {
    Piece<F> piece[LOT];
#pragma unroll
    for (int r = 0; r < LOT; r++) piece[r] = load_piece<F>(r < LOT / 2 ? a : b, first[r] + i);
    Plain<F> plain[LOT];
#pragma unroll
    for (int r = 0; r < LOT; r++) plain[r].unpack(piece[r]);
#pragma unroll
    for (int t = 0; t < ROWS; t++)
      if (ROWS == 1 || t < rows) {
        Stretch<F> stretch;
        stretch.load(x, ds, t, cols, i);
#pragma unroll
        for (int r = 0; r < LOT; r++) sum[t * LOT + r] = add_dot<F>(plain[r], stretch, sum[t * LOT + r]);
      }
  }

  // Lanes of a team in a warp, then its warps.
  constexpr int N2 = half_of(N), N1 = half_of(N2);
  fold<N>(sum, 4, lane);
  fold<N2>(sum, 2, lane);
  fold<N1>(sum, 1, lane);
  for (int o = 8; o < min(team, 32); o *= 2)
#pragma unroll
    for (int i = 0; i < SHARE; i++) sum[i] += __shfl_xor_sync(FULL, sum[i], o);
  const int segment_log = min(team_log, 5), per_team = team >> segment_log;
  if ((threadIdx.x & ((1 << segment_log) - 1)) < 8) {
    float* to = parts + (threadIdx.x >> segment_log) * N + place<N>(lane);
#pragma unroll
    for (int i = 0; i < SHARE; i++) to[i] = sum[i];
  }
  __syncthreads();

  auto total = [&](int team_at, int i) {
    float sum = parts[team_at * per_team * N + i];
#pragma unroll 1
    for (int s = 1; s < per_team; s++) sum += parts[(team_at * per_team + s) * N + i];
    return sum;
  };
#pragma unroll 1
  for (int e = threadIdx.x; e < teams * N; e += blockDim.x) {
    const int r = e % LOT, t = e / LOT % ROWS, team_at = e / N;
    const int n = (blockIdx.x * teams + team_at) * lot_rows + r;
    if (t >= rows || n >= wide || r >= lot_rows) continue;
    float* to = out + (size_t)t * columns + n;
    float value = total(team_at, e % N) + (bias ? bias[n] : 0.f);
    if (is_gated) {
      const float up = total(team_at, e % N + lot_rows) + (bias_b ? bias_b[n] : 0.f);
      value = gated(value, up, write - GATED);
    }
    *to = write == ADD ? *to + value : value;
  }
}

#define GEMV(format, name, most)                                                                                    \
  extern "C" __global__ void __launch_bounds__(128, most <= 2 ? 6 : 4) gemv_##name##_##most(                        \
      float* out, int columns, const float* bias, const float* bias_b, const uint8_t* q, const uint8_t* h,          \
      const uint8_t* s, const uint8_t* d, const uint8_t* q_b, const uint8_t* h_b, const uint8_t* s_b,               \
      const uint8_t* d_b, const void* x, const float2* ds, int wide, int cols, int rows, int team_log, int write) { \
    gemv<Format::format, most>(out, columns, bias, bias_b, {q, h, s, d}, {q_b, h_b, s_b, d_b}, x, ds, wide, cols,   \
                               rows, team_log, write);                                                              \
  }                                                                                                                 \
  EXPORT_KERNEL(gemv_##name##_##most)
#define EVERY_ROWS(format, name) GEMV(format, name, 1) GEMV(format, name, 2) GEMV(format, name, 4) GEMV(format, name, 8)
EVERY_ROWS(F32, f32)
EVERY_ROWS(F16, f16)
EVERY_ROWS(BF16, bf16)
EVERY_ROWS(Q4_0, q4_0)
EVERY_ROWS(Q4_1, q4_1)
EVERY_ROWS(Q5_0, q5_0)
EVERY_ROWS(Q5_1, q5_1)
EVERY_ROWS(Q8_0, q8_0)
EVERY_ROWS(Q4_K, q4_k)
EVERY_ROWS(Q5_K, q5_k)
EVERY_ROWS(Q6_K, q6_k)

// gate = activation(gate) * up, for matrices that cannot be multiplied in one. f32 [len]
extern "C" __global__ void __launch_bounds__(256) gemv_gate(float* gate, const float* up, int len, int activation) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < len) gate[i] = gated(gate[i], up[i], activation);
}
EXPORT_KERNEL(gemv_gate)
