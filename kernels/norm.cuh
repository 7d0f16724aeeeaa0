// What stands in front of most operations.
#pragma once
#include "common.cuh"

// 1 / sqrt(mean(x^2) + eps) of a row (Zhang and Sennrich 2019).
DEV float rms_scale(const float* x, int n, float eps, float* red) {
  float ss = 0.f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) ss += x[i] * x[i];
  return 1.f / sqrtf(block_sum(ss, red) / n + eps);
}
