// Activations, numbered as src/compute/cuda/elements.rs has them.
#pragma once
#include "common.cuh"

enum Activation { SILU, GELU_TANH, GELU, CLAMPED_SWIGLU };

// erf(x) to 1.5e-7 (Abramowitz and Stegun 1964, 7.1.26): in fewer registers than erff, and no branch.
DEV float erf_of(float x) {
  const float a = fabsf(x), t = 1.f / (1.f + 0.3275911f * a);
  const float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float y = 1.f - p * __expf(-a * a);
  return x < 0.f ? -y : y;
}
// x * sigmoid(x); the tanh form of GELU is x * sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)).
DEV float activated(float x, int how) {
  if (how == GELU) return 0.5f * x * (1.f + erf_of(0.70710678f * x));
  const float z = how == GELU_TANH ? 1.5957691216f * (x + 0.044715f * x * x * x) : x;
  return x / (1.f + __expf(-z));
}
// activation(gate) * up; or as gpt-oss has it, where the gate is at most 7, and up from -7 to 7. Comparisons
// leave what is no number as it is.
DEV float gated(float gate, float up, int how) {
  if (how != CLAMPED_SWIGLU) return activated(gate, how) * up;
  const float g = gate > 7.f ? 7.f : gate, u = up > 7.f ? 7.f : up < -7.f ? -7.f : up;
  return g / (1.f + __expf(-1.702f * g)) * (u + 1.f);
}
