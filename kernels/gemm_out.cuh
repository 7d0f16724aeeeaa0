// Where the sums of a matrix product go: stored, added, gated.
#pragma once
#include "activation.cuh"

namespace gemm {

// What becomes of a sum.
enum Write {
  STORE,
  ADD,           // to what is there
  SIDE_BY_SIDE,  // gate, and up `count` columns further: for gemm_sum
  GATED,         // and beyond, GATED + Activation: activation(gate) * up; the gate is what is there, or comes
                 // from the other matrix
};

DEV void put(float* at, float v, int write) {
  *at = write == STORE ? v : write == ADD ? *at + v : gated(*at, v, write - GATED);
}

// out f32 [rows, stride], of which `count` columns are written: sum * x_scale[row] * w_scale[column] +
// bias[column], each factor where it is not null. Row m of a tile is row first + m; block z has an `out` of
// its own. Addresses are made where they are used: before, they would be kept through all of the sums.
struct Output {
  float* out;
  const float *x_scale, *w_scale, *up_scale, *bias, *up_bias;
  int first, rows, stride, count, w_step, write; // w_step 0: one scale for all columns

  DEV float* at(int m, int n) const { return out + ((size_t)blockIdx.z * rows + first + m) * stride + n; }

  // Four columns from n on, of which some may not be there.
  DEV void value(float (&v)[4], int m, int n, const float* scale, const float* bias) const {
    const float x = x_scale ? x_scale[first + m] : 1.f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int c = min(n + i, count - 1);
      v[i] *= x;
      if (scale) v[i] *= scale[c * w_step];
      if (bias) v[i] += bias[c];
    }
  }
  static DEV void put_four(float* at, int there, const float (&v)[4], int write) {
    if (write == STORE && there > 3 && ((size_t)at & 15) == 0) {
      *(float4*)at = make_float4(v[0], v[1], v[2], v[3]);
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (i < there) put(at + i, v[i], write);
  }
  DEV void store(int m, int n, float4 sums) const {
    float v[4] = {sums.x, sums.y, sums.z, sums.w};
    value(v, m, n, w_scale, bias);
    put_four(at(m, n), count - n, v, write);
  }
  DEV void store_gated(int m, int n, float4 gate, float4 up) const {
    float v[4] = {gate.x, gate.y, gate.z, gate.w}, u[4] = {up.x, up.y, up.z, up.w};
    value(v, m, n, w_scale, bias);
    value(u, m, n, up_scale, up_bias);
    if (write == SIDE_BY_SIDE) {
      put_four(at(m, n) + count, count - n, u, STORE);
    } else {
#pragma unroll
      for (int i = 0; i < 4; i++) v[i] = gated(v[i], u[i], write - GATED);
    }
    put_four(at(m, n), count - n, v, STORE);
  }
};

}  // namespace gemm
