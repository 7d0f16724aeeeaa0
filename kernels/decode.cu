// Attention of one new token a sequence over its paged past (Flash-Decoding, Dao et al. 2023).
//
// The past is cut into splits of 128 positions at fixed places, and the splits of one row into at most
// MOST_SLOTS runs of equally many: a slot, whose result is a maximum, a sum and weighted values. How a
// row is cut depends on its position and window alone, so that its bits do not depend on the batch, on
// longer neighbours, or on the grid: blocks take slots in strides. decode_merge adds the slots in order.
//
// A block has a kv head with all query heads that share it (up to 16): keys and values are loaded once.
// They go through a ring of two stages of shared memory, asynchronously, in the order
//
//   keys of split 0 | values of split 0 | keys of split 1 | ...     each in tiles of `tile` positions
//
// so that one tile is always on its way while another is used. Scores of a whole split are softened
// together: accumulators are rescaled once in 128 positions.
#include "cache.cuh"

#define SPLIT 128
#define MOST_SLOTS 64
#define THREADS 128

// How the positions that a row sees are cut.
struct Cut {
  int first, end; // positions
  int split;      // the first
  int splits;
  int per_slot;   // splits
  int slots;
};
DEV Cut cut_of(int position, int window) {
  Cut c;
  c.end = position + 1;
  c.first = window > 0 ? max(0, c.end - window) : 0;
  c.split = c.first / SPLIT;
  c.splits = (c.end + SPLIT - 1) / SPLIT - c.split;
  c.per_slot = (c.splits + MOST_SLOTS - 1) / MOST_SLOTS;
  c.slots = (c.splits + c.per_slot - 1) / c.per_slot;
  return c;
}

struct DecodeArgs {
  float2* found;   // [spans, heads, MOST_SLOTS] of (maximum, sum)
  float* values;   // [spans, heads, MOST_SLOTS, D]
  const float* qkv; // [rows, (heads + 2 kv_heads) * D]
  const uint8_t* cache;
  const Step* step;
  int group; // of caches
  int heads, kv_heads, d, block_size, block_bytes;
  int tile;   // positions: 128, 64, 32 or 16
  int window; // 0: none
  float scale;
  float cap; // 0: none
};

template <int N> struct Words; // loads of 4 N bytes
template <> struct Words<1> { uint32_t w[1]; DEV Words(const void* p) { w[0] = *(const uint32_t*)p; } };
template <> struct Words<2> {
  uint32_t w[2];
  DEV Words(const void* p) { const uint2 v = *(const uint2*)p; w[0] = v.x, w[1] = v.y; }
};
template <> struct Words<4> {
  uint32_t w[4];
  DEV Words(const void* p) { const uint4 v = *(const uint4*)p; w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w; }
};

// Shared memory of a block with H query heads; the host asks for as much (decode.rs).
template <int H> struct Desk {
  uint8_t* ring;   // [2][tile][stride] bytes; at the end f32 [H][parts][D], to be added up
  float* q;        // [D / 4][H][4], times scale
  float* partial;  // [H][256 / tile][tile]: scores of some dimensions
  float* score;    // [H][SPLIT]
  float* weight;   // [SPLIT][H]
  float* scales;   // [2][2][SPLIT]: of keys and values, of this split and the next
  size_t* place;   // [2][SPLIT]: bytes from the start of the cache to each position's key
  float* largest;  // [H]
  float* sum;      // [H]
  float* fix;      // [H]: what the values of earlier splits are multiplied with
};

// Dimensions of values that a thread keeps for each of H heads: 64 accumulators at most.
constexpr int elements_of(int h) { return h >= 8 ? 4 : 8; }

// Blocks that a multiprocessor's registers must be enough for.
constexpr int blocks_of(int h) { return h == 16 ? 2 : h == 8 ? 3 : 4; }

template <class KV, int H> DEV void decode(const DecodeArgs& a) {
  constexpr int E = elements_of(H), CHUNK = 16 / KV::BYTES; // elements in 16 bytes
  const int chunks_of_heads = (a.heads / a.kv_heads + H - 1) / H;
  const int kv_head = blockIdx.x / chunks_of_heads, first_head = blockIdx.x % chunks_of_heads * H;
  const int span = blockIdx.z, tid = threadIdx.x, warp = tid / 32, lane = tid % 32, d = a.d;
  if (span >= a.step->spans || ints(a.step, a.step->len)[span] != 1) return;
  const int row = ints(a.step, a.step->first)[span];
  const Cut cut = cut_of(ints(a.step, a.step->start)[span], a.window);
  if ((int)blockIdx.y >= cut.slots) return;
  const int32_t* table = block_table(a.step, a.group, span);
  const KvShape shape = {a.kv_heads, d, a.block_size, KV::BYTES, KV::SCALED, a.block_bytes};
  const int here = min(H, a.heads / a.kv_heads - first_head); // heads of this block
  const int head = kv_head * (a.heads / a.kv_heads) + first_head;

  // A row of a tile is an odd number of 16 bytes: threads that read one position each meet no bank twice.
  const int chunks = d / CHUNK, stride = 16 * (chunks | 1), tiles = SPLIT / a.tile;
  const size_t values_at = (size_t)a.block_size * d * KV::BYTES; // from keys
  const bool by_eight = KV::SCALED && a.block_size % 2;          // nothing is at a multiple of 16
  Desk<H> desk;
  {
    const int ring = max(2 * a.tile * stride, THREADS * E * H * 4);
    desk.ring = smem;
    desk.place = (size_t*)(smem + ring);
    desk.q = (float*)(desk.place + 2 * SPLIT);
    desk.partial = desk.q + H * d;
    desk.score = desk.partial + 256 * H;
    desk.weight = desk.score + H * SPLIT;
    desk.scales = desk.weight + H * SPLIT;
    desk.largest = desk.scales + 4 * SPLIT;
    desk.sum = desk.largest + H;
    desk.fix = desk.sum + H;
  }
  const float* query = a.qkv + (size_t)row * (a.heads + 2 * a.kv_heads) * d + (size_t)head * d;
#pragma unroll 1
  for (int i = tid; i < H * d; i += THREADS) {
    const int h = i / d, e = i % d;
    desk.q[(e / 4 * H + h) * 4 + e % 4] = h < here ? query[i] * a.scale : 0.f;
  }

  // Keys: a thread has two positions of a tile and every `key_parts`-th chunk of dimensions.
  const int pairs = a.tile / 2, key_parts = THREADS / pairs, key_part = tid / pairs, key_row = tid % pairs;
  // Values: a thread has E dimensions, and every `parts`-th position.
  const int lanes = d / E, parts = THREADS / lanes, part = tid / lanes, dim = tid % lanes * E;

  for (int slot = blockIdx.y; slot < cut.slots; slot += gridDim.y) {
    const int first_split = cut.split + slot * cut.per_slot;
    const int splits = min(cut.per_slot, cut.split + cut.splits - first_split);

    // Where the positions of a split lie. A thread has one.
    auto find = [&](int split) {
      const int position = (first_split + split) * SPLIT + tid, side = split & 1;
      if (split >= splits || position < cut.first || position >= cut.end) return;
      const int offset = position % a.block_size;
      const size_t start = kv_part(shape, table[position / a.block_size], kv_head);
      desk.place[side * SPLIT + tid] = start + (size_t)offset * d * KV::BYTES;
      if (KV::SCALED) {
        const float* scales = (const float*)(a.cache + start + 2 * values_at) + offset;
        desk.scales[side * 2 * SPLIT + tid] = scales[0] * KV::UNIT;
        desk.scales[side * 2 * SPLIT + SPLIT + tid] = scales[a.block_size] * KV::UNIT;
      }
    };
    // Sees of a split, within it.
    auto begin_of = [&](int split) { return max(0, cut.first - (first_split + split) * SPLIT); };
    auto end_of = [&](int split) { return min(SPLIT, cut.end - (first_split + split) * SPLIT); };

    // Sends for tile `at` of a split (keys, then values) or of the next one: what nobody sees is not read,
    // there may be no block.
    auto send = [&](int split, int at) {
      if (at >= 2 * tiles) at -= 2 * tiles, split++;
      if (split < splits) {
        const int base = at % tiles * a.tile, begin = begin_of(split) - base, end = end_of(split) - base;
        const size_t* place = desk.place + (split & 1) * SPLIT + base;
        uint8_t* to = desk.ring + (at & 1) * a.tile * stride;
        const uint8_t* from = a.cache + (at >= tiles ? values_at : 0);
        int t = tid / chunks, c = tid % chunks;
#pragma unroll 1
        for (; t < a.tile; t += THREADS / chunks) {
          if (t >= begin && t < end) {
            uint8_t* into = to + t * stride + 16 * c;
            const uint8_t* out_of = from + place[t] + 16 * c;
            if (by_eight) {
              ptx::cp_async8(into, out_of);
              ptx::cp_async8(into + 8, out_of + 8);
            } else {
              ptx::cp_async16(into, out_of);
            }
          }
          c += THREADS % chunks;
          if (c >= chunks) c -= chunks, t++;
        }
      }
      ptx::cp_async_commit();
    };

    // What these write nobody of the slot before reads any more; its ring is free after them.
#pragma unroll 1
    for (int i = 0; i < 2; i++) find(i);
    if (tid < H) desk.largest[tid] = -INFINITY, desk.sum[tid] = 0.f;
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < 2; i++) send(0, i);

    float sum[H][E];
#pragma unroll
    for (int h = 0; h < H; h++)
#pragma unroll
      for (int e = 0; e < E; e++) sum[h][e] = 0.f;

#pragma unroll 1
    for (int step = 0; step < splits * 2 * tiles; step++) {
      const int split = step / (2 * tiles), at = step % (2 * tiles), base = at % tiles * a.tile;
      const int begin = begin_of(split), end = end_of(split);
      const uint8_t* rows = desk.ring + (at & 1) * a.tile * stride;
      const float* scales = desk.scales + (split & 1) * 2 * SPLIT;
      ptx::cp_async_wait<1>();
      __syncthreads();

      if (at < tiles) {
        // Scores of two positions: what is not there is computed too, and not looked at.
        float s[H][2];
#pragma unroll
        for (int h = 0; h < H; h++) s[h][0] = s[h][1] = 0.f;
#pragma unroll 1 // the compiler would take four at once, and run out of registers
        for (int c = key_part; c < chunks; c += key_parts) {
          const Words<4> k0(rows + key_row * stride + 16 * c), k1(rows + (key_row + pairs) * stride + 16 * c);
#pragma unroll
          for (int i = 0; i < CHUNK / 4; i++) {
            float x[4], y[4];
            KV::four(k0.w + i * KV::WORDS, x);
            KV::four(k1.w + i * KV::WORDS, y);
            const float4* q = (const float4*)desk.q + (c * (CHUNK / 4) + i) * H;
#pragma unroll
            for (int h = 0; h < H; h++) {
              const float4 p = q[h];
              s[h][0] = fmaf(p.w, x[3], fmaf(p.z, x[2], fmaf(p.y, x[1], fmaf(p.x, x[0], s[h][0]))));
              s[h][1] = fmaf(p.w, y[3], fmaf(p.z, y[2], fmaf(p.y, y[1], fmaf(p.x, y[0], s[h][1]))));
            }
          }
        }
        float* to = desk.partial + key_part * a.tile + key_row;
#pragma unroll
        for (int h = 0; h < H; h++) to[h * 256] = s[h][0], to[h * 256 + pairs] = s[h][1];
      } else {
        if (at == tiles) {
#pragma unroll
          for (int h = 0; h < H; h++)
#pragma unroll
            for (int e = 0; e < E; e++) sum[h][e] *= desk.fix[h];
        }
        const int last = part < parts ? min(end - base, a.tile) : 0;
#pragma unroll 1
        for (int t = max(begin - base, 0) + part; t < last; t += parts) {
          const Words<KV::WORDS * E / 4> v(rows + t * stride + dim * KV::BYTES);
          float x[E];
#pragma unroll
          for (int i = 0; i < E / 4; i++) KV::four(v.w + i * KV::WORDS, x + 4 * i);
          float weight[H];
          if constexpr (H % 4 == 0) {
#pragma unroll
            for (int h = 0; h < H; h += 4) {
              const float4 w = ((const float4*)desk.weight)[((base + t) * H + h) / 4];
              weight[h] = w.x, weight[h + 1] = w.y, weight[h + 2] = w.z, weight[h + 3] = w.w;
            }
          } else {
#pragma unroll
            for (int h = 0; h < H; h++) weight[h] = desk.weight[(base + t) * H + h];
          }
#pragma unroll
          for (int h = 0; h < H; h++)
#pragma unroll
            for (int e = 0; e < E; e++) sum[h][e] = fmaf(weight[h], x[e], sum[h][e]);
        }
      }
      __syncthreads();
      if (at == 2 * tiles - 1) find(split + 2);
      send(split, at + 2);
      if (at >= tiles) continue;

#pragma unroll 1
      for (int i = tid; i < H * a.tile; i += THREADS) {
        const int h = i / a.tile, t = base + i % a.tile;
        if (t < begin || t >= end) continue;
        float score = 0.f;
#pragma unroll 2
        for (int p = 0; p < key_parts; p++) score += desk.partial[h * 256 + p * a.tile + t - base];
        if (KV::SCALED) score *= scales[t];
        // tanh by an exponential: the instruction for it is good to 11 bits only.
        if (a.cap > 0.f) score = a.cap * (1.f - 2.f / (__expf(2.f * score / a.cap) + 1.f));
        desk.score[h * SPLIT + t] = score;
      }
      if (at < tiles - 1) continue;

      // All scores of the split are there: a warp softens those of every fourth head.
      __syncthreads();
#pragma unroll 1
      for (int h = warp; h < H; h += THREADS / 32) {
        float x[SPLIT / 32], most = -INFINITY, all = 0.f;
#pragma unroll
        for (int i = 0; i < SPLIT / 32; i++) {
          const int t = lane + 32 * i;
          x[i] = t >= begin && t < end ? desk.score[h * SPLIT + t] : -INFINITY;
          most = fmaxf(most, x[i]);
        }
        const float before = desk.largest[h];
        most = fmaxf(before, warp_max(most));
#pragma unroll
        for (int i = 0; i < SPLIT / 32; i++) {
          const int t = lane + 32 * i;
          if (t < begin || t >= end) continue;
          const float e = __expf(x[i] - most);
          all += e;
          desk.weight[t * H + h] = KV::SCALED ? e * scales[SPLIT + t] : e;
        }
        all = warp_sum(all);
        if (lane == 0) {
          const float fix = __expf(before - most);
          desk.fix[h] = fix;
          desk.sum[h] = desk.sum[h] * fix + all;
          desk.largest[h] = most;
        }
      }
    }

    // What the threads have of the same dimensions is added in their order.
    float* parts_of = (float*)desk.ring;
    if (part < parts) {
#pragma unroll
      for (int h = 0; h < H; h++)
#pragma unroll
        for (int e = 0; e < E; e++) parts_of[h * THREADS * E + part * d + dim + e] = sum[h][e];
    }
    __syncthreads();
    const size_t place = ((size_t)span * a.heads + head) * MOST_SLOTS + slot; // of the first head
#pragma unroll 1
    for (int i = tid; i < here * d; i += THREADS) {
      const int h = i / d, e = i % d;
      float value = 0.f;
#pragma unroll 4
      for (int p = 0; p < parts; p++) value += parts_of[h * THREADS * E + p * d + e];
      a.values[(place + (size_t)h * MOST_SLOTS) * d + e] = value;
    }
    if (tid < here) a.found[place + (size_t)tid * MOST_SLOTS] = make_float2(desk.largest[tid], desk.sum[tid]);
  }
}

// Grid: kv heads times chunks of at most H of their query heads, slots (any number), spans of the bucket.
#define DECODE(name, KV, H)                                                                                          \
  extern "C" __global__ void __launch_bounds__(THREADS, blocks_of(H))                                                \
      name(float2* found, float* values, const float* qkv, const uint8_t* cache, const Step* step, int group,        \
           int heads, int kv_heads, int d, int block_size, int block_bytes, int tile, int window, float scale,       \
           float cap) {                                                                                              \
    decode<KV, H>({found, values, qkv, cache, step, group, heads, kv_heads, d, block_size, block_bytes, tile,        \
                   window, scale, cap});                                                                             \
  }                                                                                                                  \
  EXPORT_KERNEL(name)
#define DECODE_ALL(kv, KV)                                                                                           \
  DECODE(decode_##kv##_1, KV, 1)                                                                                     \
  DECODE(decode_##kv##_4, KV, 4)                                                                                     \
  DECODE(decode_##kv##_8, KV, 8)                                                                                     \
  DECODE(decode_##kv##_16, KV, 16)
DECODE_ALL(f16, KvF16)
DECODE_ALL(bf16, KvBf16)
DECODE_ALL(int8, KvInt8)
DECODE_ALL(fp8, KvFp8)

// out[row, head] = sum of the slots' values / sum of their sums, each relative to the largest maximum. A
// sink is a score that takes part in the sum and has no value (gpt-oss).
// out f32 [rows, heads * D]; found, values as above; sinks f32 [heads] or null.
// Grid: heads, spans of the bucket.
extern "C" __global__ void __launch_bounds__(THREADS)
    decode_merge(float* out, const float2* found, const float* values, const Step* step, const float* sinks,
                 int heads, int d, int window) {
  __shared__ float red[33], factor[MOST_SLOTS];
  __shared__ float4 sums[THREADS];
  const int head = blockIdx.x, span = blockIdx.y, tid = threadIdx.x;
  if (span >= step->spans || ints(step, step->len)[span] != 1) return;
  const Cut cut = cut_of(ints(step, step->start)[span], window);
  const size_t place = ((size_t)span * heads + head) * MOST_SLOTS;
  found += place;
  values += place * d;

  const float2 mine = tid < cut.slots ? found[tid] : make_float2(-INFINITY, 0.f);
  const float sink = sinks ? sinks[head] : -INFINITY;
  const float most = fmaxf(block_max(mine.x, red), sink);
  if (tid < MOST_SLOTS) factor[tid] = tid < cut.slots ? __expf(mine.x - most) : 0.f;
  float all = block_sum(tid < cut.slots ? mine.y * __expf(mine.x - most) : 0.f, red);
  if (sinks) all += __expf(sink - most);

  // A thread has four dimensions and every `parts`-th slot.
  const int lanes = d / 4, parts = THREADS / lanes, part = tid / lanes, dim = tid % lanes * 4;
  float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
  if (part < parts) {
#pragma unroll 4
    for (int slot = part; slot < cut.slots; slot += parts) {
      const float4 v = *(const float4*)(values + (size_t)slot * d + dim);
      const float f = factor[slot];
      sum.x = fmaf(f, v.x, sum.x), sum.y = fmaf(f, v.y, sum.y), sum.z = fmaf(f, v.z, sum.z), sum.w = fmaf(f, v.w, sum.w);
    }
    sums[tid] = sum;
  }
  __syncthreads();
  if (tid < lanes) {
    for (int p = 1; p < parts; p++) {
      const float4 v = sums[p * lanes + tid];
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    const int row = ints(step, step->first)[span];
    *(float4*)(out + ((size_t)row * heads + head) * d + dim) = make_float4(sum.x / all, sum.y / all, sum.z / all, sum.w / all);
  }
}
EXPORT_KERNEL(decode_merge)
