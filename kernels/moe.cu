// Mixtures of experts: which experts a row goes to, rows sorted by expert, and what the experts said added
// up. The products are in moe_gemv.cu (few rows) and moe_gemm.cu (many).
//
// A pair is one expert of one row: pair p = row * top + slot, and everything between `route` and `combine`
// lies in the order of pairs. So sorting only makes a list, and no activations are moved for it.
#include "common.cuh"

namespace moe { // all files are linked into one library on the emulator

#define MOST_EXPERTS 256
#define MOST_TOP 32   // a lane for each expert chosen
#define CHUNK 256     // pairs of a block that sorts

struct Choice {
  float key, score;
  int id; // -1: none
};
// The larger key, of equal ones the lower id; any before none.
DEV bool before(const Choice& a, const Choice& b) {
  if (a.id < 0 || b.id < 0) return a.id >= 0;
  return a.key > b.key || (a.key == b.key && a.id < b.id);
}

// Each row's `top` experts, the best first, and their weights. A warp has a row.
//   score = softmax over all experts, or sigmoid;  choice by score + bias (by logits where that is the same)
//   groups > 1: only experts of the `top_groups` best of so many groups of neighbours. A group is as good as
//   its best expert (DeepSeek-V2), or `by_two` as its best two together (V3).
//   weight = score * scale, and with `renormalise` over the sum of those chosen.
// ids i32 [rows, top]; weights f32 [rows, top]; logits f32 [rows, experts]; bias f32 [experts] or null.
// step null or the step's words: rows beyond its own get expert -1, which is none.
// What is no number comes before all others: it is chosen, and its weight shows it.
extern "C" __global__ void __launch_bounds__(128)
    moe_route(int32_t* ids, float* weights, const float* logits, const float* bias, const Step* step, int rows,
              int experts, int top, int sigmoid, int renormalise, float scale, int groups, int top_groups,
              int by_two) {
  constexpr int EACH = MOST_EXPERTS / 32; // experts of a lane: lane, lane + 32, ...
  __shared__ float keys[4][MOST_EXPERTS];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.x * 4 + warp;
  if (row >= rows) return;
  ids += (size_t)row * top;
  weights += (size_t)row * top;
  if (step && row >= step->rows) {
    if (lane < top) ids[lane] = -1, weights[lane] = 0.f;
    return;
  }

  float score[EACH], key[EACH], most = -INFINITY, sum = 0.f;
  logits += (size_t)row * experts;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int e = i * 32 + lane;
    key[i] = e < experts ? logits[e] : -INFINITY;
    most = fmaxf(most, key[i]);
  }
  most = warp_max(most);
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    score[i] = sigmoid ? 1.f / (1.f + __expf(-key[i])) : __expf(key[i] - most);
    sum += score[i];
  }
  sum = warp_sum(sum);
  uint32_t gone = 0; // bit i: expert i * 32 + lane cannot be chosen
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int e = i * 32 + lane;
    if (!sigmoid) score[i] /= sum;
    // Two logits together do not say what their scores do.
    if (bias || by_two) key[i] = e < experts ? score[i] + (bias ? bias[e] : 0.f) : -INFINITY;
    if (key[i] != key[i]) key[i] = INFINITY;
    if (e >= experts) gone |= 1u << i;
    keys[warp][e] = key[i];
  }
  __syncwarp();

  if (groups > 1) { // at most 32: a lane for each
    const int size = experts / groups;
    float best = -INFINITY, second = -INFINITY;
    if (lane < groups)
      for (int j = 0; j < size; j++) {
        const float v = keys[warp][lane * size + j];
        second = v > best ? best : fmaxf(second, v);
        best = fmaxf(best, v);
      }
    float of_group = by_two && size > 1 ? best + second : best;
    if (of_group != of_group) of_group = INFINITY;
    int better = 0;
    for (int j = 0; j < groups; j++) {
      const float other = __shfl_sync(FULL, of_group, j);
      better += other > of_group || (other == of_group && j < lane);
    }
    const uint32_t chosen = __ballot_sync(FULL, lane < groups && better < top_groups);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const int e = i * 32 + lane;
      if (e < experts && !(chosen >> e / size & 1)) gone |= 1u << i;
    }
  }

  Choice mine{0.f, 0.f, -1}; // lane j has the j-th
  for (int j = 0; j < top; j++) {
    Choice best{-INFINITY, 0.f, -1};
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const Choice c{key[i], score[i], gone >> i & 1 ? -1 : i * 32 + lane};
      if (before(c, best)) best = c;
    }
#pragma unroll
    for (int o = 16; o; o >>= 1) {
      const Choice c{__shfl_xor_sync(FULL, best.key, o), __shfl_xor_sync(FULL, best.score, o),
                     __shfl_xor_sync(FULL, best.id, o)};
      if (before(c, best)) best = c;
    }
    if (lane == j) mine = best;
    if (best.id >= 0 && best.id % 32 == lane) gone |= 1u << best.id / 32;
  }
  const float all = warp_sum(lane < top ? mine.score : 0.f);
  if (lane < top) {
    ids[lane] = mine.id;
    weights[lane] = (renormalise ? mine.score / (all + 1e-20f) : mine.score) * scale;
  }
}
EXPORT_KERNEL(moe_route)

// ---- a stable counting sort of pairs by expert, in three steps ----
// Sums of integers are the same in any order; where a pair goes depends on pairs before it alone.

// counts[block][e]: pairs of expert e among the block's CHUNK.
// counts i32 [blocks + 1, experts]; ids i32 [pairs].
extern "C" __global__ void __launch_bounds__(CHUNK)
    moe_count(int32_t* counts, const int32_t* ids, int pairs, int experts) {
  __shared__ int32_t n[MOST_EXPERTS];
  const int p = blockIdx.x * CHUNK + threadIdx.x;
  n[threadIdx.x] = 0;
  __syncthreads();
  if (p < pairs && ids[p] >= 0) atomicAdd(&n[ids[p]], 1);
  __syncthreads();
  if ((int)threadIdx.x < experts) counts[(size_t)blockIdx.x * experts + threadIdx.x] = n[threadIdx.x];
}
EXPORT_KERNEL(moe_count)

// Sum of what the threads before this one have; block of 256. `red` is 9 integers of shared memory.
DEV int scan_before(int v, int32_t* red) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int sum = v;
#pragma unroll
  for (int o = 1; o < 32; o *= 2) {
    const int below = __shfl_up_sync(FULL, sum, o);
    if (lane >= o) sum += below;
  }
  __syncthreads();
  if (lane == 31) red[warp] = sum;
  __syncthreads();
  for (int i = 0; i < warp; i++) sum += red[i];
  return sum - v;
}

// One block, a thread for each expert. counts[block][e] becomes the pairs of e in blocks before, and the
// last row where e's pairs begin in the sorted list. tiles: how many, then for each (expert, first place in
// the list, pairs <= tile): tiles of an expert follow each other, and the last of them may be short.
extern "C" __global__ void __launch_bounds__(MOST_EXPERTS)
    moe_offsets(int32_t* tiles, int32_t* counts, int blocks, int experts, int tile) {
  __shared__ int32_t red[9];
  const int e = threadIdx.x;
  int all = 0;
  if (e < experts) {
#pragma unroll 4
    for (int b = 0; b < blocks; b++) {
      const int n = counts[(size_t)b * experts + e];
      counts[(size_t)b * experts + e] = all;
      all += n;
    }
  }
  const int start = scan_before(all, red), of_e = (all + tile - 1) / tile, first = scan_before(of_e, red);
  if (e < experts) counts[(size_t)blocks * experts + e] = start;
  for (int i = 0; i < of_e; i++) {
    int32_t* t = tiles + 1 + 3 * (first + i);
    t[0] = e, t[1] = start + i * tile, t[2] = min(tile, all - i * tile);
  }
  if (e == MOST_EXPERTS - 1) tiles[0] = first + of_e;
}
EXPORT_KERNEL(moe_offsets)

// sorted[place] = pair and rows[place] = its row, by expert and then by pair. Both i32 [pairs].
extern "C" __global__ void __launch_bounds__(CHUNK)
    moe_place(int32_t* sorted, int32_t* rows, const int32_t* ids, const int32_t* counts, int pairs, int experts,
              int top) {
  constexpr int WARPS = CHUNK / 32;
  __shared__ int32_t n[WARPS][MOST_EXPERTS]; // pairs of an expert in each warp
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, p = blockIdx.x * CHUNK + threadIdx.x;
#pragma unroll
  for (int i = 0; i < WARPS; i++) n[i][threadIdx.x] = 0;
  __syncthreads();
  const int e = p < pairs ? ids[p] : -1;
  int lower = 0, higher = 0; // lanes with the same expert
#pragma unroll
  for (int l = 0; l < 32; l++) {
    const bool same = __shfl_sync(FULL, e, l) == e;
    lower += same && l < lane;
    higher += same && l > lane;
  }
  if (e >= 0 && higher == 0) n[warp][e] = lower + 1;
  __syncthreads();
  if (e < 0) return;
  int at = counts[(size_t)gridDim.x * experts + e] + counts[(size_t)blockIdx.x * experts + e] + lower;
  for (int i = 0; i < warp; i++) at += n[i][e];
  sorted[at] = p;
  rows[at] = p / top;
}
EXPORT_KERNEL(moe_place)

// out[t] += weight * y over the row's pairs, in the order of their slots. A thread has 4 columns.
// out f32 [rows, n]; y f32 [rows, top, n]; weights, ids [rows, top]. n is a multiple of 4.
extern "C" __global__ void __launch_bounds__(128)
    moe_combine(float* out, const float* y, const float* weights, const int32_t* ids, int n, int top) {
  const int row = blockIdx.y, i = (blockIdx.x * 128 + threadIdx.x) * 4;
  if (i >= n) return;
  float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 4
  for (int s = 0; s < top; s++) {
    const size_t p = (size_t)row * top + s;
    if (ids[p] < 0) continue;
    const float w = weights[p];
    const float4 v = *(const float4*)(y + p * n + i);
    sum = make_float4(sum.x + w * v.x, sum.y + w * v.y, sum.z + w * v.z, sum.w + w * v.w);
  }
  float4* o = (float4*)(out + (size_t)row * n + i);
  *o = make_float4(o->x + sum.x, o->y + sum.y, o->z + sum.z, o->w + sum.w);
}
EXPORT_KERNEL(moe_combine)

}  // namespace moe
