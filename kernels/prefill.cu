// Attention of spans of more than one row over the paged past: prompts, chunks of them, and drafts that
// are checked. FlashAttention-2 (Dao 2023) on mma.sync.
//
// A block takes one tile of the step under one key head. The rows of a tile times the query heads of the
// group are the M rows of its products (`row = i / group, head = i % group`), so that a few rows of a
// grouped model fill a tile as well. M is 128 up to heads of 128 (a warp has 32 rows: each load of keys
// serves two products), and 64 above. A warp whose rows are all beyond the tile, or see nothing of 64
// positions, only helps to load.
//
// The past is walked in steps of 32 positions that begin at multiples of 32: what a row's result is does
// not depend on where its span begins, or on other rows. While one step is computed, the keys and values of
// the next are under way; where each of them lies was looked up a step before that.
//
//   wait | next step's copies begin | S = Q K^T | softmax | O += P V
//
// Short spans over a long past are also cut into splits of the past (Flash-Decoding, Dao et al. 2023),
// whose results `prefill_merge` puts together in order. What is cut, and where, depends on the span alone:
// rows keep their bits in any company, but not where one chunk is a short span and another is not.
//
// What is no number stays none: in a query or a key for the rows that see it. A value's also reaches
// earlier rows of the same sequence whose warp has rows that see it: their weight of it is 0, times NaN.
//
// Shared memory: Q [M][DP] | two stages of (K [32][DP] | V [32][DP]) in 16 bits, DP the head rounded up;
// 16-byte chunks lie swizzled, so that ldmatrix meets no bank twice. Caches of bytes: Q | K | V as halves
// (one step) | two stages of both as bytes. The rest of it is at `Shared`.
#include "cache.cuh"

#define STEP 32     // positions
#define WARPS 4
#define LOG2E 1.4426950408889634f
#define SPLIT 512   // the least positions of a split
#define RISE 10.f   // weights are times 2^10: small ones stay normal halves; sums are times that as well

struct Job {
  float* out;         // f32 [rows, heads * dim]
  const float* qkv;   // f32 [rows, (heads + 2 kv_heads) * dim]: queries are normalised and rotated
  const char* cache;  // as cache.cuh says
  const Step* step;
  const float* sinks; // f32 [heads] or null
  float* parts;       // f32 [part_spans, short_rows, heads, most_splits, dim]: O of a split
  float2* sums;       // f32x2 [part_spans, short_rows, heads, most_splits]: largest score, sum
  int group, heads, kv_heads, dim, block_size, block_bytes, fp8, window, tile_rows, short_rows, most_splits, part_spans;
  float scale, cap;
};

// Positions of a split of a span's past; 0: it is walked whole.
DEV int split_size(const Step* s, int span, int short_rows, int most_splits, int part_spans) {
  const int len = ints(s, s->len)[span], end = ints(s, s->start)[span] + len;
  if (len > short_rows || span >= part_spans) return 0;
  int size = SPLIT;
  while (size * most_splits < end) size *= 2;
  return end > size ? size : 0;
}

// Elements from the start of a tile of DP columns to a 16-byte chunk of a row.
template <int DP> DEV int place(int row, int chunk) {
  return row * DP + (chunk ^ (DP % 64 == 0 ? row & 7 : row >> 1 & 3)) * 8;
}

template <class T> struct Kind { static constexpr bool halves = false; };
template <> struct Kind<f16> { static constexpr bool halves = true; };
template <class T> DEV uint32_t pack(float a, float b);
template <> DEV uint32_t pack<f16>(float a, float b) {
  const __half2 h = __floats2half2_rn(a, b);
  return *(const uint32_t*)&h;
}
template <> DEV uint32_t pack<bf16>(float a, float b) {
  const __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
  return *(const uint32_t*)&h;
}
DEV void mma(f16, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { ptx::mma_f16_16816(d, a, b); }
DEV void mma(bf16, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { ptx::mma_bf16_16816(d, a, b); }

// Two halves times `a` plus `b`.
DEV uint32_t scaled(uint32_t x, float a, float b) {
  const __half2 h = __hfma2(*(const __half2*)&x, __floats2half2_rn(a, a), __floats2half2_rn(b, b));
  return *(const uint32_t*)&h;
}
// Four signed bytes as halves, exactly: 1024 + u is the half of bits 0x6400 + u.
DEV uint2 halves_of_int8(uint32_t w) {
  const uint32_t u = w ^ 0x80808080u;
  return make_uint2(scaled(__byte_perm(u, 0x64646464u, 0x4140), 1.f, -1152.f),
                    scaled(__byte_perm(u, 0x64646464u, 0x4342), 1.f, -1152.f));
}
// Four e4m3 bytes as halves, exactly: the exponent's bias is 7, that of halves 15. 0x7f is no number.
DEV uint2 halves_of_fp8(uint32_t w) {
  const uint32_t low = __byte_perm(w, 0u, 0x1404), high = __byte_perm(w, 0u, 0x3424);
  uint2 h = make_uint2(scaled((low & 0x80008000u) | (low & 0x7f007f00u) >> 1, 256.f, 0.f),
                       scaled((high & 0x80008000u) | (high & 0x7f007f00u) >> 1, 256.f, 0.f));
  const uint32_t none = ((w & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u;
  if (none) {
    h.x |= (none & 0x80u ? 0x7fffu : 0u) | (none & 0x8000u ? 0x7fff0000u : 0u);
    h.y |= (none & 0x800000u ? 0x7fffu : 0u) | (none & 0x80000000u ? 0x7fff0000u : 0u);
  }
  return h;
}

// The bytes of a step, `raw` [rows][DP], as halves: `tile` [rows][DP], swizzled.
template <int DP> DEV void widen(f16* tile, const unsigned char* raw, int rows, int dim, bool fp8) {
#pragma unroll 1
  for (int i = threadIdx.x; i < rows * (DP / 16); i += WARPS * 32) {
    const int row = i / (DP / 16), chunk = i % (DP / 16);
    if (chunk >= dim / 16) continue;
    const uint4 w = *(const uint4*)(raw + row * DP + chunk * 16);
    const uint2 a = fp8 ? halves_of_fp8(w.x) : halves_of_int8(w.x), b = fp8 ? halves_of_fp8(w.y) : halves_of_int8(w.y);
    const uint2 c = fp8 ? halves_of_fp8(w.z) : halves_of_int8(w.z), d = fp8 ? halves_of_fp8(w.w) : halves_of_int8(w.w);
    *(uint4*)(tile + place<DP>(row, chunk * 2)) = make_uint4(a.x, a.y, b.x, b.y);
    *(uint4*)(tile + place<DP>(row, chunk * 2 + 1)) = make_uint4(c.x, c.y, d.x, d.y);
  }
}

// 2^exponent of a number that is not negative, and what undoes it; 0 and 1 of what has none.
DEV float power(float x) { return __uint_as_float(__float_as_uint(x) & 0x7f800000u); }
DEV float undo(float power) { return power > 0.f ? __uint_as_float((254u << 23) - __float_as_uint(power)) : 1.f; }

DEV float quad_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(FULL, v, 1));
  return fmaxf(v, __shfl_xor_sync(FULL, v, 2));
}

// DP: columns of the tiles, at least `dim`. MT: how many times 16 rows a warp has. T: what the products
// are of. BYTES: the cache is of bytes with scales, and T is f16.
template <int DP, int MT, class T, bool BYTES> DEV void attend(const Job& j) {
  constexpr int M = WARPS * 16 * MT;
  const Step* step = j.step;
  // The last tiles have the longest past: they begin first.
  const int tile = step->tiles - 1 - (int)blockIdx.x;
  if (tile < 0) return;
  const int span = ints(step, step->tile_span)[tile], row0 = ints(step, step->tile_row)[tile];
  const int start = ints(step, step->start)[span], group = j.heads / j.kv_heads, head = blockIdx.y;
  const int part = blockIdx.z / j.most_splits, split = blockIdx.z % j.most_splits, m0 = part * M;
  const int count = min(min(j.tile_rows, ints(step, step->len)[span] - row0) * group - m0, M);
  if (count <= 0) return;
  const int row_first = ints(step, step->first)[span] + row0; // of the tile, among the step's rows
  const int position = start + row0;                          // of that row

  // What the block sees: positions begin .. end, nothing of which lies before a window or behind a row.
  const int size = split_size(step, span, j.short_rows, j.most_splits, j.part_spans);
  int begin = max(0, position + m0 / group + 1 - j.window), end = position + (m0 + count - 1) / group + 1;
  if (size) {
    begin = max(begin, split * size);
    end = min(end, (split + 1) * size);
  } else if (split) {
    return;
  }
  if (begin >= end) return;

  constexpr int STAGE = 2 * STEP * DP * (BYTES ? 1 : 2); // bytes of keys and values, as they are copied
  T* sq = (T*)smem;
  unsigned char* tiles = smem + M * DP * 2; // K | V as halves, where the cache is of bytes
  unsigned char* stages = tiles + (BYTES ? 2 * STAGE : 0);
  uint64_t* from = (uint64_t*)(stages + 2 * STAGE); // [2][32]: where a position's key lies, or 0
  float* scales = (float*)(from + 2 * STEP);        // [2] of (keys' [32], values' [32])
  float* factors = scales + 4 * STEP;               // [M]

  const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;

  // ---- where keys lie: the last warp, a thread a position; blocks are looked up a step ahead ----
  const int32_t* table = block_table(step, j.group, span);
  const int row_bytes = j.dim * (BYTES ? 1 : 2), plane = j.block_size * row_bytes; // of keys, of values
  const KvShape shape = {j.kv_heads, j.dim, j.block_size, BYTES ? 1 : 2, BYTES, j.block_bytes};
  auto seen = [&](int p) { return p >= begin && p < end; };
  auto block_of = [&](int at) { return warp == WARPS - 1 && seen(at + lane) ? table[(at + lane) / j.block_size] : 0; };
  auto look_up = [&](int at, int block) {
    if (warp != WARPS - 1) return;
    const int p = at + lane;
    const char* key = j.cache + kv_part(shape, block, head) + p % j.block_size * row_bytes;
    from[(at / STEP & 1) * STEP + lane] = seen(p) ? (uint64_t)key : 0;
  };

  // ---- copies of a step's keys and values; zeros where none is seen ----
  const bool whole = !BYTES || j.block_size % 2 == 0; // rows begin at multiples of 16 bytes, else of 8
  auto load = [&](int at) {
    constexpr int CHUNKS = BYTES ? DP / 16 : DP / 8;
    const int stage = at / STEP & 1;
    const uint64_t* keys = from + stage * STEP;
    unsigned char* to = stages + stage * STAGE;
#pragma unroll 2
    for (int i = tid; i < STEP * CHUNKS; i += WARPS * 32) {
      const int row = i / CHUNKS, chunk = i % CHUNKS;
      if (chunk * 16 >= row_bytes) continue;
      const uint64_t key = keys[row];
      const char* k = key ? (const char*)key + chunk * 16 : j.cache;
      const char* v = key ? k + plane : j.cache;
      unsigned char* dst = to + (BYTES ? row * DP + chunk * 16 : 2 * place<DP>(row, chunk));
      if (whole) {
        ptx::cp_async16(dst, k, key != 0);
        ptx::cp_async16(dst + STAGE / 2, v, key != 0);
      } else {
        for (int half = 0; half < 16; half += 8) {
          ptx::cp_async8(dst + half, k + (key ? half : 0), key != 0);
          ptx::cp_async8(dst + STAGE / 2 + half, v + (key ? half : 0), key != 0);
        }
      }
    }
    if (BYTES && tid < 2 * STEP) {
      const int row = tid % STEP, offset = (at + row) % j.block_size;
      const uint64_t key = keys[row];
      const char* first = (const char*)key - offset * row_bytes + 2 * plane; // scale of the block's first key
      const char* src = key ? first + (tid / STEP * j.block_size + offset) * 4 : j.cache;
      ptx::cp_async4(scales + stage * 2 * STEP + tid, src, key != 0);
    }
    ptx::cp_async_commit();
  };

  int at = begin / STEP * STEP;
  look_up(at, block_of(at));
  look_up(at + STEP, block_of(at + STEP));
  int ahead = block_of(at + 2 * STEP);
  __syncthreads();
  load(at);

  // ---- queries: a warp reads its own rows ----
  const int mine = warp * 16 * MT;
  // What scores are multiplied with is base 2; under a soft cap it is twice the argument of tanh.
  const float scale = j.cap > 0.f ? j.scale * 2.f / j.cap * LOG2E : j.scale * LOG2E;
  constexpr int V = (DP + 127) / 128, R = 8 / V; // 16 bytes of a row for each thread; rows under way at once
#pragma unroll 1
  for (int r = mine; r < mine + 16 * MT && mine < count; r += R) {
    float4 x[R][V]; // rows beyond the tile are zeros
#pragma unroll
    for (int i = 0; i < R; i++) {
      const int row = row_first + (m0 + r + i) / group, h = head * group + (m0 + r + i) % group;
      const float4* q = (const float4*)(j.qkv + ((size_t)row * (j.heads + 2 * j.kv_heads) + h) * j.dim);
#pragma unroll
      for (int v = 0; v < V; v++)
        x[i][v] = r + i < count && lane + 32 * v < j.dim / 4 ? q[lane + 32 * v] : make_float4(0.f, 0.f, 0.f, 0.f);
    }
#pragma unroll
    for (int i = 0; i < R; i++) {
      float up = 1.f, down = 1.f;
      if (Kind<T>::halves) { // a power of two brings the largest to 1024
        float most = 0.f;
#pragma unroll
        for (int v = 0; v < V; v++)
          most = fmaxf(most, fmaxf(fmaxf(fabsf(x[i][v].x), fabsf(x[i][v].y)), fmaxf(fabsf(x[i][v].z), fabsf(x[i][v].w))));
        const float p = power(warp_max(most));
        if (p > 1e-30f && p < 1e30f) up = undo(p) * 1024.f, down = p * (1.f / 1024.f);
      }
#pragma unroll
      for (int v = 0; v < V; v++) {
        const int c = lane + 32 * v;
        if (c < j.dim / 4)
          *(uint2*)(sq + place<DP>(r + i, c / 2) + c % 2 * 4) =
              make_uint2(pack<T>(x[i][v].x * up, x[i][v].y * up), pack<T>(x[i][v].z * up, x[i][v].w * up));
      }
      if (lane == 0) factors[r + i] = down * scale;
    }
  }
  __syncwarp();

  // ---- this thread's rows: lane / 4 and that + 8 of each 16; those beyond the tile see nothing ----
  const int g = lane / 4, t = lane % 4;
  const bool any = mine < count;
  int pos[MT][2];
  float factor[MT][2];
  float largest[MT][2], sum[MT][2];    // of scores in base 2; this thread's columns alone
  float v_most[MT][2];                 // largest scale of values so far, down to a power of two
  float o[MT][DP / 8][4];              // rows g, g + 8; columns 8 n + 2 t, + 1
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int i = mine + m * 16 + h * 8 + g;
      pos[m][h] = i < count ? position + (m0 + i) / group : -1;
      factor[m][h] = any ? factors[i] : 0.f;
      largest[m][h] = -INFINITY;
      sum[m][h] = v_most[m][h] = 0.f;
    }
#pragma unroll
    for (int n = 0; n < DP / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) o[m][n][e] = 0.f;
  }
  // Of the warp: positions of its first row and its last.
  const int warp_low = position + (m0 + mine) / group;
  const int warp_high = position + (m0 + min(mine + 16 * MT, count) - 1) / group;

  for (; at < end; at += STEP) {
    const int stage = at / STEP & 1;
    ptx::cp_async_wait<0>();
    __syncthreads(); // the step is there for all, and nobody reads the one before it
    if (at + STEP < end) load(at + STEP);
    look_up(at + 2 * STEP, ahead);
    ahead = block_of(at + 3 * STEP);
    if (BYTES) {
      widen<DP>((f16*)tiles, stages + stage * STAGE, 2 * STEP, j.dim, j.fp8);
      __syncthreads();
    }
    if (!any || warp_low + 1 - j.window >= at + STEP || at > warp_high) continue;
    const T* sk = (const T*)(BYTES ? tiles : stages + stage * STAGE);
    const T* sv = sk + STEP * DP;

    // S = Q K^T: rows g, g + 8; columns 8 n + 2 t, + 1
    float s[MT][STEP / 8][4];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int n = 0; n < STEP / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[m][n][e] = 0.f;
#pragma unroll 4
    for (int k = 0; k < j.dim / 16; k++) {
      uint32_t a[MT][4];
#pragma unroll
      for (int m = 0; m < MT; m++)
        ptx::ldmatrix_x4(a[m], sq + place<DP>(mine + m * 16 + lane % 16, k * 2 + lane / 16));
#pragma unroll
      for (int n = 0; n < STEP / 8; n += 2) {
        uint32_t b[4];
        ptx::ldmatrix_x4(b, sk + place<DP>(n * 8 + lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2));
        const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
        for (int m = 0; m < MT; m++) {
          mma(T{}, s[m][n], a[m], low);
          mma(T{}, s[m][n + 1], a[m], high);
        }
      }
    }

    // To base 2, capped, and -inf where a row does not see a column.
    float2 k_scale[STEP / 8], v_scale[STEP / 8];
    if (BYTES) {
#pragma unroll
      for (int n = 0; n < STEP / 8; n++) {
        k_scale[n] = *(const float2*)(scales + stage * 2 * STEP + n * 8 + 2 * t);
        v_scale[n] = *(const float2*)(scales + stage * 2 * STEP + STEP + n * 8 + 2 * t);
      }
    }
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
      for (int n = 0; n < STEP / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          s[m][n][e] *= BYTES ? factor[m][e / 2] * (e % 2 ? k_scale[n].y : k_scale[n].x) : factor[m][e / 2];
    if (j.cap > 0.f) { // tanh(y) = 1 - 2 / (e^2y + 1)
#pragma unroll
      for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
#pragma unroll
          for (int e = 0; e < 4; e++)
            s[m][n][e] = j.cap * LOG2E * (1.f - __fdividef(2.f, exp2f(s[m][n][e]) + 1.f));
    }
    const bool edge = at + STEP - 1 > warp_low || at < warp_high + 1 - j.window;
    if (edge) {
#pragma unroll
      for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const int back = pos[m][e / 2] - (at + n * 8 + 2 * t + e % 2);
            if (back < 0 || back >= j.window) s[m][n][e] = -INFINITY;
          }
    }

    // Softmax, online (Milakov and Gimelshein 2018).
    uint32_t p[MT][STEP / 16][4];
    float fade_o[MT][2];
    bool fades = false;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float most = -INFINITY;
#pragma unroll
        for (int n = 0; n < STEP / 8; n++) most = fmaxf(most, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
        most = fmaxf(largest[m][h], quad_max(most));
        const float base = most == -INFINITY ? 0.f : most; // all hidden, or no numbers: those stay visible
        const float low = base - RISE;
        const float fade = exp2f(largest[m][h] - base);
        largest[m][h] = most;
        fade_o[m][h] = fade;
        float shrink = 1.f;
        if (BYTES) { // weights times scales stay in the range of halves, as fits the columns that the row sees
          float scale = v_most[m][h];
#pragma unroll
          for (int n = 0; n < STEP / 8; n++) {
            if (s[m][n][2 * h] != -INFINITY) scale = fmaxf(scale, v_scale[n].x);
            if (s[m][n][2 * h + 1] != -INFINITY) scale = fmaxf(scale, v_scale[n].y);
          }
          scale = power(quad_max(scale));
          shrink = undo(scale);
          if (v_most[m][h] > 0.f) fade_o[m][h] *= v_most[m][h] * shrink;
          v_most[m][h] = scale;
        }
        float total = 0.f;
#pragma unroll
        for (int n = 0; n < STEP / 8; n++) {
          float a = exp2f(s[m][n][2 * h] - low), b = exp2f(s[m][n][2 * h + 1] - low);
          total += a + b;
          if (BYTES) a *= v_scale[n].x * shrink, b *= v_scale[n].y * shrink;
          p[m][n / 2][n % 2 * 2 + h] = pack<T>(a, b);
        }
        sum[m][h] = sum[m][h] * fade + total;
        fades |= fade_o[m][h] != 1.f;
      }
    }
    if (__any_sync(FULL, fades)) {
#pragma unroll
      for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < DP / 8; n++)
#pragma unroll
          for (int e = 0; e < 4; e++) o[m][n][e] *= fade_o[m][e / 2];
    }

    // O += P V, 32 columns at a time as far as the head goes.
#pragma unroll
    for (int c = 0; c < DP / 8; c += 4) {
      if (c * 8 >= j.dim) break;
#pragma unroll
      for (int k = 0; k < STEP / 16; k++) {
#pragma unroll
        for (int n = c; n < c + 4; n += 2) {
          uint32_t b[4];
          ptx::ldmatrix_x4_trans(b, sv + place<DP>(k * 16 + lane % 16, n + lane / 16));
          const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
          for (int m = 0; m < MT; m++) {
            mma(T{}, o[m][n], p[m][k], low);
            mma(T{}, o[m][n + 1], p[m][k], high);
          }
        }
      }
    }
  }

#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float total = sum[m][h];
      total += __shfl_xor_sync(FULL, total, 1);
      total += __shfl_xor_sync(FULL, total, 2);
      const int i = m0 + mine + m * 16 + h * 8 + g, q_head = head * group + i % group;
      if (pos[m][h] < 0) continue;
      float unit = BYTES && v_most[m][h] > 0.f ? v_most[m][h] : 1.f;
      float* to;
      if (size) {
        const size_t row = (size_t)span * j.short_rows + row0 + i / group;
        const size_t slot = (row * j.heads + q_head) * j.most_splits + split;
        if (t == 0) j.sums[slot] = make_float2(largest[m][h], total);
        to = j.parts + slot * j.dim;
      } else {
        if (j.sinks) total += exp2f(j.sinks[q_head] * LOG2E - largest[m][h] + RISE);
        unit /= total;
        to = j.out + ((size_t)(row_first + i / group) * j.heads + q_head) * j.dim;
      }
#pragma unroll
      for (int n = 0; n < DP / 8; n++)
        if (n * 8 < j.dim)
          *(float2*)(to + n * 8 + 2 * t) = make_float2(o[m][n][2 * h] * unit, o[m][n][2 * h + 1] * unit);
    }
  }
}

#define PREFILL(name, DP, MT, T, BYTES)                                                                        \
  extern "C" __global__ void __launch_bounds__(WARPS * 32, DP == 64 && !(BYTES) ? 3 : 2)                       \
      name(float* out, const float* qkv, const char* cache, const Step* step, const float* sinks,              \
           float* parts, float2* sums, int group, int heads, int kv_heads, int dim, int block_size,            \
           int block_bytes, int fp8, int window, int tile_rows, int short_rows, int most_splits, int part_spans, float scale, float cap) { \
    attend<DP, MT, T, BYTES>({out, qkv, cache, step, sinks, parts, sums, group, heads, kv_heads, dim, block_size, \
                              block_bytes, fp8, window, tile_rows, short_rows, most_splits, part_spans, scale, cap});       \
  }                                                                                                            \
  EXPORT_KERNEL(name)
#define PREFILLS(DP, MT)                       \
  PREFILL(prefill_f16_##DP, DP, MT, f16, false)   \
  PREFILL(prefill_bf16_##DP, DP, MT, bf16, false) \
  PREFILL(prefill_bytes_##DP, DP, MT, f16, true)
PREFILLS(64, 2)
PREFILLS(128, 2)
PREFILLS(256, 1)

// Splits of one row, put together in order; nothing where the past was not split.
// Grid: tiles, query heads, rows of a tile (as many as a short span can have there). Buffers as above.
extern "C" __global__ void __launch_bounds__(128)
    prefill_merge(float* out, const float* parts, const float2* sums, const Step* step, const float* sinks,
                  int heads, int dim, int window, int short_rows, int most_splits, int part_spans) {
  const int tile = blockIdx.x, head = blockIdx.y;
  if (tile >= step->tiles) return;
  const int span = ints(step, step->tile_span)[tile], row = ints(step, step->tile_row)[tile] + blockIdx.z;
  if (row >= ints(step, step->len)[span]) return;
  const int size = split_size(step, span, short_rows, most_splits, part_spans);
  if (!size) return;
  const int position = ints(step, step->start)[span] + row;
  const int begin = max(0, position + 1 - window) / size, end = position / size + 1;
  const size_t slot = (((size_t)span * short_rows + row) * heads + head) * most_splits;
  float largest = -INFINITY;
  for (int s = begin; s < end; s++) largest = fmaxf(largest, sums[slot + s].x);
  float total = 0.f;
  for (int s = begin; s < end; s++) total += sums[slot + s].y * exp2f(sums[slot + s].x - largest);
  if (sinks) total += exp2f(sinks[head] * LOG2E - largest + RISE);
  out += ((size_t)(ints(step, step->first)[span] + row) * heads + head) * dim;
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    float o = 0.f;
    for (int s = begin; s < end; s++) o += parts[(slot + s) * dim + d] * exp2f(sums[slot + s].x - largest);
    out[d] = o / total;
  }
}
EXPORT_KERNEL(prefill_merge)
