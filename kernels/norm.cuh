// What stands in front of most operations.
#pragma once
#include "common.cuh"

// A row as it is (w null), or normalised: (x - mean) * scale * w + b, where mean is 0 (Zhang and Sennrich 2019)
// or the row's (Ba et al. 2016).
struct Row {
  const float *x, *w, *b; // [n]; b may be null
  float mean, scale;
  DEV float operator[](int i) const {
    if (!w) return x[i];
    const float v = (x[i] - mean) * scale * w[i];
    return b ? v + b[i] : v;
  }
};

// Of a whole block, to every thread of it. scale is 1 / sqrt(mean of (x - mean)^2 + eps).
DEV Row normed(const float* x, const float* w, const float* b, int n, float eps, int layer, float* red) {
  Row row{x, w, b, 0.f, 1.f};
  if (!w) return row;
  if (layer) {
    float sum = 0.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
    row.mean = block_sum(sum, red) / n;
  }
  float ss = 0.f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) ss += (x[i] - row.mean) * (x[i] - row.mean);
  row.scale = 1.f / sqrtf(block_sum(ss, red) / n + eps);
  return row;
}
