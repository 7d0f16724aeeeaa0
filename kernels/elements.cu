// Values one by one, and columns of rows.
#include "activation.cuh"

// x += y * scale. f32 [len]
extern "C" __global__ void __launch_bounds__(256) elements_add(float* x, const float* y, int len, float scale) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < len) x[i] += y[i] * scale;
}
EXPORT_KERNEL(elements_add)

// x = activation(x). f32 [len]
extern "C" __global__ void __launch_bounds__(256) elements_activate(float* x, int len, int activation) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < len) x[i] = activated(x[i], activation);
}
EXPORT_KERNEL(elements_activate)

// x = x * scale, and where there is a cap, cap * tanh(x * scale / cap). f32 [len]; cap 0: none.
extern "C" __global__ void __launch_bounds__(256) elements_scale(float* x, int len, float scale, float cap) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= len) return;
  const float v = x[i] * scale;
  // tanh by an exponential: the instruction for it is good to 11 bits only.
  x[i] = cap > 0.f ? cap * (1.f - 2.f / (__expf(2.f * v / cap) + 1.f)) : v;
}
EXPORT_KERNEL(elements_scale)

// Columns of rows: `first` .. `first + len` of rows that are `stride` apart. Grid: columns, rows.

// out[t, to + i] = x[t, from + i]
extern "C" __global__ void __launch_bounds__(256)
    elements_copy(float* out, int to, int out_stride, const float* x, int from, int x_stride, int len) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const size_t t = blockIdx.y;
  if (i < len) out[t * out_stride + to + i] = x[t * x_stride + from + i];
}
EXPORT_KERNEL(elements_copy)

enum By { VALUE, SIGMOID, SILU_OF }; // compute::By

// x[t, at + i] *= by(gate[t, from + i]), or by(gate[t, from]) where the gate has one column.
extern "C" __global__ void __launch_bounds__(256)
    elements_multiply(float* x, int at, int stride, int len, const float* gate, int from, int gate_stride,
                      int gate_len, int by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const size_t t = blockIdx.y;
  if (i >= len) return;
  const float g = gate[t * gate_stride + from + (gate_len == 1 ? 0 : i)];
  const float sigmoid = 1.f / (1.f + __expf(-g));
  x[t * stride + at + i] *= by == VALUE ? g : by == SIGMOID ? sigmoid : activated(g, SILU);
}
EXPORT_KERNEL(elements_multiply)
