// Layers that keep one state for the whole past: token after token, so that neither chunks nor neighbours
// change a bit. What goes through a span is a block's alone; columns and rows of a state need no others.
//
// A state lies in the last block of its sequence's table, as f32. A span that starts at 0 finds zeros there.
// Grid of all: parts of a state, spans of the bucket.
#include "common.cuh"

namespace recurrent { // all files are linked into one library on the emulator

struct Place {
  uint8_t* cache;
  const Step* step;
  int group, block_bytes;
  int first; // values of the block before this part of the state
};
DEV float* state_of(const Place& p, int span) {
  const int end = ints(p.step, p.step->table[p.group])[span + 1];
  return (float*)(p.cache + (size_t)((const int32_t*)p.step)[end - 1] * p.block_bytes) + p.first;
}
#define PLACE uint8_t *cache, const Step *step, int group, int block_bytes, int first_value

// For large x without rounding at all.
DEV float softplus(float x) { return x > 20.f ? x : log1pf(__expf(x)); }
DEV float sigmoid(float x) { return 1.f / (1.f + __expf(-x)); }

// x[t, c] = sum of weight[c, j] x[t - (width - 1) + j, c] (+ bias), and SiLU of it where that is wanted; the
// inputs before the first are the state, [width - 1, channels], which ends as the last of all.
// x f32 [rows, stride], its columns from `first` on; weight f32 [channels, width]; bias f32 [channels] or null.
#define MOST_WIDTH 8
extern "C" __global__ void __launch_bounds__(128)
    recurrent_convolve(float* x, int first, int stride, int channels, PLACE, const float* weight, const float* bias,
                       int width, int silu) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x, span = blockIdx.y;
  if (span >= step->spans || c >= channels) return;
  const int start = ints(step, step->start)[span], len = ints(step, step->len)[span];
  float* state = state_of({cache, step, group, block_bytes, first_value}, span) + c;
  // The newest is the last: those before the width are zeros times zeros.
  const int none = MOST_WIDTH - width;
  float w[MOST_WIDTH], past[MOST_WIDTH];
#pragma unroll
  for (int i = 0; i < MOST_WIDTH; i++) {
    w[i] = i >= none ? weight[(size_t)c * width + i - none] : 0.f;
    past[i] = i >= none && i < MOST_WIDTH - 1 && start > 0 ? state[(size_t)(i - none) * channels] : 0.f;
  }
  const float more = bias ? bias[c] : 0.f;
  float* at = x + (size_t)ints(step, step->first)[span] * stride + first + c;
#pragma unroll 1
  for (int t = 0; t < len; t++, at += stride) {
    past[MOST_WIDTH - 1] = *at;
    float sum = more;
#pragma unroll
    for (int i = 0; i < MOST_WIDTH; i++) sum = fmaf(past[i], w[i], sum);
    *at = silu ? sum * sigmoid(sum) : sum;
#pragma unroll
    for (int i = 0; i + 1 < MOST_WIDTH; i++) past[i] = past[i + 1];
  }
#pragma unroll
  for (int i = 0; i + 1 < MOST_WIDTH; i++)
    if (i >= none) state[(size_t)(i - none) * channels] = past[i];
}
EXPORT_KERNEL(recurrent_convolve)

// The gated delta rule (Yang et al. 2024), of each value head a state S [keys, values]:
//   S = exp(a_log softplus(a + dt_bias)) S; S += k (sigmoid(b) (v - S^T k))^T; out = S^T q
// with k and q of length 1, q then over sqrt(keys). A block has 32 columns of S in shared memory, and a warp
// every fourth row of them: what the warps sum is added in their order.
// x f32 [rows, stride]: queries and keys [key_heads, keys], values [value_heads, values] from query, key, value on;
// gates f32 [rows, gates_stride]: b and a [value_heads]; out f32 [rows, value_heads * values].
// Dynamic shared memory: S [keys][32] | q, k [keys].
#define EPS 1e-6f
extern "C" __global__ void __launch_bounds__(128)
    recurrent_delta_rule(float* out, const float* x, const float* gates, PLACE, int key_heads, int value_heads, int keys,
                         int values, int query, int key, int value, int stride, int b, int a, int gates_stride,
                         const float* a_log, const float* dt_bias) {
  __shared__ float red[33], parts[4][32];
  const int strips = (values + 31) / 32, head = blockIdx.x / strips, span = blockIdx.y;
  if (span >= step->spans) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x % strips * 32 + lane;
  const bool there = column < values;
  const int start = ints(step, step->start)[span], len = ints(step, step->len)[span];
  const int row0 = ints(step, step->first)[span], key_head = head / (value_heads / key_heads);
  float* state = state_of({cache, step, group, block_bytes, first_value}, span) + (size_t)head * keys * values + column;
  float *s = (float*)smem, *q = s + keys * 32, *k = q + keys;
  for (int i = warp; i < keys; i += 4) s[i * 32 + lane] = there && start > 0 ? state[(size_t)i * values] : 0.f;

  for (int t = 0; t < len; t++) {
    const float* row = x + (size_t)(row0 + t) * stride;
    const float* gate = gates + (size_t)(row0 + t) * gates_stride;
    float of_q = 0.f, of_k = 0.f;
    for (int i = threadIdx.x; i < keys; i += 128) {
      q[i] = row[query + key_head * keys + i], k[i] = row[key + key_head * keys + i];
      of_q += q[i] * q[i], of_k += k[i] * k[i];
    }
    const float q_scale = 1.f / (sqrtf(block_sum(of_q, red) + EPS) * sqrtf((float)keys));
    const float k_scale = 1.f / sqrtf(block_sum(of_k, red) + EPS);
    const float decay = __expf(a_log[head] * softplus(gate[a + head] + dt_bias[head]));
    const float strength = sigmoid(gate[b + head]);
    const float v = there ? row[value + head * values + column] : 0.f;

    float found = 0.f;
    for (int i = warp; i < keys; i += 4) found = fmaf(s[i * 32 + lane], k[i] * k_scale, found);
    parts[warp][lane] = found;
    __syncthreads();
    found = parts[0][lane] + parts[1][lane] + parts[2][lane] + parts[3][lane];
    const float added = (v - found * decay) * strength;
    float sum = 0.f;
    for (int i = warp; i < keys; i += 4) {
      const float next = fmaf(k[i] * k_scale, added, s[i * 32 + lane] * decay);
      s[i * 32 + lane] = next;
      sum = fmaf(next, q[i] * q_scale, sum);
    }
    __syncthreads();
    parts[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && there)
      out[((size_t)(row0 + t) * value_heads + head) * values + column] =
          parts[0][lane] + parts[1][lane] + parts[2][lane] + parts[3][lane];
  }
  for (int i = warp; i < keys; i += 4)
    if (there) state[(size_t)i * values] = s[i * 32 + lane];
}
EXPORT_KERNEL(recurrent_delta_rule)

// Mamba-2's recurrence (Dao and Gu 2024, section 6), of each head a state h [dim, size]:
//   dt = softplus(dt + dt_bias) within its limits; h = exp(dt a) h + dt x B^T; out = h C + d x
// A warp has ROWS rows of h in registers, a lane every 32nd of their values.
// x f32 [rows, stride]: x [heads, dim], B and C [groups, size] from at_x, at_b, at_c on; dt f32 [rows, dt_stride],
// [heads] from at_dt on; a, d, dt_bias f32 [heads]; out f32 [rows, heads * dim]. size is at most 32 EACH.
#define ROWS 4
#define EACH 8
extern "C" __global__ void __launch_bounds__(128)
    recurrent_scan(float* out, const float* x, const float* dt, PLACE, int heads, int dim, int groups, int size, int at_x,
                   int at_b, int at_c, int stride, int at_dt, int dt_stride, const float* a, const float* d,
                   const float* dt_bias, float least, float most) {
  const int strips = (dim + 4 * ROWS - 1) / (4 * ROWS), head = blockIdx.x / strips, span = blockIdx.y;
  if (span >= step->spans) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int p0 = blockIdx.x % strips * 4 * ROWS + warp * ROWS;
  if (p0 >= dim) return;
  const int start = ints(step, step->start)[span], len = ints(step, step->len)[span];
  const int row0 = ints(step, step->first)[span], of_group = head / (heads / groups) * size;
  float* state = state_of({cache, step, group, block_bytes, first_value}, span) + ((size_t)head * dim + p0) * size;
  float h[ROWS][EACH];
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      const int n = lane + 32 * e;
      h[r][e] = start > 0 && p0 + r < dim && n < size ? state[(size_t)r * size + n] : 0.f;
    }

  for (int t = 0; t < len; t++) {
    const float* row = x + (size_t)(row0 + t) * stride;
    float wide = softplus(dt[(size_t)(row0 + t) * dt_stride + at_dt + head] + dt_bias[head]);
    wide = wide < least ? least : wide > most ? most : wide; // what is no number stays none
    const float decay = __expf(wide * a[head]);
    float in[ROWS], sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) in[r] = row[at_x + head * dim + min(p0 + r, dim - 1)], sum[r] = 0.f;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      const int n = lane + 32 * e;
      if (n >= size) continue;
      const float b = row[at_b + of_group + n], c = row[at_c + of_group + n];
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        h[r][e] = fmaf(b, wide * in[r], h[r][e] * decay);
        sum[r] = fmaf(h[r][e], c, sum[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const float all = warp_sum(sum[r]);
      if (lane == 0 && p0 + r < dim) out[((size_t)(row0 + t) * heads + head) * dim + p0 + r] = fmaf(d[head], in[r], all);
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      const int n = lane + 32 * e;
      if (p0 + r < dim && n < size) state[(size_t)r * size + n] = h[r][e];
    }
}
EXPORT_KERNEL(recurrent_scan)

}  // namespace recurrent
