// Token embeddings out of a matrix in planes, so that a head that shares them needs no second copy.
#include "planes.cuh"

// out[t] = table[tokens[t]] * scale. One block a token of the step; rows that it does not have stay.
// out f32 [rows, cols]; q, h, s, d: the table's planes, [vocabulary, cols].
template <Format F> DEV void embed(float* out, const Planes& table, const Step* step, int cols, float scale) {
  const int t = blockIdx.x;
  if (t >= step->rows) return;
  const size_t token = ints(step, step->tokens)[t];
  for (int k = threadIdx.x; k < cols; k += blockDim.x)
    out[(size_t)t * cols + k] = weight<F>(table, token * cols + k) * scale;
}

#define EMBED(format, name)                                                                                    \
  extern "C" __global__ void __launch_bounds__(256)                                                            \
      embed_##name(float* out, const uint8_t* q, const uint8_t* h, const uint8_t* s, const uint8_t* d,         \
                   const Step* step, int cols, float scale) {                                                  \
    embed<Format::format>(out, {q, h, s, d}, step, cols, scale);                                               \
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
