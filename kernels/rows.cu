// Rows of activations: normalised, added, gathered, made ready for a matrix. One block a row.
#include "norm.cuh"

// What is normalised is so by w, b f32 [n] and eps, with its mean taken off where `layer` says so; b may be
// null, and with w null rows are what they are.

// out = norm(x). out, x f32 [rows, n], `stride` from one row to the next. out may be x.
extern "C" __global__ void __launch_bounds__(256)
    rows_norm(float* out, const float* x, const float* w, const float* b, int n, int stride, float eps, int layer) {
  __shared__ float red[33];
  out += (size_t)blockIdx.x * stride;
  const Row row = normed(x + (size_t)blockIdx.x * stride, w, b, n, eps, layer, red);
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = row[i];
}
EXPORT_KERNEL(rows_norm)

// x += norm(y). x, y f32 [rows, n].
extern "C" __global__ void __launch_bounds__(256)
    rows_add(float* x, const float* y, const float* w, const float* b, int n, float eps, int layer) {
  __shared__ float red[33];
  x += (size_t)blockIdx.x * n;
  const Row row = normed(y + (size_t)blockIdx.x * n, w, b, n, eps, layer, red);
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] += row[i];
}
EXPORT_KERNEL(rows_add)

// out[i] = x[rows[i]], rows of n. `rows` null: the step's wanted rows, of which there may be fewer.
extern "C" __global__ void __launch_bounds__(256)
    rows_gather(float* out, const float* x, const int32_t* rows, const Step* step, int n) {
  const int i = blockIdx.x;
  if (!rows && i >= step->outputs) return;
  const size_t from = rows ? rows[i] : ints(step, step->wanted)[i];
  for (int j = threadIdx.x; j < n; j += blockDim.x) out[(size_t)i * n + j] = x[from * n + j];
}
EXPORT_KERNEL(rows_gather)

// Bytes around zero, one scale for 32: q = round(norm(x) / d), d = max|norm(x)| / 127.
// q i8 [rows, n]; ds f32x2 [rows, n / 32] = (d, d * sum q); x f32 [rows, n].
extern "C" __global__ void __launch_bounds__(256)
    rows_to_bytes(int8_t* q, float2* ds, const float* x, const float* w, const float* b, int n, float eps, int layer) {
  __shared__ float red[33];
  q += (size_t)blockIdx.x * n;
  ds += (size_t)blockIdx.x * (n / 32);
  const Row row = normed(x + (size_t)blockIdx.x * n, w, b, n, eps, layer, red);
  for (int i = threadIdx.x; i < n; i += blockDim.x) { // n is a multiple of 32: a warp has a whole block
    const float v = row[i];
    const float most = warp_max(fabsf(v)), d = most / 127.f;
    const float r = most > 0.f ? rintf(v / d) : v;
    const float sum = warp_sum(r);
    q[i] = (int8_t)r;
    // What is no number has no byte: the scale says so.
    if (i % 32 == 0) ds[i / 32] = make_float2(sum == sum ? d : sum, d * sum);
  }
}
EXPORT_KERNEL(rows_to_bytes)

// Halves with one scale a row, a power of two, so that no row leaves f16's range: norm(x) = h * scale.
// h f16 [rows, n]; scale f32 [rows]; x f32 [rows, n].
extern "C" __global__ void __launch_bounds__(256)
    rows_to_f16(f16* h, float* scale, const float* x, const float* w, const float* b, int n, float eps, int layer) {
  __shared__ float red[33];
  h += (size_t)blockIdx.x * n;
  const Row row = normed(x + (size_t)blockIdx.x * n, w, b, n, eps, layer, red);
  float most = 0.f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) most = fmaxf(most, fabsf(row[i]));
  most = block_max(most, red);
  // The largest lands in [1024, 2048).
  const int exponent = most > 0.f ? (int)(__float_as_uint(most) >> 23 & 255) - 127 - 10 : 0;
  const float up = __uint_as_float((uint32_t)(127 - min(max(exponent, -126), 126)) << 23);
  if (threadIdx.x == 0) scale[blockIdx.x] = 1.f / up;
  for (int i = threadIdx.x; i < n; i += blockDim.x) h[i] = from_f<f16>(row[i] * up);
}
EXPORT_KERNEL(rows_to_f16)

// The same in bf16, which has f32's range: no scale.
extern "C" __global__ void __launch_bounds__(256)
    rows_to_bf16(bf16* h, const float* x, const float* w, const float* b, int n, float eps, int layer) {
  __shared__ float red[33];
  h += (size_t)blockIdx.x * n;
  const Row row = normed(x + (size_t)blockIdx.x * n, w, b, n, eps, layer, red);
  for (int i = threadIdx.x; i < n; i += blockDim.x) h[i] = from_f<bf16>(row[i]);
}
EXPORT_KERNEL(rows_to_bf16)
