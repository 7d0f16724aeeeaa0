// LoRA for batches in which every row may have another adapter (Hu et al. 2021; Punica, Chen et al. 2023;
// S-LoRA, Sheng et al. 2023): out[t] += scale * B (A x[t]), A [rank, k], B [n, rank] of the row's adapter.
//
// Two steps, `shrink` (A) and `expand` (B), with `tmp` between them; each in two forms that read and
// write the same buffers:
//   - by rows: a block has one row and a piece of the output. For decode, where a weight is read once
//     whatever is done.
//   - by tiles: 16 rows of one adapter on tensor cores. For prefill, where a weight serves many rows.
//
// tmp f32 [splits, rows, most]: k is cut into splits of SPLIT, whose sums are added in order by `expand`.
// How it is cut depends on k alone, so a row's result does not depend on what else is in the batch.
#include "common.cuh"

namespace lora { // all files are linked into one library on the emulator

#define SPLIT 1024 // columns of A to a block
#define TILE 16    // rows of a tile: m of the mma
#define MOST 64    // largest rank

// One matrix's adapter, as src/compute/cuda/lora.rs writes it.
struct Adapter {
  const uint16_t* a; // [rank, k], row major
  const uint16_t* b; // [n, rank], row major
  int32_t rank;      // a multiple of 8, at most 64; 0: the adapter leaves this matrix alone
  int32_t half;      // 1: f16, 0: bf16
  float scale;
  int32_t unused;
};

// Rows of one adapter, sorted: words as src/compute/cuda/lora.rs writes them.
//   [0] tiles, [1] where `order` begins, then for each tile: adapter, first place in `order`, rows <= 16.
struct Tile {
  int32_t adapter, first, rows;
};
DEV Tile tile_at(const int32_t* tiles, int i) {
  const int32_t* t = tiles + 2 + 3 * i;
  return {t[0], t[1], t[2]};
}

// The two 16-bit numbers of a word.
DEV float2 two(uint32_t w, int half) {
  if (half) {
    f16 lo, hi;
    *(uint16_t*)&lo = (uint16_t)w;
    *(uint16_t*)&hi = (uint16_t)(w >> 16);
    return make_float2(to_f(lo), to_f(hi));
  }
  return make_float2(__uint_as_float(w << 16), __uint_as_float(w & 0xffff0000u));
}
DEV float dot8(uint4 w, const float4& x, const float4& y, int half) {
  const float2 a = two(w.x, half), b = two(w.y, half), c = two(w.z, half), d = two(w.w, half);
  return a.x * x.x + a.y * x.y + b.x * x.z + b.y * x.w + c.x * y.x + c.y * y.y + d.x * y.z + d.y * y.w;
}

// ---- by rows ----

// tmp[split][t][r] = A[r] x[t] over the split's columns.
// Grid: ranks / 8, splits, rows. A warp has one row of A; the 8 warps of a block read the same piece of x.
// x f32 [rows, k]; of i32 [rows]: the row's adapter, -1 for none.
extern "C" __global__ void __launch_bounds__(256)
    lora_shrink(float* tmp, const float* x, const int32_t* of, const Adapter* adapters, int k, int most) {
  const int row = blockIdx.z, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (of[row] < 0) return;
  const Adapter ad = adapters[of[row]];
  const int r = blockIdx.x * 8 + warp;
  if (r >= ad.rank) return;
  const uint16_t* a = ad.a + (size_t)r * k;
  x += (size_t)row * k;
  const int from = blockIdx.y * SPLIT, to = min(k, from + SPLIT);
  float sum = 0.f;
#pragma unroll 4
  for (int i = from + lane * 8; i < to; i += 256)
    sum += dot8(*(const uint4*)(a + i), *(const float4*)(x + i), *(const float4*)(x + i + 4), ad.half);
  sum = warp_sum(sum);
  if (lane == 0) tmp[((size_t)blockIdx.y * gridDim.z + row) * most + r] = sum;
}
EXPORT_KERNEL(lora_shrink)

// out[t][n0 + i] += scale * B[i] tmp[t], 128 of the n outputs to a block.
// Grid: n / 128, rows. rank / 8 threads (rounded up to a power of two) share an output, so that
// neighbours read neighbouring bytes. out f32 [rows, ld]; of as above.
extern "C" __global__ void __launch_bounds__(128)
    lora_expand(float* out, const float* tmp, const int32_t* of, const Adapter* adapters, int ld, int n0, int n,
                int splits, int most) {
  __shared__ __align__(16) float sums[MOST];
  const int row = blockIdx.y;
  if (of[row] < 0) return;
  const Adapter ad = adapters[of[row]];
  if (ad.rank == 0) return;
  if (threadIdx.x < MOST) {
    float sum = 0.f;
    if ((int)threadIdx.x < ad.rank)
      for (int s = 0; s < splits; s++) sum += tmp[((size_t)s * gridDim.y + row) * most + threadIdx.x];
    sums[threadIdx.x] = sum;
  }
  __syncthreads();
  const int lanes = ad.rank > 32 ? 8 : ad.rank > 16 ? 4 : ad.rank > 8 ? 2 : 1;
  const int piece = threadIdx.x % lanes * 8;
  const float4 x = *(const float4*)(sums + piece), y = *(const float4*)(sums + piece + 4);
  out += (size_t)row * ld + n0;
  const int from = blockIdx.x * 128;
#pragma unroll 4
  for (int step = 0; step < lanes; step++) {
    const int i = from + (step * 128 + (int)threadIdx.x) / lanes;
    float v = 0.f;
    if (i < n && piece < ad.rank) v = dot8(*(const uint4*)(ad.b + (size_t)i * ad.rank + piece), x, y, ad.half);
#pragma unroll
    for (int o = 4; o; o >>= 1)
      if (o < lanes) v += __shfl_xor_sync(FULL, v, o);
    if (i < n && piece == 0) out[i] += ad.scale * v;
  }
}
EXPORT_KERNEL(lora_expand)

// ---- by tiles ----
// bf16 has f32's range but 8 bits. A number cut into two of them has 16: x = high + low, high cut off and
// low rounded, and what is left is below 2^-16 of it. Then x w = high w + low w; an f16 weight, whose 11
// bits are two bf16 exactly, takes both twice. So no row needs a scale, and two or four mma do what one
// would; A and B are small.

struct Split4 {
  uint32_t high[4], low[4]; // pairs of bf16: of 8 numbers that lie side by side
};
DEV uint32_t tops(float a, float b) { return __byte_perm(__float_as_uint(a), __float_as_uint(b), 0x7632); }
DEV float rest(float x) { return x - __uint_as_float(__float_as_uint(x) & 0xffff0000u); }
DEV uint32_t rests(float a, float b) {
  const bf16 low = from_f<bf16>(rest(a)), high = from_f<bf16>(rest(b));
  return *(const uint16_t*)&low | (uint32_t)*(const uint16_t*)&high << 16;
}
DEV Split4 split(const float4& x, const float4& y) {
  Split4 s;
  s.high[0] = tops(x.x, x.y), s.high[1] = tops(x.z, x.w), s.high[2] = tops(y.x, y.y), s.high[3] = tops(y.z, y.w);
  s.low[0] = rests(x.x, x.y), s.low[1] = rests(x.z, x.w), s.low[2] = rests(y.x, y.y), s.low[3] = rests(y.z, y.w);
  return s;
}

// d += the tile's 16 rows x 8 rows of weights over 32 columns. Each thread of a quad holds 8 columns that
// lie side by side, of rows g and g + 8 of x and of row g of the weights: which column the mma takes for
// which does not matter, as long as both sides agree. So every load is of 16 bytes.
DEV void mma_32(float (&d)[4], const Split4& top, const Split4& bottom, const uint4& w, int half) {
  uint32_t wh[4] = {w.x, w.y, w.z, w.w}, wl[4];
  if (half) {
    const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float2 v = two(words[i], 1);
      wh[i] = tops(v.x, v.y);
      wl[i] = tops(rest(v.x), rest(v.y)); // exact: 3 bits are left
    }
  }
#pragma unroll
  for (int s = 0; s < 4; s += 2) {
    const uint32_t high[4] = {top.high[s], bottom.high[s], top.high[s + 1], bottom.high[s + 1]};
    const uint32_t low[4] = {top.low[s], bottom.low[s], top.low[s + 1], bottom.low[s + 1]};
    const uint32_t b[2] = {wh[s], wh[s + 1]};
    ptx::mma_bf16_16816(d, high, b);
    ptx::mma_bf16_16816(d, low, b);
    if (half) {
      const uint32_t c[2] = {wl[s], wl[s + 1]};
      ptx::mma_bf16_16816(d, high, c);
      ptx::mma_bf16_16816(d, low, c);
    }
  }
}
DEV float4 zero4() { return make_float4(0.f, 0.f, 0.f, 0.f); }

// tmp[split][t][r] = A[r] x[t] for the rows of a tile. Grid: tiles (more than there are may be launched),
// splits. The 4 warps of a block take every fourth 32 columns; their sums are added in order.
extern "C" __global__ void __launch_bounds__(128)
    lora_shrink_tiles(float* tmp, const float* x, const int32_t* tiles, const Adapter* adapters, int rows, int k,
                      int most) {
  __shared__ __align__(16) float part[4][TILE][MOST + 8]; // 8 more: rows lie in other banks
  if ((int)blockIdx.x >= tiles[0]) return;
  const Tile tile = tile_at(tiles, blockIdx.x);
  const int32_t* order = tiles + tiles[1] + tile.first;
  const Adapter ad = adapters[tile.adapter];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const bool has_top = g < tile.rows, has_bottom = g + 8 < tile.rows;
  const float* top = x + (has_top ? (size_t)order[g] * k : 0) + 8 * t;
  const float* bottom = x + (has_bottom ? (size_t)order[g + 8] * k : 0) + 8 * t;
  const uint16_t* a = ad.a + (size_t)g * k + 8 * t;
  float acc[MOST / 8][4] = {};
  const int to = min(k, ((int)blockIdx.y + 1) * SPLIT);
  for (int i = blockIdx.y * SPLIT + warp * 32; i < to; i += 128) {
    const Split4 xt = has_top ? split(*(const float4*)(top + i), *(const float4*)(top + i + 4)) : split(zero4(), zero4());
    const Split4 xb = has_bottom ? split(*(const float4*)(bottom + i), *(const float4*)(bottom + i + 4)) : split(zero4(), zero4());
#pragma unroll
    for (int j = 0; j < MOST / 8; j++)
      if (j * 8 < ad.rank) mma_32(acc[j], xt, xb, *(const uint4*)(a + (size_t)j * 8 * k + i), ad.half);
  }
#pragma unroll
  for (int j = 0; j < MOST / 8; j++) {
    *(float2*)&part[warp][g][j * 8 + 2 * t] = make_float2(acc[j][0], acc[j][1]);
    *(float2*)&part[warp][g + 8][j * 8 + 2 * t] = make_float2(acc[j][2], acc[j][3]);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < tile.rows * MOST; i += 128) {
    const int row = i / MOST, r = i % MOST;
    if (r < ad.rank)
      tmp[((size_t)blockIdx.y * rows + order[row]) * most + r] =
          part[0][row][r] + part[1][row][r] + part[2][row][r] + part[3][row][r];
  }
}
EXPORT_KERNEL(lora_shrink_tiles)

// 8 sums of `tmp` from column r on, over the splits in order; zeros beyond the rank.
DEV Split4 sums_of(const float* tmp, size_t stride, int splits, bool there) {
  float4 x = zero4(), y = zero4();
  if (there)
    for (int s = 0; s < splits; s++) {
      const float4 a = *(const float4*)(tmp + s * stride), b = *(const float4*)(tmp + s * stride + 4);
      x = make_float4(x.x + a.x, x.y + a.y, x.z + a.z, x.w + a.w);
      y = make_float4(y.x + b.x, y.y + b.y, y.z + b.z, y.w + b.w);
    }
  return split(x, y);
}

// out[t][n0 + i] += scale * B[i] tmp[t] for the rows of a tile and 256 outputs. Grid: tiles, n / 256.
// A warp has 64 outputs, 8 at a time. n, n0 and ld are even.
extern "C" __global__ void __launch_bounds__(128)
    lora_expand_tiles(float* out, const float* tmp, const int32_t* tiles, const Adapter* adapters, int rows, int ld,
                      int n0, int n, int splits, int most) {
  if ((int)blockIdx.x >= tiles[0]) return;
  const Tile tile = tile_at(tiles, blockIdx.x);
  const Adapter ad = adapters[tile.adapter];
  if (ad.rank == 0) return;
  const int32_t* order = tiles + tiles[1] + tile.first;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const bool has_top = g < tile.rows, has_bottom = g + 8 < tile.rows;
  const size_t top = has_top ? order[g] : 0, bottom = has_bottom ? order[g + 8] : 0, stride = (size_t)rows * most;
  Split4 xt[2], xb[2];
#pragma unroll
  for (int c = 0; c < 2; c++) {
    const int r = c * 32 + 8 * t;
    xt[c] = sums_of(tmp + top * most + r, stride, splits, has_top && r < ad.rank);
    xb[c] = sums_of(tmp + bottom * most + r, stride, splits, has_bottom && r < ad.rank);
  }
  const int from = blockIdx.y * 256 + warp * 64;
#pragma unroll 2
  for (int j = 0; j < 8; j++) {
    const int row = from + j * 8 + g, col = from + j * 8 + 2 * t;
    if (from + j * 8 >= n) break;
    float d[4] = {};
#pragma unroll
    for (int c = 0; c < 2; c++) {
      const int r = c * 32 + 8 * t;
      if (c * 32 >= ad.rank) break;
      uint4 w = make_uint4(0, 0, 0, 0);
      if (row < n && r < ad.rank) w = *(const uint4*)(ad.b + (size_t)row * ad.rank + r);
      mma_32(d, xt[c], xb[c], w, ad.half);
    }
    if (col >= n) continue;
    if (has_top) {
      float2* o = (float2*)(out + top * ld + n0 + col);
      *o = make_float2(o->x + ad.scale * d[0], o->y + ad.scale * d[1]);
    }
    if (has_bottom) {
      float2* o = (float2*)(out + bottom * ld + n0 + col);
      *o = make_float2(o->x + ad.scale * d[2], o->y + ad.scale * d[3]);
    }
  }
}
EXPORT_KERNEL(lora_expand_tiles)

}  // namespace lora
