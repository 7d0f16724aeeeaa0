// Token embeddings out of a matrix in planes, so that a head that shares them needs no second copy.
#include "planes.cuh"

// out[t] = table[tokens[t]] * scale; or, where rows stand for positions, out[t] += table[position of t] * scale.
// One block a token of the step; rows that it does not have stay.
// out f32 [rows, cols]; q, h, s, d: the table's planes, [vocabulary or positions, cols].
template <Format F>
DEV void embed(float* out, const Planes& table, const Step* step, int cols, float scale, int positions) {
  const int t = blockIdx.x;
  if (t >= step->rows) return;
  const size_t row = ints(step, positions ? step->positions : step->tokens)[t];
  for (int k = threadIdx.x; k < cols; k += blockDim.x) {
    float* to = out + (size_t)t * cols + k;
    const float w = weight<F>(table, row * cols + k) * scale;
    *to = positions ? *to + w : w;
  }
}

#define EMBED(format, name)                                                                                    \
  extern "C" __global__ void __launch_bounds__(256)                                                            \
      embed_##name(float* out, const uint8_t* q, const uint8_t* h, const uint8_t* s, const uint8_t* d,         \
                   const Step* step, int cols, float scale, int positions) {                                   \
    embed<Format::format>(out, {q, h, s, d}, step, cols, scale, positions);                                    \
  }                                                                                                            \
  EXPORT_KERNEL(embed_##name)
EMBED(F32, f32)
EMBED(F16, f16)
EMBED(BF16, bf16)
EMBED(Q4_0, q4_0)
EMBED(Q4_1, q4_1)
EMBED(Q5_0, q5_0)
EMBED(Q5_1, q5_1)
EMBED(Q8_0, q8_0)
EMBED(Q4_K, q4_k)
EMBED(Q5_K, q5_k)
EMBED(Q6_K, q6_k)
